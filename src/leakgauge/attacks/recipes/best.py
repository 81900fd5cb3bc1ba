"""The strongest recipe we know for a model and a time budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import gt

import torch
from torch import Generator

from leakgauge.attacks.analytic import FullyConnected, LinearBatches, PatchEmbedding
from leakgauge.attacks.base import Answered, Attack, SteppedAttack, Stepper
from leakgauge.attacks.budget import Budget, OwnBudget
from leakgauge.attacks.matching.attack import GradientMatching
from leakgauge.attacks.matching.engine.layers import Affine, Convolution
from leakgauge.attacks.matching.objectives import Cosine
from leakgauge.attacks.matching.parametrisations import Pixels
from leakgauge.attacks.matching.relay import RelaySearch
from leakgauge.attacks.matching.search import Search
from leakgauge.attacks.recipes.chain import CHECKPOINT, ChainSearch
from leakgauge.attacks.recipes.families import Family, family_of, hides_places, matching_recipe
from leakgauge.attacks.recipes.local_steps import follow_local_steps
from leakgauge.attacks.span.layer_spans import AffineLayer
from leakgauge.attacks.span.matching import SpanMatching
from leakgauge.attacks.span.search import SpanProblem
from leakgauge.errors import LeakGaugeError
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.space import ImageSpace
from leakgauge.types import Reconstruction

AMPLE = 4.0
"""How many numbers the spans must ask to be zero for each pixel; with fewer, other images lie in them too."""

SHALLOW = 8
"""Up to so many layers quasi-Newton steps invert a smooth model, and nothing else is tried."""

CLOSED_FORMS: tuple[Attack, ...] = (PatchEmbedding(), FullyConnected(), LinearBatches())
"""Exact attacks that take little time, in the order in which they are tried; one answers if it certifies itself."""


@dataclass(frozen=True)
class Best(SteppedAttack, OwnBudget):
    """A chain of attacks under one budget, each where it applies: the first that explains the update answers.

    Closed forms answer if they certify themselves. Where the gradients of layers span their inputs, `SpanMatching` is
    next; it keeps the whole budget if it is on its way half through, else `GradientMatching` by the model's family gets
    the rest, and what is better explained, judged by the update alone, is returned. Where no layer qualifies, gradient
    matching has all of it.

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

    def search(
        self,
        observations: Sequence[UpdateObservation],
        *,
        generator: Generator,
        recipe: GradientMatching | None = None,
    ) -> Stepper:
        """The attack at its start; ``recipe`` takes the place of the family's, on the observations as they are."""
        count = known(observations[0].num_examples, "num_examples", needed_by=self)
        started = self.budget.now()
        if (exact := self._closed_form(observations, generator)) is not None:
            return Answered(exact)
        try:
            # A generator of its own, so that gradient matching starts where it would have without the attempt.
            span = self.span(observations[0], count).begin(observations, generator=_copy(generator))
        except LeakGaugeError:
            return self.matching(observations, self.budget, recipe, generator=generator)
        if not _worthwhile(span.problems[0]):
            return self.matching(observations, self.budget, recipe, generator=generator)
        span.elapsed = self.budget.now() - started
        rest = self.budget.part(1 - CHECKPOINT)
        return ChainSearch(observations, span, lambda: self.matching(observations, rest, recipe, generator=generator))

    def matching(
        self,
        observations: Sequence[UpdateObservation],
        budget: Budget,
        recipe: GradientMatching | None,
        *,
        generator: Generator,
    ) -> Search | RelaySearch:
        """Gradient matching at its start, by the model's family where no recipe is given."""
        if recipe is not None:
            recipe = replace(recipe, budget=budget)
            search: Search | RelaySearch = recipe.search(observations, generator=generator)
        else:
            recipe = replace(self.recipe(observations[0]), budget=budget)
            search = follow_local_steps(recipe, observations, generator=generator)
        search.notes["recipe"] = repr(recipe)  # the record's own repr says only that the best was asked for
        return search

    def span(self, observation: UpdateObservation, num_examples: int) -> SpanMatching:
        """A race of starts for one image; of several, or with a guide where it sees places, one that has time."""
        attack = SpanMatching(budget=self.budget)
        if isinstance(observation.space, ImageSpace) and not hides_places(observation):
            return replace(attack, starts=1, guide=Cosine(), parametrisation=Pixels(spread=0.1))
        return attack if num_examples == 1 else replace(attack, starts=1)

    def _closed_form(
        self, observations: Sequence[UpdateObservation], generator: Generator
    ) -> list[Reconstruction] | None:
        """The answers of the first closed form that certifies all of them."""
        for attack in CLOSED_FORMS:
            try:
                found = [attack(seen, generator=_copy(generator)) for seen in observations]
            except LeakGaugeError:
                continue
            if all(one.certificate is not None for one in found):
                why = f"{attack!r} in closed form, certified"
                return [replace(one, facts={**one.facts, "answered by": why}) for one in found]
        return None

    def recipe(self, observation: UpdateObservation) -> GradientMatching:
        """The composition for this model."""
        return matching_recipe(observation, self.family, self.budget)


def best(family: Family = "auto", seconds: float | None = None, steps: int | None = None) -> Best:
    """The strongest recipe per model family at a given budget: `Best`; without one, a minute."""
    if seconds is None and steps is None:
        seconds = 60.0
    return Best(Budget(steps=steps, seconds=seconds), family)


def _copy(generator: Generator) -> Generator:
    return torch.Generator(generator.device).set_state(generator.get_state())


def _worthwhile(problem: SpanProblem) -> bool:
    """Whether spans say much more of the images than they have pixels, on a model that is not easy anyway.

    Only those of patches that overlap count: a span knows no places, and tokens or patches side by side fit it in any
    order.
    """
    space = problem.observation.space
    asked = sum(span.layer.constraints for span in problem.spans if _overlaps(problem, span.layer))
    if not isinstance(space, ImageSpace) or asked < AMPLE * problem.num_examples * math.prod(space.shape):
        return False
    deep = sum(isinstance(step.layer, Affine) for step in problem.loss.sweep.network.steps) > SHALLOW
    return deep or family_of(problem.observation) != "smooth"


def _overlaps(problem: SpanProblem, layer: AffineLayer) -> bool:
    """Whether the layer sees a place more than once."""
    kernel = problem.observation.state.params[layer.weight].shape[2:]
    uses = (problem.loss.sweep.network.steps[use].layer for use in layer.uses)
    return any(isinstance(use, Convolution) and any(map(gt, kernel, use.stride)) for use in uses)
