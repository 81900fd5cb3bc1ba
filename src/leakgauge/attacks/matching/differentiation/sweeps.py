"""The routes of sweeps through a traced network: exact, and as a difference with every switch held."""

from __future__ import annotations

import math
from abc import ABC
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leakgauge import params as tree
from leakgauge.attacks.matching.differentiation.graph import Graph
from leakgauge.attacks.matching.differentiation.matcher import STEP_BY_STEP, Linearised, Matcher, Pull, Wanted
from leakgauge.attacks.matching.differentiation.route import Differentiation, RowwiseLoss, Together
from leakgauge.attacks.matching.engine import Network, NetworkGradient, Pulled, Remembered, trace
from leakgauge.attacks.matching.problem import MatchingProblem
from leakgauge.errors import UnsupportedModel
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.local_update import FedSGD, LocalUpdate
from leakgauge.randomness import seeded
from leakgauge.types import Batch, ModelState, ParamTree

_TRIALS = 3
"""Batches on which a route may agree with autograd."""


class SweepRoute(Differentiation, ABC):
    """What routes through a traced network share: they hold once its sweeps agree with autograd."""

    def resolve(self, problem: MatchingProblem, images: Tensor) -> Differentiation:
        """This route, once it agrees with autograd on part of the batch."""
        client = problem.client()
        if not isinstance(client, STEP_BY_STEP):
            raise UnsupportedModel(
                f"{type(self).__name__} needs a client of plain gradient steps, not {client!r}; use DoubleBackward()."
            )
        few = images[:2]
        # Rounding may flip a switch that stands on its edge, and one of few can change a gradient much; a wrong rule
        # differs everywhere.
        noise = torch.randn(_TRIALS, *few.shape, generator=seeded(0, "trials")).to(few)
        trials = (few if number == 0 else few + 0.01 * noise[number] for number in range(_TRIALS))
        if not any(self._agrees(problem, client, Batch(trial, problem.labels[: len(few)])) for trial in trials):
            raise UnsupportedModel("The tangent sweeps differ from autograd on this model; use DoubleBackward().")
        return self

    def _agrees(self, problem: MatchingProblem, client: LocalUpdate, batch: Batch) -> bool:
        """Whether sweeps and autograd give the same gradient and derivative on this batch."""
        wanted = Wanted(params=not isinstance(client, FedSGD))
        expected, their_pull = _by_autograd(problem, batch, wanted)
        try:
            # The exact sweeps, whatever a route makes of them: a wrong rule shows in both.
            found, ours = _sweeps(problem, batch.inputs).at(problem.state.params, batch, wanted)
            pull = ours(problem.along())
        except UnsupportedModel:
            raise
        except Exception as error:  # a user's layer or loss may fail in any way under the sweeps
            raise UnsupportedModel(
                f"The tangent sweeps fail on this model ({next(iter(str(error).splitlines()), repr(error)).rstrip('.')}"
                "); use DoubleBackward()."
            ) from error
        derivatives = ({"images": one.images, **(one.params or {})} for one in (pull, their_pull))
        return _close(found, expected) and _close(*derivatives)


def _by_autograd(problem: MatchingProblem, batch: Batch, wanted: Wanted) -> tuple[ParamTree, Pulled]:
    """The gradient and its derivative along the observed update, by compositions where torch has no second one."""

    def found(learner: Learner) -> tuple[ParamTree, Pulled]:
        gradient, pull = Graph(learner, problem.state).at(problem.state.params, batch, wanted)
        return gradient, pull(problem.along())

    try:
        return found(problem.learner)
    except RuntimeError:
        return found(replace(problem.learner, composed=True))


