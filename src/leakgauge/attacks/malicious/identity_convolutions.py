"""Convolutions that pass the image on: the architecture is honest, the parameters are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn

from leakgauge.attacks.analytic.linear_layer import not_applicable, restored_labels
from leakgauge.attacks.labels.idlg import IDLG
from leakgauge.attacks.malicious.base import MaliciousAttack, head_inputs, head_labels, replace_tensors
from leakgauge.attacks.malicious.pixel_decoder import pixel_decoder
from leakgauge.errors import UnsupportedModel
from leakgauge.progress import Progress
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.space import ImageSpace, InputSpace
from leakgauge.types import ModelState, Outcome, Reconstruction

# Where every activation of the catalogue is strictly increasing and not yet flat.
_LOWEST, _RANGE = 0.5, 1.0


@dataclass(frozen=True)
class IdentityConvolutions(MaliciousAttack):
    """Every convolution is set to the identity, and Prop. 3.1 reads the image at the classifier [ibid., A.2].

    Each kernel is a delta that carries one colour; its weight and bias (or those of the BatchNorm behind it) move the
    pixels to [0.5, 1.5], where activations can be inverted. Where a convolution has a stride, spare channels carry the
    pixels it would skip; what does not fit, or is merged by pooling, arrives at lower resolution and is interpolated.
    The classifier is blank, so that images come apart by their labels (see ``head_inputs``); where another linear layer
    receives the features, the attack takes one image.
    """

    server: ClassVar[str] = "keeps the architecture but sets the convolutions to the identity"
    serves: ClassVar[type[InputSpace]] = ImageSpace

    def rebuild(self, learner: Learner, state: ModelState, space: InputSpace) -> tuple[nn.Module, ModelState]:
        if learner.mode == "train" and learner.batch_norm_layers():
            raise UnsupportedModel(
                "BatchNorm in train mode rescales the image by statistics the server does not know; use mode eval."
            )
        try:
            return learner.module, self._parameters(learner.without_dropout(), state, space, spare=True)
        except UnsupportedModel:
            # Where the model branches, the branches would sort the pixels differently.
            return learner.module, self._parameters(learner.without_dropout(), state, space, spare=False)

    def read(self, observation: UpdateObservation, *, generator: Generator, progress: Progress) -> Reconstruction:
        del progress
        num_examples = known(observation.num_examples, "num_examples", needed_by=self)
        learner, state, shape = observation.learner, observation.state, observation.space.shape
        layer = _receiver(learner, state, observation.space)
        blank = _is_classifier(learner, state, observation.space, layer)
        if num_examples > 1 and not blank:
            return not_applicable(f"the update of {layer!r} mixes several images")
        weight, bias = observation.update.params[f"{layer}.weight"], observation.update.params[f"{layer}.bias"]
        restore = blank and observation.labels is None
        labels = (
            head_labels(bias, num_examples) if restore else restored_labels(observation, IDLG(), generator=generator)
        )
        found = head_inputs(weight, bias, labels if labels is not None else bias.new_zeros(0), num_examples)
        if isinstance(found, str):
            return not_applicable(found)
        decoder = pixel_decoder(learner, state, shape, layer)
        facts: dict[str, str | int | float] = {
            "layer": layer,
            "resolution": f"{len(decoder.rows)} x {len(decoder.columns)}",
        }
        return Reconstruction(decoder.images(found).clamp(0, 1), labels, Outcome.SOLVED, facts=facts)

    def _parameters(self, learner: Learner, state: ModelState, space: InputSpace, *, spare: bool) -> ModelState:
        state = _transparent(learner, state, space, spare=spare)
        layer = _receiver(learner, state, space)
        if _is_classifier(learner, state, space, layer):
            blank = {name: torch.zeros_like(state.params[name]) for name in (f"{layer}.weight", f"{layer}.bias")}
            state = replace_tensors(state, blank)
        pixel_decoder(learner, state, space.shape, layer)  # refuses where the image does not arrive
        return state


def _transparent(learner: Learner, state: ModelState, space: InputSpace, *, spare: bool) -> ModelState:
    """The state whose convolutions and BatchNorm layers carry the image, set one after another as they are run."""
    channels = space.shape[0]
    ends = torch.zeros(2, *space.shape, dtype=state.dtype, device=state.device)
    ends[1] = 1.0
    with torch.no_grad():
        run = [(name, learner.module.get_submodule(name)) for name in learner.layer_inputs(state, ends, nn.Module)]
        layers = [(name, layer) for name, layer in run if isinstance(layer, nn.Conv2d | nn.BatchNorm2d)]
        convolutions = [(name, layer) for name, layer in layers if isinstance(layer, nn.Conv2d)]
        taps = _taps(convolutions, channels, spare=spare)
        tracks = channels
        for name, layer in layers:
            # All layers before this one are set, so that black and white bound what can flow into it.
            black, white = learner.layer_inputs(state, ends, nn.Module)[name][:, :tracks].flatten(2)
            inf = torch.full_like(black, torch.inf)
            # What lies beyond the border is the same for both, and no pixel.
            low, high = torch.where(white > black, black, inf).amin(1), torch.where(white > black, white, -inf).amax(1)
            if len(low) < tracks or not bool((high > low).all()):
                raise UnsupportedModel(f"The image does not reach the layer {name!r}; use another attack.")
            slope = _RANGE / (high - low)
            if isinstance(layer, nn.Conv2d):
                state = replace_tensors(state, _delta(name, layer, state, taps[name], low, slope))
                tracks *= len(taps[name])
            else:
                state = replace_tensors(state, _rescaling(name, state, low, slope))
    return state


def _delta(
    name: str, layer: nn.Conv2d, state: ModelState, taps: Sequence[tuple[int, int]], low: Tensor, slope: Tensor
) -> dict[str, Tensor]:
    held = {**state.params, **state.buffers}
    weight = torch.zeros_like(held[f"{name}.weight"])
    biased = layer.bias is not None
    for track, (row, column) in product(range(len(low)), taps):
        out = track * len(taps) + taps.index((row, column))
        weight[out, track, row, column] = slope[track] if biased else 1.0
    if not biased:
        return {f"{name}.weight": weight}
    bias = torch.zeros_like(held[f"{name}.bias"])
    bias[: len(low) * len(taps)] = (_LOWEST - slope * low).repeat_interleave(len(taps))
    return {f"{name}.weight": weight, f"{name}.bias": bias}


def _rescaling(name: str, state: ModelState, low: Tensor, slope: Tensor) -> dict[str, Tensor]:
    """A BatchNorm layer in eval mode as an affine map: the running statistics are the server's to send, too."""
    held = {**state.params, **state.buffers}
    if f"{name}.running_mean" not in held:
        raise UnsupportedModel(f"The layer {name!r} normalises by the private batch's statistics; use another attack.")
    mean, variance = held[f"{name}.running_mean"], held[f"{name}.running_var"]
    tensors = {f"{name}.running_mean": torch.zeros_like(mean), f"{name}.running_var": torch.ones_like(variance)}
    if f"{name}.weight" in held:
        weight, bias = torch.zeros_like(mean), torch.zeros_like(mean)
        weight[: len(low)] = slope
        bias[: len(low)] = _LOWEST - slope * low
        tensors |= {f"{name}.weight": weight, f"{name}.bias": bias}
    return tensors


