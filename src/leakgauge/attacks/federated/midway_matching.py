"""Many local steps, taken as one gradient in their middle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from torch import Generator

from leakgauge.attacks.base import Progress, silent
from leakgauge.attacks.budget import Budget
from leakgauge.attacks.federated.clients import exchanged, innermost
from leakgauge.attacks.matching.attack import GradientMatching
from leakgauge.attacks.matching.best import Best
from leakgauge.attacks.matching.search import Search
from leakgauge.attacks.matching.surrogate import StraightLine
from leakgauge.protocol.local_update import FedAvg, FedSGD
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.types import Reconstruction


@dataclass(frozen=True)
class MidwayMatching:
    """Match w0 - wT by one gradient on all images in the middle of the client's way, in direction.

    The mean of T gradients at equal steps along a path is that at the mean of their places, (T - 1) / 2T of the way,
    up to second order in its length. That is half of it for many steps, and where their number is not disclosed; the
    rest of the local algorithm is not needed. SurrogateMatching searches for the place; where it is fixed, the client
    is one of a single gradient, and every fast route for those applies. ``position`` overrides it.
    """

    attack: GradientMatching | Best = field(default_factory=Best)
    position: float | None = None

    def __call__(
        self, observation: UpdateObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction:
        return self.search([observation], generator=generator).run(progress)[0]

    def search(self, observations: Sequence[UpdateObservation], *, generator: Generator) -> Search:
        """The attack at its start, to be stepped, interrupted and resumed by whoever holds it."""
        return self.attack.search([self._midway(seen) for seen in observations], generator=generator)

    def with_budget(self, budget: Budget) -> MidwayMatching:
        return replace(self, attack=replace(self.attack, budget=budget))

    def _midway(self, observation: UpdateObservation) -> UpdateObservation:
        num_examples = known(observation.num_examples, "num_examples", needed_by=self)
        disclosed = observation.local_update
        client = None if disclosed is None else innermost(disclosed)
        if isinstance(client, FedSGD):
            return observation
        place = self.position
        if place is None:
            steps = len(client.batches(num_examples)) if isinstance(client, FedAvg) else None
            place = 0.5 if steps is None else (steps - 1) / (2 * steps)
        return replace(
            observation,
            state=StraightLine.halfway(observation.state, observation.update.params, place),
            local_update=FedSGD() if disclosed is None else exchanged(disclosed, FedSGD()),
        )
