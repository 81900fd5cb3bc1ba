"""Texts by gradient matching, for updates that no span can be read from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Generator

from leakgauge.attacks.analytic.linear_layer import not_applicable
from leakgauge.attacks.base import Answered, Attack, SteppedAttack, Stepper, finite_update
from leakgauge.attacks.budget import Around
from leakgauge.attacks.matching import GradientMatching
from leakgauge.attacks.matching.parametrisations import SoftTokens
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.space import TokenSpace


@dataclass(frozen=True)
class TextMatching(SteppedAttack, Around):
    """Gradient matching on weights of tokens; of a model that takes anything else, not applicable."""

    attack: GradientMatching = field(default_factory=lambda: GradientMatching(parametrisation=SoftTokens()))

    def search(self, observations: Sequence[UpdateObservation], *, generator: Generator) -> Stepper:
        require_known(observations, self)
        kinds = observations[0].space.kinds
        if not isinstance(observations[0].space, TokenSpace):
            refused = not_applicable(f"the model takes {kinds}, and the attack serves texts")
            return Answered([refused] * len(observations))
        return self.attack.search(observations, generator=generator)


def require_known(observations: Sequence[UpdateObservation], attack: Attack) -> None:
    """Refuse updates that diverged, and those of a client of which batch size or algorithm are hidden."""
    for seen in observations:
        finite_update(seen)
        known(seen.num_examples, "num_examples", needed_by=attack)
        known(seen.local_update, "local_update", needed_by=attack)
