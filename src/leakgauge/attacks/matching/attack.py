"""Gradient matching: find images whose update looks like the observed one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator

from leakgauge.attacks.base import LabelAttack, SteppedAttack, finite_update
from leakgauge.attacks.budget import Budget, OwnBudget
from leakgauge.attacks.labels.best import BestLabels
from leakgauge.attacks.matching.adam_step import is_one_adam_step, read_gradient, soften_adam
from leakgauge.attacks.matching.differentiation import Automatic, Differentiation
from leakgauge.attacks.matching.loss import FreeLabels, Unknowns
from leakgauge.attacks.matching.objectives import Cosine, Objective
from leakgauge.attacks.matching.optimisers import Optimiser, SignedAdam
from leakgauge.attacks.matching.parametrisations import Coordinates, Parametrisation, Pixels
from leakgauge.attacks.matching.priors import Penalties, Prior
from leakgauge.attacks.matching.priors.following import FollowingPrior
from leakgauge.attacks.matching.problem import MatchingProblem
from leakgauge.attacks.matching.search import Search
from leakgauge.attacks.matching.surrogate import StraightLine
from leakgauge.errors import InvalidCase
from leakgauge.protocol.losses import Targets
from leakgauge.protocol.observation import UpdateObservation, known


@dataclass(frozen=True)
class GradientMatching(SteppedAttack, OwnBudget):
    """Minimise objective(update of the candidate, observed update) + priors, from several starts.

    The iterate and the restart that are returned are those with the lowest loss the attacker itself can compute.
    """

    objective: Objective = Cosine()
    priors: tuple[Prior | FollowingPrior, ...] = ()
    parametrisation: Parametrisation = Pixels()
    optimiser: Optimiser[Any] = SignedAdam()
    labels: LabelAttack | FreeLabels | None = BestLabels()
    differentiation: Differentiation = Automatic()
    restarts: int = 1
    budget: Budget = Budget(steps=1000)

    def __post_init__(self) -> None:
        if self.restarts < 1:
            raise InvalidCase(f"GradientMatching needs restarts >= 1, got {self.restarts}.")

    def search(
        self,
        observations: Sequence[UpdateObservation],
        *,
        generator: Generator,
        coordinates: Coordinates | None = None,
    ) -> Search:
        """The attack at its start, to be stepped, interrupted and resumed by whoever holds it.

        Several observations of one model are attacked side by side; each is explained on its own. ``coordinates``
        take the place of the parametrisation's, to go on from what another search has found.
        """
        problems = [self.problem(observation, generator=generator) for observation in observations]
        first, seen = problems[0], observations[0]
        unknowns = Unknowns(
            coordinates or self.parametrisation.bind(seen, len(first.labels)),
            len(first.labels),
            seen.space,
            first.labels.shape[1] if isinstance(self.labels, FreeLabels) and seen.labels is None else None,
            isinstance(first.client(), StraightLine),
        )
        if any(not _comparable(problem, first) for problem in problems[1:]):
            raise InvalidCase("Updates are attacked together only if model, client and batch size agree; split them.")
        start = unknowns.start(self.restarts * len(problems), generator=generator).to(
            device=first.state.device, dtype=first.state.dtype
        )
        return Search(
            problems=tuple(problems),
            unknowns=unknowns,
            penalties=Penalties(self.priors, observations),
            optimiser=self.optimiser,
            differentiation=self.differentiation,
            restarts=self.restarts,
            budget=self.budget,
            start=start,
        )

    def problem(self, observation: UpdateObservation, *, generator: Generator) -> MatchingProblem:
        """What is to be explained, with the labels known or restored, or as probabilities if they are to be found."""
        finite_update(observation)
        num_examples = known(observation.num_examples, "num_examples", needed_by=self)
        labels = observation.labels
        if observation.learner.targets is Targets.TOKENS:
            labels = torch.zeros(
                num_examples, dtype=torch.long, device=observation.state.device
            )  # nobody looks at them
        elif labels is None and isinstance(self.labels, FreeLabels):
            classes = observation.learner.num_classes(observation.state, observation.probe)
            labels = torch.full((num_examples, classes), 1 / classes).to(
                observation.state.device, observation.state.dtype
            )
        elif labels is None:
            rule: LabelAttack = known(self.labels, "labels", needed_by=self)  # type: ignore[assignment]
            labels = rule.restore(observation, generator=generator)
            if len(labels) != num_examples:
                raise InvalidCase(
                    f"{rule!r} restored {len(labels)} labels for {num_examples} examples; "
                    "use a rule for labels that gives each example one."
                )
        objective = self.objective
        if is_one_adam_step(observation):
            observation, objective = read_gradient(observation)
        else:
            observation = soften_adam(observation)
        return MatchingProblem(
            learner=observation.learner,
            state=observation.state,
            local_update=known(observation.local_update, "local_update", needed_by=self),
            observed=observation.update.params,
            objective=objective,
            labels=labels,
        )


def _comparable(one: MatchingProblem, two: MatchingProblem) -> bool:
    return (
        one.state is two.state
        and one.local_update == two.local_update
        and one.objective == two.objective
        and one.labels.shape == two.labels.shape
        and one.labels.dtype == two.labels.dtype
    )
