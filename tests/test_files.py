"""What a file declares, and what it unpacks to, is held against what it holds before anything is allocated."""

from __future__ import annotations

import gzip
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from leakgauge.data import Mnist, read_batch
from leakgauge.errors import InvalidFile
from leakgauge.files import check_unpacked, read_arrays
from leakgauge.protocol.weight_files import read_weights

BOMB = 128 << 20
"""Bytes of zeros, which deflate to a thousandth of them."""


def _npz_bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("images.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, {"descr": "|u1", "fortran_order": False, "shape": (BOMB,)})
        _zeros(member.write)


def _torch_bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("archive/data/0", "w") as member:
        _zeros(member.write)


def _idx_bomb(path: Path) -> None:
    with gzip.open(path, "wb") as stream:
        _zeros(stream.write)


def _zeros(write: Callable[[bytes], object]) -> None:
    for _ in range(BOMB >> 20):
        write(bytes(1 << 20))


BOMBS: dict[str, tuple[Callable[[Path], None], Callable[[Path], object]]] = {
    "images.npz": (_npz_bomb, read_batch),
    "weights.npz": (_npz_bomb, read_weights),
    "weights.pt": (_torch_bomb, read_weights),
    "t10k-images-idx3-ubyte.gz": (_idx_bomb, lambda path: Mnist()(path.parent)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_before_it_unpacks(tmp_path: Path, name: str) -> None:
    write, read = BOMBS[name]
    write(tmp_path / name)
    with gzip.open(tmp_path / "t10k-labels-idx1-ubyte.gz", "wb") as stream:
        stream.write(bytes([0, 0, 8, 1, 0, 0, 0, 0]))
    assert (tmp_path / name).stat().st_size < BOMB / 500
    tracemalloc.start()
    try:
        with pytest.raises(InvalidFile, match="unpacks to more than 64 MB, 100 times its size"):
            read(tmp_path / name)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 0.6 * BOMB


def test_a_file_may_unpack_to_64_mb_or_to_100_times_its_size_and_not_to_a_byte_more(tmp_path: Path) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(b"x")
    with large.open("wb") as stream:
        stream.truncate(1 << 20)
    for path, most in ((small, 64 << 20), (large, 100 << 20)):
        check_unpacked(path, most)
        with pytest.raises(InvalidFile, match="as no real data do"):
            check_unpacked(path, most + 1)


@pytest.mark.parametrize("shape", [(1 << 40,), (1 << 20, 1 << 20), (3,), ()])
def test_an_array_that_declares_more_or_less_than_it_holds_is_not_allocated(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive, archive.open("a.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, {"descr": "<f4", "fortran_order": False, "shape": shape})
        member.write(bytes(8))
    with pytest.raises(ValueError, match="holds 8 bytes"):
        read_arrays(tmp_path / "a.npz")
