"""What the declared client gives of some inputs, beside the update that was observed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge import params as tree
from leakgauge.errors import LeakGaugeError
from leakgauge.protocol.clients import mixes
from leakgauge.protocol.losses import Targets
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.types import Batch, ParamTree, Reconstruction


@dataclass(frozen=True)
class Fit:
    """How near the declared client's update of a reconstruction comes to the observed one, both relative to the latter.

    ``residual`` is their distance, ``misfit`` what is left of it when the former is multiplied by ``scale``, which
    tells a wrong rate from a wrong client. NaN = could not be computed.
    """

    residual: float = math.nan
    misfit: float = math.nan
    scale: float = math.nan


def fit(observation: UpdateObservation, reconstruction: Reconstruction) -> Fit:
    """The declared client on what came back, beside what was observed; it does not matter which attack it was."""
    expected = predict(observation, reconstruction.inputs, reconstruction.labels)
    return Fit() if expected is None else compare_updates(expected, observation.update.params)


def predict(observation: UpdateObservation, inputs: Tensor | None, labels: Tensor | None) -> ParamTree | None:
    """The update of these inputs, by what the attacker knows of the client; the labels that it was given, if there are
    such, in the order in which the inputs have them.

    None where the server sent another model than the declared one, the client's algorithm is hidden, or the client
    trained on mixtures of what is to be found.
    """
    given = observation.labels
    if given is not None and (labels is None or not same_classes(given, labels)):
        labels = given
    if observation.learner.targets is Targets.TOKENS and inputs is not None:
        labels = torch.zeros(len(inputs), dtype=torch.long)  # which nobody looks at
    client, state = observation.local_update, observation.state
    if inputs is None or labels is None or client is None or mixes(client):
        return None
    counts = {len(inputs), len(labels), observation.num_examples or len(inputs)}
    if observation.learner.tampering is not None or len(counts) > 1:
        return None
    batch = Batch(observation.space.place(inputs, state), labels.to(state.device))
    try:
        with torch.no_grad():
            return client.expected(observation.learner, state, batch, observed=observation.update.params)
    except (LeakGaugeError, RuntimeError):  # such as a number of examples that cannot be shared by several clients
        return None


def same_classes(one: Tensor, two: Tensor) -> bool:
    """Whether two batches have the same labels, in whatever order."""
    if one.shape != two.shape:
        return False
    return bool(torch.equal(one.sort(dim=0).values.cpu().double(), two.sort(dim=0).values.cpu().double()))


def compare_updates(expected: ParamTree, observed: ParamTree) -> Fit:
    """In float64, since a good fit is a small difference of large numbers."""
    one = tree.map_tensors(Tensor.double, {name: expected[name] for name in observed})
    two = tree.map_tensors(Tensor.double, observed)
    length, own = float(tree.norm(two)), float(tree.squared_norm(one))
    if not length or not math.isfinite(own):
        return Fit()
    scale = float(tree.dot(one, two)) / own if own else 0.0
    residual, misfit = (float(tree.norm(tree.add(two, one, scale=-factor))) / length for factor in (1.0, scale))
    return Fit(residual, misfit, scale)
