"""A short run of what `make fuzz` does at length, and that its watchman sees what he is there for."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fuzz
from fuzz_mutations import MARKER, damaged, relied
from fuzz_readers import READERS, Reader
from leakgauge.errors import InvalidFile, LeakGaugeError

STORES = [reader for reader in READERS if reader.writes]
PLAIN = [reader for reader in READERS if not reader.writes]


@pytest.mark.parametrize(
    ("reader", "inputs"), [*((one, 25) for one in PLAIN), *((one, 8) for one in STORES)], ids=lambda one: str(one)[:40]
)
def test_no_malformed_file_crashes_hangs_or_writes_elsewhere(reader: Reader, inputs: int) -> None:
    tally = fuzz.fuzz(reader, inputs, seed=1)
    assert tally.sound, tally.found
    assert tally.inputs == inputs == tally.read + tally.refused


@pytest.mark.parametrize("reader", PLAIN, ids=lambda one: one.name)
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=64) | st.text(max_size=64).map(str.encode))
def test_any_bytes_in_the_place_of_a_file_are_read_or_refused(reader: Reader, content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        reader.write(Path(folder))
        (Path(folder) / reader.victims[0]).write_bytes(content)
        with suppress(LeakGaugeError):
            reader.read(Path(folder))


def bad_reader(read) -> Reader:
    return Reader("bad", lambda folder: (folder / "x").write_bytes(b"abc") and None, ("x",), (damaged,), read)


def once_damaged(act):
    """A reader that does something wrong to whatever is not whole."""

    def read(folder: Path) -> None:
        if (folder / "x").read_bytes() != b"abc":
            act(folder)

    return read


@pytest.mark.parametrize(
    "act",
    [
        lambda folder: (folder.parent / "escaped").write_text("x"),
        lambda folder: os.mkdir(folder.parent / "escaped"),
        lambda folder: subprocess.run([sys.executable, "-c", ""], check=True),
        lambda folder: __import__(MARKER),
    ],
    ids=["writes", "makes a folder", "starts a program", "imports"],
)
def test_the_watchman_sees_what_leaves_the_folder(act) -> None:
    assert fuzz.fuzz(bad_reader(once_damaged(act)), 3).outside >= 1


def test_a_crash_and_a_hang_are_counted_as_such_and_a_refusal_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path) -> None:
        raise InvalidFile("No.")

    def hang(folder: Path) -> None:
        while True:
            pass

    monkeypatch.setattr(fuzz, "MOST_SECONDS", 0.02)
    assert fuzz.fuzz(bad_reader(once_damaged(lambda folder: 1 // 0)), 3).crashes >= 1
    assert fuzz.fuzz(bad_reader(once_damaged(hang)), 2).hangs >= 1
    assert fuzz.fuzz(bad_reader(once_damaged(refuse)), 3).sound


def test_a_reader_that_refuses_what_is_whole_is_no_reader() -> None:
    def refuse(folder: Path) -> None:
        raise InvalidFile("No.")

    with pytest.raises(InvalidFile):
        fuzz.fuzz(bad_reader(refuse), 1)


def test_mutations_are_functions_of_their_seed() -> None:
    content = bytes(range(256))
    assert damaged(content, Random(3)) == damaged(content, Random(3)) != content
    value = {"a": [1, {"b": "c"}]}
    assert relied(value, Random(4)) == relied(value, Random(4))
    assert value == {"a": [1, {"b": "c"}]}
