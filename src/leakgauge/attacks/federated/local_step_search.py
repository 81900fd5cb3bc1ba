"""How many epochs the client made, found by trying."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Generator, Tensor

from leakgauge.attacks.base import Attack, finite_update
from leakgauge.attacks.budget import Around, Budget
from leakgauge.attacks.matching.attack import GradientMatching
from leakgauge.attacks.matching.objectives import Euclidean, Objective
from leakgauge.errors import InvalidCase
from leakgauge.progress import Progress, Tick, silent
from leakgauge.protocol import clients
from leakgauge.protocol.local_update import FedAvg
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.types import Batch, Reconstruction


@dataclass(frozen=True)
class LocalStepSearch(Attack, Around):
    """Try several numbers of local epochs briefly, keep the one that explains the update best, and attack with it.

    The number of local steps "could also be found by brute-force" [Geiping et al., 2020, B.1, footnote 2]. Every trial
    starts from the same images and makes the same number of steps, ``share`` of a full run; its client is run on what
    it found, and the least distance from the observed update decides. ``judge`` is that distance: one that sees the
    length of the update tells numbers apart even where the client's path is straight, while the cosine, blind to
    length, has only the bends to go by. Mini-batches and learning rate are as disclosed, or, where nothing is, as in
    ``batch_size`` and ``learning_rate``; a disclosed number of epochs is not used. A client without epochs (FedSGD) is
    left to the attack as it is.
    """

    attack: GradientMatching = field(default_factory=GradientMatching)
    epochs: tuple[int, ...] = (1, 2, 5, 10)
    share: float = 0.15
    judge: Objective = field(default_factory=Euclidean)
    batch_size: int | None = None
    learning_rate: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "epochs", tuple(self.epochs))
        if (
            not self.epochs
            or len(set(self.epochs)) < len(self.epochs)
            or min(self.epochs) < 1
            or not 0 < self.share <= 1
        ):
            raise InvalidCase(
                f"LocalStepSearch needs different epochs >= 1 and 0 < share <= 1, got epochs={self.epochs} and "
                f"share={self.share}; correct it."
            )

    def __call__(
        self, observation: UpdateObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction:
        known(observation.num_examples, "num_examples", needed_by=self)
        finite_update(observation)
        candidates = self._candidates(observation)
        if candidates is None:
            return self.attack(observation, generator=generator, progress=progress)
        start = generator.get_state()
        steps = self._trial_steps(candidates, start)
        total = len(candidates) * self.share + 1
        distances: dict[int, float] = {}
        for index, (epochs, seen) in enumerate(candidates.items()):
            begun, part = index * self.share / total, self.share / total
            trial = replace(self.attack, budget=Budget(steps=steps))
            found = trial(seen, generator=_from(start), progress=_within(progress, begun, part, index * steps))
            distances[epochs] = self._distance(seen, found)
        chosen = min(distances, key=distances.__getitem__)
        found = self.attack(
            candidates[chosen],
            generator=generator,
            progress=_within(progress, 1 - 1 / total, 1 / total, len(candidates) * steps),
        )
        trials = {f"distance at {epochs} epochs": distance for epochs, distance in distances.items()}
        return replace(found, facts={**found.facts, "epochs": chosen, "trial steps": steps, **trials})

    def with_budget(self, budget: Budget) -> LocalStepSearch:
        """Trials and full run together keep to the budget."""
        share = 1 / (1 + len(self.epochs) * self.share)
        return replace(self, attack=replace(self.attack, budget=budget.part(share)))

    def _distance(self, seen: UpdateObservation, found: Reconstruction) -> float:
        """How far the update of what was found is from the observed one."""
        if found.inputs is None or found.labels is None or seen.local_update is None:
            return float("inf")
        observed = seen.update.params
        with torch.no_grad():
            update = seen.local_update.expected(
                seen.learner, seen.state, Batch(found.inputs, found.labels), observed=observed
            )
            distance = float(self.judge(update, observed))
        return distance if math.isfinite(distance) else float("inf")

    def _candidates(self, observation: UpdateObservation) -> dict[int, UpdateObservation] | None:
        """What the attacker would have seen disclosed for each number of epochs; None if the client has none."""
        disclosed = observation.local_update
        if disclosed is None and self.batch_size is not None and self.learning_rate is not None:
            disclosed = FedAvg(1, self.batch_size, self.learning_rate)
        disclosed = known(disclosed, "local_update", needed_by=self)
        client = clients.algorithm(disclosed)
        if not isinstance(client, FedAvg):
            return None
        return {
            epochs: replace(observation, local_update=clients.with_algorithm(disclosed, replace(client, epochs=epochs)))
            for epochs in self.epochs
        }

    def _trial_steps(self, candidates: dict[int, UpdateObservation], start: Tensor) -> int:
        """The same for every trial, also under a clock: that more epochs cost more time must not count against them."""
        budget = self.attack.budget.part(self.share)
        if budget.seconds is None:
            assert budget.steps is not None
            return budget.steps
        seconds = 0.0
        for seen in candidates.values():
            search = self.attack.search([seen], generator=_from(start))
            begun = search.elapsed
            search.step()
            seconds += search.budget.counted(search.elapsed - begun)
        affordable = max(budget.least, int(len(candidates) * budget.seconds / max(seconds, 1e-9)))
        return affordable if budget.steps is None else min(budget.steps, affordable)


def _from(start: Tensor) -> Generator:
    generator = torch.Generator()
    generator.set_state(start)
    return generator


def _within(progress: Progress, begun: float, part: float, steps: int) -> Progress:
    """Progress of one run among several."""

    def report(tick: Tick) -> None:
        progress(Tick(steps + tick.step, min(1.0, begun + part * tick.fraction), tick.loss))

    return report