def _taps(
    convolutions: Sequence[tuple[str, nn.Conv2d]], channels: int, *, spare: bool
) -> dict[str, tuple[tuple[int, int], ...]]:
    """Which kernel entries pass a track on: the middle one, and while channels are spare those a stride would skip.

    Spare channels go to the last strides first: the pixels that arrive then lie on a regular grid.
    """
    if not convolutions:
        raise UnsupportedModel("The model has no convolution to set; where it is fully connected, use `linear_layer`.")
    taps = {}
    tracks, narrowest = channels, min(layer.out_channels for _, layer in convolutions)
    if narrowest < channels:
        raise UnsupportedModel(
            f"A convolution has {narrowest} output channels and cannot carry {channels} colours; widen the model."
        )
    narrowest = convolutions[-1][1].out_channels
    for name, layer in reversed(convolutions):
        if layer.groups != 1:
            raise UnsupportedModel(f"The convolution {name!r} has groups and cannot carry colours; use another attack.")
        narrowest = min(narrowest, layer.out_channels)
        height, width = layer.kernel_size
        rows = range((height - 1) // 2, min((height - 1) // 2 + layer.stride[0], height))
        columns = range((width - 1) // 2, min((width - 1) // 2 + layer.stride[1], width))
        fits = spare and tracks * len(rows) * len(columns) <= narrowest and layer.dilation == (1, 1)
        taps[name] = tuple(product(rows, columns)) if fits else ((rows[0], columns[0]),)
        tracks *= len(taps[name])
    return taps


def _receiver(learner: Learner, state: ModelState, space: InputSpace) -> str:
    """The biased linear layer that receives the features."""
    probe = torch.zeros(1, *space.shape, dtype=state.dtype, device=state.device)
    with torch.no_grad():
        inputs = learner.layer_inputs(state, probe, nn.Linear)
    name = next(iter(inputs), None)
    if name is None or inputs[name].ndim != 2 or not {f"{name}.weight", f"{name}.bias"} <= state.params.keys():
        raise UnsupportedModel("No trainable linear layer with a bias receives the features; use another attack.")
    return name


def _is_classifier(learner: Learner, state: ModelState, space: InputSpace, layer: str) -> bool:
    try:
        return learner.classifier(state, space.probe(2, state)) == layer
    except UnsupportedModel:
        return False
