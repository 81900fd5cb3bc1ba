"""Malformed files for every reader: nothing may crash, hang, run code, or write outside its folder.

    python benchmarks/fuzz.py --inputs 10000 --out FILE

Each input is a valid file that was damaged, or a whole container with content that lies. ``refused`` were answered with
the package's own sentence, ``read`` as what they still said; ``crashes`` ended in any other error, ``hangs`` took over
5 CPU seconds, ``outside`` opened a file for writing, started a program, connected or imported what a file had named.
What is found is kept beside the result, as ``found-*``. A run that was stopped goes on where it was; readers that were
tried with other code are tried anew, and until then their rows stay, each with the code that it is of.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import torch

from fuzz_mutations import MARKER
from fuzz_readers import READERS, Reader
from leakgauge.errors import LeakGaugeError
from leakgauge.files import write_text
from leakgauge.fingerprint import answering_code
from leakgauge.version import VERSION

MOST_SECONDS = 5.0
MOST_MEMORY = 6 << 30

_IN_MEMORY = "/dev/shm"
"""Where it is there: a disk waits for every write of a database."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC
_NEVER = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect", "socket.bind")
_MOVING = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.chmod", "sqlite3.connect")


def _for_writing(path: Any, mode: str | None, flags: int) -> bool:
    del mode
    return not isinstance(path, int) and isinstance(flags, int) and bool(flags & _WRITING)


class Hung(BaseException):
    """No ``Exception``, so that nobody takes it for a damaged file."""


@dataclass
class Watchman:
    """Hears of every file that is opened for writing and of every program that is started, while it is on duty."""

    folder: Path | None = None
    breaches: list[str] = field(default_factory=list)

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if self.folder is None:
            return
        if event in _NEVER or (event == "import" and str(args[0]).split(".")[0] == MARKER):
            self.breaches.append(f"{event} {args[:1]!r}")
        elif event in _MOVING or (event == "open" and _for_writing(*args)):
            self._check(event, args[0])

    def _check(self, event: str, path: Any) -> None:
        text = os.fsdecode(path)
        if text in (":memory:", "") or text == os.devnull:
            return
        if not Path(text).absolute().is_relative_to(self.folder or ""):
            self.breaches.append(f"{event} {text}")


WATCHMAN = Watchman()
sys.addaudithook(WATCHMAN)


