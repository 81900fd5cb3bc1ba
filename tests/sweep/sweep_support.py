"""A small grid that several tests run."""

from __future__ import annotations

from typing import Any

from torch import nn

GRID: dict[str, Any] = {
    "dataset": "digits",
    "model": "mlp:hidden=[8]",
    "train_steps": [0, 3],
    "batch_sizes": [1, 100_000],
    "seeds": [0, 1],
    "defences": ["none", "pruning:keep=0.5"],
    "attacks": ["linear_layer", "quasi_newton"],
    "steps": 3,
    "nulls": 1,
    "distractors": 5,
}


def own_model() -> nn.Module:
    """A user's own, for digits."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
