"""A linear layer in front of the model, whose rows sort the images of a batch by brightness."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import relu

from leakgauge.attacks.analytic.linear_layer import not_applicable, restored_labels
from leakgauge.attacks.labels.idlg import IDLG
from leakgauge.attacks.malicious.base import Facts, MaliciousAttack, prefix_names
from leakgauge.attacks.malicious.bins import (
    BinContents,
    expected_alone,
    measures_of,
    normal_edges,
    read_cells,
    sample_edges,
)
from leakgauge.errors import InvalidCase
from leakgauge.progress import Progress
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.space import ImageSpace, InputSpace
from leakgauge.types import ModelState, Outcome, ParamTree, Reconstruction


class Imprint(MaliciousAttack):
    """Bins in front of the model [Fowl et al., 2022]; subclasses say when a row fires and what a bin then holds.

    Row i of a measure m fires for images above its edge c_i, the i/k quantile of m. A second layer adds the output of
    the first to the image, as a faint change of brightness, so that the model behind keeps working. ``bins`` are
    shared out equally among ``measures``: the brightness, then cosine waves.

    The edges follow public images where the server holds some, else its guess at the brightness of images, normal with
    ``mean`` and ``spread``; waves are given half the spread around zero. The defaults cover CIFAR-10 (measured: 0.48,
    0.12) and the embedded photographs (0.38, 0.19).
    """

    bins: int
    measures: int
    mean: float
    spread: float
    serves: ClassVar[type[InputSpace]] = ImageSpace

    def __post_init__(self) -> None:
        sensible = 1 <= self.measures <= self.bins and abs(self.mean) < float("inf") and 0 < self.spread < float("inf")
        if not sensible:
            raise InvalidCase(
                f"{type(self).__name__} needs bins >= measures >= 1, a finite mean and a finite spread > 0, got {self}."
            )

    def expected_recovery(self, num_examples: int) -> float:
        return expected_alone(num_examples, self.bins // self.measures, self.measures)

    def edges(self, measures: Tensor, public: Tensor | None) -> Tensor:
        """Lower edges of the bins of each measure, in float64."""
        count = self.bins // self.measures
        if public is not None:
            return torch.stack([sample_edges(count, values) for values in measures @ public.double().flatten(1).mT])
        waves = [normal_edges(count, 0.0, self.spread / 2)] * (self.measures - 1)
        return torch.stack([normal_edges(count, self.mean, self.spread), *waves])

    def read(self, observation: UpdateObservation, *, generator: Generator, progress: Progress) -> Reconstruction:
        del progress
        num_examples = known(observation.num_examples, "num_examples", needed_by=self)
        found = read_cells(self.cells(observation), num_examples)
        if len(found.images) == 0:
            return not_applicable("the bias update of the layer in front is zero")
        images = found.images.view(-1, *observation.space.shape).clamp(0, 1).to(observation.state.dtype)
        facts: Facts = {
            "bins": self.bins,
            "bins that held images": found.occupied,
            "expected exact": round(self.expected_recovery(num_examples), 1),
        }
        if self.measures > 1:
            facts["isolated by two measures"] = found.confirmed
        return Reconstruction(
            images, restored_labels(observation, IDLG(), generator=generator), Outcome.SOLVED, facts=facts
        )

    @abstractmethod
    def cells(self, observation: UpdateObservation) -> BinContents:
        """What each bin holds."""

    def grouped(self, tensor: Tensor) -> Tensor:
        """Rows of the layer in front by their measure."""
        return tensor.unflatten(0, (self.measures, -1)).double()


@dataclass(frozen=True)
class FrontLayer(Imprint):
    """A biased linear layer in front of the model reads images off its update [Geiping et al., 2020, A.1; Prop. 3.1].

    As in Fowl et al. [2022], the update of row i sums over the images above c_i, and for each bin that holds one image
    x = (dW_i - dW_i+1) / (db_i - db_i+1); a bin that holds several gives their mixture. Several local steps move the
    edges of the bins, so a batch then comes back only in part; `SparseFrontLayer` is for them. With several
    ``measures`` more comes back from as many rows (see `read_cells`).
    """

    bins: int = 256
    measures: int = 1
    mean: float = 0.45
    spread: float = 0.2
    server: ClassVar[str] = "puts a linear layer in front of the model"

    def rebuild(
        self, learner: Learner, state: ModelState, space: InputSpace, public: Tensor | None
    ) -> tuple[nn.Module, ModelState]:
        measures = measures_of(space.shape, self.measures)
        edges = self.edges(measures, public)
        # An image of the expected brightness, and without waves, passes unchanged.
        usual = edges.new_zeros(self.measures)
        usual[0] = self.mean
        return fronted(
            learner,
            state,
            weight=measures.repeat_interleave(edges.shape[1], dim=0),
            bias=-edges.flatten(),
            back=torch.full_like(edges.flatten(), 1 / edges.numel()),
            shift=-float(relu(usual[:, None] - edges).mean()),
            sparse=False,
        )

    def cells(self, observation: UpdateObservation) -> BinContents:
        sent, update = observation.state.params, observation.update.params
        weight, bias = (self.grouped(update[f"front.{name}"]) for name in ("weight", "bias"))
        # Each row minus the next one: what the images of one bin contribute. Nothing is brighter than the last bin.
        weights = bias - torch.cat((bias[:, 1:], bias.new_zeros(len(bias), 1)), dim=1)
        contents = weight - torch.cat((weight[:, 1:], torch.zeros_like(weight[:, :1])), dim=1)
        noise = 100 * torch.finfo(observation.state.dtype).eps * float(bias.abs().max())
        measures, edges = self.grouped(sent["front.weight"])[:, 0], -self.grouped(sent["front.bias"])
        return BinContents(measures, edges, contents, weights, noise)


def fronted(
    learner: Learner,
    state: ModelState,
    *,
    weight: Tensor,
    bias: Tensor,
    back: Tensor,
    shift: float,
    sparse: bool,
) -> tuple[nn.Module, ModelState]:
    """The model behind two layers, the second with a weight for each row and one bias."""
    honest = prefix_names("model", state)
    rows, pixels = weight.shape
    layers: ParamTree = {
        "front.weight": weight,
        "front.bias": bias,
        "back.weight": back.expand(pixels, rows),
        "back.bias": weight.new_full((pixels,), shift),
    }
    held = {name: tensor.to(state.device, state.dtype).contiguous() for name, tensor in layers.items()}
    return Fronted(learner.module, pixels, rows, sparse), ModelState({**held, **honest.params}, honest.buffers)


class Fronted(nn.Module):
    """``model(x + back(relu(front(x))))``; sparse, a row saturates where the next one begins."""

    def __init__(self, model: nn.Module, pixels: int, bins: int, sparse: bool) -> None:
        super().__init__()
        self.front = nn.Linear(pixels, bins, device="meta")
        self.back = nn.Linear(bins, pixels, device="meta")
        self.model = model
        self.sparse = sparse

    def forward(self, images: Tensor) -> Tensor:
        rows = self.front(images.flatten(1))
        fired = rows.clamp(0, 1) if self.sparse else relu(rows)
        return self.model(images + self.back(fired).view_as(images))
