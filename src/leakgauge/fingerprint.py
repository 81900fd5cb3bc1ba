"""Fingerprints: of values, of the code that turns them into a result, and of the machine it ran on."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable
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


@cache
def code_fingerprint(*packages: str) -> str:
    """A digest of the source of these packages or modules of LeakGauge, of all of it if none is named.

    It covers every .py file by name and content. It covers neither the dependencies, whose versions are in
    `environment`, nor a user's own model, which a case's key holds by what it computes.

    >>> code_fingerprint("metrics") == code_fingerprint("metrics") != code_fingerprint()
    True
    """
    root = Path(__file__).parent
    state = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if not packages or name.removesuffix(".py").startswith(tuple(packages)):
            state.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return state.hexdigest()[:_LENGTH]


def environment() -> dict[str, str]:
    """What besides the case decides the digits of a result."""
    return {
        "leakgauge": VERSION,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "threads": str(torch.get_num_threads()),
    }
