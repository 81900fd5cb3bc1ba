"""The Kolmogorov-Smirnov comparison of Table 4, as published and with the power that it lacks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from leakgauge.encodings import InsideDataset, SeededKeys, encrypt
from leakgauge.encodings.distributions import STATISTICS, compare, single_p_values, statistics_of
from leakgauge.errors import InvalidCase
from leakgauge.randomness import seeded
from leakgauge.types import Batch


@settings(deadline=None, max_examples=50)
@given(
    sample=st.lists(st.integers(0, 12), min_size=1, max_size=40),
    single=st.integers(-1, 13),
)
def test_a_single_p_value_is_that_of_scipy(sample, single):
    ours = single_p_values(torch.tensor([float(single)]), torch.tensor(sample, dtype=torch.float64).float())
    exact = stats.ks_2samp([single], sample, method="exact").pvalue
    assert float(ours) == pytest.approx(exact, abs=1e-12)


def test_the_seven_statistics_are_what_they_say():
    image = torch.tensor([[0.0, 1.0], [0.5, 0.5]]).view(1, 1, 2, 2)
    assert len(STATISTICS) == 7
    mean, deviation, variation, *pixels = statistics_of(image, torch.arange(4))[0].tolist()
    assert mean == pytest.approx(0.5)
    assert deviation == pytest.approx(float(image.std()))
    assert variation == pytest.approx(1 + 0 + 0.5 + 0.5)
    assert pixels == [0.0, 1.0, 0.5, 0.5]


def test_encryptions_without_an_image_inside_cannot_be_told_apart():
    noise = torch.rand(4, 80, 1, 6, 6, generator=seeded(0))
    found = compare(noise, singles=40, generator=seeded(1))
    assert len(found) == 4 * 7
    assert {one.statistic for one in found} == set(STATISTICS)
    # Under the null p is uniform: its smallest of 28 is rarely below 1e-4, and its mean is near 1/2.
    assert min(one.together for one in found) > 1e-4
    assert 0.3 < sum(one.together for one in found) / 28 < 0.7
    assert 0.4 < sum(one.alone_all for one in found) / 28 < 0.6


def encryptions(k: int) -> torch.Tensor:
    """60 InstaHide encryptions of each of ten images that differ in contrast, as photographs do."""
    generator = seeded(0, "contrast")
    contrast = torch.linspace(0.1, 1, 10).view(10, 1, 1, 1)
    images = 0.5 + contrast * (torch.rand(10, 1, 6, 6, generator=generator) - 0.5)
    keys = SeededKeys(seeded(1))
    encoded, _ = encrypt(InsideDataset(k), Batch(images, torch.zeros(10).long()), classes=1, copies=60, keys=keys)
    return encoded.images.view(60, 10, 1, 6, 6).transpose(0, 1)


def test_the_published_test_sees_no_difference_where_one_of_all_encryptions_at_once_does():
    found = [one for one in compare(encryptions(2), generator=seeded(2)) if one.statistic == "std"]
    # As in Table 4: "All" and "Other" are alike and near a half, whatever the image.
    assert all(abs(one.alone_all - one.alone_other) < 0.06 for one in found)
    assert 0.35 < sum(one.alone_all for one in found) / 10 < 0.65
    # Yet the distributions differ.
    assert min(one.together for one in found) < 1e-6
    assert max(one.distance for one in found) > 0.3


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(InvalidCase, match="two or more images x encryptions"):
        compare(torch.zeros(3, 1, 4, 4), generator=seeded(0))
    with pytest.raises(InvalidCase, match="two or more images"):
        compare(torch.zeros(1, 9, 1, 4, 4), generator=seeded(0))
    with pytest.raises(InvalidCase, match="Of 9 encryptions an image, 10 cannot be tested"):
        compare(torch.zeros(2, 9, 1, 4, 4), singles=10, generator=seeded(0))
