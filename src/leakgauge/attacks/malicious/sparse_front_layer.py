"""Bins of which every image fires one alone, so that several local steps do not blur them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from leakgauge.attacks.malicious.bins import BinContents, measures_of
from leakgauge.attacks.malicious.front_layer import Imprint, fronted
from leakgauge.errors import InvalidCase
from leakgauge.protocol.clients import algorithm
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.local_update import FedSGD
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.space import InputSpace
from leakgauge.types import ModelState


@dataclass(frozen=True)
class SparseFrontLayer(Imprint):
    """The sparse variant of `FrontLayer` [Fowl et al., 2022]: row i is trained by the images of bin i and no other.

    A row is (m(x) - c_i) / (c_i+1 - c_i), cut off below 0 and above 1, so that dW_i holds multiples of the images of
    its bin alone, however many steps of SGD they were added up in: x = dW_i / db_i where there was one. The second
    layer adds and subtracts the rows in turn, so that together they change the brightness by ``strength`` at most; more
    of it makes a larger update, which rounding hides less, and moves the rows further, into the next bins.
    """

    bins: int = 256
    measures: int = 1
    mean: float = 0.45
    spread: float = 0.2
    strength: float = 1.0
    server: ClassVar[str] = "puts a linear layer in front of the model, each row of which few images train"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.strength < float("inf"):
            raise InvalidCase(
                f"SparseFrontLayer(strength=...) is positive and finite, got {self.strength}; correct it."
            )

    def rebuild(
        self, learner: Learner, state: ModelState, space: InputSpace, public: Tensor | None
    ) -> tuple[nn.Module, ModelState]:
        measures = measures_of(space.shape, self.measures)
        edges = self.edges(measures, public)
        # The last bin is open.
        ends = torch.cat((edges[:, 1:], edges.new_full((self.measures, 1), 2.0)), dim=1)
        widths = (ends - edges).clamp(min=1e-9)
        weight = measures[:, None] / widths[..., None]
        return fronted(
            learner,
            state,
            weight=weight.flatten(0, 1),
            bias=(-edges / widths).flatten(),
            back=self.strength * self._signs(edges),
            shift=-self.strength * self.measures / 2,
            sparse=True,
        )

    def cells(self, observation: UpdateObservation) -> BinContents:
        sent, update = observation.state.params, observation.update.params
        weight, bias = (self.grouped(sent[f"front.{name}"]) for name in ("weight", "bias"))
        measures = measures_of(observation.space.shape, self.measures).to(weight.device)
        widths = (measures[:, None] * weight).sum(dim=2).reciprocal() * measures.square().sum(dim=1)[:, None]
        edges = -bias * widths
        contents, weights = (self.grouped(update[f"front.{name}"]) for name in ("weight", "bias"))
        if not isinstance(algorithm(observation.local_update), FedSGD):
            # A difference of parameters: what rounding left of the small step of a large bias. But what the measure
            # makes of a bin's content lies in the bin, and where that is narrow, this is the sharper of the two.
            middles = edges + widths / 2
            rounding = torch.finfo(observation.state.dtype).eps * bias.abs() / weights.abs()
            by_measure = (contents @ measures[..., None]).squeeze(2) / middles
            weights = torch.where((widths / middles.abs() < rounding), by_measure, weights)
        noise = 100 * torch.finfo(observation.state.dtype).eps * float(weights.abs().max())
        signs = self._signs(edges).view_as(weights)
        return BinContents(measures, edges, contents * signs[..., None], weights * signs, noise)

    @staticmethod
    def _signs(edges: Tensor) -> Tensor:
        """By turns 1 and -1, row by row of each measure."""
        return (1.0 - 2 * (torch.arange(edges.shape[1], device=edges.device) % 2)).to(edges).repeat(len(edges))
