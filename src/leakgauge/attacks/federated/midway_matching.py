"""Many local steps, taken as one gradient in their middle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Generator

from leakgauge.attacks.base import SteppedAttack
from leakgauge.attacks.budget import Around
from leakgauge.attacks.matching.attack import GradientMatching
from leakgauge.attacks.matching.search import Search
from leakgauge.attacks.matching.surrogate import as_one_gradient
from leakgauge.attacks.recipes.best import Best
from leakgauge.protocol.observation import UpdateObservation, known


@dataclass(frozen=True)
class MidwayMatching(SteppedAttack, Around):
    """Match w0 - wT by one gradient on all images in the middle of the client's way, in direction.

    Of the local algorithm it needs the number of steps, see ``as_one_gradient``, or nothing where ``position`` is given
    as a share of the way; 1/2 suits many steps. SurrogateMatching searches for the place; where it is fixed, the client
    is one of a single gradient, and every fast route for those applies.
    """

    attack: GradientMatching | Best = field(default_factory=Best)
    position: float | None = None

    def search(self, observations: Sequence[UpdateObservation], *, generator: Generator) -> Search:
        """The attack at its start, to be stepped, interrupted and resumed by whoever holds it."""
        return self.attack.search([self._midway(seen) for seen in observations], generator=generator)

    def _midway(self, observation: UpdateObservation) -> UpdateObservation:
        known(observation.num_examples, "num_examples", needed_by=self)
        if self.position is None:
            # Without it a single gradient could not be told from a difference of weights.
            known(observation.local_update, "local_update", needed_by=self)
        return as_one_gradient(observation, self.position)
