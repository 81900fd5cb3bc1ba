"""Convolutions that pass the image on: the architecture is honest, the parameters are not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn

from leakgauge.attacks.analytic.linear_layer import not_applicable, restored_labels
from leakgauge.attacks.labels.idlg import IDLG
from leakgauge.attacks.malicious.base import MaliciousAttack, head_inputs, head_labels, replace_tensors
from leakgauge.attacks.malicious.pixel_decoder import pixel_decoder
from leakgauge.attacks.malicious.transparent_network import is_classifier, receiving_layer, transparent_state
from leakgauge.progress import Progress
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.space import ImageSpace, InputSpace
from leakgauge.types import ModelState, Outcome, Reconstruction


@dataclass(frozen=True)
class IdentityConvolutions(MaliciousAttack):
    """Every convolution is set to the identity, and Prop. 3.1 reads the image at the classifier [ibid., A.2].

    Each kernel is a delta that carries one colour; its weight and bias (or those of the BatchNorm behind it) move the
    pixels to [0.5, 1.5], where activations can be inverted. Where a convolution has a stride, spare channels carry the
    pixels it would skip; what does not fit, or is merged by pooling, arrives at lower resolution and is interpolated.
    The classifier is blank, so that images come apart by their labels (see ``head_inputs``); where another linear layer
    receives the features, the attack takes one image.
    """

    server: ClassVar[str] = "keeps the architecture but sets the convolutions to the identity"
    serves: ClassVar[type[InputSpace]] = ImageSpace

    def rebuild(
        self, learner: Learner, state: ModelState, space: InputSpace, public: Tensor | None
    ) -> tuple[nn.Module, ModelState]:
        del public
        state = transparent_state(learner, state, space)
        layer = receiving_layer(learner, state, space)
        if is_classifier(learner, state, space, layer):
            blank = {name: torch.zeros_like(state.params[name]) for name in (f"{layer}.weight", f"{layer}.bias")}
            state = replace_tensors(state, blank)
        return learner.module, state

    def read(self, observation: UpdateObservation, *, generator: Generator, progress: Progress) -> Reconstruction:
        del progress
        num_examples = known(observation.num_examples, "num_examples", needed_by=self)
        learner, state, shape = observation.learner, observation.state, observation.space.shape
        layer = receiving_layer(learner, state, observation.space)
        blank = is_classifier(learner, state, observation.space, layer)
        if num_examples > 1 and not blank:
            return not_applicable(f"the update of {layer!r} mixes several images")
        weight, bias = observation.update.params[f"{layer}.weight"], observation.update.params[f"{layer}.bias"]
        restore = blank and observation.labels is None
        labels = (
            head_labels(bias, num_examples) if restore else restored_labels(observation, IDLG(), generator=generator)
        )
        found = head_inputs(weight, bias, labels if labels is not None else bias.new_zeros(0), num_examples)
        if isinstance(found, str):
            return not_applicable(found)
        decoder = pixel_decoder(learner, state, shape, layer)
        facts: dict[str, str | int | float] = {
            "layer": layer,
            "resolution": f"{len(decoder.rows)} x {len(decoder.columns)}",
        }
        return Reconstruction(decoder.images(found).clamp(0, 1), labels, Outcome.SOLVED, facts=facts)
