"""Rows of a matrix that sort inputs instead of combining them: bins, traps, silenced classes."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from leakgauge.risk.vetting.base import AffineRows, Suspicion, Vetted

_ALIKE = 1e-5
"""Largest distance of directions that count as one."""
_ENTRIES = 16
"""Rows of fewer entries may be alike by chance."""
_RARE = 0.1
"""A row that so few inputs activate waits for one of them."""


def repeated_rows(model: Vetted) -> Iterator[Suspicion]:
    """One direction again and again with other biases: a ruler that sorts inputs into bins [Fowl et al., 2022]."""
    for layer in model.affine():
        if layer.bias is None or layer.rows.shape[1] < 4:
            continue
        alike, biases = _largest_group(layer.rows, layer.bias)
        if alike >= max(4, len(layer.rows) // 16) and biases >= max(3, alike // 2):
            yield Suspicion(
                "identical rows with shifted biases",
                layer.name,
                f"{alike} of the {len(layer.rows)} rows of {layer.name} point in one direction and differ by their "
                f"biases ({biases} values), which sorts inputs into bins so that each can be read off the update.",
            )


def _largest_group(rows: Tensor, bias: Tensor) -> tuple[int, int]:
    """How many rows point in the direction that most share, and how many different offsets these have."""
    lengths = rows.norm(dim=1)
    kept = lengths > 0
    if int(kept.sum()) < 4:
        return 0, 0
    directions, offsets = rows[kept] / lengths[kept, None], bias[kept] / lengths[kept]
    # A few projections tell directions apart; equal ones are then neighbours in order.
    places = directions @ torch.randn(rows.shape[1], 2, generator=torch.Generator().manual_seed(0), dtype=rows.dtype)
    order = places[:, 0].argsort()
    ordered = places[order]
    near = (ordered.diff(dim=0).abs() < _ALIKE).all(dim=1)
    groups = torch.cat((torch.zeros(1, dtype=torch.long), (~near).long().cumsum(0)))
    sizes = groups.bincount()
    members = order[groups == int(sizes.argmax())]
    values = offsets[members].sort().values
    different = 1 + int((values.diff().abs() > _ALIKE * (1 + values[1:].abs())).sum())
    return int(sizes.max()), different


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
    head = model.head
    layer = next((one for one in model.affine() if head is not None and one.name == f"{head}.weight"), None)
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


def rare_activations(model: Vetted) -> Iterator[Suspicion]:
    """Rows that nearly all wait for few inputs; random fields like photographs stand in for these."""
    own = {layer.name: layer for layer in model.affine() if layer.bias is not None and not layer.convolution}
    for name, seen in model.layer_inputs.items():
        layer = own.get(f"{name}.weight")
        if layer is None or seen.ndim != 2 or name == model.head or not isinstance(model.layer(name), nn.Linear):
            continue
        rate = _activations(layer, seen).mean(dim=0)
        rare = (rate > 0) & (rate <= _RARE)
        if len(rate) >= 8 and float(rare.double().mean()) >= 0.5:
            yield Suspicion(
                "trapped rows",
                layer.name,
                f"{int(rare.sum())} of the {len(rate)} rows of {layer.name} are activated by fewer than one input in "
                "ten, though by some: each waits for a single input to read off the update.",
            )


def _activations(layer: AffineRows, seen: Tensor) -> Tensor:
    assert layer.bias is not None
    return (seen.double() @ layer.rows.mT + layer.bias > 0).double()
