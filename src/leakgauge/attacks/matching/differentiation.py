"""How d(matching loss)/d(images) is taken: several routes to one derivative, checked against each other in float64.

Write g(x) for the candidate's update and D for the distance; v = dD/dg. Then dD/dx = d/dx <g(x), v>, and when g is a
gradient of the loss L this is also the derivative of grad_x L(params + e v, x) at e = 0. A route takes that derivative
for one gradient; what the client makes of its gradients (several local steps, defences) is the same for every route.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from leakgauge import params as tree
from leakgauge.attacks.matching.engine import Network, NetworkGradient, Pulled, Remembered, trace
from leakgauge.attacks.matching.objectives import Objective
from leakgauge.attacks.matching.problem import MatchingProblem, ValueAndGradient
from leakgauge.attacks.matching.surrogate import StraightLine
from leakgauge.errors import UnsupportedModel
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.local_update import FedAvg, FedSGD, LocalUpdate, Transformed
from leakgauge.types import Batch, ModelState, ParamTree

_UNDERSTOOD = (FedSGD, FedAvg, StraightLine)
"""Clients whose local steps a route differentiates one by one; others are differentiated as a whole."""

Pull = Callable[[dict[str, Tensor]], Pulled]
"""From a direction v in the parameters to the derivatives of <g, v>; uses up v."""


class Wanted(NamedTuple):
    """In what the gradient is to be differentiated, besides the images."""

    params: bool = False
    labels: bool = False


class Linearised(ABC):
    """The gradient of one learner's loss with its derivatives, for any parameters and batch of one shape."""

    @abstractmethod
    def at(self, params: ParamTree, batch: Batch, wanted: Wanted) -> tuple[dict[str, Tensor], Pull]:
        """The gradient, and its derivative."""


class Differentiation(ABC):
    """A route to the derivative of the matching loss."""

    @abstractmethod
    def linearise(self, problem: MatchingProblem, images: Tensor) -> Linearised:
        """The problem's gradient as this route takes it; refuses a model the route does not hold for."""

    def resolve(self, problem: MatchingProblem, images: Tensor) -> Differentiation:
        """The concrete route for this problem."""
        del problem, images
        return self

    def matcher(self, problem: MatchingProblem, images: Tensor) -> Matcher:
        """The matching loss with its derivative, as a function of a candidate shaped like ``images``."""
        return Matcher(problem, self.linearise(problem, images))

    def one(self, problem: MatchingProblem, images: Tensor) -> ValueAndGradient:
        """Loss and its gradient for one candidate batch ``n c h w``."""
        return self.matcher(problem, images)(images, problem.labels)

    def many(self, problem: MatchingProblem, images: Tensor, *, chunk: int) -> ValueAndGradient:
        """The same for candidates ``rows n c h w``, at most ``chunk`` of them at a time."""
        return self.rowwise(problem, images[0], chunk=chunk)(Rows.of(problem, images), problem.objective)

    def rowwise(self, problem: MatchingProblem, images: Tensor, *, chunk: int) -> RowwiseLoss:
        """All rows' losses with their derivatives; this one takes them one after another."""
        del chunk
        return OneByOne(self.matcher(problem, images))


class Rows(NamedTuple):
    """Independent candidates: one row per restart and victim. ``observed`` is stacked when the victims differ."""

    images: Tensor
    labels: Tensor
    observed: ParamTree | None = None
    position: Tensor | None = None

    @classmethod
    def of(cls, problem: MatchingProblem, images: Tensor) -> Rows:
        return cls(images, problem.labels.expand(len(images), *problem.labels.shape))


RowwiseLoss = Callable[[Rows, Objective], ValueAndGradient]


@dataclass(frozen=True)
class OneByOne:
    """Rows one after another."""

    matcher: Matcher

    def __call__(self, rows: Rows, objective: Objective) -> ValueAndGradient:
        found = []
        for index, (images, labels) in enumerate(zip(rows.images, rows.labels, strict=True)):
            problem = replace(self.matcher.problem, objective=objective)
            if rows.observed is not None:
                problem = replace(problem, observed=tree.map_tensors(lambda stack: stack[index], rows.observed))  # noqa: B023
            if rows.position is not None:
                problem = replace(problem, local_update=_placed(problem.local_update, float(rows.position[index])))
            found.append(replace(self.matcher, problem=problem)(images, labels))
        return stacked(found)


