"""What a user says of a recorded round where its file says otherwise, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from leakgauge import params as tree
from leakgauge.errors import InvalidCase
from leakgauge.protocol.recording import RecordedRound
from leakgauge.protocol.running_statistics import is_statistic
from leakgauge.protocol.threat_model import BatchNormAccess, BatchNormKnowledge
from leakgauge.types import ParamTree


def reverse(recorded: RecordedRound) -> RecordedRound:
    """Of an update that is after minus before."""
    return replace(recorded, update=tree.map_tensors(torch.neg, recorded.update))


def swap(recorded: RecordedRound) -> RecordedRound:
    """Of weights before and after training that stand in each other's place."""
    return reverse(replace(recorded, state=_moved(recorded, -1.0)))


def start_before(recorded: RecordedRound) -> RecordedRound:
    """Of a right update beside the weights after training, which are not those it was computed at."""
    return replace(recorded, state=_moved(recorded, 1.0))


def forget_labels(recorded: RecordedRound) -> RecordedRound:
    """Of labels that are not those of the batch."""
    size = recorded.num_examples
    if size is None and recorded.labels is not None:
        size = len(recorded.labels)
    return replace(recorded, labels=None, num_examples=size)


CORRECTIONS: Mapping[str, Callable[[RecordedRound], RecordedRound]] = {
    "reversed": reverse,
    "swapped": swap,
    "after": start_before,
    "without-labels": forget_labels,
}
"""By what ``--read`` calls them."""


def redeclare(recorded: RecordedRound, said: Mapping[str, Any], corrections: tuple[str, ...] = ()) -> RecordedRound:
    """The round with what is said in place of what its file says; None says nothing."""
    for name in corrections:
        if name not in CORRECTIONS:
            raise InvalidCase(f"A round cannot be read {name!r}; choose from {', '.join(CORRECTIONS)}.")
        recorded = CORRECTIONS[name](recorded)
    known = {name: value for name, value in said.items() if value is not None}
    mode = known.get("mode")
    if mode not in (None, "train", "eval"):
        raise InvalidCase(f"There is no mode {mode!r}; choose from train, eval.")
    if mode == "train" and recorded.batch_norm.access is BatchNormAccess.PROXY:
        known["batch_norm"] = BatchNormKnowledge(BatchNormAccess.INFERRED)
    if mode == "eval":
        known["update"] = {name: tensor for name, tensor in recorded.update.items() if not is_statistic(name)}
    return replace(recorded, **known)


def _moved(recorded: RecordedRound, factor: float) -> ParamTree:
    """The weights plus so many times the update; what has none stays."""
    update = recorded.update
    return {
        name: (tensor + factor * update[name]).to(tensor.dtype) if name in update else tensor
        for name, tensor in recorded.state.items()
    }
