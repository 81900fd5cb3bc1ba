from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from leakgauge.data import Dataset, Photos, photos, reference_images
from leakgauge.data.files import resize
from leakgauge.data.photos import HIGHLIGHTS, Window, crop_windows, split_columns, thin, windows
from leakgauge.errors import InvalidCase

NAMES = tuple(HIGHLIGHTS)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def columns(window: Window) -> range:
    return range(window.left, window.left + window.side)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return Photos()()


@given(width=st.integers(1, 3000))
def test_every_column_belongs_to_exactly_one_split(width: int) -> None:
    test, train = split_columns(width)
    assert sorted(column for band in (*test, *train) for column in band) == list(range(width))


@settings(deadline=None)
@given(
    height=st.integers(1, 60),
    start=st.integers(0, 40),
    length=st.integers(0, 40),
    sides=st.lists(st.integers(1, 50), max_size=3),
)
def test_no_window_crosses_the_border_of_its_columns(height: int, start: int, length: int, sides: list[int]) -> None:
    for window in windows(height, range(start, start + length), sides):
        assert window.top >= 0
        assert window.top + window.side <= height
        assert window.left >= start
        assert window.left + window.side <= start + length


@given(count=st.integers(0, 50), at_most=st.integers(0, 60))
def test_thinning_keeps_distinct_windows_in_order(count: int, at_most: int) -> None:
    candidates = [Window(top, 0, 1) for top in range(count)]
    kept = thin(candidates, at_most)
    assert len(kept) == min(count, at_most)
    assert list(kept) == sorted(set(kept))


@pytest.mark.parametrize("name", NAMES)
def test_train_and_test_windows_share_no_column_of_a_photograph(name: str) -> None:
    test = {column for window in crop_windows(name).test for column in columns(window)}
    train = {column for window in crop_windows(name).train for column in columns(window)}
    assert test
    assert train
    assert test.isdisjoint(train)


