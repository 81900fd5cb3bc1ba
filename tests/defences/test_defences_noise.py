"""Noise against its stated distribution, at fixed seeds; tolerances are five standard errors."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from leakgauge.defences import GaussianNoise, LaplaceNoise
from leakgauge.randomness import seeded

COUNT = 200_000
ZEROS = {"w": torch.zeros(COUNT, dtype=torch.float64)}


def drawn(noise, seed: int = 0) -> torch.Tensor:
    return noise.transform(ZEROS, generator=seeded(seed))["w"]


@pytest.mark.parametrize("std", [1e-4, 0.3, 20.0])
def test_gaussian_noise_has_mean_zero_and_the_stated_deviation(std):
    sample = drawn(GaussianNoise(std))
    assert abs(float(sample.mean())) < 5 * std / math.sqrt(COUNT)
    assert abs(float(sample.std()) / std - 1) < 5 / math.sqrt(2 * COUNT)
    assert stats.kstest(sample.numpy(), stats.norm(scale=std).cdf).pvalue > 1e-3


@pytest.mark.parametrize("scale", [1e-4, 0.3, 20.0])
def test_laplace_noise_has_mean_zero_and_the_stated_scale(scale):
    sample = drawn(LaplaceNoise(scale))
    # Mean |x| = scale with variance scale^2; deviation sqrt(2) scale, whose estimate has relative error sqrt(5 / 4n).
    assert abs(float(sample.mean())) < 5 * math.sqrt(2) * scale / math.sqrt(COUNT)
    assert abs(float(sample.abs().mean()) / scale - 1) < 5 / math.sqrt(COUNT)
    assert abs(float(sample.std()) / (math.sqrt(2) * scale) - 1) < 5 * math.sqrt(5 / 4 / COUNT)
    assert stats.kstest(sample.numpy(), stats.laplace(scale=scale).cdf).pvalue > 1e-3


@pytest.mark.parametrize("noise", [GaussianNoise(0.1), LaplaceNoise(0.1)], ids=repr)
def test_every_entry_and_every_tensor_gets_its_own_noise(noise):
    update = {"a": torch.zeros(50_000), "b": torch.zeros(50_000)}
    noisy = noise.transform(update, generator=seeded(0))
    pairs = torch.stack([noisy["a"], noisy["b"], noisy["a"].roll(1)])
    assert bool((torch.corrcoef(pairs)[0, 1:].abs() < 5 / math.sqrt(50_000)).all())
    assert noisy["a"].unique().numel() > 49_000
    assert not torch.equal(noisy["a"], noise.transform(update, generator=seeded(1))["a"])


@pytest.mark.parametrize("noise", [GaussianNoise(0.1), LaplaceNoise(0.1)], ids=repr)
def test_noise_is_added_to_the_update(noise):
    values = torch.linspace(-1, 1, COUNT, dtype=torch.float64)
    noisy = noise.transform({"w": values}, generator=seeded(0))["w"]
    torch.testing.assert_close(noisy - values, drawn(noise), rtol=0, atol=1e-12)


@pytest.mark.parametrize("noise", [GaussianNoise(0.1), LaplaceNoise(0.1)], ids=repr)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_noise_keeps_the_type_and_is_finite(noise, dtype):
    noisy = noise.transform(
        {"w": torch.zeros(1000, dtype=dtype), "scalar": torch.zeros((), dtype=dtype)}, generator=seeded(0)
    )
    assert all(tensor.dtype == dtype and bool(torch.isfinite(tensor).all()) for tensor in noisy.values())
