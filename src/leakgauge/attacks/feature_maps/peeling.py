"""From the maps of one late convolution to those of earlier ones, layer by layer and in closed form.

A layer's gradient and inputs give the cotangents of its outputs; these, carried back through layers whose inputs are
known, are those of the layer before; and its gradient and these cotangents give its inputs [compare Zhu & Blaschko,
2021, R-GAP, and Eltaras et al., 2024, R-CONV, which begin at a fully connected layer]. A ReLU passes on where its
output, which the layer behind it saw, is not zero. All of it holds up to one factor for each image: maps
times c go with cotangents over c.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from leakgauge.attacks.analytic.affine_parts import RunNetwork
from leakgauge.attacks.feature_maps.overlaps import LARGEST, maps_in_span
from leakgauge.attacks.feature_maps.separation import separate
from leakgauge.attacks.feature_maps.solving import Equations, Solved, solve_cotangents, solve_inputs
from leakgauge.attacks.feature_maps.taps import Taps
from leakgauge.attacks.matching.engine.layers import (
    Added,
    Asked,
    ChannelAffine,
    Convolution,
    LayerPoint,
    Maybe,
    Rectifier,
    add_maybe,
)
from leakgauge.attacks.matching.engine.network import NetworkStep
from leakgauge.attacks.span.layer_spans import leading_directions
from leakgauge.types import ParamTree

_GAP = 30.0
"""How much more than the batch's maps the next direction of a span must contradict itself."""

_SEEDS = 3
"""Convolutions that are tried: where noise spoils one it spoils the others."""

_INDEPENDENT = 1e-6
"""Patches count as linearly dependent below this share of the largest singular value."""

_CLEAN = 1e-4
"""The share of a gradient that a solution may leave unexplained; one wrong switch of a ReLU leaves more."""


_DIRTY = 8.0
"""By how many times more than the seed a solution leaves unexplained where a switch before it is wrong."""

_DOUBT = -0.5, 10.0
"""Between which multiples of the floor of its errors it is in doubt whether a value is zero."""

_MENDED, _TRIED, _BETTER = 64, 24, 0.95
"""Switches that are turned at the most, those that are tried for one, and the share of a residual that one must leave
at the most."""

_WITHIN, _GAP_ABOVE = 30.0, 2.0
"""Up to which multiple of the largest error below zero a gap above zero is looked for, and how wide it must be."""


@dataclass(frozen=True)
class Seed:
    """The convolution to begin at: the maps that it saw and the cotangents of what it gave."""

    step: int
    maps: Tensor
    cotangents: Tensor
    gap: float
    residual: float


@dataclass(frozen=True)
class Peeled:
    """What is known of each slot: its maps, and the cotangents that were passed back; up to a factor for each image."""

    seed: Seed
    maps: dict[int, Tensor]
    cotangents: dict[int, Tensor]
    lifted: int
    """The slot behind the seed whose cotangents follow from the seed's."""


class Candidate(NamedTuple):
    """A convolution whose patches overlap: its step, its gradient as outputs x channels x places, and its taps."""

    step: int
    gradient: Tensor
    taps: Taps

    def fits(self, count: int, largest: int) -> bool:
        """Whether its gradient can hold the maps of so many images, in a problem of at most so many unknowns."""
        outputs, channels, kernel = self.gradient.shape
        rank = count * len(self.taps.positions)
        return rank <= outputs and rank < channels * kernel and rank * len(self.taps.positions) <= largest


def candidates(whole: RunNetwork, update: ParamTree) -> Iterator[Candidate]:
    """The last first."""
    for index in reversed(range(len(whole.network.steps))):
        step = whole.network.steps[index]
        if isinstance(step.layer, Convolution) and _is_plain(step.layer, whole, update) and step.layer.groups == 1:
            taps = _taps(whole, step, step.layer, update)
            if taps.overlap:
                yield Candidate(index, update[step.layer.weight].flatten(2), taps)


def find_seed(
    whole: RunNetwork,
    update: ParamTree,
    count: int,
    *,
    precision: float,
    largest: int = LARGEST,
    generator: Generator,
) -> Seed | None:
    """The last convolution whose gradient gives the maps of all images away."""
    fitting = (one for one in candidates(whole, update) if one.fits(count, largest))
    for index, gradient, taps in islice(fitting, _SEEDS):
        _, channels, kernel = gradient.shape
        rank = count * len(taps.positions)
        sizes, directions = leading_directions(gradient.flatten(1), rank)
        if not bool(sizes[rank - 1] > _INDEPENDENT * sizes[0]):
            continue
        found = maps_in_span(directions.view(rank, channels, kernel), taps, count)
        if found.gap < _GAP:
            continue
        error = max(precision, float(found.contradiction[-2]) ** 0.5)
        maps = separate(found.maps, precision=error, generator=generator)
        solved = None if maps is None else solve_cotangents(gradient, maps, taps)
        if maps is None or solved is None:
            continue
        source, target = whole.network.steps[index].inputs[0], whole.network.steps[index].output
        shapes = whole.values[source].shape, whole.values[target].shape
        return Seed(index, maps.view(shapes[0]), solved.value.view(shapes[1]), found.gap, solved.residual)
    return None


