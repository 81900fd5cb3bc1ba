"""Bringing one image over another by whole pixels."""

from __future__ import annotations

import torch
from torch import Tensor


def shifts(moving: Tensor, target: Tensor) -> Tensor:
    """Rows and columns by which to roll each image ``... c h w`` so that it comes nearest to its target.

    The peak of the circular cross-correlation, taken by FFT: a roll keeps an image's length, so the largest product
    with the target is the smallest distance |roll(x) - y|_2 over all rolls.
    """
    height, width = moving.shape[-2:]
    spectrum = torch.fft.rfft2(target) * torch.fft.rfft2(moving).conj()
    agreement = torch.fft.irfft2(spectrum, s=(height, width)).sum(dim=-3)
    peak = agreement.flatten(-2).argmax(dim=-1)
    return torch.stack([peak // width, peak % width], dim=-1)


def roll(images: Tensor, by: Tensor) -> Tensor:
    """Each image ``... c h w`` rolled by its own rows and columns."""
    height, width = images.shape[-2:]
    rows = (torch.arange(height, device=images.device) - by[..., 0, None]) % height
    columns = (torch.arange(width, device=images.device) - by[..., 1, None]) % width
    moved = torch.take_along_dim(images, rows[..., None, :, None], dim=-2)
    return torch.take_along_dim(moved, columns[..., None, None, :], dim=-1)


def register(moving: Tensor, target: Tensor) -> Tensor:
    """Each image at the place where it comes nearest to its target."""
    target = target.expand_as(moving)
    return roll(moving, shifts(moving, target))
