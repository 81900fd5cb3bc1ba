"""What a search minimises: the matching loss of its rows plus what priors add to it."""

from __future__ import annotations

import torch
from torch import Tensor

from leakgauge.attacks.matching.differentiation import Differentiation, Rows, plan_evaluation
from leakgauge.attacks.matching.objectives import Objective
from leakgauge.attacks.matching.priors import Prior
from leakgauge.attacks.matching.problem import MatchingProblem
from leakgauge.attacks.matching.unknowns import Unknowns
from leakgauge.types import ParamTree


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
