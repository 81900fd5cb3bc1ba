"""Several local steps, read at the weights that the client was sent.

The first of them is a gradient there, so what its layers read lies in the span of the whole update, beside what they
read later on: exactly, however far the client came, while all of it together is less than a layer has inputs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch

from leakgauge import params as tree
from leakgauge.attacks.matching.adam_step import is_one_adam_step
from leakgauge.attacks.span.matching import as_gradient
from leakgauge.protocol import clients
from leakgauge.protocol.local_update import LocalSteps
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.types import ParamTree

_UNIFORM = 12**-0.5
"""The standard deviation of a rounding of one unit."""


class FirstWeights(NamedTuple):
    """An update as a ``gradient`` at the weights that were sent, the sizes of its ``errors`` where these are known, and
    the ``whole`` that the client's computation must reproduce."""

    gradient: UpdateObservation
    errors: ParamTree | None
    whole: UpdateObservation


def at_first_weights(observation: UpdateObservation) -> FirstWeights:
    """Errors are known of a difference of weights, each of which every step rounds."""
    gradient = as_gradient(observation, position=0.0)
    whole = gradient if is_one_adam_step(observation) else replace(observation, learner=gradient.learner)
    steps = clients.local_steps(observation.local_update, observation.num_examples or 1)
    if whole is gradient or not isinstance(clients.algorithm(observation.local_update), LocalSteps) or steps is None:
        return FirstWeights(gradient, None, whole)
    unit = torch.finfo(observation.state.dtype).eps * _UNIFORM * steps**0.5
    sent, update = observation.state.params, observation.update.params
    returned = tree.sub({name: sent[name] for name in update}, update)
    errors = {name: unit * torch.maximum(sent[name].abs(), end.abs()) for name, end in returned.items()}
    return FirstWeights(gradient, errors, whole)
