"""Whether the truth that is said to be behind an update explains it, and whether an attack had come to rest."""

from __future__ import annotations

import math

from leakgauge.protocol.fit import Fit, compare_updates, predict
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.types import Batch, Outcome, Reconstruction

_LAST = 0.1
_FALL = 0.1
"""A loss that fell by more than this share over the last tenth of the steps has not settled."""

_FEW = 10
"""Steps that are too few to tell."""


def fit_truth(observation: UpdateObservation, truth: Batch) -> Fit:
    """The declared client on the truth itself: a round that was read as it was made leaves little more than rounding.

    The order of examples within a batch does not count, so that only labels of other classes than the truth's speak
    against those that the attacker was given.
    """
    expected = predict(observation, truth.inputs, truth.labels)
    return Fit() if expected is None else compare_updates(expected, observation.update.params)


def is_settled(reconstruction: Reconstruction) -> bool | None:
    """Whether the attack's loss had stopped falling when it ended; None = it has no loss."""
    if reconstruction.outcome in (Outcome.SOLVED, Outcome.CONVERGED):
        return True
    trace = reconstruction.loss_trace
    if trace is None or not len(trace):
        return None
    lowest = trace.detach().double().nan_to_num(math.inf).cummin(dim=0).values
    last = round(_LAST * len(lowest))
    if len(lowest) < _FEW or not bool(lowest.isfinite().all()):
        return False
    return bool(lowest[-1] >= (1 - _FALL) * lowest[-1 - last])