@dataclass
class Tally:
    """What became of the inputs of one reader."""

    reader: str
    inputs: int = 0
    refused: int = 0
    read: int = 0
    crashes: int = 0
    hangs: int = 0
    outside: int = 0
    most_seconds: float = 0.0
    found: Counter[str] = field(default_factory=Counter)

    @property
    def sound(self) -> bool:
        return self.crashes == self.hangs == self.outside == 0


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises `Hung` in a block that works for longer."""

    def ring(*_: Any) -> None:
        raise Hung

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def fuzz(reader: Reader, inputs: int, seed: int = 0, keep: Path | None = None) -> Tally:
    """So many malformed files through one reader; the folder around its own is watched as well."""
    tally = Tally(reader.name)
    with tempfile.TemporaryDirectory(dir=_IN_MEMORY if os.path.isdir(_IN_MEMORY) else None) as around:
        folder = Path(around).resolve() / "folder"
        folder.mkdir()
        reader.write(folder)
        whole = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
        reader.read(folder)  # what is whole is read
        _restore(folder, whole, None)
        victims = [path for pattern in reader.victims for path in sorted(folder.glob(pattern))]
        for number in range(inputs):
            random = Random(f"{seed} {reader.name} {number}")
            victim = random.choice(victims)
            content = random.choice(reader.mutations)(whole[victim], random)
            victim.write_bytes(content)
            said = _try(reader, folder, tally)
            if os.listdir(around) != ["folder"]:
                said, tally.outside = said or "a file beside the folder", tally.outside + 1
            if said:
                tally.found[said] += 1
                if keep is not None:
                    (keep / f"found-{reader.name.replace(' ', '-')}-{number}{victim.suffix}").write_bytes(content)
            _restore(folder, whole, [victim] if not reader.writes else None)
    return tally


def _try(reader: Reader, folder: Path, tally: Tally) -> str:
    """What was wrong with how one input was met, in words; empty if nothing was."""
    tally.inputs += 1
    began = time.process_time()
    WATCHMAN.folder, WATCHMAN.breaches = folder, []
    said = ""
    try:
        with warnings.catch_warnings(), limited(MOST_SECONDS):
            warnings.simplefilter("ignore")
            reader.read(folder)
        tally.read += 1
    except LeakGaugeError as refusal:
        tally.refused += 1
        if not str(refusal).strip():
            said = "a refusal without a word"
    except Hung:
        tally.hangs += 1
        said = "hung"
    except (Exception, SystemExit) as error:
        tally.crashes += 1
        said = f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
    finally:
        WATCHMAN.folder = None
    tally.most_seconds = max(tally.most_seconds, time.process_time() - began)
    if WATCHMAN.breaches:
        tally.outside += 1
        said = said or WATCHMAN.breaches[0]
    return said


def _restore(folder: Path, whole: dict[Path, bytes], victims: Sequence[Path] | None) -> None:
    """The files as they were; of a reader that writes, all of them."""
    if victims is None:
        for path in folder.rglob("*"):
            if path.is_file() and path not in whole:
                path.unlink()
    for path in whole if victims is None else victims:
        path.write_bytes(whole[path])


def row(tally: Tally) -> dict[str, Any]:
    values = {name: value for name, value in vars(tally).items() if name not in ("found", "most_seconds")}
    code = {"version": VERSION, "fingerprint": answering_code()}
    return values | {"most_cpu_seconds": round(tally.most_seconds, 2)} | code


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000, help="malformed files for each reader")
    parser.add_argument("--reader", action="append", help="the name of one, repeatable; else all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="result file, and where what is found is kept")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, resource.RLIM_INFINITY))
    keep = None if given.out is None else given.out.parent
    facts = {
        "title": "Malformed files for every reader",
        "command": f"python benchmarks/fuzz.py --inputs {given.inputs}",
        "version": VERSION,
        "fingerprint": answering_code(),
        "seed": given.seed,
        "scale": f"{given.inputs} malformed files for each reader",
        "readers": [reader.name for reader in READERS],
    }
    rows = _kept(given.out, facts)
    for reader in READERS:
        tried = rows.get(reader.name, {}).get("fingerprint") == facts["fingerprint"]
        if tried or (given.reader and reader.name not in given.reader):
            continue
        began = time.perf_counter()
        tally = fuzz(reader, given.inputs, given.seed, keep)
        rows[reader.name] = row(tally)
        print(f"{rows[reader.name]} ({time.perf_counter() - began:.0f} s)", flush=True)
        for said, times in tally.found.most_common(8):
            print(f"    {times} times {said}", flush=True)
        if given.out is not None:
            ordered = [rows[one.name] for one in READERS if one.name in rows]
            write_text(given.out, json.dumps(facts | {"rows": ordered}, indent=1) + "\n")
    bad = [name for name, one in rows.items() if one["crashes"] or one["hangs"] or one["outside"]]
    total = sum(one["inputs"] for one in rows.values())
    print(f"{total} malformed inputs to {len(rows)} readers; {'unsound: ' + ', '.join(bad) if bad else 'all sound'}")
    return 1 if bad else 0


def _kept(out: Path | None, facts: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The rows of earlier runs of the same size, by reader."""
    if out is None or not out.is_file():
        return {}
    before = json.loads(out.read_text("utf-8"))
    if any(before.get(name) != facts[name] for name in ("seed", "scale")):
        return {}
    code = {name: before[name] for name in ("version", "fingerprint")}
    return {one["reader"]: code | one for one in before["rows"]}


if __name__ == "__main__":
    sys.exit(main())