@pytest.mark.parametrize("name", NAMES)
def test_painting_over_the_train_columns_changes_no_test_crop(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def crops() -> list[np.ndarray]:
        # Enlarged, as only an enlarging filter could reach beyond the window.
        return [
            photos._cut(name, window, height=size, width=size, greyscale=False)
            for window in crop_windows(name).test[::9]
            for size in (32, 2 * window.side)
        ]

    before = crops()
    painted = photos._photograph(name).copy()
    for band in split_columns(painted.width).train:
        painted.paste((255, 0, 255), (band.start, 0, band.stop, painted.height))
    monkeypatch.setattr(photos, "_photograph", lambda _: painted)
    assert all(np.array_equal(left, right) for left, right in zip(before, crops(), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_every_window_lies_in_its_photograph_and_is_distinct(name: str) -> None:
    photograph = photos._photograph(name)
    both = (*crop_windows(name).test, *crop_windows(name).train)
    assert len(set(both)) == len(both)
    for window in both:
        assert 0 <= window.top <= photograph.height - window.side
        assert 0 <= window.left <= photograph.width - window.side


def test_each_class_has_sixty_test_and_a_hundred_train_crops(dataset: Dataset) -> None:
    assert dataset.test.labels.bincount().min() >= 60
    assert dataset.train.labels.bincount().min() >= 100
    assert dataset.class_names == NAMES


def test_the_highlights_are_one_test_crop_of_each_class_and_the_face_is_first(dataset: Dataset) -> None:
    labels = dataset.test.labels[list(dataset.highlights)].tolist()
    assert labels == list(range(7))
    assert [dataset.class_names[label] for label in labels[:4]] == ["astronaut", "chelsea", "coffee", "rocket"]
    # The eyes and the mouth of the portrait, found by looking at it.
    face = HIGHLIGHTS["astronaut"]
    for row, column in ((110, 205), (110, 240), (147, 222)):
        assert face.top < row < face.top + face.side
        assert face.left < column < face.left + face.side


def test_plain_sky_and_its_gradient_are_left_out_but_a_mast_is_not() -> None:
    sky = Image.linear_gradient("L").resize((100, 100)).point(lambda grey: 60 + grey // 8)
    assert not photos._has_content(sky, Window(0, 0, 100))
    assert not photos._has_content(sky.rotate(90), Window(0, 0, 100))
    sky.paste(160, (40, 0, 44, 100))
    assert photos._has_content(sky, Window(0, 0, 100))


def test_no_crop_is_uniform(dataset: Dataset) -> None:
    for batch in (dataset.train, dataset.test):
        assert batch.inputs.mean(dim=1).flatten(1).std(dim=1).min() > 0.007


@pytest.mark.parametrize("size", [8, 33, 100])
@pytest.mark.parametrize("greyscale", [False, True])
def test_every_size_and_greyscale_cut_the_same_windows(dataset: Dataset, size: int, greyscale: bool) -> None:
    other = Photos(size=size, greyscale=greyscale)()
    assert other.space.shape == (1 if greyscale else 3, size, size)
    assert torch.equal(other.test.labels, dataset.test.labels)
    assert torch.equal(other.train.labels, dataset.train.labels)
    assert other.highlights == dataset.highlights
    # The means agree but for rounding to bytes and the unequal boxes of an uneven ratio.
    luma = torch.tensor([0.299, 0.587, 0.114])
    means = dataset.test.inputs.mean(dim=(2, 3))
    expected = (means @ luma)[:, None] if greyscale else means
    assert torch.allclose(other.test.inputs.mean(dim=(2, 3)), expected, atol=0.02)


def test_the_largest_crops_can_be_cut() -> None:
    assert reference_images((3, 256, 256), 5, generator=seeded(0)).shape == (5, 3, 256, 256)
    assert Photos(size=256) == Photos(256)


@pytest.mark.parametrize("size", [0, 7, 257])
def test_a_size_out_of_range_is_refused(size: int) -> None:
    with pytest.raises(InvalidCase, match=rf"crops of 8 to 256 pixels, not {size}; choose a `size` in that range"):
        Photos(size=size)


def test_the_second_call_returns_the_same_tensors() -> None:
    assert Photos()() is Photos()()


def test_cutting_the_photographs_takes_no_more_than_25_times_as_long_as_opening_them() -> None:
    caches = (photos._dataset, photos._photograph, photos.crop_windows)

    def seconds(work: Callable[[], object]) -> float:
        for cache in caches:
            cache.cache_clear()
        start = time.process_time()
        work()
        return time.process_time() - start

    Photos()()  # what is imported late counts for neither
    opening = seconds(lambda: [photos._photograph(name) for name in (*photos.PHOTOGRAPHS, *photos.STRANGERS)])
    assert seconds(Photos()) < 25 * opening


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (1, 112, 92), (3, 20, 300), (4, 9, 8)])
def test_reference_images_have_any_shape_are_pixels_and_are_distinct(shape: tuple[int, int, int]) -> None:
    images = reference_images(shape, 50, generator=seeded(0))
    assert images.shape == (50, *shape)
    assert images.dtype == torch.float32
    assert images.min() >= 0
    assert images.max() <= 1
    assert len(images.unique(dim=0)) == 50


def test_reference_images_repeat_the_luma_unless_they_have_three_channels() -> None:
    (luma,), (four,), (rgb,) = (reference_images((c, 16, 16), 1, generator=seeded(1)) for c in (1, 4, 3))
    assert torch.equal(four, luma.expand(4, 16, 16))
    assert not torch.equal(rgb[0], rgb[2])
    assert torch.allclose((rgb * torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(dim=0), luma[0], atol=0.01)


def test_reference_images_are_a_function_of_the_seed() -> None:
    first, again, other = (reference_images((1, 8, 8), 9, generator=seeded(seed)) for seed in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_square_reference_images_are_crops_of_the_data_set(dataset: Dataset) -> None:
    crops = {image.numpy().tobytes() for batch in (dataset.train, dataset.test) for image in batch.inputs}
    references = {image.numpy().tobytes() for image in reference_images((3, 32, 32), 1232, generator=seeded(0))}
    assert references == crops


def test_no_reference_images_are_an_empty_batch() -> None:
    assert reference_images((3, 8, 8), 0, generator=seeded(0)).shape == (0, 3, 8, 8)


@pytest.mark.parametrize("count", [-1, 1233])
def test_more_reference_images_than_there_are_cannot_be_given(count: int) -> None:
    with pytest.raises(
        InvalidCase, match=rf"^Cannot give {count} reference images, .* have 1232; ask for fewer or pass"
    ):
        reference_images((3, 8, 8), count, generator=seeded(0))


def test_shrinking_by_a_whole_factor_is_the_mean_of_each_block() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (12, 20), np.uint8)
    shrunk = np.asarray(resize(Image.fromarray(pixels), height=3, width=10)).astype(float)
    assert np.abs(shrunk - pixels.reshape(3, 4, 10, 2).mean(axis=(1, 3))).max() <= 1
