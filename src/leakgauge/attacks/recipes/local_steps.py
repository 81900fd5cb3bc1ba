"""Clients of several local steps: a search sets out for a stand-in of theirs and arrives at what they did."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Generator

from leakgauge.attacks.matching.attack import GradientMatching
from leakgauge.attacks.matching.optimisers import LBFGS
from leakgauge.attacks.matching.relay import Leg, Relay, RelaySearch
from leakgauge.attacks.matching.search import Search
from leakgauge.attacks.matching.surrogate import OneGradient, nearly_straight
from leakgauge.protocol import clients
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.space import ImageSpace

FOLLOWED_STEPS = 16
"""Local steps up to which they are followed one by one in the end: each costs as much as the stand-in of all."""


def follow_local_steps(
    recipe: GradientMatching, observations: Sequence[UpdateObservation], *, generator: Generator
) -> Search | RelaySearch:
    """The recipe's search, or a relay of it whose first leg takes the clients for easier ones.

    Many short steps of SGD are one gradient in their middle, which costs as much less as there are steps. Only L-BFGS
    on smooth models gets so far that the difference shows; others stay with the stand-in.
    """
    first = observations[0]
    exact = isinstance(recipe.optimiser, LBFGS) and isinstance(first.space, ImageSpace)
    count = clients.local_steps(first.local_update, first.num_examples or 1)
    if not all(map(nearly_straight, observations)):
        return recipe.search(observations, generator=generator)
    legs: tuple[Leg, ...] = (Leg(recipe, 1.0, OneGradient()),)
    words = "taken as one gradient in their middle"
    if exact and count is not None and 1 < count <= FOLLOWED_STEPS:
        legs = (Leg(recipe, 0.6, OneGradient()), Leg(recipe, 0.4))
        words = f"{words}, in the end followed one by one"
    search = Relay(legs, budget=recipe.budget).search(observations, generator=generator)
    search.notes["local steps"] = words
    return search
