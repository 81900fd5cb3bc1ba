"""Texts by gradient matching, for updates that no span can be read from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Generator

from leakgauge.attacks.analytic.linear_layer import not_applicable
from leakgauge.attacks.base import Answered, SteppedAttack, Stepper, finite_update
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
        for seen in observations:
            finite_update(seen)
            known(seen.num_examples, "num_examples", needed_by=self)
            known(seen.local_update, "local_update", needed_by=self)
        kinds = observations[0].space.kinds
        if not isinstance(observations[0].space, TokenSpace):
            refused = not_applicable(f"the model takes {kinds}, and the attack serves texts")
            return Answered([refused] * len(observations))
        return self.attack.search(observations, generator=generator)