@dataclass(frozen=True)
class Tangent(SweepRoute):
    """Sweeps that carry values, cotangents and the tangents of both through the layers; exact, and without a graph.

    For the layers of ``engine.layers``; other models are refused, and ``Automatic`` takes another route for them.
    """

    def linearise(self, problem: MatchingProblem, images: Tensor) -> Linearised:
        return _sweeps(problem, images)

    def rowwise(self, problem: MatchingProblem, images: Tensor, *, chunk: int) -> RowwiseLoss:
        if chunk == 1 or not isinstance(problem.client(), FedSGD):
            return super().rowwise(problem, images, chunk=1)
        sweeps = _sweeps(problem, images)
        with torch.no_grad():
            sweeps.network_at(problem.state.params, images)  # folded now, outside what the rows run under

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
    """The gradient by sweeps through a traced network, traced anew for a batch of another shape."""

    network: Network
    learner: Learner
    state: ModelState
    shape: torch.Size
    fold: bool
    _bound: tuple[ParamTree, NetworkGradient] | None = None

    def at(self, params: ParamTree, batch: Batch, wanted: Wanted) -> tuple[dict[str, Tensor], Pull]:
        with torch.no_grad():
            network = self.network_at(params, batch.inputs)
            gradient, kept = network.gradient(batch.inputs, batch.labels)

        def pull(direction: dict[str, Tensor]) -> Pulled:
            with torch.no_grad():
                pulled = network.pull(kept, direction, of_params=wanted.params, of_labels=wanted.labels)
            return self.complete_pull(pulled, params)

        return self.complete(gradient, params), pull

    def network_at(self, params: ParamTree, images: Tensor) -> NetworkGradient:
        """The network at these parameters; folding is done once as long as they stay."""
        if images.shape != self.shape:
            self.network, self.shape = trace(self.learner, self.state, images, fold=self.fold), images.shape
            self._bound = None
        if self._bound is None or self._bound[0] is not params:
            tensors = {**self.state.buffers, **params}
            self._bound = params, NetworkGradient.at(self.network, tensors, self.learner.loss)
        return self._bound[1]

    def complete(self, gradient: dict[str, Tensor], params: ParamTree) -> dict[str, Tensor]:
        """In the order of the parameters, zero where the network does not use one."""
        some = next(iter(gradient.values()))  # batched where the gradient is
        return {name: gradient[name] if name in gradient else some.new_zeros(p.shape) for name, p in params.items()}

    def complete_pull(self, pulled: Pulled, params: ParamTree) -> Pulled:
        return pulled if pulled.params is None else pulled._replace(params=self.complete(pulled.params, params))


def _sweeps(problem: MatchingProblem, images: Tensor) -> _Sweeps:
    fold = isinstance(problem.client(), FedSGD)
    network = trace(problem.learner, problem.state, images, fold=fold)
    return _Sweeps(network, problem.learner, problem.state, images.shape, fold)


@dataclass(frozen=True)
class FrozenDifference(SweepRoute):
    """A one-sided difference of grad_x L over a step along v with every ReLU and pool held as it is: two plain sweeps.

    ``logit_change`` is how far the step moves the logits: far enough for float32, near enough for a derivative (error
    about 1e-3, fine for signs). Every ``check_every`` evaluations the exact derivative is taken beside it; when their
    cosine falls below ``agreement``, the step is made a tenth, and the second time the exact one is used from there on.
    """

    logit_change: float = 3e-3
    check_every: int = 50
    agreement: float = 0.99

    def linearise(self, problem: MatchingProblem, images: Tensor) -> Linearised:
        change = self.logit_change if problem.state.dtype == torch.float32 else 1e-4 * self.logit_change
        return _Differences(_sweeps(problem, images), change, self)


@dataclass
class _Differences(Linearised):
    """The gradient by sweeps, its derivative by a frozen difference whose step follows the network's sensitivity."""

    sweeps: _Sweeps
    change: float
    options: FrozenDifference
    step: float | None = None
    calls: int = 0
    shortened: bool = False
    exact: bool = False

    def at(self, params: ParamTree, batch: Batch, wanted: Wanted) -> tuple[dict[str, Tensor], Pull]:
        if self.exact or wanted.labels:
            return self.sweeps.at(params, batch, wanted)
        with torch.no_grad():
            network = self.sweeps.network_at(params, batch.inputs)
            gradient, kept = network.gradient(batch.inputs, batch.labels, of_images=True)
        # Copied only where the derivative in the parameters is wanted: the caller may write over the gradient.
        base = tree.map_tensors(torch.clone, gradient) if wanted.params else None

        def pull(direction: dict[str, Tensor]) -> Pulled:
            with torch.no_grad():
                pulled = self._difference(network, kept, direction, base, params, wanted)
            return self.sweeps.complete_pull(pulled, params)

        return self.sweeps.complete(gradient, params), pull

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
                # Deep smooth networks bend before their logits move far; float32 has digits for one step less.
                self.exact, self.shortened = self.shortened, True
                self.change, self.step = self.change / 10, None
                return exact
        return pulled


def _agree(one: Tensor, two: Tensor, at_least: float) -> bool:
    a, b = one.flatten().double(), two.flatten().double()
    return bool(a @ b >= at_least * a.norm() * b.norm())