def peel(whole: RunNetwork, update: ParamTree, seed: Seed, *, is_late: Callable[[], bool] = lambda: False) -> Peeled:
    """All maps before the seed that follow from it, until a layer has several solutions or errors cannot be mended.

    Those that it has once it ``is_late``: a layer whose switches are in doubt can take longer than all others.
    """
    slot, lifted = lift(whole, whole.network.steps[seed.step].output, seed.cotangents)
    peeling = Peeling(whole, update, seed)
    peeling.known[slot] = lifted
    while peeling.index and not is_late():
        peeling.step()
    cotangents = {at: one for at, one in peeling.known.items() if one is not None and at not in peeling.broken}
    return Peeled(seed, peeling.maps, cotangents, slot)


class Peeling:
    """A walk back through a network; mutable, as it goes back to a ReLU one of whose switches was wrong."""

    def __init__(self, whole: RunNetwork, update: ParamTree, seed: Seed) -> None:
        self.whole, self.update = whole, update
        self.index = len(whole.network.steps)
        self.maps: dict[int, Tensor] = {}
        self.raw: dict[int, tuple[Tensor, Tensor]] = {}
        """The same as they were solved for, and the floors of their errors."""
        self._keep(whole.network.steps[seed.step].inputs[0], seed.maps)
        self.known: dict[int, Maybe] = {}
        """Cotangents."""
        self.broken: set[int] = set()
        """Slots whose cotangents cannot be known."""
        self.flips: dict[int, Maybe] = {}
        """By how much cotangents would change if a switch that is in doubt were the other way."""
        self.kept: tuple[int, dict[int, Maybe], set[int]] | None = None
        """The state before the last ReLU, to go back to."""
        self.mended = 0
        self.dirty = _DIRTY * max(seed.residual, torch.finfo(torch.float32).eps)

    def step(self) -> None:
        self.index -= 1
        step = self.whole.network.steps[self.index]
        gy = self.known.get(step.output)
        if step.output in self.broken or gy is None:
            if step.output in self.broken:
                self.broken |= set(step.inputs)
            return
        if isinstance(step.layer, Rectifier):
            passed = self._switch(step, step.layer, gy)
        else:
            if isinstance(step.layer, Convolution) and step.inputs[0] not in self.maps and not self._see(step):
                return
            passed = self._back(gy) if self.whole.is_affine(self.index) else None
        if passed is None:
            self.broken |= set(step.inputs)
            return
        for source, cotangent in zip(step.inputs, passed, strict=True):
            self.known[source] = add_maybe(self.known.get(source), cotangent)
        if isinstance(step.layer, Added | ChannelAffine) and (doubt := self.flips.get(step.output)) is not None:
            self.flips.update(zip(step.inputs, self._back(doubt), strict=True))

    def _back(self, gy: Tensor) -> tuple[Maybe, ...]:
        step = self.whole.network.steps[self.index]
        at = LayerPoint(self.whole.weights[self.index], self.whole.memories[self.index])
        return step.layer.cotangent(at, gy, Asked([True] * len(step.inputs), None))

    def _switch(self, step: NetworkStep, layer: Rectifier, gy: Tensor) -> tuple[Maybe, ...] | None:
        """A ReLU lets through where its output is not zero."""
        maps = self.maps.get(step.output)
        if maps is None:
            return None
        self.kept = self.index + 1, dict(self.known), set(self.broken)
        is_open = maps > 0
        raw, floors = self.raw[step.output]
        doubtful = (raw > _DOUBT[0] * floors) & (raw < _DOUBT[1] * floors)
        change = (1 - layer.slope) * torch.where(is_open, -gy, gy)
        self.flips = {step.inputs[0]: torch.where(doubtful, change, 0.0)}
        return (torch.where(is_open, gy, layer.slope * gy),)

    def _see(self, step: NetworkStep) -> bool:
        """Solve for what a convolution saw; False where the walk went back to mend a switch first."""
        own = self._equations(step)
        if own is None:
            return True
        others = [
            one
            for reader in self.whole.network.steps
            if reader.inputs == step.inputs and reader is not step and (one := self._equations(reader)) is not None
        ]
        solved = solve_inputs(own, *others)
        if solved is None:
            return True
        if solved.residual > self.dirty and self._mend(step, own, others, solved):
            return False
        if solved.residual < _CLEAN:
            self._keep(step.inputs[0], solved.value.view(self.whole.values[step.inputs[0]].shape))
        return True

    def _equations(self, step: NetworkStep) -> Equations | None:
        """What a convolution's gradient says of its inputs, where the cotangents of its outputs are known."""
        gy = self.known.get(step.output)
        if not isinstance(step.layer, Convolution) or gy is None or step.output in self.broken:
            return None
        if not _is_plain(step.layer, self.whole, self.update) or step.layer.groups != 1:
            return None
        taps = _taps(self.whole, step, step.layer, self.update)
        return Equations(self.update[step.layer.weight].flatten(2), gy.flatten(2), taps)

    def _mend(self, step: NetworkStep, own: Equations, others: list[Equations], solved: Solved) -> bool:
        """Turn the switch in doubt without which most of the gradient is left unexplained, and go back to its ReLU."""
        doubt = self.flips.get(step.output)
        if doubt is None or self.kept is None or self.mended >= _MENDED or not bool(doubt.any()):
            return False
        patches = own.taps.cut(solved.value).flatten(2)
        cotangents, change = own.cotangents, doubt.flatten(2)
        left = own.gradient.flatten(1) - torch.einsum("nop,npk->ok", cotangents, patches)
        # How well one switch turned explains what is left, whatever the maps take of it: it tells which to try.
        lengths = (change.abs() * patches.norm(dim=2)[:, None]).clamp_min(torch.finfo(left.dtype).tiny)
        gain = change * torch.einsum("ok,npk->nop", left, patches) / lengths
        residuals = {}
        for place in gain.flatten().topk(min(_TRIED, gain.numel())).indices.tolist():
            turned = cotangents.flatten().clone()
            turned[place] += change.flatten()[place]
            trial = solve_inputs(own._replace(cotangents=turned.view_as(cotangents)), *others)
            residuals[place] = torch.inf if trial is None else trial.residual
        best = min(residuals, key=residuals.__getitem__)
        if residuals[best] > _BETTER * solved.residual:
            return False
        self.mended += 1
        index, known, broken = self.kept
        slot = self.whole.network.steps[index - 1].output
        maps = self.maps[slot].flatten().clone()
        maps[best] = 0.0 if maps[best] > 0 else torch.finfo(maps.dtype).tiny
        self.maps[slot] = maps.view_as(self.maps[slot])
        self.index, self.known, self.broken, self.flips = index, dict(known), set(broken), {}
        return True

    def _keep(self, slot: int, maps: Tensor) -> None:
        """With zeros where maps behind a ReLU are no more than their error."""
        written = next((step.layer for step in self.whole.network.steps if step.output == slot), None)
        floors = torch.full((len(maps),), -torch.inf, dtype=maps.dtype)
        if isinstance(written, Rectifier) and not written.slope:
            floors = torch.stack([noise_floor(one.flatten()) for one in maps])
        floors = floors.view(-1, *[1] * (maps.ndim - 1))
        self.raw[slot] = maps, floors
        self.maps[slot] = torch.where(maps > floors, maps, 0.0)


