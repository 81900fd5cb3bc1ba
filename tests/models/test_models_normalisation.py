"""Normalisation: computed from pixels, applied inside the model."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakgauge.errors import InvalidCase
from leakgauge.models import Compact, Normalisation, Normalise, build


@settings(max_examples=25, deadline=None)
@given(examples=st.integers(1, 5), channels=st.integers(1, 4), seed=st.integers(0, 99))
def test_images_normalised_by_their_own_statistics_have_mean_0_and_std_1(examples, channels, seed):
    images = torch.rand(examples, channels, 6, 5, generator=torch.Generator().manual_seed(seed))
    normalised = Normalise(Normalisation.of(images))(images)
    torch.testing.assert_close(normalised.mean(dim=(0, 2, 3)), torch.zeros(channels), rtol=0, atol=1e-5)
    torch.testing.assert_close(normalised.std(dim=(0, 2, 3), correction=0), torch.ones(channels), rtol=1e-5, atol=0)


def test_a_constant_channel_gets_a_std_of_one_grey_level():
    assert Normalisation.of(torch.full((2, 1, 3, 3), 0.25)) == Normalisation((0.25,), (1 / 255,))


def test_without_a_normalisation_mid_grey_becomes_zero_and_white_two():
    module = build(Compact(2), (2, 4, 4), 3, seed=0)
    grey_and_white = torch.tensor([0.5, 1.0]).view(1, 2, 1, 1).expand(1, 2, 4, 4)
    expected = torch.tensor([0.0, 2.0]).view(1, 2, 1, 1).expand(1, 2, 4, 4)
    torch.testing.assert_close(module.normalise(grey_and_white), expected)


def test_the_statistics_are_buffers_not_parameters():
    module = Normalise(Normalisation((0.1, 0.2), (0.3, 0.4)))
    assert {name: tuple(buffer.shape) for name, buffer in module.named_buffers()} == {
        "mean": (2, 1, 1),
        "std": (2, 1, 1),
    }
    assert not list(module.parameters())


def test_repr_evaluates_back_to_the_same_normalisation():
    normalisation = Normalisation.of(torch.rand(3, 2, 4, 4))
    assert eval(repr(normalisation)) == normalisation  # noqa: S307 - the theorem is about eval, the text is ours


@pytest.mark.parametrize(
    ("mean", "std", "cause"),
    [
        ((), (), "one mean and one std per channel"),
        ((0.5,), (0.2, 0.2), "one mean and one std per channel"),
        ((0.5,), (0.0,), "positive stds"),
        ((float("nan"),), (1.0,), "finite means"),
        ((0.5,), (float("inf"),), "finite means and positive stds"),
    ],
)
def test_statistics_that_cannot_normalise_are_refused(mean, std, cause):
    with pytest.raises(InvalidCase, match=cause):
        Normalisation(mean, std)


@pytest.mark.parametrize("shape", [(3, 4, 4), (0, 3, 4, 4)])
def test_statistics_need_a_batch_of_images(shape):
    with pytest.raises(InvalidCase, match="images n c h w"):
        Normalisation.of(torch.zeros(shape))


def test_a_normalisation_for_other_channels_is_refused():
    with pytest.raises(InvalidCase, match="has 1 channels but the inputs have 3"):
        build(Compact(2), (3, 8, 8), 4, seed=0, normalisation=Normalisation.natural(1))
