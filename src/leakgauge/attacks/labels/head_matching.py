"""Gradient matching on the last layer alone: features and labels of every example that explain its update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Generator, Tensor
from torch.nn.functional import one_hot

from leakgauge.attacks.labels.alternating import Alternating, ClassModel, with_bias
from leakgauge.attacks.labels.base import CountRule, Head, midway_gradient, whole_counts
from leakgauge.attacks.labels.stand_ins import dummy_features
from leakgauge.protocol.observation import UpdateObservation, known

_CONFIDENCE = 3.0
"""Logit of the label each example starts with, against 0 for the others."""
_DIFFERENCE = 1e-2
_HISTORY = 50
_EXPLAINED = 1e-9
"""Share of the update's squared length that float32 leaves unexplained by the truth."""


class Explanation(NamedTuple):
    """Soft counts, and the share of the update's squared length they leave unexplained."""

    counts: Tensor
    residual: float


@dataclass(frozen=True)
class HeadMatching(CountRule):
    """Find K feature vectors and K label distributions with sum_k (p_k - y_k) [e_k, 1]^T = K [dW, db].

    The last layer is a network of its own whose input is unknown: C (m + 1) equations, so with fewer examples than
    classes the labels are over-determined, trained or not. Unlike whole-network matching it costs K m C per step. From
    each of the ``starts`` of `Alternating` (its number of rounds), L-BFGS [Liu & Nocedal, 1989] minimises the squared
    residual in at most ``steps``; the start that explains the update best is kept. Features are kept non-negative, as
    absolute values, if those of noise images are, as after a ReLU.
    """

    starts: tuple[int, ...] = (30, 5)
    steps: int = 300

    def estimate(self, observation: UpdateObservation, *, generator: Generator) -> Tensor:
        num_examples = known(observation.num_examples, "num_examples", needed_by=self)
        head = midway_gradient(observation, needed_by=self)
        biased = with_bias(observation, head, num_examples, generator=generator)
        signed = bool((dummy_features(observation, 2, generator=generator) < 0).any())
        best: Explanation | None = None
        for rounds in self.starts:
            start = Alternating(rounds).solve(biased, num_examples)
            found = self.explain(head, start, num_examples, signed=signed, generator=generator)
            if best is None or found.residual < best.residual:
                best = found
            if best.residual < _EXPLAINED:
                break
        assert best is not None
        return best.counts

    def explain(
        self, head: Head, start: ClassModel, num_examples: int, *, signed: bool, generator: Generator
    ) -> Explanation:
        labels = torch.repeat_interleave(torch.arange(head.num_classes), whole_counts(start.counts, num_examples))
        features = start.embeddings[labels] if signed else start.embeddings[labels].clamp(min=0)
        # Examples of one class start alike, and without a difference would stay so.
        size = float(features.square().mean().sqrt())
        features = features + _DIFFERENCE * size * torch.rand(features.shape, generator=generator, dtype=torch.float64)
        problem = _Problem.of(head, features, signed=signed)
        logits = _CONFIDENCE * one_hot(labels, head.num_classes).double()
        found = minimize(
            problem.value_and_gradient,
            torch.cat((features.flatten(), logits.flatten())).numpy(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": self.steps, "maxfun": 2 * self.steps, "maxcor": _HISTORY, "ftol": 0.0, "gtol": 0.0},
        )
        _, logits = problem.parts(torch.from_numpy(np.asarray(found.x)))
        return Explanation(logits.softmax(dim=1).sum(dim=0), float(found.fun))


@dataclass(frozen=True)
class _Problem:
    """The squared residual over the squared target, and its gradient, by hand: four products of K x C by m."""

    head: Head
    target: Tensor
    """K [dW, s db], the last column only with a bias."""
    constant: float | None
    """s, of the size of a feature, so that weights and bias count alike."""
    num_examples: int
    signed: bool

    @classmethod
    def of(cls, head: Head, features: Tensor, *, signed: bool) -> _Problem:
        target, constant, num_examples = head.weight_update, None, len(features)
        if head.bias_update is not None:
            constant = float(features.square().mean().sqrt()) or 1.0
            target = torch.cat((target, constant * head.bias_update[:, None]), dim=1)
        return cls(head, num_examples * target, constant, num_examples, signed)

    def parts(self, variables: Tensor) -> tuple[Tensor, Tensor]:
        cut = self.num_examples * self.head.weight.shape[1]
        return variables[:cut].view(self.num_examples, -1), variables[cut:].view(self.num_examples, -1)

    def value_and_gradient(self, variables: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        free, logits = self.parts(torch.from_numpy(variables))
        features = free if self.signed else free.abs()
        width, inputs = features.shape[1], features
        if self.constant is not None:
            inputs = torch.cat((features, torch.full_like(features[:, :1], self.constant)), dim=1)
        probabilities, labels = self.head.probabilities(features), logits.softmax(dim=1)
        delta = probabilities - labels
        residual = delta.T @ inputs - self.target
        scale = 2 / self.target.square().sum()
        towards_delta = inputs @ residual.T
        towards_features = (
            delta @ residual[:, :width] + _through_softmax(probabilities, towards_delta) @ self.head.weight
        )
        if not self.signed:
            towards_features = torch.where(free < 0, -towards_features, towards_features)
        towards_logits = -_through_softmax(labels, towards_delta)
        gradient = scale * torch.cat((towards_features.flatten(), towards_logits.flatten()))
        return float(residual.square().sum() * scale / 2), gradient.numpy()


def _through_softmax(probabilities: Tensor, gradient: Tensor) -> Tensor:
    return probabilities * (gradient - (probabilities * gradient).sum(dim=1, keepdim=True))
