"""Span matching: find images whose layer inputs lie in the span of the observed gradient.

One value and one cotangent sweep a step and no second derivative: features are continuous in the image, gradients of a
network with kinks are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Generator

from leakgauge.attacks.analytic.linear_layer import not_applicable
from leakgauge.attacks.base import Answered, LabelAttack, SteppedAttack, Stepper, finite_update
from leakgauge.attacks.budget import Budget, OwnBudget
from leakgauge.attacks.labels.best import BestLabels
from leakgauge.attacks.matching.adam_step import is_one_adam_step, read_gradient
from leakgauge.attacks.matching.engine.trace import trace
from leakgauge.attacks.matching.objectives import Objective
from leakgauge.attacks.matching.optimisers import CosineDecay, Optimiser, SignedAdam
from leakgauge.attacks.matching.parametrisations import Pixels
from leakgauge.attacks.matching.priors import Prior, TotalVariation
from leakgauge.attacks.matching.surrogate import as_one_gradient
from leakgauge.attacks.span.layer_spans import AffineLayer, LayerSpan, affine_layers, layer_spans
from leakgauge.attacks.span.loss import HeadGradient, SpanLoss, spoilt
from leakgauge.attacks.span.search import SpanProblem, SpanSearch
from leakgauge.errors import InvalidCase, UnsupportedModel
from leakgauge.protocol.observation import UpdateObservation, known


@dataclass(frozen=True)
class SpanMatching(SteppedAttack, OwnBudget):
    """Minimise what of a candidate's layer inputs lies outside the spans that the update's layers have.

    In each layer that has more outputs and inputs than the batch has positions, the row space of the weight's gradient
    is the span of the private inputs (see `layer_spans`), whatever the loss, and whatever scale, clipping or direction
    the update was given. To the mean share of energy outside the spans comes the distance of the last layer's gradient,
    which the forward pass gives, and which fixes the contrast that normalisation hides; and what priors add.

    ``starts`` candidates race over the share ``race`` of the budget, and the one with the lowest loss goes on. When the
    residual falls below ``settled`` the rate runs out early. In a batch each image has its own residual: where some
    images have settled and others are far from it at the share ``renewal`` of the budget, these are drawn anew while
    those stay. Several local steps are taken as one gradient in their middle.

    With a ``guide``, an objective of gradient matching leads along with the spans over the share ``guided`` of the
    budget, both with the same weight, whatever their scales (see `Guide`): a step costs three times as much, and
    networks whose head reads features place by place come back that neither brings back alone.

    The constants were chosen on CIFAR-10 test images below 100; docs/span.md has the theorem and where it ends.
    """

    optimiser: Optimiser[Any] = SignedAdam(0.1, CosineDecay())
    priors: tuple[Prior, ...] = (TotalVariation(1e-4),)
    parametrisation: Pixels = Pixels(spread=0.25)
    labels: LabelAttack | None = BestLabels()
    starts: int = 3
    race: float = 0.25
    renewal: float = 0.6
    settled: float = 1e-4
    guide: Objective | None = None
    guided: float = 0.75
    budget: Budget = Budget(seconds=60.0)

    def __post_init__(self) -> None:
        if self.starts < 1:
            raise InvalidCase(f"SpanMatching needs starts >= 1, got {self.starts}.")
        if not 0 <= self.guided <= 1:
            raise InvalidCase(f"SpanMatching needs guided between 0 and 1, got {self.guided}.")
        if not (0 < self.race < self.renewal <= 1 and self.settled > 0):
            raise InvalidCase("SpanMatching needs 0 < race < renewal <= 1 and settled > 0; correct them.")

    def search(self, observations: Sequence[UpdateObservation], *, generator: Generator) -> Stepper:
        try:
            return self.begin(observations, generator=generator)
        except UnsupportedModel as refusal:
            return Answered([not_applicable(str(refusal))] * len(observations))

    def begin(self, observations: Sequence[UpdateObservation], *, generator: Generator) -> SpanSearch:
        """The attack at its start; `UnsupportedModel` where it does not apply."""
        started = self.budget.now()
        problems = tuple(self.problem(observation, generator=generator) for observation in observations)
        return SpanSearch(self, problems, generator=generator, elapsed=self.budget.now() - started)

    def problem(self, observation: UpdateObservation, *, generator: Generator) -> SpanProblem:
        """What the update spans, with the labels known or restored; `UnsupportedModel` where it spans nothing."""
        finite_update(observation)
        num_examples = known(observation.num_examples, "num_examples", needed_by=self)
        # Without it a single gradient could not be told from a difference of weights.
        known(observation.local_update, "local_update", needed_by=self)
        labels = observation.labels
        if labels is None:
            rule: LabelAttack = known(self.labels, "labels", needed_by=self)
            labels = rule.restore(observation, generator=generator)
        seen = as_gradient(observation)
        spans = observed_spans(seen, num_examples)
        loss = SpanLoss.of(seen, spans, num_examples)
        priors = tuple(prior.bind(seen) for prior in self.priors if isinstance(seen.space, prior.serves))
        coordinates = self.parametrisation.bind(seen, num_examples)
        return SpanProblem(loss, priors, coordinates, seen, labels, spans, self.guide)


def as_gradient(observation: UpdateObservation, position: float | None = None) -> UpdateObservation:
    """The update as one gradient: of one step of Adam read backwards, of several steps taken in their middle, or at
    another ``position`` of their way."""
    observation = replace(observation, learner=observation.learner.without_dropout())
    if is_one_adam_step(observation):
        return read_gradient(observation)[0]
    return as_one_gradient(observation, position)


def spanned_layers(observation: UpdateObservation, num_examples: int) -> tuple[AffineLayer, ...]:
    """The layers whose inputs an update of so many examples spans; the classifier, whose gradient the loss has
    whole, is not among them. `UnsupportedModel` where the network cannot be read."""
    learner, state, space = observation.learner, observation.state, observation.space
    layers = affine_layers(learner, state, space, num_examples, observation.labels)
    head = HeadGradient.of(trace(learner, state, space.probe(num_examples, state)), observation)
    left_out = spoilt(observation) | (set() if head is None else {head.name})
    return tuple(layer for layer in layers if layer.qualifies and layer.weight not in left_out)


def observed_spans(observation: UpdateObservation, num_examples: int) -> tuple[LayerSpan, ...]:
    spans = layer_spans(observation, spanned_layers(observation, num_examples))
    spans = tuple(span for span in spans if bool((span.weights > 0).any()))
    if not spans:
        raise UnsupportedModel(
            f"No layer's gradient spans its inputs at a batch of {num_examples}, as none has more outputs and inputs "
            "than there are positions, or noise drowns them; use gradient matching, `best`."
        )
    return spans
