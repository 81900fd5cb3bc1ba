"""Rows of the first linear layer that hardly any image activates, so that one often does alone."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn

from leakgauge.attacks.analytic.linear_layer import not_applicable, restored_labels
from leakgauge.attacks.labels.idlg import IDLG
from leakgauge.attacks.malicious.base import Facts, MaliciousAttack, replace_tensors
from leakgauge.attacks.malicious.guessed_images import guess_images
from leakgauge.attacks.malicious.pixel_decoder import PixelDecoder, pixel_decoder
from leakgauge.attacks.malicious.transparent_network import is_classifier, receiving_layer, transparent_state
from leakgauge.errors import InvalidCase, UnsupportedModel
from leakgauge.progress import Progress
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.randomness import seeded
from leakgauge.space import ImageSpace, InputSpace
from leakgauge.types import Batch, ModelState, Outcome, Reconstruction

SAME = 1e-3
"""Largest difference, root mean square, of one image read off two rows."""

_GUESSED = 500
"""Images that a server without public ones makes up."""


@dataclass(frozen=True)
class TrapWeights(MaliciousAttack):
    """Where one image alone activates a row of a layer before a ReLU, the row's update is that image [Prop. 3.1].

    Half of the entries of each row, chosen at random, are negative, and the rest does not make up for them but for few
    images [Boenisch et al., 2023]: here the bias of each row is set so that one in ``examples`` activates it, of public
    images or, without such, of images that the server makes up. In front of the layer, convolutions pass the image on
    as in `IdentityConvolutions`. Rows that give the same image confirm it; what is read off one row alone may be a
    mixture.
    """

    examples: int = 64
    seed: int = 0
    server: ClassVar[str] = "keeps the architecture but sets the first linear layer so that few images activate a row"
    serves: ClassVar[type[InputSpace]] = ImageSpace

    def __post_init__(self) -> None:
        if self.examples < 1:
            raise InvalidCase(f"TrapWeights(examples=...) must be at least 1, got {self.examples}; correct it.")

    def expected_recovery(self, num_examples: int, activations: Tensor) -> float:
        """How many of n images are alone in a row, if which rows they activate is as of these (images x rows).

        An image is alone in a row that it activates with probability (1 - p)^(n-1), p the share of all that do.

        >>> TrapWeights().expected_recovery(2, torch.eye(4) > 0)
        1.5
        """
        active = activations.double()
        alone = active * (1 - active.mean(dim=0)) ** (num_examples - 1)
        return num_examples * float((1 - (1 - alone).prod(dim=1)).mean())

    def rebuild(
        self, learner: Learner, state: ModelState, space: InputSpace, public: Tensor | None
    ) -> tuple[nn.Module, ModelState]:
        if any(isinstance(layer, nn.Conv2d) for layer in learner.module.modules()):
            state = transparent_state(learner, state, space)
        layer = receiving_layer(learner, state, space)
        if is_classifier(learner, state, space, layer):
            raise UnsupportedModel(
                f"The features go straight to the classifier {layer!r}, where every image activates every row; use "
                "another attack."
            )
        decoder = pixel_decoder(learner, state, space.shape, layer)
        weight = torch.zeros_like(state.params[f"{layer}.weight"])
        entries = decoder.features.flatten()
        signs = torch.randn(len(weight), len(entries), generator=seeded(self.seed, "traps"), dtype=torch.float64)
        # A unit of the feature is what white is above black.
        slopes = decoder.curves[..., -1].flatten() - decoder.curves[..., 0].flatten()
        weight[:, entries] = (signs / sqrt(len(entries))).to(weight) / slopes
        unbiased = replace_tensors(state, {f"{layer}.weight": weight, f"{layer}.bias": weight.new_zeros(len(weight))})
        sums = _sums(learner, unbiased, layer, self._references(space, public, state))
        bias = -sums.double().quantile(1 - 1 / self.examples, dim=0).to(weight)
        state = replace_tensors(unbiased, {f"{layer}.bias": bias})
        _check_dead_rows(learner, state, space, layer)
        return learner.module, state

    def read(self, observation: UpdateObservation, *, generator: Generator, progress: Progress) -> Reconstruction:
        del progress
        num_examples = known(observation.num_examples, "num_examples", needed_by=self)
        layer = receiving_layer(observation.learner, observation.state, observation.space)
        weight, bias = (observation.update.params[f"{layer}.{name}"].double() for name in ("weight", "bias"))
        noise = 100 * torch.finfo(observation.state.dtype).eps * float(bias.abs().max())
        active = bias.abs() > noise
        if not bool(active.any()):
            return not_applicable(f"no image activated a row of {layer!r}")
        decoder = pixel_decoder(observation.learner, observation.state, observation.space.shape, layer)
        found = (weight[active] / bias[active, None]).to(observation.state.dtype)
        chosen, confirmed = _chosen(found[:, decoder.features.flatten()], decoder, bias[active].abs(), num_examples)
        held = None if observation.auxiliary is None else observation.auxiliary.inputs
        references = self._references(observation.space, held, observation.state)
        sums = _sums(observation.learner, observation.state, layer, references)
        facts: Facts = {
            "layer": layer,
            "rows": len(bias),
            "rows that images activated": int(active.sum()),
            "given by two rows": min(confirmed, num_examples),
            "expected exact": round(self.expected_recovery(num_examples, sums > 0), 1),
        }
        return Reconstruction(
            decoder.images(found[chosen]).clamp(0, 1),
            restored_labels(observation, IDLG(), generator=generator),
            Outcome.SOLVED,
            facts=facts,
        )

    def _references(self, space: InputSpace, public: Tensor | None, state: ModelState) -> Tensor:
        """The images by which the server tells how many activate a row."""
        images = guess_images(space.shape, _GUESSED, seeded(self.seed, "guessed")) if public is None else public
        return images.to(state.device, state.dtype)


def _sums(learner: Learner, state: ModelState, layer: str, images: Tensor) -> Tensor:
    """What each row of the layer makes of each image, images x rows."""
    weight, bias = state.params[f"{layer}.weight"], state.params[f"{layer}.bias"]
    learner = learner.in_mode("eval")
    with torch.no_grad():
        parts = [learner.layer_inputs(state, part, nn.Linear)[layer] for part in images.split(50)]
    return torch.cat(parts) @ weight.mT + bias


def _chosen(pixels: Tensor, decoder: PixelDecoder, sizes: Tensor, num_examples: int) -> tuple[Tensor, int]:
    """Which rows to show, one of each image: those that others confirm first, then those nearest to an image.

    Beside them how many were confirmed.
    """
    low, high = decoder.curves[..., 0].flatten(), decoder.curves[..., -1].flatten()
    levels = (pixels - low) / (high - low)
    outside = (levels - levels.clamp(0, 1)).square().mean(dim=1).sqrt()
    alike = torch.cdist(levels, levels) < SAME * sqrt(levels.shape[1])
    kin = alike.sum(dim=1)
    # The largest update of an image was rounded least.
    order = sorted(range(len(kin)), key=lambda row: (kin[row] < 2, round(float(outside[row]), 2), -float(sizes[row])))
    chosen: list[int] = []
    shown = torch.zeros(len(kin), dtype=torch.bool, device=kin.device)
    confirmed = 0
    for row in order:
        if not bool(shown[row]):
            chosen.append(row)
            confirmed += int(kin[row] > 1)
            shown |= alike[row]
    return torch.tensor(chosen[:num_examples], device=kin.device), confirmed


def _check_dead_rows(learner: Learner, state: ModelState, space: InputSpace, layer: str) -> None:
    """Where no image activates a row, its update must be nothing."""
    bias = f"{layer}.bias"
    grey = Batch(space.probe(2, state), torch.zeros(2, dtype=torch.long, device=state.device))
    lowered = state.params[bias] - _sums(learner, state, layer, grey.inputs)[0] - 1.0
    below = replace_tensors(state, {bias: lowered})
    if bool(learner.in_mode("eval").gradient(below, grey)[bias].any()):
        raise UnsupportedModel(
            f"What follows the layer {layer!r} passes on what is negative, so that no row is ever at rest; use another "
            "attack."
        )
