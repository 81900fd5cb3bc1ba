"""Soteria: spoil the gradient of the layer that carries the representation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from leakgauge.errors import InvalidCase
from leakgauge.protocol.learner import Learner, probe_of
from leakgauge.protocol.local_update import UpdateTransform
from leakgauge.types import Batch, ModelState, ParamTree

_TOGETHER = 32
"""Features that are differentiated at a time; each takes the memory of a backward pass."""


@dataclass(frozen=True)
class Soteria(UpdateTransform):
    """Zero the columns of one linear layer's weight gradient that tell most of the input [Sun et al., 2021].

    With r the layer's input, the ``percentile`` per cent of the features with the lowest sum over the batch of
    |dr_i/dx| / |r_i| lose their column; one that a ReLU holds at zero scores zero and is among them, though its column
    was empty before. ``layer`` is the classifier unless named. Every other tensor leaves as it is:
    leaving the layer out of the matching breaks the defence [Balunović et al., 2022].
    """

    layer: str | None = None
    percentile: float = 80.0

    def __post_init__(self) -> None:
        if not 0 <= self.percentile <= 100:
            raise InvalidCase(f"Soteria(percentile=...) must lie in [0, 100], got {self.percentile}; correct it.")

    def apply(
        self, params: ParamTree, *, learner: Learner, state: ModelState, batch: Batch, generator: Generator
    ) -> ParamTree:
        del generator
        name = self._layer(learner, state, probe_of(batch.inputs))
        score = self.scores(learner, state, batch.inputs, name)
        keep = torch.ones_like(score, dtype=torch.bool)
        keep[score.argsort()[: round(self.percentile / 100 * len(score))]] = False
        return {**params, f"{name}.weight": params[f"{name}.weight"] * keep}

    def anticipate(self, params: ParamTree, *, observed: ParamTree) -> ParamTree:
        # An empty column is visible, whatever layer it is in; only the client can name the classifier.
        return {
            name: tensor * (observed[name] != 0).any(dim=0)
            if (tensor.ndim == 2 if self.layer is None else name == f"{self.layer}.weight")
            else tensor
            for name, tensor in params.items()
        }

    def distorted(self, learner: Learner, state: ModelState, probe: Tensor) -> tuple[str, ...]:
        return (f"{self._layer(learner, state, probe)}.weight",)

    def scores(self, learner: Learner, state: ModelState, images: Tensor, layer: str) -> Tensor:
        """sum_b |dr_bi/dx_b| / |r_bi| for each feature i that enters the layer; 0 for one that is always zero."""
        leaf = images.detach().requires_grad_()
        with torch.enable_grad():
            features = learner.layer_inputs(state, leaf, nn.Linear)[layer]
            units = torch.eye(features.shape[1], dtype=features.dtype, device=features.device)
            total = features.sum(dim=0)
            slopes = [
                torch.autograd.grad(total, leaf, chosen, is_grads_batched=True, retain_graph=True)[0]
                for chosen in units.split(_TOGETHER)
            ]
        lengths = torch.cat(slopes).flatten(2).norm(dim=2).T  # examples x features
        heights = features.detach().abs()
        return torch.where(heights > 0, lengths / heights, 0.0).sum(dim=0)

    def _layer(self, learner: Learner, state: ModelState, probe: Tensor) -> str:
        if self.layer is None:
            return learner.classifier(state, probe)
        linear = [name for name, layer in learner.module.named_modules() if isinstance(layer, nn.Linear)]
        if self.layer not in linear or f"{self.layer}.weight" not in state.params:
            raise InvalidCase(
                f"Soteria(layer={self.layer!r}) names no trainable linear layer of the model; choose from "
                f"{', '.join(linear) or 'none, as it has no linear layer'}."
            )
        return self.layer
