from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, final

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, conv2d

from leakgauge.metrics.alignment import Comparison
from leakgauge.metrics.base import Kind, Metric

# The constants of the paper: scales and orientations of the log-Gabor filters, and what keeps the ratios finite.
_SCALES, _ORIENTATIONS = 4, 4
_SHORTEST_WAVE, _STEP = 6.0, 2.0
_BANDWIDTH, _ANGULAR = 0.55, 1.2
_CUTOFF, _ORDER = 0.45, 15
_NOISE_DEVIATIONS, _NOISE_DIVISOR = 2.0, 1.7
_T_PHASE, _T_GRADIENT, _T_COLOUR, _COLOUR_POWER = 0.85, 160.0, 200.0, 0.03
_EPSILON = 1e-4
_VIEWED_SIDE = 256
_SMALLEST_SIDE = 8

_YIQ = ((0.299, 0.587, 0.114), (0.596, -0.274, -0.322), (0.211, -0.523, 0.312))
_SCHARR = ((3.0, 0.0, -3.0), (10.0, 0.0, -10.0), (3.0, 0.0, -3.0))


@final
@dataclass(frozen=True)
class FSIM(Metric):
    """Feature similarity of pixels in [0, 1], 1 for equal images [Zhang et al., 2011, FSIM and FSIMc].

    Likeness of phase congruency [Kovesi, 1999] and of gradient magnitude, weighted by the larger phase congruency of
    the two; colour images are compared in chrominance too unless ``chromatic`` is off. Sides below 8 are not measured.

    >>> image = torch.eye(16).view(1, 1, 16, 16)
    >>> FSIM()(Comparison(image, image, None, torch.zeros(1), None))
    tensor([1.], dtype=torch.float64)
    """

    name, title = "fsim", "FSIM"
    serves = Kind.IMAGES

    chromatic: bool = True

    def __call__(self, comparison: Comparison) -> Tensor:
        scores = torch.full(comparison.originals.shape[:1], torch.nan, dtype=torch.float64)
        rows = comparison.measured.nonzero().flatten()
        if min(comparison.originals.shape[2:]) < _SMALLEST_SIDE or not len(rows):
            return scores
        one, two = (
            _Features.of(images[rows].double()) for images in (comparison.originals, comparison.reconstructions)
        )
        weight = torch.maximum(one.phase, two.phase)
        likeness = _likeness(one.phase, two.phase, _T_PHASE) * _likeness(one.gradient, two.gradient, _T_GRADIENT)
        if self.chromatic and one.colour is not None and two.colour is not None:
            hues = _likeness(one.colour, two.colour, _T_COLOUR).prod(dim=1)
            # A negative likeness of hues has no power; its real part is the published code's.
            likeness = (
                likeness * hues.abs().pow(_COLOUR_POWER) * torch.where(hues < 0, math.cos(math.pi * _COLOUR_POWER), 1.0)
            )
        total = weight.sum(dim=(1, 2))
        scores[rows] = torch.where(
            total > 0, (likeness * weight).sum(dim=(1, 2)) / total.clamp_min(1e-300), likeness.mean(dim=(1, 2))
        ).cpu()
        return scores


class _Features(NamedTuple):
    """Phase congruency and gradient magnitude n h w; I and Q of a colour image n 2 h w."""

    phase: Tensor
    gradient: Tensor
    colour: Tensor | None

    @classmethod
    def of(cls, images: Tensor) -> _Features:
        images = 255 * images
        if images.shape[1] == 3:
            planes = torch.einsum("ij,njhw->nihw", torch.tensor(_YIQ, dtype=images.dtype), images)
        else:
            planes = images.mean(dim=1, keepdim=True)
        # As seen from a distance at which the shorter side spans about 256 pixels.
        factor = max(1, round(min(images.shape[2:]) / _VIEWED_SIDE))
        if factor > 1:
            planes = avg_pool2d(planes, factor)
        light = planes[:, :1]
        scharr = torch.tensor(_SCHARR, dtype=images.dtype) / 16
        slopes = conv2d(light, torch.stack([scharr, scharr.T])[:, None], padding=1)
        return cls(
            phase_congruency(light[:, 0]),
            slopes.square().sum(dim=1).sqrt(),
            planes[:, 1:] if planes.shape[1] > 1 else None,
        )


