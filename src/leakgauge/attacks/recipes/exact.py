"""What an update gives away exactly: closed forms that certify themselves, and the spans of its layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import gt

import torch
from torch import Generator

from leakgauge.attacks.analytic import FullyConnected, LinearBatches, PatchEmbedding
from leakgauge.attacks.analytic.linear_layer import not_applicable
from leakgauge.attacks.base import Answered, Attack, SteppedAttack, Stepper, finite_update
from leakgauge.attacks.budget import Budget, OwnBudget
from leakgauge.attacks.feature_maps.attack import FeatureMaps, MapSearch
from leakgauge.attacks.matching.engine.layers import Affine, Convolution
from leakgauge.attacks.matching.objectives import Cosine
from leakgauge.attacks.matching.parametrisations import Pixels
from leakgauge.attacks.recipes.families import family_of, hides_places
from leakgauge.attacks.recipes.shared import budget_from
from leakgauge.attacks.span.layer_spans import AffineLayer
from leakgauge.attacks.span.matching import SpanMatching
from leakgauge.attacks.span.search import SpanProblem, SpanSearch
from leakgauge.errors import LeakGaugeError, UnsupportedModel
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
class Exact(SteppedAttack, OwnBudget):
    """Closed forms that certify themselves, else `FeatureMaps` or, where the gradients of layers span their inputs all
    the same, `SpanMatching`.

    Where none applies there is nothing to search for, and it says so at once.
    """

    budget: Budget = Budget(steps=600)

    def search(self, observations: Sequence[UpdateObservation], *, generator: Generator) -> Stepper:
        for seen in observations:
            finite_update(seen)
            known(seen.num_examples, "num_examples", needed_by=self)
            known(seen.local_update, "local_update", needed_by=self)
        if (answers := self.closed_form(observations, generator=generator)) is not None:
            return Answered(answers)
        try:
            return self.maps_or_spans(observations, generator=generator)
        except LeakGaugeError as refusal:
            return Answered([not_applicable(str(refusal))] * len(observations))

    def maps_or_spans(
        self, observations: Sequence[UpdateObservation], *, generator: Generator
    ) -> MapSearch | SpanSearch:
        """The search at its start by the maps that the update gives away, else by its spans; refused without either."""
        try:
            return FeatureMaps(budget=self.budget).begin(observations, generator=_copy(generator))
        except LeakGaugeError:
            return self.spans(observations, generator=generator)

    def closed_form(
        self, observations: Sequence[UpdateObservation], *, generator: Generator
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

    def spans(self, observations: Sequence[UpdateObservation], *, generator: Generator) -> SpanSearch:
        """Span matching at its start; refused where the spans say too little of the inputs."""
        count = known(observations[0].num_examples, "num_examples", needed_by=self)
        # A generator of its own: what comes after a refusal starts where it would have without the attempt.
        search = self.span_matching(observations[0], count).begin(observations, generator=_copy(generator))
        if not _worthwhile(search.problems[0]):
            raise UnsupportedModel(
                "The spans of this update's layers say too little of its inputs; use gradient matching, `best`."
            )
        return search

    def span_matching(self, observation: UpdateObservation, num_examples: int) -> SpanMatching:
        """A race of starts for one image; of several, or with a guide where it sees places, one that has time."""
        attack = SpanMatching(budget=self.budget)
        if isinstance(observation.space, ImageSpace) and not hides_places(observation):
            return replace(attack, starts=1, guide=Cosine(), parametrisation=Pixels(spread=0.1))
        return attack if num_examples == 1 else replace(attack, starts=1)


def exact(steps: int | None = 600, seconds: float | None = None) -> Exact:
    """Closed forms that certify themselves, then feature maps or spans; not applicable where none says anything."""
    return Exact(budget_from(steps, seconds))


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
