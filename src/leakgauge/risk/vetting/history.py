"""What changed since the round before, beyond what training changes."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from leakgauge.protocol.state_dicts import some
from leakgauge.risk.vetting.base import Suspicion, Vetted

_SCALED = 5.0
_REPLACED = 0.2
"""A cosine to the weights before, below which they were not trained but replaced."""
_BEGUN = 0.1


def added_layers(model: Vetted) -> Iterator[Suspicion]:
    if not model.reference:
        return
    new = [name for name, tensor in model.weights.items() if _differs(tensor, model.reference.get(name))]
    if new:
        yield Suspicion(
            "changed architecture",
            new[0],
            f"The model before had no weights such as {some(new)}; training does not add or resize layers.",
        )


def _differs(tensor: Tensor, before: Tensor | None) -> bool:
    return before is None or before.shape != tensor.shape


def _begun_at_zero(before: Tensor) -> bool:
    """Whether weights were zero, or had hardly left it: the next round decides on their direction and size.

    Heads, adapters and last layers of branches are often initialised so; others with about 1 / sqrt(entries of a row).
    """
    usual = float(before[0].numel()) ** -0.5
    return float(before.double().square().mean().sqrt()) < _BEGUN * usual


def replaced_weights(model: Vetted) -> Iterator[Suspicion]:
    replaced = []
    for name, tensor in model.weights.items():
        before = model.reference.get(name)
        if before is None or before.shape != tensor.shape or tensor.ndim < 2 or tensor.numel() < 64:
            continue
        one, two = tensor.double().flatten(), before.double().flatten().to(tensor.device)
        if _begun_at_zero(before) or not bool(torch.isfinite(one).all()):
            continue
        if float(one @ two) < _REPLACED * float(one.norm() * two.norm()):
            replaced.append(name)
    if replaced:
        yield Suspicion(
            "replaced weights",
            replaced[0],
            f"The weights {some(replaced)} have hardly anything in common with those of the round before (cosine below "
            f"{_REPLACED:g}); a round of training moves them, it does not replace them.",
        )


def moved_rows(model: Vetted) -> Iterator[Suspicion]:
    """Rows of the classifier in each other's place, or of quite another size than before."""
    name = f"{model.head}.weight"
    before, now = model.reference.get(name), model.weights.get(name)
    if before is None or now is None or before.shape != now.shape or now.ndim != 2 or _begun_at_zero(before):
        return
    old, new = before.double(), now.double().to(before.device)
    sizes = new.norm(dim=1) / old.norm(dim=1).clamp(min=1e-12)
    if len(old) > 1 and bool((old.norm(dim=1) > 0).all()):
        alike = _cosines(new, old)
        own, best = alike.diagonal(), alike.max(dim=1)
        moved = (best.values > 0.9) & (best.values > own + 0.05)
        if int(moved.sum()) >= 2:
            first = int(moved.nonzero()[0])
            yield Suspicion(
                "permuted head",
                name,
                f"{int(moved.sum())} rows of the classifier {name} are those of other classes of the round before (row "
                f"{first} is now that of class {int(best.indices[first])}): a sure model errs, and its gradients grow.",
            )
    if bool(((sizes > _SCALED) | (sizes < 1 / _SCALED)).any()) and float(old.norm()) > 0:
        worst = int((sizes.clamp(min=1e-12).log().abs()).argmax())
        yield Suspicion(
            "scaled head",
            name,
            f"Row {worst} of the classifier {name} is {float(sizes[worst]):.3g} times as long as in the round before, "
            "which decides whose gradients are seen.",
        )


def _cosines(one: Tensor, other: Tensor) -> Tensor:
    units = [rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-12) for rows in (one, other)]
    return units[0] @ units[1].mT
