"""Batches and aggregates unmixed by the statistics of images: the inputs of a linear layer as independent sources."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from leakgauge.attacks.analytic.linear_layer import (
    NO_GRADIENTS,
    FacingLayer,
    facing_layers,
    not_applicable,
    restored_labels,
    without_decay,
)
from leakgauge.attacks.base import Attack, LabelAttack, finite_update
from leakgauge.attacks.labels.idlg import IDLG
from leakgauge.errors import InvalidCase
from leakgauge.progress import Progress, Tick, silent
from leakgauge.protocol.clients import sums_gradients
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.types import Outcome, Reconstruction

_SETTLED = 1e-8
_SMOOTHINGS = (1e-1, 3e-2, 1e-2)
_SHARPENING = 15
"""Steps at each smoothing of the absolute value."""
# A component that moves further than this, or comes this near to another, has lost its way.
_NEAR, _APART = 0.7, 0.5


@dataclass(frozen=True)
class IndependentComponents(Attack):
    """The images of a large batch, nearly, from the update of the layer that sees them [Kariyappa et al., 2023].

    The rows of dW = D^T X are mixtures of the b images X. Those that are as independent and as far from normal as
    sources are, are the images: blind source separation, by the fixed points of `_separate` and then by making each
    as sparse as it gets. What is separated are second differences: they mix as the images do, but are sparse, and
    hardly correlated from one image to another, as pixels are; ``differences=False`` separates pixels, as published.
    Sign and scale follow from the bias, whose update is D^T 1. An aggregate of many clients is one large batch.
    """

    steps: int = 300
    differences: bool = True
    labels: LabelAttack | None = IDLG()

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InvalidCase(f"IndependentComponents(steps=...) must be at least 1, got {self.steps}; raise it.")

    def __call__(
        self, observation: UpdateObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction:
        observation = without_decay(observation)
        update = finite_update(observation)
        num_examples = known(observation.num_examples, "num_examples", needed_by=self)
        if not sums_gradients(observation.local_update):
            return not_applicable(NO_GRADIENTS)
        if len(observation.space.shape) != 3 or min(observation.space.shape[1:]) < 3:
            return not_applicable("the statistics are those of images of 3 x 3 pixels and more")
        layer = next((layer for layer in facing_layers(observation) if layer.biased), None)
        if layer is None:
            return not_applicable("no biased linear layer receives the image itself")
        weight, bias = (update[f"{layer.name}.{name}"].double() for name in ("weight", "bias"))
        left, sizes, rows = torch.linalg.svd(weight, full_matrices=False)
        noise = 10 * torch.finfo(observation.state.dtype).eps * float(sizes[0])
        rank = int((sizes > noise).sum())
        if rank < num_examples:
            return not_applicable(
                f"the update of {layer.name!r} spans {rank} directions, too few to hold {num_examples} images apart"
            )
        rows = rows[:num_examples]
        unmixing, trace, settled = self._separate(self._sources(rows, layer, observation), generator, progress)
        # dW = (left sizes) rows = mixing sources, and the bias has the mixing's sum once sources have their scale.
        mixing = (left[:, :num_examples] * sizes[:num_examples]) @ torch.linalg.inv(unmixing)
        scales = torch.linalg.lstsq(mixing, bias[:, None]).solution
        found = (unmixing @ rows) / scales
        images = [layer.model_input(one.to(observation.state.dtype), observation) for one in found]
        return Reconstruction(
            torch.cat(images).nan_to_num(0.5),
            restored_labels(observation, self.labels, generator=generator),
            Outcome.CONVERGED if settled else Outcome.STEPS_EXHAUSTED,
            loss_trace=torch.tensor(trace),
            facts={"layer": layer.name, "steps": len(trace)},
        )

    def _sources(self, rows: Tensor, layer: FacingLayer, observation: UpdateObservation) -> Tensor:
        """What is to be separated of each row."""
        pixels = (rows / layer.slope.double()).view(-1, *observation.space.shape)
        if not self.differences:
            return pixels.flatten(1) - pixels.flatten(1).mean(dim=1, keepdim=True)
        across, down = pixels.diff(n=2, dim=3), pixels.diff(n=2, dim=2)
        return torch.cat([part.flatten(1) for part in (across, down, 2 * pixels.diff(dim=2).diff(dim=3))], dim=1)

    def _separate(self, sources: Tensor, generator: Generator, progress: Progress) -> tuple[Tensor, list[float], bool]:
        """The matrix that unmixes, how far each step went, and whether they came to an end.

        Whitened, the unmixing is a rotation; FastICA's fixed point with the contrast exp(-s^2/2) [Hyvarinen, 1999].
        """
        values, vectors = torch.linalg.eigh(sources @ sources.mT / sources.shape[1])
        whitening = (vectors * values.clamp(min=1e-12 * float(values[-1])).rsqrt()) @ vectors.mT
        white = whitening @ sources
        start = torch.randn(len(white), len(white), generator=generator, dtype=torch.float64).to(white)
        rotation = _nearest_rotation(start)
        trace: list[float] = []
        while len(trace) < self.steps and not (trace and trace[-1] < _SETTLED):
            components = rotation @ white
            bell = (-components.square() / 2).exp()
            curvature = ((1 - components.square()) * bell).mean(dim=1, keepdim=True)
            moved = (components * bell) @ white.mT / white.shape[1] - curvature * rotation
            turned = _nearest_rotation(moved)
            trace.append(float(1 - (turned * rotation).sum(dim=1).abs().min()))
            rotation = turned
            progress(Tick(len(trace), len(trace) / self.steps, trace[-1]))
        return _sharpen(rotation, white) @ whitening, trace, trace[-1] < _SETTLED


def _nearest_rotation(matrix: Tensor) -> Tensor:
    left, _, right = torch.linalg.svd(matrix)
    return left @ right


def _sharpen(rotation: Tensor, white: Tensor) -> Tensor:
    """Each component as sparse as it gets nearby; two images are never quite uncorrelated, as rotations have them."""
    rows = rotation
    for smoothing in _SMOOTHINGS:
        for _ in range(_SHARPENING):
            components = rows @ white
            sizes = (components.square() + smoothing).sqrt()
            moved = (components / sizes) @ white.mT / white.shape[1]
            moved = moved - (smoothing / sizes.pow(3)).mean(dim=1, keepdim=True) * rows
            moved = moved / moved.norm(dim=1, keepdim=True)
            rows = moved * (moved * rows).sum(dim=1, keepdim=True).sign()
    others = (rows @ rows.mT).abs().fill_diagonal_(0).amax(dim=1)
    lost = ((rows * rotation).sum(dim=1) < _NEAR) | (others > _APART)
    return torch.where(lost[:, None], rotation, rows)
