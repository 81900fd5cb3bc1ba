"""Many local steps, explained by one gradient on the way: at a place that is searched for, or in the middle."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from torch import Generator

from leakgauge.attacks.base import SteppedAttack, Stepper
from leakgauge.attacks.budget import Around
from leakgauge.attacks.matching import GradientMatching, StraightLine
from leakgauge.attacks.matching.surrogate import as_one_gradient
from leakgauge.attacks.recipes.best import Best
from leakgauge.protocol.clients import with_computation
from leakgauge.protocol.observation import UpdateObservation, known


class _OnTheWay(SteppedAttack, Around, ABC):
    """Another attack on the client as one of a single gradient."""

    attack: GradientMatching | Best

    def search(self, observations: Sequence[UpdateObservation], *, generator: Generator) -> Stepper:
        for observation in observations:
            known(observation.num_examples, "num_examples", needed_by=self)
        return self.attack.search([self.simplify(seen) for seen in observations], generator=generator)

    @abstractmethod
    def simplify(self, observation: UpdateObservation) -> UpdateObservation: ...


@dataclass(frozen=True)
class SurrogateMatching(_OnTheWay):
    """Match by one gradient on all images at w0 - a (w0 - wT), where a in [0, 1] is found too [Zhu et al., 2023, SME].

    Of the client it needs the number of examples only, neither epochs nor mini-batches nor learning rate, so it works
    where the threat model hides them, and a step costs one gradient however many the client made. What is disclosed of
    the local algorithm is not used, except for what it does to the finished update (a known defence). A client that
    sends one gradient lies at a = 0, which the search finds by itself. The more the client's path bends, the less one
    gradient says of it: at a high learning rate the exact steps, where they are known, see more. ``facts["position"]``
    is the a that was found.
    """

    attack: GradientMatching = field(default_factory=GradientMatching)

    def simplify(self, observation: UpdateObservation) -> UpdateObservation:
        disclosed = observation.local_update
        client = StraightLine() if disclosed is None else with_computation(disclosed, StraightLine())
        return replace(observation, local_update=client)


@dataclass(frozen=True)
class MidwayMatching(_OnTheWay):
    """Match w0 - wT by one gradient on all images in the middle of the client's way, in direction.

    Of the local algorithm it needs the number of steps, see ``as_one_gradient``, or nothing where ``position`` is given
    as a share of the way; 1/2 suits many steps. SurrogateMatching searches for the place; where it is fixed, the client
    is one of a single gradient, and every fast route for those applies.
    """

    attack: GradientMatching | Best = field(default_factory=Best)
    position: float | None = None

    def simplify(self, observation: UpdateObservation) -> UpdateObservation:
        if self.position is None:
            # Without it a single gradient could not be told from a difference of weights.
            known(observation.local_update, "local_update", needed_by=self)
        return as_one_gradient(observation, self.position)