@dataclass(frozen=True)
class Together:
    """Rows side by side, by ``vmap``, at most ``chunk`` of them at a time."""

    problem: MatchingProblem
    evaluate: Callable[[MatchingProblem, Tensor, Tensor], tuple[Tensor, ...]]
    chunk: int

    def __call__(self, rows: Rows, objective: Objective) -> ValueAndGradient:
        def row(images: Tensor, labels: Tensor, observed: ParamTree) -> tuple[Tensor, ...]:
            return self.evaluate(replace(self.problem, observed=observed, objective=objective), images, labels)

        shared = rows.observed is None
        observed = self.problem.observed if rows.observed is None else rows.observed
        found = vmap(row, in_dims=(0, 0, None if shared else 0), chunk_size=self.chunk)(
            rows.images, rows.labels, dict(observed)
        )
        return ValueAndGradient(*(tensor.detach() for tensor in found))


def stacked(rows: list[ValueAndGradient]) -> ValueAndGradient:
    value, gradient, labels, position = (
        None if column[0] is None else torch.stack([entry for entry in column if entry is not None])
        for column in zip(*rows)
    )
    assert value is not None
    assert gradient is not None
    return ValueAndGradient(value, gradient, labels, position)


def _placed(client: LocalUpdate, position: float) -> LocalUpdate:
    """The client with the attacker's surrogate at this position."""
    if isinstance(client, Transformed):
        return replace(client, inner=_placed(client.inner, position))
    return replace(client, position=position) if isinstance(client, StraightLine) else client


@dataclass(frozen=True)
class Matcher:
    """The matching loss of candidates and its derivative, through the client's local steps and defences."""

    problem: MatchingProblem
    gradient: Linearised

    def __call__(self, images: Tensor, labels: Tensor) -> ValueAndGradient:
        client, _ = self.problem.client()
        # Class probabilities are differentiated in too; that costs next to nothing, as the labels enter last.
        wanted = Wanted(labels=labels.is_floating_point())
        batch = Batch(images.detach(), labels.detach())
        if isinstance(client, FedSGD):
            gradient, pull = self.gradient.at(self.problem.state.params, batch, wanted)
            value, direction = self.problem.direction(gradient)
            return _finished(value, pull(direction))
        if isinstance(client, FedAvg):
            return self._local_steps(client, batch, wanted)
        if isinstance(client, StraightLine):
            return self._straight_line(client, batch, wanted)
        raise UnsupportedModel(f"The local algorithm {client!r} is differentiated as a whole; use DoubleBackward().")

    def _straight_line(self, client: StraightLine, batch: Batch, wanted: Wanted) -> ValueAndGradient:
        """One gradient at w0 - a (w0 - wT); dD/da = -<dD/d params, w0 - wT>."""
        state, observed = self.problem.state, self.problem.observed
        params = client.halfway(state, observed, client.position).params
        gradient, pull = self.gradient.at(params, batch, wanted._replace(params=True))
        value, direction = self.problem.direction(gradient)
        pulled = pull(direction)
        assert pulled.params is not None
        return _finished(value, pulled)._replace(position=-tree.dot(pulled.params, observed))

    def _local_steps(self, client: FedAvg, batch: Batch, wanted: Wanted) -> ValueAndGradient:
        """Back through every local step, one at a time.

        With mu = dD/d(update), step t adds rate * d<g_t, mu>/dx to the images' derivative and turns mu into
        mu - rate * d<g_t, mu>/d params. Parameters are kept at the square root of the number of steps and computed
        again in between, so that memory hardly grows with it, and no graph outlives its step.
        """
        slices, rate = client.batches(len(batch)), client.learning_rate
        stride = max(1, math.isqrt(len(slices)))
        start = self.problem.state.params
        kept, params = {}, start
        for index, rows in enumerate(slices):
            if index % stride == 0:
                kept[index] = params
            params = self._stepped(params, batch[rows], rate)
        value, adjoint = self.problem.direction(tree.sub(start, params))
        images = torch.zeros_like(batch.images)
        labels = torch.zeros_like(batch.labels) if wanted.labels else None
        for first in reversed(range(0, len(slices), stride)):
            segment = slices[first : first + stride]
            path = [kept.pop(first)]
            for rows in segment[:-1]:
                path.append(self._stepped(path[-1], batch[rows], rate))
            for index in reversed(range(len(segment))):
                rows, last = segment[index], first + index == 0
                _, pull = self.gradient.at(path.pop(), batch[rows], wanted._replace(params=not last))
                pulled = pull(tree.map_tensors(torch.clone, adjoint))
                images[rows] += rate * pulled.images
                if labels is not None and pulled.labels is not None:
                    labels[rows] += rate * pulled.labels
                if pulled.params is not None:
                    adjoint = tree.add(adjoint, pulled.params, scale=-rate)
        return ValueAndGradient(value.detach(), images, labels)

    def _stepped(self, params: ParamTree, batch: Batch, rate: float) -> ParamTree:
        with torch.no_grad():
            gradient = self.problem.learner.gradient(replace(self.problem.state, params=params), batch)
        return tree.add(params, gradient, scale=-rate)


