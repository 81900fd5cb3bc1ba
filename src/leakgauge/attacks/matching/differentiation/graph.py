"""Autograd's routes: back through a graph of the gradient, or plain differences for models that have no more."""

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
from leakgauge.protocol.local_update import FedSGD
from leakgauge.types import Batch, ModelState, ParamTree


@dataclass(frozen=True)
class DoubleBackward(Differentiation):
    """Reverse over reverse, for the images only: no second-order gradient of any parameter is computed.

    With ``composed``, operations that torch differentiates only once, such as its kernels for attention, are replaced
    by equal compositions; the resolved route does so where the model needs it.
    """

    composed: bool = False

    def resolve(self, problem: MatchingProblem, images: Tensor) -> Differentiation:
        """This route, once every backward of the model has proved differentiable, composed if not otherwise."""
        first = _why_not(self._composed(problem), images)
        if first is None:
            return self
        if not self.composed and _why_not(replace(self, composed=True)._composed(problem), images) is None:
            return replace(self, composed=True)
        raise UnsupportedModel(f"The model's gradient cannot be differentiated ({first}); use FiniteDifference().")

    def linearise(self, problem: MatchingProblem, images: Tensor) -> Linearised:
        del images
        return Graph(self._composed(problem).learner, problem.state)

    def matcher(self, problem: MatchingProblem, images: Tensor) -> CandidateLoss:
        problem = self._composed(problem)
        whole = not isinstance(problem.client(), STEP_BY_STEP)
        return _Whole(problem) if whole else super().matcher(problem, images)

    def rowwise(self, problem: MatchingProblem, images: Tensor, *, chunk: int) -> RowwiseLoss:
        if chunk == 1 or isinstance(problem.client(), StraightLine):
            return super().rowwise(problem, images, chunk=1)
        return Together(self._composed(problem).functional(), _functional_row, chunk)

    def _composed(self, problem: MatchingProblem) -> MatchingProblem:
        return replace(problem, learner=replace(problem.learner, composed=True)) if self.composed else problem


def _why_not(problem: MatchingProblem, images: Tensor) -> str | None:
    """What torch has against differentiating the model's gradient, if anything.

    Asked for the images alone, it leaves out in silence a path that is marked ``once_differentiable``; asked for
    everything, it refuses.
    """
    with torch.enable_grad():
        update = problem.update(images.detach().requires_grad_())
        try:
            torch.autograd.backward([tensor.sum() for tensor in update.values() if tensor.requires_grad])
        except RuntimeError as error:
            return str(error).splitlines()[0].rstrip(".")
    return None


def _functional_row(problem: MatchingProblem, images: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
    def loss(images: Tensor, labels: Tensor) -> Tensor:
        return problem.distance(replace(problem, labels=labels).update(images))

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


@dataclass(frozen=True)
class FiniteDifference(Differentiation):
    """Central difference of grad_x L(params +- e v, x): first derivatives only, for models that have no second ones.

    Accurate on smooth models; where a ReLU or max-pool switches between the two sides the quotient is off, so the exact
    routes come first. ``relative_step`` is e |v| / |params|; None takes the cube root of the machine precision.
    """

    relative_step: float | None = None

    def linearise(self, problem: MatchingProblem, images: Tensor) -> Linearised:
        client = problem.client()
        if not isinstance(client, FedSGD):
            raise UnsupportedModel(
                f"This differentiation route needs an update that is one gradient, not {client!r}; "
                "use DoubleBackward()."
            )
        del images
        relative = self.relative_step or torch.finfo(problem.state.dtype).eps ** (1 / 3)
        return _Quotient(problem.learner, problem.state, relative)


@dataclass(frozen=True)
class _Quotient(Linearised):
    learner: Learner
    state: ModelState
    relative: float

    def at(self, params: ParamTree, batch: Batch, wanted: Wanted) -> tuple[dict[str, Tensor], Pull]:
        with torch.no_grad():
            gradient = self.learner.gradient(replace(self.state, params=params), batch)

        def pull(direction: dict[str, Tensor]) -> Pulled:
            length = tree.norm(direction)
            if length == 0:
                zero = torch.zeros_like(batch.labels) if wanted.labels else None
                return Pulled(torch.zeros_like(batch.inputs), None, zero)
            step = float(self.relative * tree.norm(params) / length)
            ahead, behind = (
                _batch_gradient(
                    self.learner,
                    replace(self.state, params=tree.add(params, direction, scale=sign * step)),
                    batch,
                    of_labels=wanted.labels,
                )
                for sign in (1.0, -1.0)
            )
            found = [(one - two) / (2 * step) for one, two in zip(ahead, behind)]
            return Pulled(found[0], None, found[1] if wanted.labels else None)

        return tree.map_tensors(torch.clone, gradient), pull


def _batch_gradient(learner: Learner, state: ModelState, batch: Batch, *, of_labels: bool) -> tuple[Tensor, ...]:
    """The loss's derivative in the images and, where asked for, in the labels."""
    images, labels = batch.inputs.detach().requires_grad_(), batch.labels.detach().requires_grad_(of_labels)
    with torch.enable_grad():
        loss = learner.objective(state.params, state.buffers, Batch(images, labels))
        return torch.autograd.grad(loss, (images, labels) if of_labels else (images,))
