"""Inverting Gradients as published in 2020: what every route and recipe of LeakGauge is measured against.

Written from the paper's description [Geiping et al., 2020, Eq. 4, section 4, appendix C], nothing improved: one cosine
over all parameters, anisotropic total variation, ``backward()`` through a gradient built with ``create_graph``, which
computes second-order gradients for every parameter too, signed Adam with learning rate 0.1, decayed tenfold after 3/8,
5/8 and 7/8 of a number of steps fixed beforehand, one start from N(0, 1), labels known, and the last iterate as the
result. It works on normalised pixels, as the paper does, so a model's own first layer ``normalise`` is taken out of a
copy of it.
"""

from __future__ import annotations

import copy
import math
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy

from leakgauge.errors import InvalidCase
from leakgauge.types import ParamTree, Shape

LEARNING_RATE = 0.1
STEPS = 4_800
"""Appendix C.1: "one restart, 4800 iterations, a learning rate of 0.1"."""

DECAYS = (3 / 8, 5 / 8, 7 / 8)
DECAY = 0.1

_WARM_UP = 5
_TIMED_STEPS = 5
_TIMED_FRACTION = 0.05


class Baseline:
    """The state of one attack: a candidate in normalised pixels, from ``start`` on, that ``step`` moves."""

    def __init__(
        self,
        module: nn.Module,
        observed: ParamTree,
        labels: Tensor,
        start: Tensor,
        *,
        mean: Sequence[float],
        std: Sequence[float],
        tv: float,
        steps: int = STEPS,
    ) -> None:
        self.module = without_normalisation(module)
        self.parameters = [p for _, p in self.module.named_parameters() if p.requires_grad]
        self.observed = [observed[name] for name, p in self.module.named_parameters() if p.requires_grad]
        self.labels, self.tv = labels, tv
        self.mean, self.std = (torch.tensor(tuple(x), dtype=start.dtype).reshape(-1, 1, 1) for x in (mean, std))
        self.candidate = start.detach().clone().requires_grad_()
        self.optimiser = torch.optim.Adam([self.candidate], lr=LEARNING_RATE)
        self.scheduler = torch.optim.lr_scheduler.MultiStepLR(
            self.optimiser, [math.ceil(fraction * steps) for fraction in DECAYS], gamma=DECAY
        )

    def step(self) -> None:
        """One iteration: loss, total variation, backward, sign, Adam, scheduler, box."""
        self.optimiser.zero_grad()
        self.module.zero_grad()
        self.loss().backward()
        assert self.candidate.grad is not None
        self.candidate.grad.sign_()
        self.optimiser.step()
        self.scheduler.step()
        with torch.no_grad():
            lowest, highest = (0 - self.mean) / self.std, (1 - self.mean) / self.std
            self.candidate.data = torch.max(torch.min(self.candidate, highest), lowest)

    def loss(self) -> Tensor:
        """1 - <g, g*> / (|g| |g*|) + tv TV(x), over all parameters at once."""
        task = cross_entropy(self.module(self.candidate), self.labels)
        gradients = torch.autograd.grad(task, self.parameters, create_graph=True)
        product = torch.stack([(g * o).sum() for g, o in zip(gradients, self.observed)]).sum()
        own = torch.stack([g.pow(2).sum() for g in gradients]).sum()
        others = torch.stack([o.pow(2).sum() for o in self.observed]).sum()
        loss = 1 - product / (own.sqrt() * others.sqrt())
        return loss + self.tv * total_variation(self.candidate) if self.tv > 0 else loss

    def images(self) -> Tensor:
        """The candidate in pixels in [0, 1]."""
        return (self.candidate.detach() * self.std + self.mean).clamp(0, 1)


def invert(
    module: nn.Module,
    observed_gradient: ParamTree,
    labels: Tensor,
    image_shape: Shape,
    *,
    mean: Sequence[float],
    std: Sequence[float],
    tv: float,
    steps: int | None = None,
    seconds: float | None = None,
    generator: Generator,
) -> Tensor:
    """The last iterate in [0, 1], after ``steps`` or as many of them as fit into CPU ``seconds``, timed beforehand."""
    if steps is not None and seconds is not None:
        raise InvalidCase("The baseline got both `steps` and `seconds`; pass one of them.")
    dtype = next(iter(observed_gradient.values())).dtype
    start = torch.randn(len(labels), *image_shape, generator=generator).to(dtype)

    def attack(length: int) -> Baseline:
        return Baseline(module, observed_gradient, labels, start, mean=mean, std=std, tv=tv, steps=length)

    if seconds is not None:
        steps = steps_within(seconds, attack(STEPS).step)
    length = STEPS if steps is None else steps
    running = attack(length)
    for _ in range(length):
        running.step()
    return running.images()


def make_step(
    module: nn.Module, images: Tensor, labels: Tensor, observed: ParamTree, tv: float, *, steps: int = STEPS
) -> Callable[[], None]:
    """One full iteration from ``images`` in [0, 1] on, to be called as often as one likes."""
    mean, std = normalisation(module)
    start = (images - torch.tensor(mean).reshape(-1, 1, 1)) / torch.tensor(std).reshape(-1, 1, 1)
    return Baseline(module, observed, labels, start.to(images.dtype), mean=mean, std=std, tv=tv, steps=steps).step


def steps_within(seconds: float, step: Callable[[], None]) -> int:
    """How many steps take so many CPU seconds of this process, from the median of a handful; at least one.

    The median, because what slows a step on a busy machine is rare: the budget is rather overdrawn than left unused.
    """
    for _ in range(_WARM_UP):
        step()
    times: list[float] = []
    while len(times) < _TIMED_STEPS or sum(times) < _TIMED_FRACTION * seconds:
        started = time.process_time()
        step()
        times.append(time.process_time() - started)
    return max(1, round(seconds / statistics.median(times)))


def steps_by_difference(seconds: float, attack: Callable[[int], object], lengths: tuple[int, int]) -> int:
    """How many steps of a whole attack take so many CPU seconds, from two short runs; at least one.

    For an attack that cannot be stepped: what it costs beside its steps is in both runs, and is taken off the budget.
    """
    attack(lengths[0])  # what is slow once is not timed
    times = []
    for length in lengths:
        started = time.process_time()
        attack(length)
        times.append(time.process_time() - started)
    step = max((times[1] - times[0]) / (lengths[1] - lengths[0]), 1e-6)
    return max(1, round((seconds - max(0.0, times[0] - lengths[0] * step)) / step))


def total_variation(images: Tensor) -> Tensor:
    """Mean |dx| + mean |dy|."""
    across = (images[..., :, :-1] - images[..., :, 1:]).abs().mean()
    down = (images[..., :-1, :] - images[..., 1:, :]).abs().mean()
    return across + down


def normalisation(module: nn.Module) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel that a model of the catalogue normalises with; 0 and 1 for another's."""
    layer = getattr(module, "normalise", None)
    if layer is None:
        return (0.0,), (1.0,)
    return tuple(layer.mean.flatten().tolist()), tuple(layer.std.flatten().tolist())


def without_normalisation(module: nn.Module) -> nn.Module:
    """A copy in eval mode that takes normalised pixels; its parameters keep their names, as normalising has none."""
    bare = copy.deepcopy(module)
    if hasattr(bare, "normalise"):
        bare.normalise = nn.Identity()
    return bare.eval()
