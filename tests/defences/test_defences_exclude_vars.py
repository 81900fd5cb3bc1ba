"""Tensors that stay at home."""

from __future__ import annotations

import torch

from leakgauge.defences import ExcludeVars
from leakgauge.randomness import seeded

UPDATE = {name: torch.ones(2) for name in ("body.weight", "head.weight", "head.bias", "neck.bias")}


def excluded(defence) -> list[str]:
    sent = defence.transform(UPDATE, generator=seeded(0))
    assert list(sent) == list(UPDATE)
    return [name for name, tensor in sent.items() if not bool(tensor.any())]


def test_a_pattern_is_searched_for_anywhere_in_a_name_and_names_are_taken_whole():
    assert excluded(ExcludeVars()) == []
    assert excluded(ExcludeVars("bias$")) == ["head.bias", "neck.bias"]
    assert excluded(ExcludeVars("head")) == ["head.weight", "head.bias"]
    assert excluded(ExcludeVars(names=("head", "neck.bias"))) == ["neck.bias"]
