"""How a client steps: torch's optimisers as pure, differentiable functions, and what is done to a gradient before."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from leakgauge import params as tree
from leakgauge.errors import InvalidCase
from leakgauge.types import ParamTree

Memory = tuple[ParamTree, ...]
"""What an optimiser keeps from step to step, each keyed as the parameters; empty before the first one."""


class LocalOptimiser(ABC):
    """How parameters follow a gradient; as in torch.optim, to the last rounding or so. A frozen dataclass."""

    @abstractmethod
    def step(
        self, params: ParamTree, gradient: ParamTree, memory: Memory, *, index: int, rate: float
    ) -> tuple[dict[str, Tensor], Memory]:
        """Parameters and memory after step ``index``, counted from 0; differentiable in all that enters it."""

    @abstractmethod
    def gain(self, steps: int) -> float | None:
        """How many times a gradient that stays the same the parameters move, over the rate.

        None where a step is not linear in the gradient. Weight decay is left out.
        """


def _check_adam(beta1: float, beta2: float, eps: float, weight_decay: float) -> None:
    if not (0 <= beta1 < 1 and 0 <= beta2 < 1 and 0 < eps < float("inf")):
        raise InvalidCase(
            f"Adam needs 0 <= beta1 < 1, 0 <= beta2 < 1 and eps > 0, got {beta1}, {beta2} and {eps}; correct them."
        )
    _check_range("weight_decay", weight_decay)


def _check_range(name: str, value: float) -> None:
    if not 0 <= value < float("inf"):
        raise InvalidCase(f"A client needs a finite {name} >= 0, got {value}; correct it.")


@dataclass(frozen=True)
class LocalSGD(LocalOptimiser):
    """torch.optim.SGD: d = g + weight_decay * w; m = momentum * m + (1 - dampening) * d, at first m = d; w -= rate * m.

    With ``nesterov``, d + momentum * m stands in for m in the last line.
    """

    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        _check_range("momentum", self.momentum)
        _check_range("weight_decay", self.weight_decay)
        if not isfinite(self.dampening):
            raise InvalidCase(f"SGD needs a finite dampening, got {self.dampening}; correct it.")
        if self.nesterov and (self.momentum == 0 or self.dampening != 0):
            raise InvalidCase("Nesterov's step needs a momentum > 0 and no dampening; set momentum, or nesterov=False.")

    def step(
        self, params: ParamTree, gradient: ParamTree, memory: Memory, *, index: int, rate: float
    ) -> tuple[dict[str, Tensor], Memory]:
        moved = tree.add(gradient, params, scale=self.weight_decay) if self.weight_decay else gradient
        if not self.momentum:
            return tree.add(params, moved, scale=-rate), ()
        kept = moved if index == 0 else tree.add(tree.scale(memory[0], self.momentum), moved, scale=1 - self.dampening)
        along = tree.add(moved, kept, scale=self.momentum) if self.nesterov else kept
        return tree.add(params, along, scale=-rate), (kept,)

    def gain(self, steps: int) -> float | None:
        kept, total = 1.0, 0.0
        for index in range(steps):
            kept = 1.0 if index == 0 else self.momentum * kept + 1 - self.dampening
            total += 1.0 if not self.momentum else 1 + self.momentum * kept if self.nesterov else kept
        return total


@dataclass(frozen=True)
class LocalAdam(LocalOptimiser):
    """torch.optim.Adam: weight decay is added to the gradient [Kingma and Ba, 2015]. From the first step on, nearly
    rate * sign(g) wherever |g| is large against ``eps``."""

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        _check_adam(self.beta1, self.beta2, self.eps, self.weight_decay)

    def step(
        self, params: ParamTree, gradient: ParamTree, memory: Memory, *, index: int, rate: float
    ) -> tuple[dict[str, Tensor], Memory]:
        if self.weight_decay:
            gradient = tree.add(gradient, params, scale=self.weight_decay)
        return _adam_step(self, params, gradient, memory, index=index, rate=rate)

    def gain(self, steps: int) -> float | None:
        del steps
        return None


@dataclass(frozen=True)
class LocalAdamW(LocalOptimiser):
    """torch.optim.AdamW: as Adam, but the weights shrink by themselves, w *= 1 - rate * weight_decay, before each step
    [Loshchilov and Hutter, 2019]."""

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        _check_adam(self.beta1, self.beta2, self.eps, self.weight_decay)

    def step(
        self, params: ParamTree, gradient: ParamTree, memory: Memory, *, index: int, rate: float
    ) -> tuple[dict[str, Tensor], Memory]:
        shrunk = tree.scale(params, 1 - rate * self.weight_decay)
        return _adam_step(self, shrunk, gradient, memory, index=index, rate=rate)

    def gain(self, steps: int) -> float | None:
        del steps
        return None


def _adam_step(
    adam: LocalAdam | LocalAdamW, params: ParamTree, gradient: ParamTree, memory: Memory, *, index: int, rate: float
) -> tuple[dict[str, Tensor], Memory]:
    mean, square = memory or (tree.map_tensors(torch.zeros_like, gradient),) * 2
    mean = tree.add(tree.scale(mean, adam.beta1), gradient, scale=1 - adam.beta1)
    squared = tree.map_tensors(torch.square, gradient)
    square = tree.add(tree.scale(square, adam.beta2), squared, scale=1 - adam.beta2)
    unbiased, root = rate / (1 - adam.beta1 ** (index + 1)), (1 - adam.beta2 ** (index + 1)) ** 0.5

    def move(name: str, param: Tensor) -> Tensor:
        # The root has no slope at zero, where the gradient of a dead unit lies; nothing below ``tiny`` counts beside
        # eps.
        second = square[name].clamp_min(torch.finfo(param.dtype).tiny)
        return param - unbiased * mean[name] / (second.sqrt() / root + adam.eps)

    return {name: move(name, param) for name, param in params.items()}, (mean, square)


OPTIMISERS: Mapping[str, type[LocalSGD | LocalAdam | LocalAdamW]] = {
    "sgd": LocalSGD,
    "adam": LocalAdam,
    "adamw": LocalAdamW,
}


def local_optimiser(name: str, settings: Mapping[str, Any]) -> LocalOptimiser:
    """The optimiser of this name; a setting that it does not have is refused."""
    if name not in OPTIMISERS:
        raise InvalidCase(f"There is no local optimiser {name!r}; choose from {', '.join(OPTIMISERS)}.")
    known = [field.name for field in fields(OPTIMISERS[name])]
    if strange := [option for option in settings if option not in known]:
        raise InvalidCase(f"The local optimiser {name!r} has no {strange[0]!r}; it has {', '.join(known)}.")
    return OPTIMISERS[name](**settings)


@dataclass(frozen=True)
class StepRule:
    """One local step: the gradient with a proximal term [Li et al., 2020, FedProx], clipped, then the optimiser.

    ``proximal`` is mu of mu / 2 * |w - w0|^2, which is added to the loss; ``clip_norm`` and ``clip_value`` are those of
    torch.nn.utils.clip_grad_norm_ and clip_grad_value_.
    """

    optimiser: LocalOptimiser = LocalSGD()
    learning_rate: float = 0.01
    proximal: float = 0.0
    clip_norm: float | None = None
    clip_value: float | None = None

    def __post_init__(self) -> None:
        _check_range("learning_rate", self.learning_rate)
        _check_range("proximal", self.proximal)
        for name, bound in (("clip_norm", self.clip_norm), ("clip_value", self.clip_value)):
            if bound is not None and not bound > 0:
                raise InvalidCase(f"A client clips to a {name} > 0, got {bound}; correct it, or leave it out.")

    def __call__(
        self, start: ParamTree, params: ParamTree, gradient: ParamTree, memory: Memory, *, index: int
    ) -> tuple[dict[str, Tensor], Memory]:
        """Parameters and memory after step ``index`` of a client that set out from ``start``."""
        if self.proximal:
            gradient = tree.add(gradient, tree.sub(params, start), scale=self.proximal)
        if self.clip_norm is not None:
            gradient = clip_to_norm(gradient, self.clip_norm)
        if self.clip_value is not None:
            bound = self.clip_value
            gradient = tree.map_tensors(lambda tensor: tensor.clamp(-bound, bound), gradient)
        return self.optimiser.step(params, gradient, memory, index=index, rate=self.learning_rate)

    @property
    def sums_gradients(self) -> bool:
        """Whether steps add up to gradients with weights above zero; decay and the way home are none."""
        plain = isinstance(self.optimiser, LocalSGD) and not self.optimiser.weight_decay
        return plain and not self.proximal and self.clip_value is None

    @property
    def weighs_equally(self) -> bool:
        """Whether the gradients of all steps count the same, so that those of different examples make one mean."""
        momentum = isinstance(self.optimiser, LocalSGD) and self.optimiser.momentum
        return self.sums_gradients and not momentum and self.clip_norm is None

    def gain(self, steps: int) -> float | None:
        """How many times a gradient that stays the same the parameters move; None where that is not a multiple."""
        if self.clip_norm is not None or self.clip_value is not None:
            return None
        gain = self.optimiser.gain(steps)
        return None if gain is None else self.learning_rate * gain


def clip_to_norm(gradient: ParamTree, max_norm: float) -> dict[str, Tensor]:
    """As torch.nn.utils.clip_grad_norm_, whose factor is max_norm / (norm + 1e-6) where that is below 1."""
    squared = tree.dot(gradient, gradient)
    norm = squared.clamp_min(torch.finfo(squared.dtype).tiny).sqrt()  # the root has no slope at zero
    return tree.scale(gradient, (max_norm / (norm + 1e-6)).clamp(max=1.0))
