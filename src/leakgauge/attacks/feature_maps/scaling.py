"""The factor by which each image's maps are known, by what the network makes of them.

Normalisation has offsets, so that only maps times the right factor c give those of a later layer that are known too,
whatever loss and label. A network that was not trained may have none; there the classifier tells: of one image its
input is known, and of several, maps times c, run on to the scores, give a loss whose derivative, carried back, must be
the cotangents over c.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from leakgauge.attacks.analytic.affine_parts import RunNetwork
from leakgauge.attacks.feature_maps.peeling import Peeled
from leakgauge.attacks.matching.engine.layers import Asked, Layer, LayerPoint, Linear
from leakgauge.protocol.losses import LossFunction
from leakgauge.types import ParamTree

_DECADES = (-4.0, 6.0)
_GRID = 80
_REFINED = 36
_TELLING, _FLAT = 1e-2, 1e-3
"""How much nearer than at most factors the least distance must be to tell the factor, and how far those at least."""
_GOLDEN = (5**0.5 - 1) / 2


class Scales(NamedTuple):
    """For each image: the factor, the label under which it fits, and what it leaves unexplained."""

    factors: Tensor
    labels: Tensor
    residuals: Tensor


def find_scales(
    whole: RunNetwork, tensors: ParamTree, update: ParamTree, peeled: Peeled, loss: LossFunction, labels: Tensor
) -> Scales | None:
    """The factors of all images, each under that of the ``labels`` which fits it best; None if nothing tells them."""
    count, classes = len(peeled.seed.maps), labels.unique(dim=0)
    run = _Continuation.of(whole, peeled.maps, whole.network.outputs)

    def misfits(factors: Tensor) -> Tensor:
        return run.misfits(factors, loss, classes, tensors, peeled) if run is not None else factors.new_zeros(1, count)

    for distance in _label_free(whole, update, peeled, run):
        factors, residuals, _, informative = _minimise(distance, count)
        if informative:
            rows = misfits(factors).nan_to_num(torch.inf).argmin(dim=0)
            return Scales(factors, labels.clone() if count == 1 or run is None else classes[rows], residuals)
    if run is None:
        return None
    factors, residuals, rows, _ = _minimise(misfits, count)
    return Scales(factors, classes[rows], residuals)


def _label_free(
    whole: RunNetwork, update: ParamTree, peeled: Peeled, run: _Continuation | None
) -> Iterator[Callable[[Tensor], Tensor]]:
    """Ways to tell factors without labels: the input of the classifier, and layers that follow from others."""
    head = whole.network.steps[-1]
    count = len(peeled.seed.maps)
    seen = _head_input(head.layer, update) if count == 1 and whole.network.outputs == (head.output,) else None
    if seen is not None and run is not None:
        yield lambda factors: _relative(run.values(factors)[head.inputs[0]].reshape(count, -1), seen[None])[None]
    for slot in sorted(peeled.maps, reverse=True):
        others = {at: maps for at, maps in peeled.maps.items() if at != slot}
        before = _Continuation.of(whole, others, (slot,))
        if before is not None:
            wanted = peeled.maps[slot].flatten(1)
            yield lambda factors, before=before, slot=slot, wanted=wanted: _relative(  # type: ignore[misc]
                before.values(factors)[slot].flatten(1), factors[:, None] * wanted
            )[None]
            return


def _relative(found: Tensor, wanted: Tensor) -> Tensor:
    return (found - wanted).norm(dim=1) / wanted.norm(dim=1)


def _head_input(layer: Layer, update: ParamTree) -> Tensor | None:
    """What a biased linear layer saw of one image."""
    if not isinstance(layer, Linear) or layer.bias is None or not {layer.weight, layer.bias} <= update.keys():
        return None
    slope = update[layer.bias]
    return (slope @ update[layer.weight]) / slope.square().sum()


class _Continuation(NamedTuple):
    """The steps from maps that are known to other slots."""

    whole: RunNetwork
    maps: Mapping[int, Tensor]
    steps: tuple[int, ...]

    @classmethod
    def of(cls, whole: RunNetwork, maps: Mapping[int, Tensor], targets: Iterable[int]) -> _Continuation | None:
        needed, steps = set(targets), []
        for index in reversed(range(len(whole.network.steps))):
            step = whole.network.steps[index]
            if step.output in needed and step.output not in maps:
                steps.append(index)
                needed |= set(step.inputs)
        if 0 in needed:
            return None  # something between is not known
        return cls(whole, maps, tuple(reversed(steps)))

    def values(self, factors: Tensor, memories: dict[int, object] | None = None) -> dict[int, Tensor]:
        """Of all slots behind the maps, the maps multiplied by the factors."""
        held = {slot: one * factors.view(-1, *[1] * (one.ndim - 1)) for slot, one in self.maps.items()}
        with torch.no_grad():
            for index in self.steps:
                step = self.whole.network.steps[index]
                inputs = [held[slot].clone() for slot in step.inputs]
                held[step.output], memory = step.layer.value(self.whole.weights[index], inputs)
                if memories is not None:
                    memories[index] = memory
        return held

    def misfits(
        self, factors: Tensor, loss: LossFunction, classes: Tensor, tensors: ParamTree, peeled: Peeled
    ) -> Tensor:
        """How far from the cotangents that are known those lie which follow from the maps, relative to the former: a
        row for each label that all images might have."""
        memories: dict[int, object] = {}
        held = self.values(factors, memories)
        network, target = self.whole.network, peeled.lifted
        leaves = tuple(held[slot].detach().requires_grad_() for slot in network.outputs)
        known = peeled.cotangents[target].flatten(1) / factors[:, None]
        rows = []
        for label in classes:
            with torch.enable_grad():
                value = loss(network.assemble(leaves, tensors), label.expand(len(factors), *label.shape))
                slopes = torch.autograd.grad(value, leaves)
            found = self._back(dict(zip(network.outputs, slopes, strict=True)), memories, target)[target].flatten(1)
            rows.append(_relative(found, known))
        return torch.stack(rows)

    def _back(self, found: dict[int, Tensor], memories: dict[int, object], target: int) -> dict[int, Tensor]:
        """Cotangents of the outputs carried back to the slot whose cotangents are known."""
        with torch.no_grad():
            for index in reversed(self.steps):
                step = self.whole.network.steps[index]
                gy = found.get(step.output)
                if gy is None or step.output == target:
                    continue
                at = LayerPoint(self.whole.weights[index], memories[index])
                passed = step.layer.cotangent(at, gy, Asked([True] * len(step.inputs), None))
                for slot, cotangent in zip(step.inputs, passed, strict=True):
                    if cotangent is not None:
                        found[slot] = found[slot] + cotangent if slot in found else cotangent
        return found


class _Least(NamedTuple):
    factors: Tensor
    distances: Tensor
    rows: Tensor
    informative: bool
    """Whether other factors are clearly further away."""


def _minimise(distances: Callable[[Tensor], Tensor], count: int) -> _Least:
    """The factors of least distance, each image on its own, and the rows in which that is: along a grid, then by golden
    sections."""
    grid = torch.linspace(*_DECADES, _GRID, dtype=torch.float64)
    found = torch.stack([distances(torch.full((count,), 10.0**at, dtype=torch.float64)) for at in grid.tolist()])
    found = found.nan_to_num(torch.inf)
    rows = found.amin(dim=0).argmin(dim=0)

    def distance(exponents: Tensor) -> Tensor:
        return distances(10**exponents).nan_to_num(torch.inf)[rows, torch.arange(count)]

    centre = grid[found[:, rows, torch.arange(count)].argmin(dim=0)]
    low, high = centre - (grid[1] - grid[0]), centre + (grid[1] - grid[0])
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = distance(left), distance(right)
    for _ in range(_REFINED):
        smaller = at_left < at_right
        low, high = torch.where(smaller, low, left), torch.where(smaller, right, high)
        fresh = torch.where(smaller, high - _GOLDEN * (high - low), low + _GOLDEN * (high - low))
        at_fresh = distance(fresh)
        left, right = torch.where(smaller, fresh, right), torch.where(smaller, left, fresh)
        at_left, at_right = torch.where(smaller, at_fresh, at_right), torch.where(smaller, at_left, at_fresh)
    middle = (low + high) / 2
    least = distance(middle)
    away = found[:, rows, torch.arange(count)].median(dim=0).values
    return _Least(10**middle, least, rows, bool((least < _TELLING * away).all()) and bool((away > _FLAT).all()))
