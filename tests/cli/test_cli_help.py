"""Help is there at once, and so is the package: what is heavy is imported by whoever uses it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import ModuleType

import pytest

import leakgauge
from leakgauge import public

HEAVY = ("torch", "numpy", "scipy", "skimage", "sklearn", "safetensors", "PIL", "ray", "pyarrow")

ASK = """
import sys, typer
from leakgauge.cli import app, main

def words(command, path=()):
    yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from words(below, (*path, name))

commands = list(words(typer.main.get_command(app)))
for path in commands:
    try:
        main([*path, "--help"])
    except SystemExit as end:
        assert not end.code, path
print(len(commands), *sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_no_help_of_any_command_imports_what_is_heavy() -> None:
    count, *modules = run(ASK).split()
    assert int(count) > 12
    assert {"leakgauge", "typer"} <= set(modules)
    assert not set(HEAVY) & set(modules)


def test_importing_the_package_imports_nothing_heavy_and_the_first_name_does() -> None:
    code = "import sys, leakgauge; print('torch' in sys.modules, file=sys.stderr)"
    assert run(code) == "False\n"
    assert run(code.replace("; print", "; leakgauge.Budget; print")) == "True\n"


def test_every_public_name_is_found_where_it_was_and_no_other() -> None:
    assert set(leakgauge.__all__) == {"__version__", *public.__all__}
    assert set(leakgauge.__all__) <= set(dir(leakgauge))
    assert all(getattr(leakgauge, name) is getattr(public, name) for name in public.__all__)
    with pytest.raises(AttributeError, match="no attribute 'unheard_of'"):
        leakgauge.unheard_of  # noqa: B018


def test_the_function_audit_stays_in_front_of_the_room_of_its_name() -> None:
    code = "import leakgauge.audit.store, sys; import leakgauge; print(leakgauge.audit.__name__, file=sys.stderr)"
    assert run(code) == "audit\n"
    assert isinstance(leakgauge.audit, type(run))
    assert isinstance(sys.modules["leakgauge.audit"], ModuleType)
    assert isinstance(leakgauge.metrics, ModuleType)


def test_a_reader_who_has_seen_enough_gets_no_traceback():
    read, write = os.pipe()
    os.close(read)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "leakgauge", "--help"], stdout=write, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(write)
    assert ended.returncode == 128 + signal.SIGPIPE
    assert ended.stderr == ""
