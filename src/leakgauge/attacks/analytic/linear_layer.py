"""The input of a linear layer, read off its update."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from leakgauge.attacks.analytic.structure import sites
from leakgauge.attacks.base import Attack, LabelAttack, finite_update
from leakgauge.attacks.labels.idlg import IDLG
from leakgauge.errors import LeakGaugeError
from leakgauge.progress import Progress, silent
from leakgauge.protocol.clients import algorithm, gain, local_steps, sums_gradients
from leakgauge.protocol.local_update import FedAvg, FedSGD, LocalUpdate
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.protocol.optimisers import LocalSGD
from leakgauge.types import Outcome, Reconstruction


@dataclass(frozen=True)
class LinearLayer(Attack):
    """One private image, exactly, when a biased linear layer sees the image itself [Geiping et al., 2020, Prop. D.1].

    For y = W x + b the updates are dW = d x^T and db = d, hence x = dW_i / db_i for any i with db_i != 0; the largest
    |db_i| loses the fewest digits. Several local steps on the same image keep the ratio. ``FullyConnected`` does the
    same, and needs no bias there.
    """

    labels: LabelAttack | None = IDLG()

    def __call__(
        self, observation: UpdateObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction:
        del progress
        observation = without_decay(observation)
        update = finite_update(observation)
        if not sums_gradients(observation.local_update):
            return not_applicable(NO_GRADIENTS)
        num_examples = known(observation.num_examples, "num_examples", needed_by=self)
        layer = next((layer for layer in facing_layers(observation) if layer.biased), None)
        if layer is None:
            return not_applicable(f"no biased linear layer receives the {observation.space.kind} itself")
        if num_examples != 1:
            return not_applicable(f"the update mixes several {observation.space.kinds}")
        features = recover_input(update[f"{layer.name}.weight"], update[f"{layer.name}.bias"])
        if features is None:
            return not_applicable("the bias update of the first layer is zero")
        labels = restored_labels(observation, self.labels, generator=generator)
        return Reconstruction(
            layer.model_input(features, observation), labels, Outcome.SOLVED, facts={"layer": layer.name}
        )


NO_GRADIENTS = "the client's optimiser sends no multiple of a gradient; use gradient matching, such as best"


def without_decay(observation: UpdateObservation) -> UpdateObservation:
    """One step of SGD as its gradient: what weight decay added is known, and taken off."""
    client, count = observation.local_update, observation.num_examples
    if not isinstance(client, FedAvg) or not isinstance(client.optimiser, LocalSGD) or count is None:
        return observation
    decay, scale = client.optimiser.weight_decay, gain(client, count)
    if not decay or not scale or local_steps(client, count) != 1:
        return observation
    weights = observation.state.params
    gradient = {name: step / scale - decay * weights[name] for name, step in observation.update.params.items()}
    return replace(observation, local_update=FedSGD(), update=replace(observation.update, params=gradient))


def recover_input(weight_update: Tensor, output_update: Tensor) -> Tensor | None:
    """x = dW_i / d_i at the largest |d_i|, for d the derivative in the layer's output (the update of a bias).

    None when d vanishes or is not finite.

    >>> recover_input(torch.tensor([[2.0, 4.0]]), torch.tensor([2.0]))
    tensor([1., 2.])
    """
    row = int(output_update.abs().argmax())
    if not torch.isfinite(output_update[row]) or output_update[row] == 0:
        return None
    return weight_update[row] / output_update[row]


class FacingLayer(NamedTuple):
    """A trained linear layer whose input is ``offset + slope * relaxed``, entry by entry of the relaxed input."""

    name: str
    offset: Tensor
    slope: Tensor
    biased: bool

    def model_input(self, features: Tensor, observation: UpdateObservation) -> Tensor:
        """What the model was given where the layer sees these features."""
        space = observation.space
        return space.decode(((features - self.offset) / self.slope).view(1, *space.shape))


def facing_layers(observation: UpdateObservation) -> list[FacingLayer]:
    """The linear layers that receive the (normalised) image, found by probing the model with three images."""
    state, shape = observation.state, observation.space.shape
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
    trained = observation.update.params.keys()
    # What a trained normalisation passes on changes from step to step, or with the statistics of the batch.
    still = observation.learner.mode == "eval" and one_gradient(observation.local_update)
    found = []
    for name, site in sites(observation.learner, state, observation.space.lift(probe.view(3, *shape))).items():
        value = site.inputs
        if (site.moves and not still) or value.shape != probe.shape or f"{name}.weight" not in trained:
            continue
        offset, slope = value[0], value[1] - value[0]
        if bool((slope != 0).all()) and torch.allclose(offset + slope * probe[2], value[2], rtol=1e-4, atol=1e-5):
            found.append(FacingLayer(name, offset, slope, f"{name}.bias" in trained))
    return found


def one_gradient(local_update: LocalUpdate | None) -> bool:
    """Whether the update of one image is a multiple of one gradient, as far as is known."""
    steps = algorithm(local_update)
    return isinstance(steps, FedSGD) or (isinstance(steps, FedAvg) and steps.epochs == 1 and steps.rule.sums_gradients)


def restored_labels(observation: UpdateObservation, rule: LabelAttack | None, *, generator: Generator) -> Tensor | None:
    """The labels given, else restored, else None: the image does not depend on them."""
    if observation.labels is not None or rule is None:
        return observation.labels
    try:
        return rule.restore(observation, generator=generator)
    except LeakGaugeError:
        return None


def not_applicable(reason: str) -> Reconstruction:
    return Reconstruction(None, None, Outcome.NOT_APPLICABLE, facts={"reason": reason})
