"""The strongest recipe we know for a model and a time budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Generator

from leakgauge.attacks.base import SteppedAttack
from leakgauge.attacks.budget import Budget, OwnBudget
from leakgauge.attacks.matching.attack import GradientMatching
from leakgauge.attacks.matching.differentiation import Automatic, FrozenDifference
from leakgauge.attacks.matching.engine import trace
from leakgauge.attacks.matching.engine.layers import Added
from leakgauge.attacks.matching.objectives import Cosine
from leakgauge.attacks.matching.optimisers import LBFGS, Adam, CosineDecay, SignedAdam
from leakgauge.attacks.matching.parametrisations import Pixels
from leakgauge.attacks.matching.priors import Balanced, TotalVariation
from leakgauge.attacks.matching.search import Search
from leakgauge.attacks.matching.surrogate import as_one_gradient, nearly_straight
from leakgauge.attacks.recipes.second_order import quasi_newton
from leakgauge.attacks.recipes.zhang2023 import tuned_ci_net
from leakgauge.errors import UnsupportedModel
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.space import ImageSpace

Family = Literal["auto", "smooth", "switching", "residual", "generator"]
"""What decides on the recipe: that of the model, or a generator whatever the model is."""

LARGE_BATCH = 4
"""Images from which the prior of a model with kinks is weighed against the matching loss."""

ROW_STARTS = 8
"""Starts on rows of a table: there is no prior for them, searches are short, and some end in the wrong valley."""

HUGE_BATCH = 32
"""Images from which the weights of an untrained generator are searched instead of pixels."""


@dataclass(frozen=True)
class Best(SteppedAttack, OwnBudget):
    """The recipe for the model's family, under one budget.

    On a smooth model the matching loss is smooth, and box-constrained L-BFGS follows it to the bottom. With ReLU or
    max-pooling its derivative jumps, curvature misleads, and signed Adam with a cosine schedule goes further; signs
    also forgive the error of a frozen difference, which makes each step cheaper. Of several images in one update the
    matching loss stays larger, and a prior that is fixed drowns in it: there its weight follows the loss; of many, the
    best prior is the architecture of an untrained generator. The constants were chosen on CIFAR-10 test images below
    100; benchmarks/quality.py compares with the 2020 method on others, and benchmarks/results/ holds what it found: for
    residual nets the gain is smaller, and on some images there is none. `leakgauge reproduce cinet/comparison` has
    larger batches.
    """

    budget: Budget = Budget(seconds=60.0)
    family: Family = "auto"

    def search(self, observations: Sequence[UpdateObservation], *, generator: Generator) -> Search:
        known(observations[0].num_examples, "num_examples", needed_by=self)
        seen = self.straighten(observations)
        recipe = self.recipe(seen[0])
        search = recipe.search(seen, generator=generator)
        search.notes["recipe"] = repr(recipe)  # the record's own repr says only that the best was asked for
        if seen is not observations:
            search.notes["local steps"] = "taken as one gradient in their middle"
        return search

    def straighten(self, observations: Sequence[UpdateObservation]) -> Sequence[UpdateObservation]:
        """Clients of many short steps as clients of one gradient, which costs as much less as there are steps."""
        if not all(map(nearly_straight, observations)):
            return observations
        return [as_one_gradient(seen) for seen in observations]

    def recipe(self, observation: UpdateObservation) -> GradientMatching:
        """The composition for this model."""
        if not isinstance(observation.space, ImageSpace):
            return replace(quasi_newton(tv_weight=0, restarts=ROW_STARTS), budget=self.budget)
        many = (observation.num_examples or 1) >= HUGE_BATCH
        family = self.family if self.family != "auto" else "generator" if many else family_of(observation)
        if family == "generator":
            return replace(tuned_ci_net(), budget=self.budget)
        if family == "smooth":
            return GradientMatching(
                objective=Cosine(),
                priors=(TotalVariation(1e-3),),
                parametrisation=Pixels(spread=0.1),
                optimiser=LBFGS(),
                differentiation=Automatic(),
                budget=self.budget,
            )
        # Shortcuts carry the image to every layer: less needs to be assumed, and a start far from grey helps.
        weight, spread = (1e-4, 0.25) if family == "residual" else (5e-4, 0.1)
        recipe = GradientMatching(
            objective=Cosine(),
            priors=(TotalVariation(weight),),
            parametrisation=Pixels(spread=spread),
            optimiser=SignedAdam(0.1, CosineDecay()),
            differentiation=Automatic(FrozenDifference()),
            budget=self.budget,
        )
        if (observation.num_examples or 1) < LARGE_BATCH:
            return recipe
        return replace(
            recipe,
            priors=(Balanced(),),
            parametrisation=Pixels(spread=0.25),
            optimiser=Adam(0.1, CosineDecay()),
        )


def family_of(observation: UpdateObservation) -> Family:
    """Smooth when the engine knows every layer and none of them switches; what it does not know may."""
    state = observation.state
    images = torch.zeros(2, *observation.space.shape, dtype=state.dtype, device=state.device)
    try:
        network = trace(observation.learner, state, images)
    except UnsupportedModel:
        return "switching"
    layers = [step.layer for step in network.steps]
    if not any(layer.switches for layer in layers):
        return "smooth"
    return "residual" if any(isinstance(layer, Added) for layer in layers) else "switching"


def best(family: Family = "auto", seconds: float | None = None, steps: int | None = None) -> Best:
    """The strongest recipe per model family at a given budget: `Best`; without one, a minute."""
    if seconds is None and steps is None:
        seconds = 60.0
    return Best(Budget(steps=steps, seconds=seconds), family)
