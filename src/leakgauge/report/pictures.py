"""From tensors to what a browser draws by itself: PNG data URIs for images, SVG points for loss traces."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from PIL import Image
from torch import Tensor

# Twice the displayed size would not be seen, but would be paid for in every line of the page.
_LARGEST_SIDE = 128
_MOST_POINTS = 160


def data_uri(image: Tensor) -> str | None:
    """The pixels c h w in [0, 1] as a PNG in its native resolution (at most 128 a side); ``None`` if any is not finite.

    >>> data_uri(torch.zeros(1, 2, 2)).startswith("data:image/png;base64,")
    True
    >>> data_uri(torch.full((1, 2, 2), torch.nan)) is None
    True
    """
    if not bool(torch.isfinite(image).all()):
        return None
    channels = image if image.shape[0] in (1, 3) else image.mean(dim=0, keepdim=True)
    values = (channels.detach().cpu().double().clamp(0, 1) * 255).round().to(torch.uint8)
    picture = Image.fromarray(values[0].numpy() if len(values) == 1 else values.permute(1, 2, 0).contiguous().numpy())
    picture.thumbnail((_LARGEST_SIDE, _LARGEST_SIDE), Image.Resampling.BOX)
    stream = io.BytesIO()
    picture.save(stream, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode("ascii")


class Tick(NamedTuple):
    """A labelled line across a chart."""

    y: float
    label: str


@dataclass(frozen=True)
class Axes:
    """Steps to the right, the loss upwards on a logarithmic scale, in a box of ``width`` by ``height``."""

    steps: int
    lowest: int
    highest: int
    width: int = 200
    height: int = 90

    @classmethod
    def around(cls, traces: Sequence[Tensor]) -> Axes:
        """The whole powers of ten that hold every positive loss of every trace, so that charts can be compared."""
        losses = [loss for trace in traces for loss in trace.tolist() if _drawable(loss)] or [1.0]
        lowest = math.floor(math.log10(min(losses)))
        return cls(max(map(len, traces), default=0), lowest, max(math.ceil(math.log10(max(losses))), lowest + 1))

    def points(self, trace: Tensor) -> str:
        """The trace as the ``points`` of an SVG polyline, thinned to what can be seen; undrawable losses are left out.

        >>> Axes(steps=3, lowest=-2, highest=0).points(torch.tensor([1.0, torch.nan, 0.01]))
        '0.0,0.0 200.0,90.0'
        """
        stride = max(1, -(-len(trace) // _MOST_POINTS))
        kept = sorted({*range(0, len(trace), stride), len(trace) - 1} - {-1})
        losses = trace.tolist()
        return " ".join(f"{self._x(i):.1f},{self._y(losses[i]):.1f}" for i in kept if _drawable(losses[i]))

    @property
    def ticks(self) -> list[Tick]:
        """The powers of ten, or as many of them as fit."""
        stride = max(1, -(-(self.highest - self.lowest) // 4))
        return [Tick(self._y(10.0**power), f"{10.0**power:g}") for power in range(self.lowest, self.highest + 1, stride)]

    def _x(self, step: int) -> float:
        return self.width * step / max(self.steps - 1, 1)

    def _y(self, loss: float) -> float:
        return self.height * (self.highest - math.log10(loss)) / (self.highest - self.lowest)


def _drawable(loss: float) -> bool:
    return math.isfinite(loss) and loss > 0
