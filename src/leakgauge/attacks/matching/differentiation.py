"""How d(matching loss)/d(images) is taken: several routes to one derivative, checked against each other in float64.

Write g(x) for the candidate's update and D for the distance; v = dD/dg. Then dD/dx = d/dx <g(x), v>, and when g is a
gradient of the loss L this is also the derivative of grad_x L(params + e v, x) at e = 0: one reverse pass in x under a
directional derivative in the parameters. The routes are these two readings and a difference quotient of the second.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import grad, grad_and_value, jvp, vmap

from leakgauge import params as tree
from leakgauge.attacks.matching.objectives import Objective
from leakgauge.errors import UnsupportedModel
from leakgauge.protocol.learner import Learner, functional_gradient
from leakgauge.protocol.local_update import FedSGD, LocalUpdate, Transformed, UpdateTransform
from leakgauge.types import Batch, ModelState, ParamTree


class ValueAndGradient(NamedTuple):
    value: Tensor
    gradient: Tensor


@dataclass(frozen=True)
class MatchingProblem:
    """Explain ``observed`` by a batch of images with the given labels."""

    learner: Learner
    state: ModelState
    local_update: LocalUpdate
    observed: ParamTree
    objective: Objective
    labels: Tensor

    def update(self, images: Tensor) -> ParamTree:
        batch = Batch(images, self.labels)
        return self.local_update.expected(self.learner, self.state, batch, observed=self.observed)

    def distance(self, update: ParamTree) -> Tensor:
        return self.objective(update, self.observed)

    def functional(self) -> MatchingProblem:
        """The same problem in a form that composes with ``vmap`` and ``jvp``."""
        return replace(self, learner=replace(self.learner, gradient_rule=functional_gradient))


class Differentiation(ABC):
    """A route to the derivative of the matching loss."""

    @abstractmethod
    def one(self, problem: MatchingProblem, images: Tensor) -> ValueAndGradient:
        """Loss and its gradient for one candidate batch ``n c h w``."""

    def many(self, problem: MatchingProblem, images: Tensor, *, chunk: int) -> ValueAndGradient:
        """The same for candidates ``restarts n c h w``, at most ``chunk`` of them at a time."""
        del chunk
        pairs = [self.one(problem, candidate) for candidate in images]
        return ValueAndGradient(*(torch.stack(column) for column in zip(*pairs)))

    def resolve(self, problem: MatchingProblem, images: Tensor) -> Differentiation:
        """The concrete route for this problem."""
        del problem, images
        return self


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

    def one(self, problem: MatchingProblem, images: Tensor) -> ValueAndGradient:
        leaf = images.detach().requires_grad_()
        with torch.enable_grad():
            update = problem.update(leaf)
            # Taking v first keeps the distance out of the second-order graph.
            value, direction = _direction(problem.distance, update)
            (gradient,) = torch.autograd.grad(
                list(update.values()), leaf, grad_outputs=list(direction.values()), allow_unused=True
            )
        if gradient is None:
            raise UnsupportedModel(
                "The model cuts its parameters off from the images (by detach or a whole-number operation), so their "
                "update has no derivative; use an analytic attack."
            )
        return ValueAndGradient(value, gradient)

    def many(self, problem: MatchingProblem, images: Tensor, *, chunk: int) -> ValueAndGradient:
        functional = problem.functional()

        def loss(candidate: Tensor) -> Tensor:
            return functional.distance(functional.update(candidate))

        gradient, value = vmap(grad_and_value(loss), chunk_size=chunk)(images)
        return ValueAndGradient(value.detach(), gradient.detach())


@dataclass(frozen=True)
class ForwardOverReverse(Differentiation):
    """Forward-mode derivative, in the direction v of the parameters, of the reverse-mode gradient in the images."""

    def one(self, problem: MatchingProblem, images: Tensor) -> ValueAndGradient:
        functional = problem.functional()
        residual = _residual(functional)
        learner, state = functional.learner, functional.state

        def loss(params: ParamTree, candidate: Tensor) -> Tensor:
            return learner.objective(params, state.buffers, Batch(candidate, functional.labels))

        params = dict(state.params)
        direction, value = grad_and_value(residual)(grad(loss)(params, images))
        gradient = jvp(lambda moved: grad(loss, argnums=1)(moved, images), (params,), (direction,))[1]
        return ValueAndGradient(value.detach(), gradient.detach())

    def many(self, problem: MatchingProblem, images: Tensor, *, chunk: int) -> ValueAndGradient:
        value, gradient = vmap(partial(self.one, problem), chunk_size=chunk)(images)
        return ValueAndGradient(value, gradient)


@dataclass(frozen=True)
class FiniteDifference(Differentiation):
    """Central difference of grad_x L(params +- e v, x): first derivatives only, for models that have no second ones.

    Accurate on smooth models; where a ReLU or max-pool switches between the two sides the quotient is off, so the exact
    routes come first. ``relative_step`` is e |v| / |params|; None takes the cube root of the machine precision.
    """

    relative_step: float | None = None

    def one(self, problem: MatchingProblem, images: Tensor) -> ValueAndGradient:
        residual = _residual(problem)
        state, learner = problem.state, problem.learner
        batch = Batch(images.detach(), problem.labels)
        with torch.no_grad():
            update = learner.gradient(state, batch)
        value, direction = _direction(residual, update)
        length = tree.norm(direction)
        if length == 0:
            return ValueAndGradient(value, torch.zeros_like(images))
        relative = self.relative_step or torch.finfo(state.dtype).eps ** (1 / 3)
        step = float(relative * tree.norm(state.params) / length)
        ahead, behind = (
            _image_gradient(learner, replace(state, params=tree.add(state.params, direction, scale=sign * step)), batch)
            for sign in (1.0, -1.0)
        )
        return ValueAndGradient(value, (ahead - behind) / (2 * step))


@dataclass(frozen=True)
class Automatic(Differentiation):
    """The first exact route the model supports, else finite differences; the record names the one that ran."""

    def one(self, problem: MatchingProblem, images: Tensor) -> ValueAndGradient:
        return self.resolve(problem, images).one(problem, images)

    def resolve(self, problem: MatchingProblem, images: Tensor) -> Differentiation:
        refusals = []
        for route in (DoubleBackward(), FiniteDifference()):
            try:
                route.resolve(problem, images).one(problem, images)
            except (RuntimeError, NotImplementedError, UnsupportedModel) as error:
                refusals.append(f"{type(route).__name__}: {str(error).splitlines()[0].rstrip('.')}")
            else:
                return route
        raise UnsupportedModel(
            "This model cannot be attacked by gradient matching, because no derivative route holds for it "
            f"({'; '.join(refusals)}); replace the operation named, or use an analytic attack."
        )


class Evaluator(NamedTuple):
    """The chosen way to evaluate all restarts, and its name for the record."""

    route: str
    evaluate: Callable[[Tensor], ValueAndGradient]


def plan_evaluation(problem: MatchingProblem, differentiation: Differentiation, start: Tensor) -> Evaluator:
    """Resolve the route on the starting point; run restarts together where memory allows and the result is the same."""
    route = differentiation.resolve(problem, start[0])
    name = type(route).__name__
    if len(start) > 1 and type(route).many is not Differentiation.many:
        chunk = min(len(start), _affordable(problem, start[0]))
        if chunk > 1 and _batches(route, problem, start, chunk):
            return Evaluator(f"{name}, {chunk} restarts at a time", partial(route.many, problem, chunk=chunk))
    return Evaluator(name, partial(Differentiation.many, route, problem, chunk=1))


def _batches(route: Differentiation, problem: MatchingProblem, start: Tensor, chunk: int) -> bool:
    try:
        together = route.many(problem, start[:2], chunk=min(2, chunk))
    except (RuntimeError, NotImplementedError):
        return False  # an operation without a batching rule; one after another still works
    alone = route.one(problem, start[1])
    scale = alone.gradient.abs().max()
    return bool((together.gradient[1] - alone.gradient).abs().max() <= 1e-2 * scale)


def _affordable(problem: MatchingProblem, images: Tensor) -> int:
    """How many restarts fit in half of the free memory, judged by what one double backward keeps."""
    kept = 0

    def count(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += tensor.numel() * tensor.element_size()
        return tensor

    try:
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            DoubleBackward().one(problem, images)
    except RuntimeError:
        return 1
    return max(1, int(_free_memory(images.device) / 2 / max(kept, 1)))


def _free_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 2 << 30  # not told on this system: assume a small laptop


def _direction(distance: Callable[[ParamTree], Tensor], update: ParamTree) -> tuple[Tensor, dict[str, Tensor]]:
    """D and v = dD/dg at a given update."""
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in update.items()}
    with torch.enable_grad():
        value = distance(leaves)
        gradients = torch.autograd.grad(value, list(leaves.values()), materialize_grads=True)
    return value.detach(), dict(zip(leaves, gradients))


def _residual(problem: MatchingProblem) -> Callable[[ParamTree], Tensor]:
    """The matching loss as a function of the plain gradient, through whatever the client does to it afterwards."""
    transforms: list[UpdateTransform] = []
    local_update = problem.local_update
    while isinstance(local_update, Transformed):
        transforms.append(local_update.transform)
        local_update = local_update.inner
    if not isinstance(local_update, FedSGD):
        raise UnsupportedModel(
            f"This differentiation route needs an update that is one gradient, not {local_update!r}; "
            "use DoubleBackward()."
        )

    def residual(gradient: ParamTree) -> Tensor:
        for transform in reversed(transforms):
            gradient = transform.anticipate(gradient, observed=problem.observed)
        return problem.distance(gradient)

    return residual


def _image_gradient(learner: Learner, state: ModelState, batch: Batch) -> Tensor:
    images = batch.images.detach().requires_grad_()
    with torch.enable_grad():
        loss = learner.objective(state.params, state.buffers, Batch(images, batch.labels))
        return torch.autograd.grad(loss, images)[0]
