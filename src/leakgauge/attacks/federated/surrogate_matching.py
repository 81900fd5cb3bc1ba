"""Many local steps, explained by one gradient on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from torch import Generator

from leakgauge.attacks.base import SteppedAttack
from leakgauge.attacks.budget import Around
from leakgauge.attacks.matching import GradientMatching, StraightLine
from leakgauge.attacks.matching.search import Search
from leakgauge.protocol.clients import with_computation
from leakgauge.protocol.observation import UpdateObservation, known


@dataclass(frozen=True)
class SurrogateMatching(SteppedAttack, Around):
    """Match by one gradient on all images at w0 - a (w0 - wT), where a in [0, 1] is found too [Zhu et al., 2023, SME].

    Of the client it needs the number of examples only, neither epochs nor mini-batches nor learning rate, so it works
    where the threat model hides them, and a step costs one gradient however many the client made. What is disclosed of
    the local algorithm is not used, except for what it does to the finished update (a known defence). A client that
    sends one gradient lies at a = 0, which the search finds by itself. The more the client's path bends, the less one
    gradient says of it: at a high learning rate the exact steps, where they are known, see more. ``facts["position"]``
    is the a that was found.
    """

    attack: GradientMatching = field(default_factory=GradientMatching)

    def search(self, observations: Sequence[UpdateObservation], *, generator: Generator) -> Search:
        """The attack at its start, to be stepped, interrupted and resumed by whoever holds it."""
        return self.attack.search([self._on_the_line(seen) for seen in observations], generator=generator)

    def _on_the_line(self, observation: UpdateObservation) -> UpdateObservation:
        known(observation.num_examples, "num_examples", needed_by=self)
        disclosed = observation.local_update
        client = StraightLine() if disclosed is None else with_computation(disclosed, StraightLine())
        return replace(observation, local_update=client)
