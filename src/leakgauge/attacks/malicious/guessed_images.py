"""What a server without public images takes images to be like."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from leakgauge.types import Shape

# Brightness and contrast of the embedded photographs and of CIFAR-10 lie within these.
_BRIGHTNESS, _BRIGHTNESS_SPREAD = 0.45, 0.15
_CONTRAST, _CONTRAST_SPREAD = 0.2, 0.4
_COLOUR = 0.3
_FALL = 1.5


def guess_images(shape: Shape, count: int, generator: Generator) -> Tensor:
    """Random fields whose amplitudes fall with the frequency, as in natural images [Field, 1987], in float64.

    >>> guess_images((3, 8, 8), 2, torch.Generator()).shape
    torch.Size([2, 3, 8, 8])
    """
    channels, height, width = shape
    noise = torch.randn(count, channels, height, width, generator=generator, dtype=torch.float64)
    # Colours vary less than light does.
    noise = noise[:, :1] + _COLOUR * noise
    rows = torch.fft.fftfreq(height, dtype=torch.float64)[:, None]
    columns = torch.fft.rfftfreq(width, dtype=torch.float64)[None]
    frequency = (rows.square() + columns.square()).sqrt()
    frequency[0, 0] = torch.inf  # brightness is drawn on its own
    fields = torch.fft.irfft2(torch.fft.rfft2(noise) / frequency**_FALL, s=(height, width))
    fields = fields / fields.std(dim=(1, 2, 3), keepdim=True).clamp(min=1e-9)
    drawn = torch.randn(2, count, 1, 1, 1, generator=generator, dtype=torch.float64)
    brightness = _BRIGHTNESS + _BRIGHTNESS_SPREAD * drawn[0]
    return (brightness + _CONTRAST * (_CONTRAST_SPREAD * drawn[1]).exp() * fields).clamp(0, 1)
