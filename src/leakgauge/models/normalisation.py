"""Normalisation lives inside the model, so that everything outside it speaks in the units of the inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakgauge.errors import InvalidCase

# A channel that varies by less than one grey level shows no picture; dividing by its deviation would blow up noise.
_SMALLEST_STD = 1 / 255


@dataclass(frozen=True)
class Normalisation:
    """Mean and standard deviation of each channel of the images, or each entry of the rows, that a model expects.

    >>> Normalisation.natural(channels=1)
    Normalisation(mean=(0.5,), std=(0.25,))
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.mean or len(self.mean) != len(self.std):
            raise InvalidCase(
                f"A normalisation needs one mean and one std per channel, got {len(self.mean)} and {len(self.std)}; "
                "pass two tuples with one entry per channel."
            )
        if not all(math.isfinite(value) for value in (*self.mean, *self.std)) or min(self.std) <= 0:
            raise InvalidCase(
                f"A normalisation needs finite means and positive stds, got mean={self.mean} and std={self.std}; "
                "compute them with `Normalisation.of(images)`."
            )

    @classmethod
    def natural(cls, channels: int) -> Normalisation:
        """Mean 0.5, std 0.25: close to natural photographs (CIFAR-10: 0.47, 0.25), but not learnt from any data set."""
        return cls((0.5,) * channels, (0.25,) * channels)

    @classmethod
    def of(cls, inputs: Tensor) -> Normalisation:
        """Mean and biased standard deviation of each channel of images n c h w, or of each entry of rows n k.

        The std of a channel is at least one grey level; an entry that never changes keeps its unit.

        >>> Normalisation.of(torch.tensor([0.25, 0.75]).reshape(2, 1, 1, 1))
        Normalisation(mean=(0.5,), std=(0.25,))
        """
        if inputs.ndim not in (2, 4) or inputs.numel() == 0:
            raise InvalidCase(
                f"A normalisation is computed from images n c h w or rows n k, got shape {tuple(inputs.shape)}; "
                "pass at least one with its batch dimension."
            )
        # float64, because a float32 sum over a whole data set loses digits.
        values = inputs.detach().to(torch.float64).transpose(0, 1).flatten(start_dim=1)
        std = values.std(dim=1, correction=0)
        std = std.clamp(min=_SMALLEST_STD) if inputs.ndim == 4 else torch.where(std > 0, std, 1.0)
        return cls(tuple(values.mean(dim=1).tolist()), tuple(std.tolist()))


class Normalise(nn.Module):
    """``(x - mean) / std`` per channel or entry; ``axes`` follow it, as height and width follow a channel."""

    mean: Tensor
    std: Tensor

    def __init__(self, normalisation: Normalisation, axes: int = 2) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(normalisation.mean).reshape(-1, *(1,) * axes))
        self.register_buffer("std", torch.tensor(normalisation.std).reshape(-1, *(1,) * axes))

    def forward(self, inputs: Tensor) -> Tensor:
        return (inputs - self.mean) / self.std
