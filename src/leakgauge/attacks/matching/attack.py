"""Gradient matching: find images whose update looks like the observed one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from leakgauge.attacks.base import LabelAttack, Progress, Tick, finite_update, silent
from leakgauge.attacks.labels.idlg import IDLG
from leakgauge.attacks.matching.differentiation import (
    Automatic,
    Differentiation,
    MatchingProblem,
    ValueAndGradient,
    plan_evaluation,
)
from leakgauge.attacks.matching.objectives import Cosine, Objective
from leakgauge.attacks.matching.optimisers import Optimiser, SignedAdam
from leakgauge.attacks.matching.parametrisations import Parametrisation, Pixels
from leakgauge.attacks.matching.priors import Prior
from leakgauge.errors import InvalidCase
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.types import Outcome, Reconstruction


@dataclass(frozen=True)
class GradientMatching:
    """Minimise objective(update of the candidate, observed update) + priors, from several starts.

    The iterate and the restart that are returned are those with the lowest loss the attacker itself can compute.
    """

    objective: Objective = Cosine()
    priors: tuple[Prior, ...] = ()
    parametrisation: Parametrisation = Pixels()
    optimiser: Optimiser = SignedAdam()
    labels: LabelAttack | None = IDLG()
    differentiation: Differentiation = Automatic()
    restarts: int = 1

    def __post_init__(self) -> None:
        if self.restarts < 1:
            raise InvalidCase(f"GradientMatching needs restarts >= 1, got {self.restarts}.")

    def __call__(
        self, observation: UpdateObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction:
        problem = self.problem(observation)
        start = self.parametrisation.start(
            self.restarts, len(problem.labels), observation.image_shape, generator=generator
        ).to(device=observation.state.device, dtype=observation.state.dtype)
        evaluator = plan_evaluation(problem, self.differentiation, self.parametrisation.decode(start).detach())
        search = self._minimise(lambda variables: self._loss(evaluator.evaluate, variables), start, progress)
        facts: dict[str, str | int | float] = {
            "route": evaluator.route,
            "steps": len(search.trace),
            "restarts": self.restarts,
        }
        if search.outcome is Outcome.NON_FINITE:
            return Reconstruction(None, problem.labels, search.outcome, search.trace, facts)
        with torch.no_grad():
            images = self.parametrisation.decode(search.variables[None])[0].clamp(0, 1)
        return Reconstruction(images, problem.labels, search.outcome, search.trace, facts | {"loss": search.loss})

    def problem(self, observation: UpdateObservation) -> MatchingProblem:
        """What is to be explained, with the labels known or restored."""
        observed = finite_update(observation)
        known(observation.num_examples, "num_examples", needed_by=self)
        labels = observation.labels
        if labels is None:
            labels = known(self.labels, "labels", needed_by=self).restore(observation)
        return MatchingProblem(
            learner=observation.learner,
            state=observation.state,
            local_update=known(observation.local_update, "local_update", needed_by=self),
            observed=observed,
            objective=self.objective,
            labels=labels,
        )

    def _loss(self, match: Callable[[Tensor], ValueAndGradient], variables: Tensor) -> ValueAndGradient:
        """Matching loss plus priors, one value per restart, and its gradient in the variables."""
        leaf = variables.detach().requires_grad_()
        with torch.enable_grad():
            images = self.parametrisation.decode(leaf)
        value, gradient = match(images.detach())
        if self.priors:
            # The priors differentiate separately, so that every route stays free of them.
            pixels = images.detach().requires_grad_()
            with torch.enable_grad():
                penalty = torch.stack([prior(pixels) for prior in self.priors]).sum(dim=0)
            value = value + penalty.detach()
            gradient = gradient + torch.autograd.grad(penalty.sum(), pixels)[0]
        if images is not leaf:
            (gradient,) = torch.autograd.grad(images, leaf, grad_outputs=gradient)
        return ValueAndGradient(value, gradient)

    def _minimise(self, evaluate: Callable[[Tensor], ValueAndGradient], start: Tensor, progress: Progress) -> _Search:
        optimiser = self.optimiser
        state = optimiser.start(start, self.parametrisation.box)
        best = start.clone()
        lowest = torch.full((len(start),), float("inf"), dtype=start.dtype, device=start.device)
        trace = []
        outcome = Outcome.STEPS_EXHAUSTED
        for step in range(1, optimiser.steps + 1):
            value, gradient = evaluate(state.candidate)
            trace.append(value)
            better = value < lowest
            lowest = torch.where(better, value, lowest)
            best[better] = state.candidate[better]
            progress(Tick(step, step / optimiser.steps, float(lowest.min())))
            if not bool(torch.isfinite(value).any()) and step == 1:
                outcome = Outcome.NON_FINITE
                break
            state = optimiser.advance(state, value, gradient.nan_to_num(0.0, 0.0, 0.0))
            if bool(state.converged.all()):
                outcome = Outcome.CONVERGED
                break
        winner = int(lowest.argmin())
        return _Search(best[winner], float(lowest[winner]), torch.stack(trace)[:, winner], outcome)


class _Search(NamedTuple):
    variables: Tensor
    loss: float
    trace: Tensor
    outcome: Outcome
