"""All tensors but some."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leakgauge.attacks.matching.objectives.base import Objective
from leakgauge.types import ParamTree


@dataclass(frozen=True)
class LeavingOut(Objective):
    """Another objective on all tensors but those named, for a defence that spoils these [Balunović et al., 2022]."""

    objective: Objective
    tensors: tuple[str, ...]

    def __call__(self, candidate: ParamTree, observed: ParamTree) -> Tensor:
        return self.objective(self._kept(candidate), self._kept(observed))

    def at(self, spent: float) -> Objective:
        return replace(self, objective=self.objective.at(spent))

    def direction(self, candidate: ParamTree, observed: ParamTree) -> tuple[Tensor, dict[str, Tensor]]:
        value, found = self.objective.direction(self._kept(candidate), self._kept(observed))
        return value, {
            name: found[name] if name in found else torch.zeros_like(tensor) for name, tensor in candidate.items()
        }

    def _kept(self, params: ParamTree) -> ParamTree:
        return {name: tensor for name, tensor in params.items() if name not in self.tensors}
