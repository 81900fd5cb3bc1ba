"""What a search moves, and what it minimises: the matching loss of its rows plus what priors add to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from leakgauge.attacks.matching.differentiation import Differentiation, Rows, plan_evaluation
from leakgauge.attacks.matching.objectives import Objective
from leakgauge.attacks.matching.parametrisations import Box, Coordinates
from leakgauge.attacks.matching.priors import Prior
from leakgauge.attacks.matching.problem import MatchingProblem
from leakgauge.space import InputSpace
from leakgauge.types import ParamTree


@dataclass(frozen=True)
class FreeLabels:
    """Class probabilities, found along with the images: softmax of logits that start at N(0, 1) [Zhu et al., 2019]."""


class Candidates(NamedTuple):
    """One row per candidate; ``logits`` and ``position`` only where they are unknown."""

    images: Tensor
    logits: Tensor | None
    position: Tensor | None


@dataclass(frozen=True)
class Unknowns:
    """How the parts lie side by side in one vector; images alone keep their own shape."""

    coordinates: Coordinates
    num_examples: int
    space: InputSpace
    classes: int | None
    position: bool

    def start(self, rows: int, *, generator: Generator) -> Tensor:
        images = self.coordinates.start(rows, self.num_examples, self.space.shape, generator=generator)
        if self.classes is None and not self.position:
            return images
        parts = [images.flatten(1)]
        if self.classes is not None:
            parts.append(torch.randn(rows, self.num_examples * self.classes, generator=generator))
        if self.position:
            parts.append(torch.full((rows, 1), 0.5))
        return torch.cat(parts, dim=1)

    @property
    def box(self) -> Box | None:
        box = self.coordinates.box
        if self.classes is None and not self.position:
            return box
        low, high = (float("-inf"), float("inf")) if box is None else box
        pixels, labels = self._sizes()
        bounds = []
        for bound, unbounded, last in ((low, float("-inf"), 0.0), (high, float("inf"), 1.0)):
            parts = [torch.as_tensor(bound).expand(pixels), torch.full((labels,), unbounded)]
            bounds.append(torch.cat([*parts, torch.full((int(self.position),), last)]))
        return bounds[0], bounds[1]

    def split(self, variables: Tensor) -> Candidates:
        """The parts of each row, as views."""
        if self.classes is None and not self.position:
            return Candidates(variables, None, None)
        pixels, labels = self._sizes()
        rows = len(variables)
        shape = self.shape()
        logits = variables[:, pixels : pixels + labels].view(rows, self.num_examples, -1) if labels else None
        position = variables[:, pixels + labels :].view(rows) if self.position else None
        return Candidates(variables[:, :pixels].view(rows, *shape), logits, position)

    def shape(self) -> torch.Size:
        generator = torch.Generator().manual_seed(0)
        return self.coordinates.start(1, self.num_examples, self.space.shape, generator=generator).shape[1:]

    def _sizes(self) -> tuple[int, int]:
        labels = 0 if self.classes is None else self.num_examples * self.classes
        return self.shape().numel(), labels


class RowsLoss:
    """One value for each row of variables; rows are victims times restarts."""

    def __init__(
        self,
        problems: tuple[MatchingProblem, ...],
        unknowns: Unknowns,
        restarts: int,
        differentiation: Differentiation,
        start: Tensor,
    ) -> None:
        self.unknowns = unknowns
        self.labels = torch.stack([problem.labels for problem in problems]).repeat_interleave(restarts, dim=0)
        self.observed = _stack_observed(problems, restarts)
        self.evaluator = plan_evaluation(problems[0], differentiation, self.rows(start))

    def rows(self, variables: Tensor) -> Rows:
        """The candidates, not to be differentiated."""
        parts = self.unknowns.split(variables)
        with torch.no_grad():
            images = self.unknowns.coordinates.decode(parts.images)
        return Rows(images, self._labels(parts.logits), self.observed, parts.position)

    def matching(self, rows: Rows, objective: Objective) -> Tensor:
        """Without priors."""
        return self.evaluator.evaluate(rows, objective).value

    def with_gradient(
        self, variables: Tensor, objective: Objective, priors: tuple[Prior, ...]
    ) -> tuple[Tensor, Tensor]:
        """Matching loss plus priors, and its gradient in the variables."""
        leaf = variables.detach().requires_grad_()
        with torch.enable_grad():
            parts = self.unknowns.split(leaf)
            images = self.unknowns.coordinates.decode(parts.images)
            labels = self._labels(parts.logits)
        position = None if parts.position is None else parts.position.detach()
        found = self.evaluator.evaluate(Rows(images.detach(), labels.detach(), self.observed, position), objective)
        value, gradient = found.value, found.gradient
        if priors:
            # The priors differentiate separately, so that every route stays free of them.
            pixels = images.detach().requires_grad_()
            with torch.enable_grad():
                penalty = torch.stack([prior(pixels) for prior in priors]).sum(dim=0)
            value = value + penalty.detach()
            gradient = gradient + torch.autograd.grad(penalty.sum(), pixels)[0]
        if images is leaf:
            return value, gradient
        outputs, seeds = [images], [gradient]
        for part, own, derivative in (
            (parts.logits, labels, found.labels),
            (parts.position, parts.position, found.position),
        ):
            if part is not None:
                assert own is not None
                assert derivative is not None, "the route gave no derivative of what is unknown"
                outputs, seeds = [*outputs, own], [*seeds, derivative]
        return value, torch.autograd.grad(outputs, leaf, grad_outputs=seeds)[0]

    def _labels(self, logits: Tensor | None) -> Tensor:
        return self.labels if logits is None else logits.softmax(dim=-1)


def _stack_observed(problems: tuple[MatchingProblem, ...], restarts: int) -> ParamTree | None:
    """The updates of several victims, row by row; one is the same for all rows."""
    if len(problems) == 1:
        return None
    return {
        name: torch.stack([problem.observed[name] for problem in problems]).repeat_interleave(restarts, dim=0)
        for name in problems[0].observed
    }
