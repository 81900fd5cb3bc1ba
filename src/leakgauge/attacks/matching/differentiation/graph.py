"""Autograd's route: a graph of the gradient, and back through it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.func import grad_and_value

from leakgauge import params as tree
from leakgauge.attacks.matching.differentiation.matcher import STEP_BY_STEP, CandidateLoss, Linearised, Pull, Wanted
from leakgauge.attacks.matching.differentiation.route import Differentiation, RowwiseLoss, Together
from leakgauge.attacks.matching.engine import Pulled
from leakgauge.attacks.matching.problem import MatchingProblem, ValueAndGradient
from leakgauge.attacks.matching.surrogate import StraightLine
from leakgauge.errors import UnsupportedModel
from leakgauge.protocol.learner import Learner
from leakgauge.types import Batch, ModelState, ParamTree


@dataclass(frozen=True)
class DoubleBackward(Differentiation):
    """Reverse over reverse, for the images only: no second-order gradient of any parameter is computed."""

    def resolve(self, problem: MatchingProblem, images: Tensor) -> Differentiation:
        """This route, once every backward of the model has proved differentiable.

        Asked for the images alone, torch leaves out in silence a path that is marked ``once_differentiable``; asked for
        everything, it refuses.
        """
        with torch.enable_grad():
            update = problem.update(images.detach().requires_grad_())
            try:
                torch.autograd.backward([tensor.sum() for tensor in update.values() if tensor.requires_grad])
            except RuntimeError as error:
                raise UnsupportedModel(
                    f"The model's gradient cannot be differentiated ({str(error).splitlines()[0].rstrip('.')}); "
                    "use FiniteDifference()."
                ) from error
        return self

    def linearise(self, problem: MatchingProblem, images: Tensor) -> Linearised:
        del images
        return Graph(problem.learner, problem.state)

    def matcher(self, problem: MatchingProblem, images: Tensor) -> CandidateLoss:
        client = problem.client()
        if not isinstance(client, STEP_BY_STEP):
            return _Whole(problem)
        return super().matcher(problem, images)

    def rowwise(self, problem: MatchingProblem, images: Tensor, *, chunk: int) -> RowwiseLoss:
        if chunk == 1 or isinstance(problem.client(), StraightLine):
            return super().rowwise(problem, images, chunk=1)
        return Together(problem.functional(), _functional_row, chunk)


def _functional_row(problem: MatchingProblem, images: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
    def loss(images: Tensor, labels: Tensor) -> Tensor:
        batch = Batch(images, labels)
        update = problem.local_update.expected(problem.learner, problem.state, batch, observed=problem.observed)
        return problem.distance(update)

    if labels.is_floating_point():
        (of_images, of_labels), value = grad_and_value(loss, argnums=(0, 1))(images, labels)
        return value, of_images, of_labels
    gradient, value = grad_and_value(loss)(images, labels)
    return value, gradient


@dataclass(frozen=True)
class Graph(Linearised):
    """The gradient with the graph autograd builds of it."""

    learner: Learner
    state: ModelState

    def at(self, params: ParamTree, batch: Batch, wanted: Wanted) -> tuple[dict[str, Tensor], Pull]:
        images = batch.inputs.detach().requires_grad_()
        labels = batch.labels.detach().requires_grad_() if wanted.labels else batch.labels
        leaves = {name: p.detach().requires_grad_() for name, p in params.items()} if wanted.params else params
        with torch.enable_grad():
            gradient = self.learner.gradient(replace(self.state, params=leaves), Batch(images, labels))
        variables = [images, *([labels] if wanted.labels else []), *(leaves.values() if wanted.params else [])]
        detached = {name: tensor.detach().clone() for name, tensor in gradient.items()}

        def pull(direction: dict[str, Tensor]) -> Pulled:
            found = _derivatives(gradient, direction, variables)
            rest = found[1 + wanted.labels :]
            return Pulled(
                found[0], dict(zip(leaves, rest)) if wanted.params else None, found[1] if wanted.labels else None
            )

        return detached, pull


def _derivatives(update: ParamTree, direction: ParamTree, variables: list[Tensor]) -> list[Tensor]:
    """Of <update, direction>, the images first among the variables; zero in a variable that does not enter."""
    pairs = [(tensor, direction[name]) for name, tensor in update.items() if tensor.requires_grad]
    outputs, seeds = zip(*pairs) if pairs else ((), ())
    found = torch.autograd.grad(outputs, variables, seeds, allow_unused=True) if pairs else (None,)
    if found[0] is None:
        raise UnsupportedModel(
            "The model cuts its parameters off from the images (by detach or a whole-number operation), so "
            "their update has no derivative; use an analytic attack."
        )
    return [f if f is not None else torch.zeros_like(of) for f, of in zip(found, variables)]


class _Whole(CandidateLoss):
    """An algorithm of the user's own, differentiated as one function."""

    def __call__(self, images: Tensor, labels: Tensor) -> ValueAndGradient:
        soft = labels.is_floating_point()
        leaf, targets = images.detach().requires_grad_(), labels.detach().requires_grad_(soft)
        with torch.enable_grad():
            update = replace(self.problem, labels=targets).update(leaf)
        value, direction = self._direction(update)
        found = _derivatives(update, direction, [leaf, targets] if soft else [leaf])
        return ValueAndGradient(value.detach(), found[0], found[1] if soft else None)

    def _direction(self, update: ParamTree) -> tuple[Tensor, dict[str, Tensor]]:
        # Here the update is finished: the user's algorithm holds its defences itself.
        return self.problem.objective.direction(
            tree.map_tensors(lambda t: t.detach().clone(), update), self.problem.observed
        )
