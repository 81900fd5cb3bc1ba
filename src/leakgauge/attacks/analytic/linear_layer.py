"""The input of a linear layer, read off its update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from leakgauge.attacks.base import LabelAttack, Progress, finite_update, silent
from leakgauge.attacks.labels.idlg import IDLG
from leakgauge.errors import LeakGaugeError
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.types import Outcome, Reconstruction


@dataclass(frozen=True)
class LinearLayer:
    """One private image, exactly, when a biased linear layer sees the image itself [Geiping et al., 2020, Prop. 3.1].

    For y = W x + b the updates are dW = d x^T and db = d, hence x = dW_i / db_i for any i with db_i != 0; the largest
    |db_i| loses the fewest digits. Several local steps on the same image keep the ratio.
    """

    labels: LabelAttack | None = IDLG()

    def __call__(
        self, observation: UpdateObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction:
        del generator, progress
        update = finite_update(observation)
        num_examples = known(observation.num_examples, "num_examples", needed_by=self)
        layer = facing_layer(observation)
        if layer is None:
            return _not_applicable("no biased linear layer receives the image itself")
        if num_examples != 1:
            return _not_applicable("the update mixes several images")
        features = recover_input(update[f"{layer.name}.weight"], update[f"{layer.name}.bias"])
        if features is None:
            return _not_applicable("the bias update of the first layer is zero")
        images = ((features - layer.offset) / layer.slope).view(1, *observation.image_shape).clamp(0, 1)
        return Reconstruction(images, self._labels(observation), Outcome.SOLVED, facts={"layer": layer.name})

    def _labels(self, observation: UpdateObservation) -> Tensor | None:
        if observation.labels is not None or self.labels is None:
            return observation.labels
        try:
            return self.labels.restore(observation)
        except LeakGaugeError:
            return None  # the image does not depend on it


def recover_input(weight_update: Tensor, bias_update: Tensor) -> Tensor | None:
    """x = dW_i / db_i at the largest |db_i|; None when the bias update vanishes or is not finite.

    >>> recover_input(torch.tensor([[2.0, 4.0]]), torch.tensor([2.0]))
    tensor([1., 2.])
    """
    row = int(bias_update.abs().argmax())
    if not torch.isfinite(bias_update[row]) or bias_update[row] == 0:
        return None
    return weight_update[row] / bias_update[row]


class FacingLayer(NamedTuple):
    """A linear layer whose input is ``offset + slope * pixels``, entry by entry."""

    name: str
    offset: Tensor
    slope: Tensor


def facing_layer(observation: UpdateObservation) -> FacingLayer | None:
    """The biased linear layer that receives the (normalised) image, found by probing the model with three images."""
    state, shape = observation.state, observation.image_shape
    ramp = torch.linspace(0, 1, 3 * 5 * 7, dtype=state.dtype, device=state.device)
    pixels = int(torch.Size(shape).numel())
    probe = torch.stack(
        [
            torch.zeros(pixels, dtype=state.dtype, device=state.device),
            torch.ones(pixels, dtype=state.dtype, device=state.device),
            # An irregular pattern: no mixing of pixels reproduces it by accident.
            ramp.repeat(pixels // len(ramp) + 1)[:pixels].roll(3).sin().abs(),
        ]
    )
    with torch.no_grad():
        # Eval mode, because batch statistics would couple the three probes.
        inputs = observation.learner.in_mode("eval").layer_inputs(state, probe.view(3, *shape), nn.Linear)
    for name, value in inputs.items():
        if value.shape != (3, pixels) or not {f"{name}.weight", f"{name}.bias"} <= observation.update.params.keys():
            continue
        offset, slope = value[0], value[1] - value[0]
        if bool((slope != 0).all()) and torch.allclose(offset + slope * probe[2], value[2], rtol=1e-4, atol=1e-5):
            return FacingLayer(name, offset, slope)
    return None


def _not_applicable(reason: str) -> Reconstruction:
    return Reconstruction(None, None, Outcome.NOT_APPLICABLE, facts={"reason": reason})
