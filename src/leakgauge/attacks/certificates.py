"""When an exact attack may say, without the truth, that it is right."""

from __future__ import annotations

from dataclasses import replace

import torch

from leakgauge.protocol.fit import fit
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.types import Certificate, Reconstruction

_ROUNDING = 80.0
"""By how many roundings of the client's numbers its update may differ from that of what was recovered."""


def certify(observation: UpdateObservation, found: Reconstruction, argument: str) -> Reconstruction:
    """With a certificate where the client, run on what was found, sends what was observed.

    Only for attacks whose own theory says that nothing else gives this update, which ``argument`` puts in a sentence:
    a residual alone certifies a fit, not the victim.
    """
    tolerance = tolerance_of(observation)
    residual = fit(observation, found).residual
    if found.inputs is None or not residual <= tolerance:  # NaN where the client cannot be run
        return found
    return replace(found, certificate=Certificate(residual, tolerance, argument, len(found.inputs)))


def tolerance_of(observation: UpdateObservation) -> float:
    """The relative difference up to which two updates are the same: 1e-5 where the client computes in float32."""
    return _ROUNDING * torch.finfo(observation.state.dtype).eps