def _likeness(one: Tensor, two: Tensor, constant: float) -> Tensor:
    return (2 * one * two + constant) / (one.square() + two.square() + constant)


def phase_congruency(images: Tensor) -> Tensor:
    """In [0, 1] for each pixel of n h w: how far the waves of all scales are in step there [Kovesi, 1999]."""
    height, width = images.shape[1:]
    filters = _log_gabor(height, width).to(images.device)
    spectrum = torch.fft.fft2(images)
    energy, amplitude = torch.zeros_like(images), torch.zeros_like(images)
    for bank in filters:  # of one orientation, all scales
        waves = torch.fft.ifft2(spectrum[:, None] * bank)
        total = waves.sum(dim=1)
        mean = total / (total.abs() + _EPSILON)
        # Along the mean phase, less across it.
        turned = waves * mean.conj()[:, None]
        own = (turned.real - turned.imag.abs()).sum(dim=1)
        energy = energy + (own - _noise(waves[:, 0], bank)[:, None, None]).clamp_min(0)
        amplitude = amplitude + waves.abs().sum(dim=1)
    return energy / amplitude.clamp_min(1e-300)


def _noise(finest: Tensor, bank: Tensor) -> Tensor:
    """The energy that noise alone would reach, estimated from the finest scale's median, for each image."""
    # The lower of two middle values would do; the mean of both is what the published code takes.
    power = finest.abs().square().flatten(1).quantile(0.5, dim=1) / math.log(2) / bank[0].square().sum()
    spread = torch.fft.ifft2(bank).real * math.sqrt(bank[0].numel())
    squares = spread.square().sum()
    crossed = (spread.sum(dim=0).square().sum() - squares) / 2
    tau = (power * (squares + 2 * crossed)).sqrt()
    mean, deviation = tau * math.sqrt(math.pi / 2), tau * math.sqrt(2 - math.pi / 2)
    return (mean + _NOISE_DEVIATIONS * deviation) / _NOISE_DIVISOR


@lru_cache(maxsize=8)
def _log_gabor(height: int, width: int) -> Tensor:
    """Filters in the frequency domain: orientations scales h w."""
    down, across = torch.meshgrid(_frequencies(height), _frequencies(width), indexing="ij")
    radius = (down.square() + across.square()).sqrt()
    low_pass = 1 / (1 + (radius / _CUTOFF) ** (2 * _ORDER))
    radius[0, 0] = 1  # of no wave; its filter is set to zero below
    theta = torch.atan2(-down, across)
    radial = []
    for scale in range(_SCALES):
        centre = 1 / (_SHORTEST_WAVE * _STEP**scale)
        one = torch.exp(-(radius / centre).log().square() / (2 * math.log(_BANDWIDTH) ** 2)) * low_pass
        one[0, 0] = 0
        radial.append(one)
    width_of_angle = math.pi / _ORIENTATIONS / _ANGULAR
    angular = []
    for orientation in range(_ORIENTATIONS):
        angle = theta - orientation * math.pi / _ORIENTATIONS
        off = torch.atan2(angle.sin(), angle.cos()).abs()
        angular.append(torch.exp(-off.square() / (2 * width_of_angle**2)))
    return torch.stack(angular)[:, None] * torch.stack(radial)


def _frequencies(size: int) -> Tensor:
    """Of each bin, the zero first; an odd size is stretched to end at one half, as in the published code."""
    steps = torch.fft.fftfreq(size, dtype=torch.float64)
    return steps * size / (size - 1) if size % 2 else steps
