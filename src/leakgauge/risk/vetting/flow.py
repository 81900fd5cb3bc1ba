"""What reaches which layer: the image where it has no business."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from leakgauge.risk.vetting.base import Suspicion, Vetted
from leakgauge.space import ImageSpace

_SHOWN = 0.999
"""A correlation with one pixel from which on a feature shows it."""
_ENTRIES = 9
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def linear_in_front(model: Vetted) -> Iterator[Suspicion]:
    """A linear layer that reads the whole image before any convolution does [Geiping et al., 2020, A.1]."""
    if not isinstance(model.space, ImageSpace):
        return
    pixels = math.prod(model.space.shape)
    waiting: list[str] = []
    for name, seen in model.layer_inputs.items():
        layer = model.layer(name)
        if isinstance(layer, _CONVOLUTIONS):
            for front in waiting:
                yield Suspicion(
                    "linear layer in front of convolutions",
                    front,
                    f"The linear layer {front} reads all {pixels} pixels before the convolution {name} sees them; its "
                    "update is a list of the images.",
                )
            return
        if isinstance(layer, nn.Linear) and seen.ndim == 2 and seen.shape[1] == pixels:
            waiting.append(name)


def image_behind_layers(model: Vetted) -> Iterator[Suspicion]:
    """A linear layer behind others that is still shown the pixels themselves, passed on or handed around."""
    if model.probes is None or not isinstance(model.space, ImageSpace):
        return
    pixels = model.probes.flatten(1).double()
    first = next((name for name in model.layer_inputs if _weighs(model.layer(name))), None)
    for name, seen in model.layer_inputs.items():
        if name == first or seen.ndim != 2 or not isinstance(model.layer(name), nn.Linear):
            continue
        if (
            first is not None
            and isinstance(model.layer(first), nn.Linear)
            and torch.equal(seen, model.layer_inputs[first])
        ):
            continue  # beside the first layer, as an adapter is, and not behind it
        shown = shown_pixels(seen.double(), pixels)
        if shown >= max(16, min(seen.shape[1], pixels.shape[1]) // 8):
            yield Suspicion(
                "the image behind layers",
                name,
                f"{shown} of the {pixels.shape[1]} pixels reach the linear layer {name} one by one, as if the layers "
                "before it were not there; its update is the image.",
            )
            return


def _weighs(layer: nn.Module) -> bool:
    return isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d)


def shown_pixels(features: Tensor, pixels: Tensor) -> int:
    """How many different pixels have a feature that is an affine function of it alone.

    >>> pixels = torch.rand(20, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> shown_pixels(torch.cat((2 * pixels[:, :4] - 1, pixels.sum(1, keepdim=True)), dim=1), pixels)
    4
    """
    ours, theirs = (_standardised(one) for one in (features, pixels))
    best = torch.zeros(pixels.shape[1], dtype=torch.float64)
    for part in ours.mT.split(1024):
        best = torch.maximum(best, (part @ theirs).abs().amax(dim=0))
    return int((best > _SHOWN).sum())


def _standardised(values: Tensor) -> Tensor:
    centred = values - values.mean(dim=0)
    return centred / centred.norm(dim=0).clamp(min=1e-9)


def identity_convolutions(model: Vetted) -> Iterator[Suspicion]:
    """Kernels that copy one value: the network passes the image on [Geiping et al., 2020, A.2]."""
    found = []
    for layer in model.affine():
        if not layer.convolution or layer.rows.shape[1] < _ENTRIES:
            continue
        sizes = layer.rows.abs()
        live = sizes.amax(dim=1) > 0
        single = (sizes > 1e-6 * sizes.amax(dim=1, keepdim=True).clamp(min=1e-30)).sum(dim=1) == 1
        if bool(live.any()) and bool(single[live].all()):
            found.append((layer.name, int(live.sum()), len(live)))
    if found:
        name, kernels, rows = found[0]
        more = f", and so in {len(found) - 1} more" if len(found) > 1 else ""
        yield Suspicion(
            "identity convolutions",
            name,
            f"Each of the {kernels} live kernels of {rows} in {name}{more} has a single entry: it computes nothing and "
            "passes the image on.",
        )
