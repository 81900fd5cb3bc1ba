"""Rows of a matrix that sort inputs instead of combining them: bins, traps, silenced classes."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from leakgauge.risk.vetting.base import AffineRows, Suspicion, Vetted

_ALIKE = 1e-5
"""Largest distance of directions that count as one."""
_NEAR, _APART, _CENTRES = 0.98, 0.5, 256
"""Cosine of rows that are one but for noise; how far apart their offsets are then, in inputs; how many are tried."""
_ENTRIES = 16
"""Rows of fewer entries may be alike by chance."""
_RARE = 0.1
"""A row that so few inputs activate waits for one of them."""
_FEWEST = 16
"""Inputs from which on such a share says something."""
_LONG, _LEAST = 20.0, 0.05
"""How much longer than the third a row of the classifier is that was scaled; a head that began at zero is all short."""


def repeated_rows(model: Vetted) -> Iterator[Suspicion]:
    """One direction again and again with other biases: a ruler that sorts inputs into bins [Fowl et al., 2022].

    Rows that are alike but for some noise count where their offsets are far apart; rows that training has drawn
    together share their offset too.
    """
    for layer in model.affine():
        if layer.bias is None or layer.rows.shape[1] < 4:
            continue
        if model.learner is not None and layer.name == f"{model.head}.weight":
            continue  # no activation follows, so that nothing is sorted
        for group in (_largest_group, _largest_noisy_group):
            alike, biases = group(layer.rows, layer.bias)
            if alike >= max(4, len(layer.rows) // 16) and biases >= max(3, alike // 2):
                yield Suspicion(
                    "identical rows with shifted biases",
                    layer.name,
                    f"{alike} of the {len(layer.rows)} rows of {layer.name} point in one direction and differ by their "
                    f"biases ({biases} values), which sorts inputs into bins so that each can be read off the update.",
                )
                break


def _units(rows: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The directions of the rows that have one, and their offsets along it."""
    lengths = rows.norm(dim=1)
    kept = lengths > 0
    return rows[kept] / lengths[kept, None], bias[kept] / lengths[kept]


def _largest_group(rows: Tensor, bias: Tensor) -> tuple[int, int]:
    """How many rows point in the direction that most share, and how many different offsets these have."""
    directions, offsets = _units(rows, bias)
    if len(directions) < 4:
        return 0, 0
    # A few projections tell directions apart; equal ones are then neighbours in order.
    places = directions @ torch.randn(rows.shape[1], 2, generator=torch.Generator().manual_seed(0), dtype=rows.dtype)
    order = places[:, 0].argsort()
    ordered = places[order]
    near = (ordered.diff(dim=0).abs() < _ALIKE).all(dim=1)
    groups = torch.cat((torch.zeros(1, dtype=torch.long), (~near).long().cumsum(0)))
    sizes = groups.bincount()
    members = order[groups == int(sizes.argmax())]
    return int(sizes.max()), _different(offsets[members], _ALIKE)