def lift(whole: RunNetwork, slot: int, cotangents: Tensor) -> tuple[int, Tensor]:
    """The furthest slot behind a convolution whose cotangents follow from those of its output: behind its
    normalisation, and behind the sum with what is carried around it, which has the same."""
    while True:
        readers = [(index, step) for index, step in enumerate(whole.network.steps) if slot in step.inputs]
        if len(readers) != 1:
            return slot, cotangents
        index, step = readers[0]
        if isinstance(step.layer, ChannelAffine):
            factor: Tensor = whole.weights[index][0]
            if not bool((factor != 0).all()):
                return slot, cotangents
            cotangents = cotangents / factor.view(-1, *[1] * (cotangents.ndim - 2))
        elif not isinstance(step.layer, Added):
            return slot, cotangents
        slot = step.output


def _is_plain(layer: Convolution, whole: RunNetwork, update: ParamTree) -> bool:
    return layer.weight in update and layer.weight not in whole.network.shared and layer.transposed is None


def _taps(whole: RunNetwork, step: NetworkStep, layer: Convolution, update: ParamTree) -> Taps:
    inputs, outputs = (tuple(whole.values[slot].shape[2:]) for slot in (step.inputs[0], step.output))
    return Taps.of(layer, tuple(update[layer.weight].shape[2:]), inputs, outputs)


def noise_floor(values: Tensor) -> Tensor:
    """Where what is zero but for errors ends, in values that are not negative but for errors.

    What is below zero is error, and as much lies above; behind the errors is a gap, as few values are that small.

    >>> 1.5e-7 < noise_floor(torch.tensor([-1e-7, 1.5e-7, 1e-3, 0.5])).item() < 1e-3
    True
    """
    error = (-values).clamp_min(0).amax()
    if not error > 0:
        return error
    near = values[(values > error) & (values < _WITHIN * error)].sort().values
    edges = torch.cat([error[None], near, _WITHIN * error[None]])
    wide = (edges[1:] > _GAP_ABOVE * edges[:-1]).nonzero()
    place = int(wide[0]) if len(wide) else 0
    return _GAP_ABOVE**0.5 * edges[place]
