"""A network whose convolutions pass the image on, up to the first linear layer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor, nn

from leakgauge.attacks.malicious.base import replace_tensors
from leakgauge.attacks.malicious.pixel_decoder import pixel_decoder
from leakgauge.errors import UnsupportedModel
from leakgauge.protocol.learner import Learner
from leakgauge.space import InputSpace
from leakgauge.types import ModelState

# Where every activation of the catalogue is strictly increasing and not yet flat.
_LOWEST, _RANGE = 0.5, 1.0


def transparent_state(learner: Learner, state: ModelState, space: InputSpace) -> ModelState:
    """The state whose convolutions carry the image to the first linear layer, or why there is none."""
    if learner.mode == "train" and learner.batch_norm_layers():
        raise UnsupportedModel(
            "BatchNorm in train mode rescales the image by statistics the server does not know; use mode eval."
        )
    learner = learner.without_dropout()
    try:
        return _checked(learner, state, space, spare=True)
    except UnsupportedModel:
        # Where the model branches, the branches would sort the pixels differently.
        return _checked(learner, state, space, spare=False)


def _checked(learner: Learner, state: ModelState, space: InputSpace, *, spare: bool) -> ModelState:
    state = _transparent(learner, state, space, spare=spare)
    # Refuses where the image does not arrive.
    pixel_decoder(learner, state, space.shape, receiving_layer(learner, state, space))
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
    if f"{name}.weight" not in held:
        raise UnsupportedModel(f"The layer {name!r} computes its weight from other tensors; use another attack.")
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


def receiving_layer(learner: Learner, state: ModelState, space: InputSpace) -> str:
    """The biased linear layer that receives the features."""
    probe = torch.zeros(1, *space.shape, dtype=state.dtype, device=state.device)
    with torch.no_grad():
        inputs = learner.layer_inputs(state, probe, nn.Linear)
    name = next(iter(inputs), None)
    if name is None or inputs[name].ndim != 2 or not {f"{name}.weight", f"{name}.bias"} <= state.params.keys():
        raise UnsupportedModel("No trainable linear layer with a bias receives the features; use another attack.")
    return name


def is_classifier(learner: Learner, state: ModelState, space: InputSpace, layer: str) -> bool:
    try:
        return learner.classifier(state, space.probe(2, state)) == layer
    except UnsupportedModel:
        return False
