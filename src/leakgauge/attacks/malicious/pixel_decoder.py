"""Which pixel each feature of a transparent network shows, and how bright: found by showing it pictures."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from leakgauge.errors import UnsupportedModel
from leakgauge.protocol.learner import Learner
from leakgauge.types import ModelState, Shape

_LEVELS = 65


class PixelDecoder(NamedTuple):
    """Features that each follow one place of the image: ``curves`` are their values at evenly spaced grey levels."""

    features: Tensor
    """Indices of one feature per channel, row and column: c h w, with h and w the resolution that arrives."""
    curves: Tensor
    """c h w levels, increasing."""
    rows: Tensor
    columns: Tensor
    shape: Shape

    def images(self, features: Tensor) -> Tensor:
        """The images behind the features n f, interpolated between the places that arrive."""
        small = _levels(self.curves, features[:, self.features])
        _, height, width = self.shape
        return _interpolation(self.rows, height) @ small @ _interpolation(self.columns, width).mT


def pixel_decoder(learner: Learner, state: ModelState, shape: Shape, layer: str) -> PixelDecoder:
    """The decoder of what flows into ``layer``; refuses where too little of the image does.

    Grey images give each feature's curve; ramps, inverted by it, tell its place, and single colours its channel.
    """
    channels, height, width = shape

    def shown(image: Tensor) -> Tensor:
        # One at a time: grey levels of a large image would not fit into memory together.
        with torch.no_grad():
            inputs = learner.layer_inputs(state, image.expand(1, *shape), nn.Linear)
        return inputs[layer][0]

    def greys(levels: int) -> Tensor:
        return torch.stack([shown(level.view(1, 1, 1)) for level in _ramp(levels, state)], dim=1)

    curves = greys(3)
    bend = curves[:, 1] - curves[:, [0, 2]].mean(dim=1)
    if bool(bend.abs().max() > 1e-6 * curves.abs().max()):
        curves = greys(_LEVELS)  # three levels are enough where activations only pass on what is positive
    (moving,) = (curves.diff(dim=1) > 0).all(dim=1).nonzero(as_tuple=True)
    curves = curves[moving]
    if len(moving) == 0:
        raise UnsupportedModel(f"Nothing of the image arrives at the layer {layer!r}; use another attack.")

    def seen(image: Tensor) -> Tensor:
        return _levels(curves, shown(image)[moving])

    def places(ramp: Tensor) -> Tensor:
        # Max-pooling shows the brightest pixel of its window: a ramp and its negative give both ends.
        return (seen(ramp) + 1 - seen(1 - ramp)).mul(ramp.numel() - 1).round().div(2)

    columns, column = places(_ramp(width, state).view(1, 1, width)).unique(return_inverse=True)
    rows, row = places(_ramp(height, state).view(1, height, 1)).unique(return_inverse=True)
    primaries = torch.eye(channels, dtype=state.dtype, device=state.device).view(channels, channels, 1, 1)
    colours = torch.stack([seen(colour) for colour in primaries])
    if len(rows) * len(columns) < 4:
        raise UnsupportedModel(
            f"Of the image no more than {len(rows)} x {len(columns)} points arrive at the layer {layer!r}; "
            "use another attack."
        )
    if bool((colours - colours.round()).abs().max() > 0.01):
        raise UnsupportedModel(f"The colours are mixed before the layer {layer!r}; use another attack.")
    features = torch.full((channels, len(rows), len(columns)), -1, device=moving.device)
    features[colours.argmax(dim=0), row, column] = torch.arange(len(moving), device=moving.device)
    if bool((features < 0).any()):
        raise UnsupportedModel(f"Parts of the image do not arrive at the layer {layer!r}; use another attack.")
    return PixelDecoder(moving[features], curves[features], rows, columns, shape)


def _ramp(steps: int, state: ModelState) -> Tensor:
    return torch.linspace(0, 1, steps, dtype=state.dtype, device=state.device)


def _levels(curves: Tensor, values: Tensor) -> Tensor:
    """The grey level at which each increasing curve (... levels) takes each value (n ... or ...).

    >>> _levels(torch.tensor([[0.0, 1.0, 4.0]]), torch.tensor([[0.5], [2.5], [9.0]]))
    tensor([[0.2500],
            [0.7500],
            [1.0000]])
    """
    flat = curves.flatten(0, -2).contiguous()
    asked = values.reshape(-1, len(flat)).mT.contiguous()
    asked = torch.minimum(torch.maximum(asked, flat[:, :1]), flat[:, -1:])
    last = flat.shape[1] - 1
    upper = torch.searchsorted(flat, asked).clamp(1, last)
    low, high = flat.gather(1, upper - 1), flat.gather(1, upper)
    return ((upper - 1 + (asked - low) / (high - low)) / last).mT.reshape(values.shape)


def _interpolation(known: Tensor, size: int) -> Tensor:
    """The matrix that interpolates values at increasing places ``known`` linearly to 0, 1, ..., size - 1.

    >>> _interpolation(torch.tensor([0.0, 2.0]), 4)
    tensor([[1.0000, 0.0000],
            [0.5000, 0.5000],
            [0.0000, 1.0000],
            [0.0000, 1.0000]])
    """
    places = torch.arange(size, dtype=known.dtype, device=known.device).clamp(known[0], known[-1])
    matrix = torch.zeros(size, len(known), dtype=known.dtype, device=known.device)
    upper = torch.searchsorted(known, places)
    lower = (upper - 1).clamp(min=0)
    share = ((places - known[lower]) / (known[upper] - known[lower])).nan_to_num(1.0)
    matrix.scatter_(1, lower[:, None], 1 - share[:, None])
    return matrix.scatter_(1, upper[:, None], share[:, None])
