"""A linear layer in front of the model, whose rows sort the images of a batch by brightness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import relu

from leakgauge.attacks.analytic.linear_layer import not_applicable, restored_labels
from leakgauge.attacks.labels.idlg import IDLG
from leakgauge.attacks.malicious.base import MaliciousAttack, prefix_names
from leakgauge.errors import InvalidCase
from leakgauge.progress import Progress
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.space import ImageSpace, InputSpace
from leakgauge.types import ModelState, Outcome, Reconstruction


@dataclass(frozen=True)
class FrontLayer(MaliciousAttack):
    """A biased linear layer in front of the model reads images off its update [Geiping et al., 2020, A.1; Prop. 3.1].

    As in Fowl et al. [2022], all ``bins`` rows measure the brightness m(x), and row i fires above c_i, the i/bins
    quantile of m. The update of row i then sums over the images brighter than c_i, and for each bin that holds one
    image x = (dW_i - dW_i+1) / (db_i - db_i+1); a bin that holds several gives their mixture. A second layer adds the
    output of the first to the image, as a faint change of brightness, so that the model behind keeps working.

    ``mean`` and ``spread`` are the server's guess at the brightness of images, a normal distribution; the defaults
    cover CIFAR-10 (measured: 0.48, 0.12) and the embedded photographs (0.38, 0.19). Several local steps move the edges
    of the bins, so a batch then comes back only in part.
    """

    bins: int = 256
    mean: float = 0.45
    spread: float = 0.2
    server: ClassVar[str] = "puts a linear layer in front of the model"
    serves: ClassVar[type[InputSpace]] = ImageSpace

    def __post_init__(self) -> None:
        if self.bins < 1 or not abs(self.mean) < float("inf") or not 0 < self.spread < float("inf"):
            raise InvalidCase(f"FrontLayer needs bins >= 1, a finite mean and a finite spread > 0, got {self}.")

    def rebuild(self, learner: Learner, state: ModelState, space: InputSpace) -> tuple[nn.Module, ModelState]:
        pixels = int(torch.Size(space.shape).numel())
        edges = self._edges().to(state.device, state.dtype)
        honest = prefix_names("model", state)
        layers = {
            "front.weight": edges.new_full((self.bins, pixels), 1 / pixels),
            "front.bias": -edges,
            "back.weight": edges.new_full((pixels, self.bins), 1 / self.bins),
            # An image of the expected brightness passes unchanged.
            "back.bias": (-relu(self.mean - edges).mean()).repeat(pixels),
        }
        return Fronted(learner.module, pixels, self.bins), ModelState({**layers, **honest.params}, honest.buffers)

    def read(self, observation: UpdateObservation, *, generator: Generator, progress: Progress) -> Reconstruction:
        del progress
        num_examples = known(observation.num_examples, "num_examples", needed_by=self)
        weight, bias = observation.update.params["front.weight"], observation.update.params["front.bias"]
        # Each row minus the next one: what the images of one bin contribute. Nothing is brighter than the last bin.
        held = bias - torch.cat((bias[1:], bias.new_zeros(1)))
        occupied = held.abs() > 100 * torch.finfo(held.dtype).eps * bias.abs().max()
        chosen = held.abs().argsort(descending=True)[: min(num_examples, int(occupied.sum()))].sort().values
        if len(chosen) == 0:
            return not_applicable("the bias update of the layer in front is zero")
        above = torch.cat((weight[1:], weight.new_zeros(1, weight.shape[1])))
        images = ((weight[chosen] - above[chosen]) / held[chosen, None]).view(-1, *observation.space.shape).clamp(0, 1)
        facts: dict[str, str | int | float] = {"bins": self.bins, "bins that held images": int(occupied.sum())}
        return Reconstruction(
            images, restored_labels(observation, IDLG(), generator=generator), Outcome.SOLVED, facts=facts
        )

    def _edges(self) -> Tensor:
        """Lower edges of the bins, of equal probability; the first lies below every image."""
        shares = torch.arange(1, self.bins, dtype=torch.float64) / self.bins
        quantiles = self.mean + self.spread * torch.special.ndtri(shares)
        return torch.cat((quantiles.new_full((1,), min(-1.0, self.mean - 10 * self.spread)), quantiles))


class Fronted(nn.Module):
    """``model(x + back(relu(front(x))))``."""

    def __init__(self, model: nn.Module, pixels: int, bins: int) -> None:
        super().__init__()
        self.front = nn.Linear(pixels, bins, device="meta")
        self.back = nn.Linear(bins, pixels, device="meta")
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        return self.model(images + self.back(relu(self.front(images.flatten(1)))).view_as(images))
