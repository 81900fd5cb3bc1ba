"""Searches one after another, each in other coordinates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Generator, Tensor

from leakgauge.attacks.base import Progress, Tick, silent
from leakgauge.attacks.budget import Budget
from leakgauge.attacks.matching.attack import GradientMatching
from leakgauge.attacks.matching.parametrisations import Coordinates
from leakgauge.attacks.matching.search import Search
from leakgauge.errors import InvalidCase
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.types import Outcome, Reconstruction

Kept = Literal["last", "closest"]


@dataclass(frozen=True)
class Leg:
    """One search of a relay, and its share of the budget."""

    attack: GradientMatching
    share: float


@dataclass(frozen=True)
class Relay:
    """Each search starts at the best iterate of the one before, restart by restart, under the labels of the first.

    ``kept`` is what is returned: the result of the last search, or of the one whose update came closest to the observed
    one, priors aside, which is all an attacker can judge by. The budget is shared out among the legs; their own
    budgets, and the restarts of all but the first, do not count.
    """

    legs: tuple[Leg, ...]
    kept: Kept = "last"
    budget: Budget = Budget(steps=1000)

    def __post_init__(self) -> None:
        if not self.legs or any(not leg.share > 0 for leg in self.legs):
            raise InvalidCase("A Relay needs at least one leg, each with a share above 0; correct `legs`.")
        if self.kept not in get_args(Kept):
            raise InvalidCase(f"A Relay keeps the last or the closest result, not {self.kept!r}; choose one.")
        for leg in self.legs[1:]:
            if not hasattr(leg.attack.parametrisation, "after"):
                raise InvalidCase(
                    f"{type(leg.attack.parametrisation).__name__} cannot go on from another search; put it first."
                )

    def __call__(
        self, observation: UpdateObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction:
        known(observation.num_examples, "num_examples", needed_by=self)
        found: list[tuple[float, Reconstruction]] = []
        handed: Callable[[GradientMatching], Coordinates] | None = None
        for index, leg in enumerate(self._budgeted()):
            search = leg.search([observation], generator=generator, coordinates=None if handed is None else handed(leg))
            result = search.run(self._told(index, found, progress))[0]
            found.append((float(search.matching_loss().min()), result))
            if result.outcome is Outcome.NON_FINITE:
                break
            handed = _handing(search)
            if observation.labels is None and result.labels is not None:
                observation = replace(observation, labels=result.labels)
        return self._chosen(found)

    def _budgeted(self) -> list[GradientMatching]:
        """The legs, each with its part of the budget."""
        total = sum(leg.share for leg in self.legs)
        restarts = self.legs[0].attack.restarts
        return [
            replace(leg.attack, restarts=restarts, budget=_part(self.budget, leg.share / total)) for leg in self.legs
        ]

    def _told(self, index: int, found: list[tuple[float, Reconstruction]], progress: Progress) -> Progress:
        """Progress of one leg, told as that of the whole."""
        total = sum(leg.share for leg in self.legs)
        before = sum(leg.share for leg in self.legs[:index]) / total
        steps = sum(int(result.facts["steps"]) for _, result in found)

        def tell(tick: Tick) -> None:
            fraction = before + tick.fraction * self.legs[index].share / total
            progress(Tick(steps + tick.step, min(1.0, fraction), tick.loss))

        return tell

    def _chosen(self, found: list[tuple[float, Reconstruction]]) -> Reconstruction:
        usable = [index for index, (_, result) in enumerate(found) if result.images is not None] or [0]
        last = max(usable)
        winner = min(usable, key=lambda index: found[index][0]) if self.kept == "closest" else last
        loss, result = found[winner]
        facts = {
            **result.facts,
            "steps": sum(int(one.facts["steps"]) for _, one in found),
            "leg": f"{winner + 1} of {len(self.legs)}",
            "matching loss": loss,
        }
        traces = [one.loss_trace for _, one in found if one.loss_trace is not None]
        return replace(result, facts=facts, loss_trace=torch.cat(traces))


def _handing(search: Search) -> Callable[[GradientMatching], Coordinates]:
    variables: Tensor = search.unknowns.split(search.best).images.detach().clone()
    earlier = search.unknowns.coordinates

    def handed(leg: GradientMatching) -> Coordinates:
        taken: Coordinates = leg.parametrisation.after(earlier, variables)  # type: ignore[attr-defined]
        return taken

    return handed


def _part(budget: Budget, share: float) -> Budget:
    return replace(
        budget,
        steps=None if budget.steps is None else max(1, round(share * budget.steps)),
        seconds=None if budget.seconds is None else share * budget.seconds,
    )
