"""Searches one after another, each in other coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Generator

from leakgauge.attacks.base import Snapshot, SteppedAttack, Stepper
from leakgauge.attacks.budget import Budget, OwnBudget
from leakgauge.attacks.matching.attack import GradientMatching
from leakgauge.attacks.matching.parametrisations import Successor
from leakgauge.attacks.matching.search import Search
from leakgauge.attacks.matching.surrogate import StandIn
from leakgauge.errors import InvalidCase, InvalidFile
from leakgauge.progress import Tick
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.types import Outcome, Reconstruction

Kept = Literal["last", "closest"]


@dataclass(frozen=True)
class Leg:
    """One search of a relay, and its share of the budget."""

    attack: GradientMatching
    share: float
    stand_in: StandIn | None = None
    """What this leg takes the client for; None = for what it is."""


@dataclass(frozen=True)
class Relay(SteppedAttack, OwnBudget):
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
            if not isinstance(leg.attack.parametrisation, Successor):
                raise InvalidCase(
                    f"{type(leg.attack.parametrisation).__name__} cannot go on from another search; put it first."
                )

    def search(self, observations: Sequence[UpdateObservation], *, generator: Generator) -> RelaySearch:
        for observation in observations:
            known(observation.num_examples, "num_examples", needed_by=self)
        return RelaySearch(self, tuple(observations), generator)

    def share_out(self) -> tuple[GradientMatching, ...]:
        """The legs, each with its part of the budget."""
        total = sum(leg.share for leg in self.legs)
        restarts = self.legs[0].attack.restarts
        return tuple(
            replace(leg.attack, restarts=restarts, budget=self.budget.part(leg.share / total)) for leg in self.legs
        )


class RelaySearch(Stepper):
    """A relay under way: the searches that were begun, of which the last is being stepped."""

    def __init__(self, relay: Relay, observations: tuple[UpdateObservation, ...], generator: Generator) -> None:
        self.relay, self.observations, self.generator = relay, observations, generator
        self.legs = relay.share_out()
        self.searches: tuple[Search, ...] = ()
        self.notes: dict[str, str | int | float] = {}
        self._begin()

    @property
    def steps(self) -> int:
        return sum(search.steps for search in self.searches)

    @property
    def outcome(self) -> Outcome | None:
        """How the whole has ended: with its last leg, or with one from which there is no going on."""
        last = self.searches[-1].outcome
        return last if last is Outcome.NON_FINITE or len(self.searches) == len(self.legs) else None

    def step(self) -> Tick:
        """One step of the leg at hand; where it has ended, of the next."""
        if self.searches[-1].outcome is not None:
            self._begin()
        tick = self.searches[-1].step()
        shares = [leg.share for leg in self.relay.legs]
        index = len(self.searches) - 1
        fraction = (sum(shares[:index]) + tick.fraction * shares[index]) / sum(shares)
        before = sum(search.steps for search in self.searches[:-1])
        return Tick(before + tick.step, 1.0 if self.outcome else min(1.0, fraction), tick.loss)

    def _begin(self) -> None:
        """Start the next leg where the one before has arrived; until it stands, nothing here changes."""
        leg, observations, coordinates = self.legs[len(self.searches)], self.observations, None
        if self.searches:
            earlier = self.searches[-1]
            variables = earlier.unknowns.split(earlier.best).images.detach().clone()
            assert isinstance(leg.parametrisation, Successor)
            coordinates = leg.parametrisation.after(earlier.unknowns.coordinates, variables)
            observations = tuple(
                replace(seen, labels=found.labels) if seen.labels is None and found.labels is not None else seen
                for seen, found in zip(observations, earlier.results(), strict=True)
            )
        stand_in = self.relay.legs[len(self.searches)].stand_in
        seen = observations if stand_in is None else tuple(map(stand_in, observations))
        begun = leg.search(seen, generator=self.generator, coordinates=coordinates)
        self.observations, self.searches = observations, (*self.searches, begun)

    def results(self) -> list[Reconstruction]:
        found = [list(zip(_losses(search), search.results(), strict=True)) for search in self.searches]
        return [self._chosen([of_leg[index] for of_leg in found]) for index in range(len(self.observations))]

    def _chosen(self, found: list[tuple[float, Reconstruction]]) -> Reconstruction:
        usable = [index for index, (_, result) in enumerate(found) if result.inputs is not None] or [0]
        last = max(usable)
        winner = min(usable, key=lambda index: found[index][0]) if self.relay.kept == "closest" else last
        loss, result = found[winner]
        facts = {
            **result.facts,
            "steps": sum(int(one.facts["steps"]) for _, one in found),
            "leg": f"{winner + 1} of {len(self.legs)}",
            "matching loss": loss,
            **self.notes,
        }
        traces = [one.loss_trace for _, one in found if one.loss_trace is not None]
        return replace(result, facts=facts, loss_trace=torch.cat(traces))

    # Interruption and resumption

    def snapshot(self) -> Snapshot:
        """Of every leg that was begun; what later legs and the choice among them need of it follows from that."""
        return {
            f"{_leg(index)}{name}": tensor
            for index, search in enumerate(self.searches)
            for name, tensor in search.snapshot().items()
        }

    def restore(self, snapshot: Snapshot) -> None:
        begun = 0
        while begun < len(self.legs) and any(name.startswith(_leg(begun)) for name in snapshot):
            begun += 1
        kept = [
            {
                name.removeprefix(_leg(index)): tensor
                for name, tensor in snapshot.items()
                if name.startswith(_leg(index))
            }
            for index in range(begun)
        ]
        if len(self.searches) > 1 or not kept or sum(map(len, kept)) != len(snapshot):
            raise InvalidFile("The snapshot belongs to another attack; delete it and start again.")
        for index, of_leg in enumerate(kept):
            if index:
                self._begin()
            self.searches[index].restore(of_leg)
            if index + 1 < len(kept) and (self.outcome or self.searches[index].outcome is None):
                raise InvalidFile("The snapshot begins a leg before the one it follows; delete it and start again.")


def _losses(search: Search) -> list[float]:
    """For each victim, how close the update of its best restart comes, priors aside."""
    return [float(own.min()) for own in search.matching_loss().split(search.restarts)]


def _leg(index: int) -> str:
    return f"leg {index}."
