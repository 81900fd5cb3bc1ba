"""Undoing the mask: a network trained on the attacker's own images guesses the sign of every pixel."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, interpolate, pad

from leakgauge.attacks.budget import Budget
from leakgauge.attacks.encodings.algebra.whitening import View, centred, uncentred
from leakgauge.attacks.encodings.simulation import mixtures, train_network
from leakgauge.errors import InvalidCase, InvalidFile
from leakgauge.files import read_tensors, write_tensors
from leakgauge.progress import Progress, silent
from leakgauge.randomness import global_stream


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


_BLOCK = 256


@final
@dataclass(frozen=True)
class Demasker(View):
    """A view of encodings with their signs guessed: |x~| tanh(logit / 2), the mean of +-|x~| by the network's belief.

    ``soft=False`` takes the likelier sign, as published [Huang et al., 2020, section 5.3].
    """

    network: UNet = field(repr=False)
    soft: bool = True
    facts: dict[str, Any] = field(default_factory=dict)

    def encodings(self, images: Tensor) -> Tensor:
        return torch.cat([self._unmask(block) for block in images.split(_BLOCK)])

    def images(self, images: Tensor) -> Tensor:
        return images

    def logits(self, encodings: Tensor) -> Tensor:
        """The network's log-odds that a pixel lay above the centre before the mask."""
        with torch.no_grad():
            return self.network(centred(encodings).abs())

    def hard(self) -> Demasker:
        return replace(self, soft=False)

    def save(self, target: Path) -> None:
        facts = {"demasker": json.dumps(self.facts)}
        write_tensors(target, self.network.state_dict(), facts)

    def _unmask(self, encodings: Tensor) -> Tensor:
        logits = self.logits(encodings)
        signs = torch.tanh(logits / 2) if self.soft else torch.where(logits > 0, 1.0, -1.0)
        return uncentred(centred(encodings).abs() * signs.to(encodings))


@dataclass(frozen=True)
class DemaskerTraining:
    """Trains a `Demasker` on (|z|, sign z), z mixtures of k auxiliary images: binary cross-entropy weighted by |z|.

    The weight makes the loss count what a wrong sign does to the image; the learning rate falls with the budget.
    """

    widths: tuple[int, ...] = (48, 96, 144, 144)
    budget: Budget = field(default_factory=lambda: Budget(seconds=100.0))
    batch_size: int = 64
    learning_rate: float = 2e-3

    def __post_init__(self) -> None:
        if not self.widths or min(self.widths) < 1 or self.batch_size < 2 or not self.learning_rate > 0:
            raise InvalidCase(
                "DemaskerTraining needs at least one width, a batch size of 2 and a positive learning rate; got "
                f"{self.widths}, {self.batch_size} and {self.learning_rate}."
            )

    def __call__(self, auxiliary: Tensor, k: int, *, generator: Generator, progress: Progress = silent) -> Demasker:
        channels = auxiliary.shape[1]
        with global_stream(generator):
            network = UNet(channels, self.widths).to(auxiliary)

        def loss() -> Tensor:
            pixels = centred(mixtures(auxiliary, k, self.batch_size, generator=generator).images)
            magnitudes = pixels.abs()
            weight = magnitudes / magnitudes.mean()
            return binary_cross_entropy_with_logits(network(magnitudes), (pixels > 0).to(pixels), weight=weight)

        steps = train_network(network, loss, self.budget, self.learning_rate, progress)
        facts = {"channels": channels, "widths": list(self.widths), "k": k, "steps": steps}
        return Demasker(network, facts=facts)


def load_demasker(source: Path) -> Demasker:
    """A demasker that `Demasker.save` wrote."""
    tensors, metadata = read_tensors(source)
    try:
        facts = json.loads(metadata["demasker"])
        # Built without storage, so that a file which says other sizes than it holds takes no memory.
        with torch.device("meta"):
            network = UNet(facts["channels"], tuple(facts["widths"]))
        network.load_state_dict(tensors, assign=True)
    except (KeyError, TypeError, ValueError, IndexError, RuntimeError, RecursionError) as error:
        raise InvalidFile(f"{source} holds no demasker; write one with `Demasker.save`.") from error
    network.float().requires_grad_(False)
    network.eval()
    return Demasker(network, facts=facts)
