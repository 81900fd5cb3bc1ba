"""Weights that are no numbers, or of a size that no training gives."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from leakgauge.risk.vetting.base import Suspicion, Vetted

ABSURD = 100.0
"""Larger entries than this are in no weight or bias that was initialised or trained as usual."""
_PIXELS, _CHANNELS = 255.0, 4
"""What a model normalises pixels by may be as large as these, and is one number for each channel."""


def strange_values(model: Vetted) -> Iterator[Suspicion]:
    for name, tensor in model.weights.items():
        if tensor.numel() == 0:
            continue
        if not bool(torch.isfinite(tensor).all()):
            count = int((~torch.isfinite(tensor)).sum())
            yield Suspicion(
                "non-finite weights", name, f"{count} of {tensor.numel()} entries of {name} are no numbers."
            )
            continue
        largest = float(tensor.abs().max())
        before = model.reference.get(name)
        usual = 0.0 if before is None or before.numel() == 0 else float(before.abs().max())
        limit = _PIXELS if tensor.numel() <= _CHANNELS else ABSURD
        if largest > max(limit, 2 * usual):
            yield Suspicion(
                "absurd weights",
                name,
                f"{name} has an entry of size {largest:.3g}, where usual weights stay below {limit:g}.",
            )
