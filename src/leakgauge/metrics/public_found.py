"""How many of the public images in an encoding were named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from leakgauge.metrics.alignment import Comparison
from leakgauge.metrics.base import Kind, Metric


@final
@dataclass(frozen=True)
class PublicFound(Metric):
    """The share of the public images in an encoding that the attack named."""

    name, title, heading = "public_found", "Public images named", "public"
    serves = Kind.NAMES
    standard = False

    def __call__(self, comparison: Comparison) -> Tensor:
        if comparison.public is None:
            return torch.full((len(comparison.originals),), torch.nan, dtype=torch.float64)
        shares = hit_members(*comparison.public).double().mean(dim=1)
        return torch.where(comparison.measured, shares, torch.nan)


def hit_members(answers: Tensor, members: Tensor) -> Tensor:
    """Which of the members (q x j) are among the answers (q x m).

    >>> hit_members(torch.tensor([[4, 2]]), torch.tensor([[2, 3]]))
    tensor([[ True, False]])
    """
    return (answers[:, :, None] == members[:, None]).any(dim=1)
