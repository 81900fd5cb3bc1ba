"""A model that expects normalised inputs, as one that takes pixels in [0, 1]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from leakgauge.models.base import Normalisation, Normalise

NORMALISATIONS: Mapping[str, Normalisation] = {
    "imagenet": Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "cifar10": Normalisation((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)),
    "mnist": Normalisation((0.1307,), (0.3081,)),
    "half": Normalisation((0.5,), (0.5,)),
}
"""Means and deviations that are in common use; ``half`` maps [0, 1] to [-1, 1]."""


class Normalised(nn.Module):
    """``model`` behind (x - mean) / std: what a client's loader does, moved into the model, so that an update is of
    pixels in [0, 1]. One number for each channel, or one for all. The parameters are the model's own, and recorded
    rounds find them under its own names.
    """

    def __init__(self, model: nn.Module, mean: float | Sequence[float], std: float | Sequence[float]) -> None:
        super().__init__()
        means = (mean,) if isinstance(mean, float | int) else tuple(mean)
        stds = (std,) if isinstance(std, float | int) else tuple(std)
        # No part of a state dict: the client's model has no such entries.
        self.normalise = Normalise(Normalisation(means, stds), persistent=False)
        self.normalised = model

    def forward(self, inputs: Tensor) -> Any:
        return self.normalised(self.normalise(inputs))
