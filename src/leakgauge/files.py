"""Reading and writing without surprises: no half-written file, no pickle, one sentence when it fails."""

from __future__ import annotations

import math
import os
import re
import secrets
import tempfile
import zipfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from leakgauge.errors import InvalidFile

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
"""Of files that we name: no folder above, no wildcard, nothing hidden."""

_UNPACKED_FREELY, _UNPACKED_RATIO = 64 << 20, 100
"""Bytes that any file may unpack to, and how many times its own size a larger one."""

_PICKLE_STARTS = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """A path beside ``target`` to write to; it replaces ``target`` when the block ends well, and vanishes otherwise."""
    # The name is chosen before the file is made, so that an interrupt while it is being made finds it to remove.
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        yield temporary
        os.replace(temporary, target)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidFile(f"Cannot write {target}: {reason}; choose a folder you may write to.") from error
    finally:
        temporary.unlink(missing_ok=True)


def inside(folder: Path, name: str, around: Path | None = None) -> Path:
    """What has this name in a folder, whoever wrote the name; refused where it lies out of ``around``, by default the
    folder's own."""
    around = folder.parent if around is None else around
    if not _PLAIN_NAME.fullmatch(name):
        raise InvalidFile(f"{name[:80]!r} is no name of a file in {folder}; its records were damaged or forged.")
    path = folder / name
    try:
        within = path.resolve().is_relative_to(around.resolve())
    except (OSError, RuntimeError):  # links that lead to each other
        within = False
    if not within:
        raise InvalidFile(f"{path} leads out of {around} by a link; copy what it leads to into the folder.")
    return path


def folder_inside(folder: Path, name: str) -> Path:
    """A folder of one of ours, made if it was missing; refused where it is a link that leads elsewhere."""
    return writable_folder(inside(folder, name, folder))


def check_regular(source: Path) -> None:
    """Refuse what is there and no file, before it is opened: a pipe waits for ever, a device never ends."""
    if source.exists() and not source.is_file():
        kind = "folder" if source.is_dir() else "pipe or a device"
        raise InvalidFile(f"Cannot read {source}: it is a {kind}, not a file; check the path.")


def write_text(target: Path, text: str) -> None:
    with atomic_path(target) as temporary:
        temporary.write_text(text, encoding="utf-8")


def writable_folder(folder: Path) -> Path:
    """The folder, made if it was missing; an error before any work is done if nothing can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InvalidFile(
            f"Cannot write to {folder}: {error.strerror or error}; choose another folder with --out."
        ) from error
    return folder


def write_tensors(target: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    # Contiguous clones, because safetensors refuses views that share storage.
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    with atomic_path(target) as temporary:
        save_file(plain, temporary, dict(metadata or {}))


def read_tensors(source: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a safetensors file; anything else is refused without being interpreted."""
    check_regular(source)
    try:
        with source.open("rb") as stream:
            start = stream.read(9)
    except OSError as error:
        raise InvalidFile(f"Cannot read {source}: {error.strerror or error}; check the path.") from error
    # A safetensors file begins with the length of its header, whose bytes may be a pickle's; then comes a brace.
    if start.startswith(_PICKLE_STARTS) and start[8:] != b"{":
        raise InvalidFile(
            f"{source} is a pickled checkpoint, which could run code when opened, so LeakGauge never reads it; "
            "convert it with safetensors.torch.save_file."
        )
    try:
        with safe_open(source, framework="pt") as opened:
            return {name: opened.get_tensor(name) for name in opened.keys()}, dict(opened.metadata() or {})  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, RuntimeError, KeyError) as error:
        raise InvalidFile(
            f"{source} is not a readable safetensors file ({str(error).splitlines()[0]}); write it again."
        ) from error


def check_unpacked(source: Path, unpacked: int) -> None:
    """Refuse a small file that unpacks to a large one, before or while it does: a bomb, as no data are so empty."""
    most = max(_UNPACKED_FREELY, _UNPACKED_RATIO * source.stat().st_size)
    if unpacked > most:
        raise InvalidFile(
            f"{source} unpacks to more than {most >> 20} MB, {_UNPACKED_RATIO} times its size, as no real data do; "
            "replace it, or save it without compression."
        )


def read_arrays(source: Path, wanted: Collection[str] | None = None) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz, or those of the ``wanted`` names; any exception means that it is none of plain arrays.

    What an archive declares is checked against what it holds before anything is allocated.
    """
    with zipfile.ZipFile(source) as archive:
        members = {one.filename.removesuffix(".npy"): one for one in archive.infolist()}
        chosen = {name: one for name, one in members.items() if wanted is None or name in wanted}
        check_unpacked(source, sum(one.file_size for one in chosen.values()))
        return {name: _read_array(archive, member) for name, member in chosen.items()}


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(member) as stream:
        headers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
        shape, by_columns, kind = headers[npy.read_magic(stream)](stream)
        held = member.file_size - stream.tell()
        if kind.hasobject or math.prod(shape) * kind.itemsize != held:
            raise ValueError(f"{member.filename} declares {shape} of {kind} and holds {held} bytes")
        flat = np.frombuffer(bytearray(stream.read()), kind)
    return flat.reshape(shape, order="F" if by_columns else "C")


def finite(value: Any) -> Any:
    """JSON has no NaN: what was not measured is null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
