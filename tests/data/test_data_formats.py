from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leakgauge.data.formats import check_labels, parse_cifar, parse_idx
from leakgauge.errors import InvalidFile

RECORD = 3073


def random_bytes(count: int, seed: int) -> bytes:
    return np.random.default_rng(seed).bytes(count)


def idx(values: np.ndarray) -> bytes:
    return bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


@settings(deadline=None, max_examples=20)
@given(labels=st.lists(st.tuples(st.integers(0, 19), st.integers(0, 99)), min_size=1, max_size=3), seed=st.integers(0))
def test_a_cifar_record_is_its_labels_then_red_green_and_blue_row_by_row(
    labels: list[tuple[int, int]], seed: int
) -> None:
    planes = [random_bytes(3072, seed + position) for position in range(len(labels))]
    content = b"".join(bytes(pair) + plane for pair, plane in zip(labels, planes))
    parsed = parse_cifar(content, num_classes=(20, 100), name="file")
    assert [tuple(row) for row in parsed.labels.tolist()] == labels
    for image, plane in zip(parsed.images, planes):
        assert image.shape == (3, 32, 32)
        assert image[1, 2, 3] == plane[1024 + 2 * 32 + 3]
        assert image.tobytes() == plane


@settings(deadline=None, max_examples=50)
@given(kept=st.integers(0, 3 * RECORD - 1).filter(lambda kept: kept == 0 or kept % RECORD))
def test_a_cifar_file_cut_inside_a_record_is_refused_with_both_sizes(kept: int) -> None:
    with pytest.raises(InvalidFile, match=rf"^cut.bin has {kept} bytes, but .* a positive multiple of 3073; replace"):
        parse_cifar(bytes(3 * RECORD)[:kept], num_classes=(10,), name="cut.bin")


def test_a_cifar_label_beyond_the_classes_is_refused() -> None:
    with pytest.raises(InvalidFile, match=r"^odd.bin holds the label 10, but its classes are numbered 0 to 9; check"):
        parse_cifar(bytes([10]) + bytes(3072), num_classes=(10,), name="odd.bin")


SHAPES = st.lists(st.integers(0, 5), min_size=1, max_size=3)


@settings(deadline=None, max_examples=50)
@given(shape=SHAPES, seed=st.integers(0))
def test_an_idx_array_survives_the_round_trip(shape: list[int], seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    parsed = parse_idx(idx(values), num_dimensions=len(shape), name="file")
    assert parsed.shape == values.shape
    assert np.array_equal(parsed, values)


@settings(deadline=None, max_examples=100)
@given(shape=SHAPES, data=st.data())
def test_every_truncation_of_an_idx_file_is_refused(shape: list[int], data: st.DataObject) -> None:
    content = idx(np.ones(shape, np.uint8))
    kept = data.draw(st.integers(0, len(content) - 1))
    with pytest.raises(InvalidFile, match=r"^cut.idx .*; replace it with"):
        parse_idx(content[:kept], num_dimensions=len(shape), name="cut.idx")


def test_surplus_bytes_after_an_idx_array_are_refused_with_both_sizes() -> None:
    with pytest.raises(InvalidFile, match=r"^long.idx has 11 bytes, but its header announces 10; replace it"):
        parse_idx(idx(np.ones(2, np.uint8)) + b"x", num_dimensions=1, name="long.idx")


def test_an_idx_header_that_announces_more_than_memory_is_refused_without_allocating_it() -> None:
    content = bytes([0, 0, 8, 3]) + b"\xff" * 12 + bytes(100)
    with pytest.raises(InvalidFile, match=rf"has 116 bytes, but its header announces {16 + (2**32 - 1) ** 3}"):
        parse_idx(content, num_dimensions=3, name="huge.idx")


@settings(deadline=None, max_examples=200)
@given(content=st.binary(max_size=64))
def test_arbitrary_bytes_parse_or_are_refused_and_nothing_else(content: bytes) -> None:
    for num_dimensions in (1, 3):
        try:
            parse_idx(content, num_dimensions=num_dimensions, name="any")
        except InvalidFile:
            continue
    with pytest.raises(InvalidFile):
        parse_cifar(content, num_classes=(10,), name="any")


def test_an_idx_file_of_another_type_or_rank_is_refused_by_its_first_bytes() -> None:
    with pytest.raises(InvalidFile, match=r"starts with the bytes \[00 00 08 01\], .* starts with \[00 00 08 03\]"):
        parse_idx(idx(np.ones(2, np.uint8)), num_dimensions=3, name="labels")


def test_no_labels_are_no_wrong_labels() -> None:
    check_labels(np.empty(0, np.uint8), limit=10, name="empty")