def _finished(value: Tensor, pulled: Pulled) -> ValueAndGradient:
    return ValueAndGradient(value.detach(), pulled.images.detach(), pulled.labels)


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
        return _Graph(problem.learner, problem.state)

    def matcher(self, problem: MatchingProblem, images: Tensor) -> Matcher:
        client, _ = problem.client()
        if not isinstance(client, _UNDERSTOOD):
            return _Whole(problem, self.linearise(problem, images))
        return super().matcher(problem, images)

    def rowwise(self, problem: MatchingProblem, images: Tensor, *, chunk: int) -> RowwiseLoss:
        if chunk == 1 or isinstance(problem.client()[0], StraightLine):
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
class _Graph(Linearised):
    """The gradient with the graph autograd builds of it."""

    learner: Learner
    state: ModelState

    def at(self, params: ParamTree, batch: Batch, wanted: Wanted) -> tuple[dict[str, Tensor], Pull]:
        images = batch.images.detach().requires_grad_()
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


class _Whole(Matcher):
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
class Tangent(Differentiation):
    """Sweeps that carry values, cotangents and the tangents of both through the layers; exact, and without a graph.

    For the layers of ``engine.layers``; other models are refused, and ``Automatic`` takes another route for them.
    """

    def resolve(self, problem: MatchingProblem, images: Tensor) -> Differentiation:
        """This route, once it agrees with autograd on part of the batch."""
        client, _ = problem.client()
        if not isinstance(client, _UNDERSTOOD):
            raise UnsupportedModel(
                f"{type(self).__name__} needs a client of plain gradient steps, not {client!r}; use DoubleBackward()."
            )
        few = images[:2]
        batch = Batch(few, problem.labels[: len(few)])
        wanted = Wanted(params=not isinstance(client, FedSGD))
        expected, theirs = _Graph(problem.learner, problem.state).at(problem.state.params, batch, wanted)
        their_pull = theirs(tree.map_tensors(torch.clone, problem.observed))
        try:
            # The exact sweeps, whatever a route makes of them: a wrong rule shows in both.
            found, ours = Tangent().linearise(problem, few).at(problem.state.params, batch, wanted)
            pull = ours(tree.map_tensors(torch.clone, problem.observed))
        except UnsupportedModel:
            raise
        except Exception as error:  # a user's layer or loss may fail in any way under the sweeps
            raise UnsupportedModel(
                f"The tangent sweeps fail on this model ({next(iter(str(error).splitlines()), repr(error)).rstrip('.')}"
                "); use DoubleBackward()."
            ) from error
        derivatives = ({"images": one.images, **(one.params or {})} for one in (pull, their_pull))
        if not _close(found, expected) or not _close(*derivatives):
            raise UnsupportedModel("The tangent sweeps differ from autograd on this model; use DoubleBackward().")
        return self

    def linearise(self, problem: MatchingProblem, images: Tensor) -> _Sweeps:
        client, _ = problem.client()
        network = trace(problem.learner, problem.state, images, fold=isinstance(client, FedSGD))
        return _Sweeps(network, problem.learner, problem.state)

    def rowwise(self, problem: MatchingProblem, images: Tensor, *, chunk: int) -> RowwiseLoss:
        if chunk == 1 or not isinstance(problem.client()[0], FedSGD):
            return super().rowwise(problem, images, chunk=1)
        sweeps = self.linearise(problem, images)
        sweeps.prepare(problem.state.params)

        def row(problem: MatchingProblem, images: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
            found = Matcher(problem, sweeps)(images, labels)
            return tuple(tensor for tensor in found if tensor is not None)

        return Together(problem, row, chunk)


def _close(one: ParamTree, two: ParamTree) -> bool:
    if one.keys() != two.keys():
        return False
    # Wide enough for the rounding of a deep network in float32, where autograd itself is off by a thousandth; measured
    # against the whole where a tensor is nothing but rounding, as the gradient of a bias before BatchNorm.
    dtype = next(iter(two.values())).dtype
    tolerance, floor = (1e-6, 1e-12) if dtype == torch.float64 else (2e-2, 1e-5)
    floor *= float(tree.squared_norm(two).sqrt())
    return all(bool((one[name] - two[name]).norm() <= tolerance * two[name].norm() + floor) for name in two)


@dataclass
class _Sweeps(Linearised):
    """The gradient by sweeps through a traced network."""

    network: Network
    learner: Learner
    state: ModelState
    _bound: tuple[ParamTree, NetworkGradient] | None = None

    def at(self, params: ParamTree, batch: Batch, wanted: Wanted) -> tuple[dict[str, Tensor], Pull]:
        with torch.no_grad():
            network = self.network_at(params)
            gradient, kept = network.gradient(batch.images, batch.labels)

        def pull(direction: dict[str, Tensor]) -> Pulled:
            with torch.no_grad():
                pulled = network.pull(kept, direction, of_params=wanted.params, of_labels=wanted.labels)
            return self.completed(pulled, params)

        return self.complete(gradient, params), pull

    def prepare(self, params: ParamTree) -> None:
        """Fold now, outside whatever the sweeps will run under."""
        with torch.no_grad():
            self.network_at(params)

    def network_at(self, params: ParamTree) -> NetworkGradient:
        """The network at these parameters; folding is done once as long as they stay."""
        if self._bound is None or self._bound[0] is not params:
            tensors = {**self.state.buffers, **params}
            self._bound = params, NetworkGradient.at(self.network, tensors, self.learner.loss)
        return self._bound[1]

    def complete(self, gradient: dict[str, Tensor], params: ParamTree) -> dict[str, Tensor]:
        """In the order of the parameters, zero where the network does not use one."""
        some = next(iter(gradient.values()))  # batched where the gradient is
        return {name: gradient[name] if name in gradient else some.new_zeros(p.shape) for name, p in params.items()}

    def completed(self, pulled: Pulled, params: ParamTree) -> Pulled:
        return pulled if pulled.params is None else pulled._replace(params=self.complete(pulled.params, params))


@dataclass(frozen=True)
class FrozenDifference(Tangent):
    """A one-sided difference of grad_x L over a step along v with every ReLU and pool held as it is: two plain sweeps.

    ``logit_change`` is how far the step moves the logits: far enough for float32, near enough for a derivative (error
    about 1e-3, fine for signs). Every ``check_every`` evaluations the exact derivative is taken beside it; when their
    cosine falls below ``agreement``, the exact one is used from there on.
    """

    logit_change: float = 3e-3
    check_every: int = 50
    agreement: float = 0.99

    def linearise(self, problem: MatchingProblem, images: Tensor) -> _Sweeps:
        sweeps = super().linearise(problem, images)
        change = self.logit_change if problem.state.dtype == torch.float32 else 1e-4 * self.logit_change
        return _Differences(sweeps.network, sweeps.learner, sweeps.state, None, change, self)

    def rowwise(self, problem: MatchingProblem, images: Tensor, *, chunk: int) -> RowwiseLoss:
        del chunk  # the step follows one row at a time
        return Differentiation.rowwise(self, problem, images, chunk=1)


@dataclass
class _Differences(_Sweeps):
    """The gradient by sweeps, its derivative by a frozen difference whose step follows the network's sensitivity."""

    change: float = 3e-3
    options: FrozenDifference = field(default_factory=FrozenDifference)
    step: float | None = None
    calls: int = 0
    exact: bool = False

    def at(self, params: ParamTree, batch: Batch, wanted: Wanted) -> tuple[dict[str, Tensor], Pull]:
        if self.exact or wanted.labels:
            return super().at(params, batch, wanted)
        with torch.no_grad():
            network = self.network_at(params)
            gradient, kept = network.gradient(batch.images, batch.labels, of_images=True)
        # Copied only where the derivative in the parameters is wanted: the caller may write over the gradient.
        base = tree.map_tensors(torch.clone, gradient) if wanted.params else None

        def pull(direction: dict[str, Tensor]) -> Pulled:
            with torch.no_grad():
                return self.completed(self._difference(network, kept, direction, base, params, wanted), params)

        return self.complete(gradient, params), pull

    def _difference(
        self,
        network: NetworkGradient,
        kept: Remembered,
        direction: dict[str, Tensor],
        base: dict[str, Tensor] | None,
        params: ParamTree,
        wanted: Wanted,
    ) -> Pulled:
        due = self.calls % self.options.check_every == 0
        self.calls += 1
        copy = tree.map_tensors(torch.clone, direction) if due or self.step is None else None
        if self.step is None:
            length = tree.squared_norm(direction).sqrt()
            self.step = float(1e-3 * tree.squared_norm(params).sqrt() / length.clamp_min(1e-30))
        for _ in range(8 if copy is not None else 1):
            used = self.step
            trial = direction if copy is None else tree.map_tensors(torch.clone, copy)
            pulled, moved = network.difference(kept, trial, used, base)
            if moved > 0 and math.isfinite(moved):
                self.step = used * self.change / moved
            else:
                self.step = used * (10.0 if moved == 0 else 0.01)
            if 0.2 < moved / self.change < 5:
                break
        if copy is None and not 1e-3 < moved / self.change < 1e3:
            self.step = None  # found anew, and checked, at the next call
        if copy is not None:
            exact = network.pull(kept, copy, of_params=wanted.params)
            if not _agree(pulled.images, exact.images, self.options.agreement):
                self.exact = True
                return exact
        return pulled


def _agree(one: Tensor, two: Tensor, at_least: float) -> bool:
    a, b = one.flatten().double(), two.flatten().double()
    return bool(a @ b >= at_least * a.norm() * b.norm())


@dataclass(frozen=True)
class FiniteDifference(Differentiation):
    """Central difference of grad_x L(params +- e v, x): first derivatives only, for models that have no second ones.

    Accurate on smooth models; where a ReLU or max-pool switches between the two sides the quotient is off, so the exact
    routes come first. ``relative_step`` is e |v| / |params|; None takes the cube root of the machine precision.
    """

    relative_step: float | None = None

    def linearise(self, problem: MatchingProblem, images: Tensor) -> Linearised:
        client, _ = problem.client()
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
                return Pulled(torch.zeros_like(batch.images), None, zero)
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


_WORTH_SWEEPING = 50_000
"""Parameters from which sweeps written in Python beat the graph autograd builds in C++.

One image, time of a sweep over that of the graph: 1.2 for LeNet with 16 000 parameters, 1.4 for Compact with 40 000,
0.85 for a ResNet-20 with 69 000, 0.81 for one with 272 000.
"""


@dataclass(frozen=True)
class Automatic(Differentiation):
    """The fastest exact route that holds for the model, else finite differences; the record names the one that ran."""

    def linearise(self, problem: MatchingProblem, images: Tensor) -> Linearised:
        return self.resolve(problem, images).linearise(problem, images)

    def matcher(self, problem: MatchingProblem, images: Tensor) -> Matcher:
        return self.resolve(problem, images).matcher(problem, images)

    def rowwise(self, problem: MatchingProblem, images: Tensor, *, chunk: int) -> RowwiseLoss:
        return self.resolve(problem, images).rowwise(problem, images, chunk=chunk)

    def resolve(self, problem: MatchingProblem, images: Tensor) -> Differentiation:
        large = tree.count(problem.state.params) >= _WORTH_SWEEPING
        routes: tuple[Differentiation, ...] = (DoubleBackward(), FiniteDifference())
        return _first_that_holds((Tangent(), *routes) if large else routes, problem, images)


def _first_that_holds(routes: tuple[Differentiation, ...], problem: MatchingProblem, images: Tensor) -> Differentiation:
    refusals = []
    for route in routes:
        try:
            resolved = route.resolve(problem, images)
            if not isinstance(resolved, Tangent):
                resolved.one(problem, images)
        except (RuntimeError, NotImplementedError, UnsupportedModel) as error:
            refusals.append(f"{type(route).__name__}: {str(error).splitlines()[0].rstrip('.')}")
        else:
            return resolved
    raise UnsupportedModel(
        "This model cannot be attacked by gradient matching, because no derivative route holds for it "
        f"({'; '.join(refusals)}); replace the operation named, or use an analytic attack."
    )


class Evaluator(NamedTuple):
    """The chosen way to evaluate all rows, and its name for the record."""

    route: str
    evaluate: RowwiseLoss


def plan_evaluation(problem: MatchingProblem, differentiation: Differentiation, rows: Rows) -> Evaluator:
    """Resolve the route on the starting point; run rows together where memory allows and the result is the same."""
    first = rows.images[0]
    problem = replace(problem, labels=rows.labels[0])
    route = differentiation.resolve(problem, first)
    name = type(route).__name__
    if len(rows.images) > 1 and type(route).rowwise is not Differentiation.rowwise:
        chunk = min(len(rows.images), _affordable(problem, first))
        if chunk > 1 and _batches(route, problem, rows):
            return Evaluator(f"{name}, {chunk} at a time", route.rowwise(problem, first, chunk=chunk))
    return Evaluator(name, route.rowwise(problem, first, chunk=1))


def _batches(route: Differentiation, problem: MatchingProblem, rows: Rows) -> bool:
    observed = None if rows.observed is None else tree.map_tensors(lambda stack: stack[:2], rows.observed)
    two = Rows(rows.images[:2], rows.labels[:2], observed)
    try:
        evaluate = route.rowwise(problem, two.images[0], chunk=2)
        if isinstance(evaluate, OneByOne):
            return False
        together = evaluate(two, problem.objective)
    except (RuntimeError, NotImplementedError):
        return False  # an operation without a batching rule; one after another still works
    alone = route.rowwise(problem, two.images[0], chunk=1)(two, problem.objective)
    scale = alone.gradient[1].abs().max()
    return bool((together.gradient[1] - alone.gradient[1]).abs().max() <= 1e-2 * scale)


def _affordable(problem: MatchingProblem, images: Tensor) -> int:
    """How many rows fit in half of the free memory, judged by what one double backward keeps."""
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


def _batch_gradient(learner: Learner, state: ModelState, batch: Batch, *, of_labels: bool) -> tuple[Tensor, ...]:
    """The loss's derivative in the images and, where asked for, in the labels."""
    images, labels = batch.images.detach().requires_grad_(), batch.labels.detach().requires_grad_(of_labels)
    with torch.enable_grad():
        loss = learner.objective(state.params, state.buffers, Batch(images, labels))
        return torch.autograd.grad(loss, (images, labels) if of_labels else (images,))
