"""Fingerprints: of values, of the code that turns them into a result, and of the machine it ran on."""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Iterable, Iterator
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from leakgauge.version import VERSION

_LENGTH = 24


def digest(words: Iterable[str], tensors: Iterable[Tensor], numbers: Iterable[int]) -> str:
    """A short fingerprint of texts, tensors and numbers."""
    state = hashlib.sha256()
    for word in words:
        state.update(word.encode() + b"\0")
    for tensor in tensors:
        # As bytes, because numpy knows no bfloat16.
        content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        state.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode() + content)
    state.update(repr(tuple(numbers)).encode())
    return state.hexdigest()[:_LENGTH]


_SHOWING = ("cli", "integrations", "report", "reproduce", "sweep", "tradeoff")
"""Rooms that ask for answers and show them; what they decide, such as a model's weights, is among the inputs."""


@cache
def code_fingerprint(*packages: str) -> str:
    """A digest of the source of these packages or modules of LeakGauge, of all of it if none is named.

    It covers every .py file by name and content. It covers neither the dependencies, whose versions are in
    `environment`, nor a user's own model, which a case's key holds by what it computes.

    >>> code_fingerprint("metrics") == code_fingerprint("metrics") != code_fingerprint()
    True
    """
    return source_digest(Path(__file__).parent, packages)


@cache
def answering_code() -> str:
    """A digest of the source that decides the answer to a case: every .py file of LeakGauge but those that only ask and
    show (cli, integrations, report, reproduce, sweep, tradeoff).

    Whatever is kept under a key that holds it is computed anew once any of these files has changed. For code that is
    none of these files see `foreign_code`; the dependencies are not covered, their versions are in `environment`.
    """
    return source_digest(Path(__file__).parent, without=_SHOWING)


@cache
def training_code() -> str:
    """A digest of the source that decides the weights a training ends with; see `code_fingerprint`."""
    rooms = "training", "models", "generative", "data", "defences", "encodings", "protocol"
    return code_fingerprint(*rooms, "params", "randomness", "schedules", "space")


def source_digest(root: Path, packages: Iterable[str] = (), *, without: Iterable[str] = ()) -> str:
    """A digest of the .py files under a folder, by name and content: of some packages, or of all but some."""
    state = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        room = name.removesuffix(".py").split("/")[0]
        if room not in without and (not packages or name.removesuffix(".py").startswith(tuple(packages))):
            state.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return state.hexdigest()[:_LENGTH]


def foreign_code(*things: object) -> str:
    """A digest of the files that define these things and their parts, where `answering_code` does not cover them.

    So a user's own attack or defence is told from what it was before an edit; empty if there is none.
    """
    files = sorted({file for thing in things for file in _foreign_files(thing)})
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:_LENGTH] if files else ""


def _foreign_files(thing: object) -> Iterator[Path]:
    package, _, rest = type(thing).__module__.partition(".")
    named = getattr(sys.modules.get(type(thing).__module__), "__file__", None)  # builtins have none
    outside = package != "leakgauge" or rest.split(".")[0] in _SHOWING
    if named is not None and outside and Path(named).is_file():  # a notebook's cells have no file
        yield Path(named)
    parts = thing if isinstance(thing, tuple) else vars(thing).values() if is_dataclass(thing) else ()
    for part in parts:
        if isinstance(part, tuple) or is_dataclass(part):  # not a number, a path or an enum, which configure alone
            yield from _foreign_files(part)


def environment() -> dict[str, str]:
    """What besides the case decides the digits of a result."""
    return {
        "leakgauge": VERSION,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "threads": str(torch.get_num_threads()),
    }
