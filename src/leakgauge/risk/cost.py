"""By which route a model is differentiated twice, and what a step of gradient matching costs by it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median

from leakgauge.attacks.budget import Budget
from leakgauge.attacks.matching.attack import GradientMatching
from leakgauge.attacks.matching.differentiation import FiniteDifference
from leakgauge.attacks.matching.differentiation.route import Choice
from leakgauge.attacks.recipes import tag
from leakgauge.attacks.recipes.families import matching_recipe
from leakgauge.clocks import Seconds
from leakgauge.errors import LeakGaugeError
from leakgauge.randomness import seeded
from leakgauge.risk.client import NoiseClient
from leakgauge.risk.settled import settle
from leakgauge.space import TokenSpace

_STEPS, _ENOUGH = 6, 1.0
"""Steps that are timed, and the CPU seconds after which no further one is."""


_CLOCK = 1e-6
"""Seconds below which a clock tells nothing."""


@dataclass(frozen=True)
class StepCost:
    """What one step of the recipe that `best` would match gradients with costs, for the whole batch.

    ``computed`` examples were measured; where the batch has more, its seconds follow in proportion.
    """

    route: str
    why: str
    seconds: float
    training_step: float
    computed: int

    @property
    def training_steps(self) -> float:
        """In training steps on the same batch."""
        return self.seconds / self.training_step

    @property
    def conclusive(self) -> bool:
        """Whether what an attack by this route does not find means anything."""
        return self.route != FiniteDifference.__name__

    def steps_in(self, seconds: float) -> int:
        """How many steps fit."""
        return int(seconds / self.seconds)


@dataclass(frozen=True)
class Route:
    """The route that was chosen for a recipe, with its cost; None and the reason where none holds.

    ``recipe`` is the one by which `best` matches gradients; None for texts, which are timed by `tag`.
    """

    choice: Choice | None
    cost: StepCost | None
    refusal: str | None = None
    recipe: GradientMatching | None = None


def measure_route(client: NoiseClient) -> Route:
    """Choose a route on the update of noise and time a few steps by it."""
    seen = client.observe("informed")
    generator = seeded(0, "check start")
    texts = isinstance(client.space, TokenSpace)  # which no recipe of `best` serves
    budget = Budget(steps=10 * _STEPS)
    try:
        recipe = replace(tag().attack, budget=budget) if texts else matching_recipe(seen, "auto", budget)
        problem = recipe.problem(seen, generator=generator)
        inputs = client.some.inputs
        choice = recipe.differentiation.choose(problem, client.space.relax(inputs) if texts else inputs)
        search = settle(recipe, choice).search([seen], generator=generator)
        taken: list[float] = []
        while len(taken) < 2 or (len(taken) < _STEPS and sum(taken) < _ENOUGH):
            started = Seconds.now()
            search.step()
            taken.append((Seconds.now() - started).cpu)
    except LeakGaugeError as refusal:
        return Route(None, None, str(refusal))
    cost = StepCost(
        route=type(choice.route).__name__,
        why=choice.why,
        seconds=max(median(taken[1:]), _CLOCK) * client.scale,
        training_step=max(client.training_step, _CLOCK) * client.scale,
        computed=client.computed,
    )
    return Route(choice, cost, recipe=None if texts else recipe)
