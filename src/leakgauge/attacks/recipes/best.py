"""The strongest recipe we know for a model and a time budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Generator

from leakgauge.attacks.base import Answered, SteppedAttack, Stepper
from leakgauge.attacks.budget import Budget, OwnBudget
from leakgauge.attacks.matching.attack import GradientMatching
from leakgauge.attacks.matching.relay import RelaySearch
from leakgauge.attacks.matching.search import Search
from leakgauge.attacks.recipes.chain import CHECKPOINT, ChainSearch
from leakgauge.attacks.recipes.exact import Exact
from leakgauge.attacks.recipes.families import Family, matching_recipe
from leakgauge.attacks.recipes.local_steps import follow_local_steps
from leakgauge.errors import LeakGaugeError
from leakgauge.protocol.observation import UpdateObservation, known


@dataclass(frozen=True)
class Best(SteppedAttack, OwnBudget):
    """A chain of attacks under one budget, each where it applies: the first that explains the update answers.

    Closed forms answer if they certify themselves. Where a convolution's gradient gives the maps of the batch away,
    `FeatureMaps` has the budget. Where the gradients of layers span their inputs all the same, `SpanMatching` keeps it
    if it is on its way half through, else `GradientMatching` by the model's family gets the rest, and what is better
    explained, judged by the update alone, is returned. Where no layer qualifies, gradient matching has all of it.

    On a smooth model the matching loss is smooth, and box-constrained L-BFGS follows it to the bottom. With ReLU or
    max-pooling its derivative jumps, curvature misleads, and signed Adam with a cosine schedule goes further; signs
    also forgive the error of a frozen difference, which makes each step cheaper. The prior lets go once the update is
    explained (`Fading`, `Yielding`), or it would keep the image from getting sharp. Of several images in one update the
    matching loss stays larger, and a prior that is fixed drowns in it: there its weight follows the loss (`Balanced`);
    of many, the best prior is the architecture of an untrained generator. The constants were chosen on CIFAR-10 test
    images below 100; on others benchmarks/quality.py compares with the 2020 method and benchmarks/contest.py with the
    attacks of the catalogue, and benchmarks/results/ holds what they found: for residual nets the gain is smaller, and
    on some images there is none. `leakgauge reproduce cinet/comparison` has larger batches.
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
        known(observations[0].num_examples, "num_examples", needed_by=self)
        exact, started = Exact(self.budget), self.budget.now()
        if (answers := exact.closed_form(observations, generator=generator)) is not None:
            return Answered(answers)
        try:
            first = exact.maps_or_spans(observations, generator=generator)
        except LeakGaugeError:  # what it took to find that out is spent
            left = self.budget.after(self.budget.now() - started)
            return self.matching(observations, left, recipe, generator=generator)
        first.elapsed = self.budget.now() - started

        def begin_matching() -> Search | RelaySearch:
            # Finding the maps may have taken more than the share that the first search has.
            left = self.budget.after(first.elapsed).seconds
            rest = replace(self.budget.part(1 - CHECKPOINT), seconds=left)
            return self.matching(observations, rest, recipe, generator=generator)

        return ChainSearch(observations, first, begin_matching)

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

    def recipe(self, observation: UpdateObservation) -> GradientMatching:
        """The composition for this model."""
        return matching_recipe(observation, self.family, self.budget)


def best(family: Family = "auto", seconds: float | None = None, steps: int | None = None) -> Best:
    """The strongest recipe per model family at a given budget: `Best`; without one, a minute."""
    if seconds is None and steps is None:
        seconds = 60.0
    return Best(Budget(steps=steps, seconds=seconds), family)