def _largest_noisy_group(rows: Tensor, bias: Tensor) -> tuple[int, int]:
    """The same of rows that are alike up to noise: the neighbours of the row that has most of them."""
    directions, offsets = _units(rows, bias)
    if len(directions) < 4 or rows.shape[1] < _ENTRIES:
        return 0, 0
    some = directions[:: max(1, len(directions) // _CENTRES)]
    near = some @ directions.mT > _NEAR
    members = near[int(near.sum(dim=1).argmax())]
    own = offsets[members]
    apart = float(own.max() - own.min()) > _APART
    return (int(members.sum()), _different(own, _ALIKE)) if apart else (0, 0)


def _different(offsets: Tensor, least: float) -> int:
    values = offsets.sort().values
    return 1 + int((values.diff().abs() > least * (1 + values[1:].abs())).sum())


def half_negated_rows(model: Vetted) -> Iterator[Suspicion]:
    """Rows whose negative half is a multiple of the positive one: few inputs outweigh it [Boenisch et al., 2023]."""
    for layer in model.affine():
        if layer.rows.shape[1] < _ENTRIES:
            continue
        trapped = sum(_half_negated(row) for row in layer.rows[:512])
        if trapped >= max(2, len(layer.rows[:512]) // 4):
            yield Suspicion(
                "half-negated rows",
                layer.name,
                f"In {trapped} rows of {layer.name} the negative entries are the positive ones over again, scaled, so "
                "that hardly any input activates them, and one that does is alone in the update.",
            )


def _half_negated(row: Tensor) -> bool:
    positive, negative = row[row > 0].sort().values, (-row[row < 0]).sort().values
    if len(positive) != len(negative) or 2 * len(positive) < _ENTRIES or float(positive.std()) == 0:
        return False
    scale = float(positive @ negative) / float(positive @ positive)
    return float((negative - scale * positive).norm()) < 1e-3 * float(negative.norm())


def silenced_classes(model: Vetted) -> Iterator[Suspicion]:
    """A classifier in which one class alone has weights: only its examples train the model [Wen et al., 2022]."""
    layer = _classifier(model)
    if layer is None or len(layer.rows) < 3:
        return
    live = layer.rows.abs().amax(dim=1) > 0
    if 0 < int(live.sum()) <= max(1, len(live) // 8):
        yield Suspicion(
            "silenced classes",
            layer.name,
            f"{int((~live).sum())} of the {len(live)} rows of the classifier {layer.name} are zero, so that the "
            "examples of the others alone flow back into the model.",
        )


def long_rows(model: Vetted) -> Iterator[Suspicion]:
    """A class or two of the classifier with rows far longer than all others, whatever they were before."""
    layer = _classifier(model)
    if layer is None or len(layer.rows) < 4 or model.reference:
        return
    lengths = layer.rows.norm(dim=1).sort(descending=True).values
    usual = float(lengths[2])
    if usual > _LEAST and float(lengths[0]) > _LONG * usual:
        longest = int(layer.rows.norm(dim=1).argmax())
        yield Suspicion(
            "scaled head",
            layer.name,
            f"Row {longest} of the classifier {layer.name} is {float(lengths[0]) / usual:.3g} times as long as those "
            "of other classes, which decides whose gradients are seen.",
        )


def _classifier(model: Vetted) -> AffineRows | None:
    head = model.head
    return next((one for one in model.affine() if head is not None and one.name == f"{head}.weight"), None)


def rare_activations(model: Vetted) -> Iterator[Suspicion]:
    """Rows that nearly all wait for few inputs [Nowak et al., 2024], be it of random fields like photographs or of the
    client's own."""
    own = {layer.name: layer for layer in model.affine() if layer.bias is not None and not layer.convolution}
    told: set[str] = set()
    for inputs, are_own in ((model.layer_inputs, False), (model.own_layer_inputs, True)):
        for name, seen in inputs.items():
            layer = own.get(f"{name}.weight")
            if layer is None or seen.ndim != 2 or name == model.head or not isinstance(model.layer(name), nn.Linear):
                continue
            rate = _activations(layer, seen).mean(dim=0)
            rare, active = int(((rate > 0) & (rate <= _RARE)).sum()), int((rate > 0).sum())
            # Few own examples activate few traps, and then these alone; many rows of an honest layer are never active.
            many = rare >= max(8, len(rate) // 8) and rare >= 0.8 * active if are_own else 2 * rare >= len(rate)
            if len(rate) >= 8 and len(seen) >= _FEWEST and many and layer.name not in told:
                told.add(layer.name)
                yield Suspicion(
                    "trapped rows",
                    layer.name,
                    f"{rare} of the {len(rate)} rows of {layer.name} are activated by fewer than one input in ten, "
                    "though by some: each waits for a single input to read off the update.",
                )


def _activations(layer: AffineRows, seen: Tensor) -> Tensor:
    assert layer.bias is not None
    return (seen.double() @ layer.rows.mT + layer.bias > 0).double()
