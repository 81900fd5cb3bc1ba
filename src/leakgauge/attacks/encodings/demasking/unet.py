"""The network that guesses the sign of every pixel from magnitudes alone."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, pad


class UNet(nn.Module):
    """Logits of signs from magnitudes, n c h w both: a U-Net [Ronneberger et al., 2015] that starts at half size.

    Level i has widths[i] channels at 1 / 2^(i+1) of the resolution; images whose sides are no multiple of 2^levels are
    continued beyond their border.
    """

    def __init__(self, channels: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.multiple = 2 ** len(widths)
        incoming = [4 * channels, *widths[:-1]]
        self.down = nn.ModuleList(_double(*pair) for pair in zip(incoming, widths))
        joined = zip(widths[1:][::-1], widths[:-1][::-1])
        self.up = nn.ModuleList(_double(below + beside, beside) for below, beside in joined)
        self.head = nn.Conv2d(widths[0], 4 * channels, 1)

    def forward(self, magnitudes: Tensor) -> Tensor:
        height, width = magnitudes.shape[2:]
        wide = pad(magnitudes, (0, -width % self.multiple, 0, -height % self.multiple), mode="replicate")
        shown = nn.functional.pixel_unshuffle(wide, 2)
        levels: list[Tensor] = []
        for index, block in enumerate(self.down):
            shown = block(nn.functional.max_pool2d(shown, 2) if index else shown)
            levels.append(shown)
        shown = levels.pop()
        for block in self.up:
            shown = block(torch.cat([interpolate(shown, scale_factor=2.0), levels.pop()], dim=1))
        return nn.functional.pixel_shuffle(self.head(shown), 2)[:, :, :height, :width]


def _double(incoming: int, outgoing: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for source in (incoming, outgoing):
        layers += [nn.Conv2d(source, outgoing, 3, padding=1, bias=False), nn.BatchNorm2d(outgoing), nn.ReLU()]
    return nn.Sequential(*layers)
