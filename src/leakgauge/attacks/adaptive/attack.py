"""Any gradient matching, by an attacker who knows the defence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Generator

from leakgauge.attacks.adaptive.adaptation import adapt, see_encodings
from leakgauge.attacks.adaptive.rounds import DecodedSearch
from leakgauge.attacks.base import SteppedAttack, Stepper
from leakgauge.attacks.budget import Around
from leakgauge.attacks.recipes.best import Best, Family, best
from leakgauge.errors import InvalidCase
from leakgauge.protocol.clients import mixes
from leakgauge.protocol.observation import UpdateObservation, known


@dataclass(frozen=True)
class Adaptive(SteppedAttack, Around):
    """Another attack, with the distance, priors and labels that fit what the threat model discloses of the defence.

    See `adapt` for what changes. Where the client mixes its images (MixUp, InstaHide) the update is inverted to the
    encodings; with labels and mixing disclosed they are then decoded to the images, which is an upper bound on leakage,
    else the encodings are returned. ``facts`` has the recipe and which of the two it is. Against an attacker who does
    not know the defence, and without a defence, this is the attack itself.
    """

    attack: Any = field(default_factory=Best)

    def __post_init__(self) -> None:
        if not isinstance(self.attack, SteppedAttack):
            raise InvalidCase(
                f"Adaptive(attack=...) must match gradients, got {type(self.attack).__name__}; give it such an attack."
            )

    def search(self, observations: Sequence[UpdateObservation], *, generator: Generator) -> Stepper:
        """The attack at its start, to be stepped, interrupted and resumed by whoever holds it."""
        for observation in observations:
            known(observation.num_examples, "num_examples", needed_by=self)
        seen = [see_encodings(observation) for observation in observations]
        attack = adapt(self.attack, seen[0])
        search = attack.search(seen, generator=generator)
        search.notes["recipe"] = repr(attack)
        if mixes(seen[0].local_update):
            return DecodedSearch(search, tuple(observations))
        return search


def adaptive(family: Family = "auto", seconds: float | None = None, steps: int | None = None) -> Adaptive:
    """The strongest recipe for the model, adapted to the defence: `Adaptive(Best)`; without a budget, a minute."""
    return Adaptive(best(family, seconds, steps))
