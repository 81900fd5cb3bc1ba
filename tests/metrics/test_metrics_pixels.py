"""PSNR and SSIM against independent implementations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.metrics import peak_signal_noise_ratio
from torchmetrics.functional.image import structural_similarity_index_measure

from leakgauge.metrics import PSNR, SSIM, AffinePSNR, Comparison


def pair(*shape: int, seed: int = 0, noise: float = 0.2) -> Comparison:
    generator = torch.Generator().manual_seed(seed)
    originals = torch.rand(shape, generator=generator)
    guess = (originals + noise * torch.randn(shape, generator=generator)).clamp(0, 1)
    return Comparison(originals, guess, None, torch.zeros(shape[0]), None)


def slow_uniform_ssim(left: np.ndarray, right: np.ndarray, window: int) -> float:
    """Eq. 13 of Wang et al. at every full window, averaged over windows and channels."""
    c1, c2, values = 0.01**2, 0.03**2, []
    channels, height, width = left.shape
    for channel in range(channels):
        for top in range(height - window + 1):
            for start in range(width - window + 1):
                spot = (channel, slice(top, top + window), slice(start, start + window))
                x, y = left[spot].ravel(), right[spot].ravel()
                covariance = np.mean((x - x.mean()) * (y - y.mean()))
                values.append(
                    (2 * x.mean() * y.mean() + c1)
                    * (2 * covariance + c2)
                    / ((x.mean() ** 2 + y.mean() ** 2 + c1) * (x.var() + y.var() + c2))
                )
    return float(np.mean(values))


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**31), channels=st.sampled_from([1, 3]), noise=st.floats(1e-3, 1.0))
def test_psnr_equals_scikit_image(seed: int, channels: int, noise: float) -> None:
    comparison = pair(3, channels, 7, 9, seed=seed, noise=noise)
    expected = [
        peak_signal_noise_ratio(original.double().numpy(), guess.double().numpy(), data_range=1.0)
        for original, guess in zip(comparison.originals, comparison.reconstructions, strict=True)
    ]
    assert PSNR()(comparison).tolist() == pytest.approx(expected, abs=1e-9)


def test_an_exact_recovery_is_capped_so_that_means_stay_finite() -> None:
    truth = torch.rand(2, 1, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    nearly = truth + torch.tensor([0.0, 1e-9]).view(2, 1, 1, 1)
    scores = PSNR()(Comparison(truth, nearly, None, torch.zeros(2), None))
    assert scores[0] == 200
    assert float(scores[1]) == pytest.approx(180, abs=1e-4)


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 11, 40), (1, 11, 11)])
def test_ssim_with_the_gaussian_window_equals_torchmetrics_on_full_windows(shape: tuple[int, int, int]) -> None:
    comparison = pair(4, *shape)
    _, everywhere = structural_similarity_index_measure(
        comparison.reconstructions.double(),
        comparison.originals.double(),
        sigma=1.5,
        data_range=1.0,
        return_full_image=True,
    )
    # torchmetrics 1.9 also averages the windows that hang over the border, filled by reflection; Wang et al. do not.
    expected = everywhere[..., 5:-5, 5:-5].mean(dim=(1, 2, 3))
    assert torch.allclose(SSIM()(comparison), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("side", "window"), [(3, 3), (4, 3), (5, 5), (8, 7), (9, 9), (10, 9)])
def test_ssim_of_small_images_uses_the_largest_odd_window_that_fits(side: int, window: int) -> None:
    comparison = pair(2, 2, side, side + 3)
    expected = [
        slow_uniform_ssim(original.double().numpy(), guess.double().numpy(), window)
        for original, guess in zip(comparison.originals, comparison.reconstructions, strict=True)
    ]
    assert SSIM()(comparison).tolist() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("shape", [(1, 2, 8), (3, 8, 2), (1, 1, 1)])
def test_ssim_of_images_below_three_pixels_is_not_measured(shape: tuple[int, int, int]) -> None:
    assert SSIM()(pair(2, *shape)).isnan().all()


def test_contrast_and_brightness_of_each_channel_do_not_count_after_the_fit():
    truth = pair(3, 3, 6, 6).originals.double()
    gain, offset = torch.tensor([0.3, 0.7, -0.5]).view(3, 1, 1), torch.tensor([0.5, 0.1, 0.8]).view(3, 1, 1)
    changed = Comparison(truth, truth * gain + offset, None, torch.zeros(3), None)
    assert float(PSNR()(changed).max()) < 20
    assert AffinePSNR()(changed) == pytest.approx([200.0] * 3)


def test_the_fit_is_of_the_whole_batch_and_not_of_each_image():
    truth = pair(2, 1, 6, 6).originals.double()
    changed = Comparison(truth, truth * torch.tensor([0.5, 0.9]).view(2, 1, 1, 1), None, torch.zeros(2), None)
    assert float(AffinePSNR()(changed).max()) < 60


def test_the_fit_leaves_out_what_was_not_reconstructed_and_a_flat_channel_becomes_the_mean():
    truth = pair(2, 1, 6, 6).originals.double()
    found = torch.stack([torch.full_like(truth[0], 0.2), torch.full_like(truth[1], torch.nan)])
    scores = AffinePSNR()(Comparison(truth, found, None, torch.zeros(2), None))
    assert float(scores[0]) == pytest.approx(-10 * float(truth[0].var(unbiased=False).log10()))
    assert bool(scores[1].isnan())
    assert bool(AffinePSNR()(Comparison(truth, truth * torch.nan, None, torch.zeros(2), None)).isnan().all())


def test_a_score_that_is_rounded_to_nothing_has_no_sign():
    assert SSIM().show(-0.0004) == SSIM().show(0.0004) == "0.000"
    assert SSIM().show(-0.0006) == "-0.001"
