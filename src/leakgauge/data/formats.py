"""Pure parsers of the CIFAR binary and MNIST idx formats: bytes in, arrays out, and no byte unaccounted for."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from leakgauge.errors import InvalidFile

CIFAR_IMAGE = (3, 32, 32)

IDX_UNSIGNED_BYTE = 0x08


class CifarRecords(NamedTuple):
    """``labels`` n k, one column per label byte; ``images`` n 3 32 32."""

    labels: NDArray[np.uint8]
    images: NDArray[np.uint8]


def parse_cifar(content: bytes, *, num_classes: tuple[int, ...], name: str) -> CifarRecords:
    """Records of one label byte per entry of ``num_classes``, then the red, green and blue planes [Krizhevsky, 2009].

    >>> parse_cifar(bytes([7]) + bytes(3072), num_classes=(10,), name="one.bin").labels
    array([[7]], dtype=uint8)
    """
    num_labels = len(num_classes)
    record = num_labels + math.prod(CIFAR_IMAGE)
    if not content or len(content) % record:
        raise InvalidFile(
            f"{name} has {len(content)} bytes, but a CIFAR file with {num_labels} label byte(s) per image has "
            f"a positive multiple of {record}; replace it with a complete copy of the binary version."
        )
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, record)
    labels = records[:, :num_labels]
    for limit, column in zip(num_classes, labels.T, strict=True):
        check_labels(column, limit=limit, name=name)
    return CifarRecords(labels, records[:, num_labels:].reshape(-1, *CIFAR_IMAGE))


def parse_idx(content: bytes, *, num_dimensions: int, name: str) -> NDArray[np.uint8]:
    """An array of unsigned bytes: ``0 0 8 d``, ``d`` big-endian 32-bit sizes, then the values [LeCun et al., 1998].

    >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 5, 9]), num_dimensions=1, name="two.idx")
    array([5, 9], dtype=uint8)
    """
    magic = bytes([0, 0, IDX_UNSIGNED_BYTE, num_dimensions])
    header = len(magic) + 4 * num_dimensions
    if content[: len(magic)] != magic:
        raise InvalidFile(
            f"{name} starts with the bytes [{content[: len(magic)].hex(' ')}], but an idx file of unsigned bytes in "
            f"{num_dimensions} dimension(s) starts with [{magic.hex(' ')}]; replace it with the original file."
        )
    if len(content) < header:
        raise InvalidFile(
            f"{name} has {len(content)} bytes, but its idx header alone has {header}; replace it with a complete copy."
        )
    shape = tuple(int(size) for size in np.frombuffer(content[len(magic) : header], dtype=">u4"))
    expected = header + math.prod(shape)
    if len(content) != expected:
        raise InvalidFile(
            f"{name} has {len(content)} bytes, but its header announces {expected}; replace it with a complete copy."
        )
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)


def check_labels(labels: NDArray[np.uint8], *, limit: int, name: str) -> None:
    """Refuse class numbers at or above ``limit``: the file is of another dataset or damaged."""
    if labels.size and int(labels.max()) >= limit:
        raise InvalidFile(
            f"{name} holds the label {int(labels.max())}, but its classes are numbered 0 to {limit - 1}; "
            "check that it belongs to this dataset."
        )
