"""A large batch in parts, so that memory does not grow with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from leakgauge import params as tree
from leakgauge.attacks.matching.differentiation.automatic import Automatic
from leakgauge.attacks.matching.differentiation.matcher import STEP_BY_STEP, Linearised, Pull, Wanted
from leakgauge.attacks.matching.differentiation.route import Differentiation
from leakgauge.attacks.matching.engine import Pulled
from leakgauge.attacks.matching.problem import MatchingProblem
from leakgauge.errors import InvalidCase, UnsupportedModel
from leakgauge.types import Batch, ParamTree

_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Accumulated(Differentiation):
    """Another route, over parts of ``size`` images: g = sum over parts of (its share of the batch) * (its gradient).

    The gradient is summed up first, then each part is taken again to pull the direction back: a forward and backward
    pass more, and memory for one part. It holds where the loss is a mean over examples that do not meet; BatchNorm in
    train mode lets them meet, and is refused.
    """

    route: Differentiation = field(default_factory=Automatic)
    size: int = 8

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InvalidCase(f"Accumulated needs parts of at least one image, got {self.size}; raise `size`.")

    def resolve(self, problem: MatchingProblem, images: Tensor) -> Differentiation:
        if not isinstance(problem.client(), STEP_BY_STEP):
            raise UnsupportedModel(
                f"{type(self).__name__} needs a client of plain gradient steps, not {problem.client()!r}; "
                "use another route."
            )
        if not _separable(problem, images):
            raise UnsupportedModel(
                "The examples of a batch meet in this model (as in BatchNorm in train mode), so it cannot be taken in "
                "parts; use another route."
            )
        few = images[: self.size]
        return replace(self, route=self.route.resolve(replace(problem, labels=problem.labels[: len(few)]), few))

    def linearise(self, problem: MatchingProblem, images: Tensor) -> Linearised:
        few = images[: self.size]
        inner = self.route.linearise(replace(problem, labels=problem.labels[: len(few)]), few)
        return _Parts(inner, self.size)


@dataclass(frozen=True)
class _Parts(Linearised):
    inner: Linearised
    size: int

    def at(self, params: ParamTree, batch: Batch, wanted: Wanted) -> tuple[dict[str, Tensor], Pull]:
        total: dict[str, Tensor] | None = None
        for part, share in self._parts(batch):
            gradient, _ = self.inner.at(params, part, wanted)
            total = tree.scale(gradient, share) if total is None else tree.add(total, gradient, scale=share)
        assert total is not None

        def pull(direction: dict[str, Tensor]) -> Pulled:
            images, labels, of_params = [], [], None
            for part, share in self._parts(batch):
                _, own = self.inner.at(params, part, wanted)
                pulled = own(tree.scale(direction, share))
                images.append(pulled.images)
                if pulled.labels is not None:
                    labels.append(pulled.labels)
                if pulled.params is not None:
                    of_params = pulled.params if of_params is None else tree.add(of_params, pulled.params)
            return Pulled(torch.cat(images), of_params, torch.cat(labels) if labels else None)

        return total, pull

    def _parts(self, batch: Batch) -> Iterator[tuple[Batch, float]]:
        for first in range(0, len(batch), self.size):
            part = batch[slice(first, first + self.size)]
            yield part, len(part) / len(batch)


def _separable(problem: MatchingProblem, images: Tensor) -> bool:
    """Whether the gradient of two examples is the mean of their gradients."""
    learner, state = problem.learner, problem.state
    if learner.mode == "train" and learner.batch_norm_layers():
        return False
    if len(images) < 2:
        return True
    # Of unlike examples: two that are equal would agree with their mean whatever the model does.
    pair = Batch(torch.stack([images[0], 1 - images[1]]).detach(), problem.labels[:2].detach())
    both = learner.gradient(state, pair)
    each = [learner.gradient(state, pair[slice(index, index + 1)]) for index in range(2)]
    apart = tree.sub(both, tree.scale(tree.add(each[0], each[1]), 0.5))
    return bool(tree.squared_norm(apart).sqrt() <= _TOLERANCE * tree.squared_norm(both).sqrt())
