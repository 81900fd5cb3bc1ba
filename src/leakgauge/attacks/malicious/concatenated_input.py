"""The image itself, concatenated to the features that the classifier receives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn

from leakgauge.attacks.analytic.linear_layer import not_applicable, restored_labels
from leakgauge.attacks.labels.idlg import IDLG
from leakgauge.attacks.malicious.base import MaliciousAttack, head_inputs, head_labels, head_tensors, prefix_names
from leakgauge.progress import Progress
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.space import InputSpace
from leakgauge.types import ModelState, Outcome, ParamTree, Reconstruction


@dataclass(frozen=True)
class ConcatenatedInput(MaliciousAttack):
    """The classifier receives the image besides the features, and Prop. 3.1 reads it [Geiping et al., 2020, A.1].

    The new columns of its weight are zero, so that no prediction changes, and x = dW_i / db_i there. ``blank_head``
    zeroes the old columns and the bias too: all classes are then predicted alike, which anybody would notice, but the
    images of a batch come apart by their labels (see ``head_inputs``). Without it the attack takes one image.
    """

    blank_head: bool = True
    server: ClassVar[str] = "connects the image to the classifier"

    def rebuild(
        self, learner: Learner, state: ModelState, space: InputSpace, public: Tensor | None
    ) -> tuple[nn.Module, ModelState]:
        del public
        head, tensors = head_tensors(learner, state, space)
        weight = tensors.pop(f"{head}.weight")
        bias = tensors.pop(f"{head}.bias", weight.new_zeros(len(weight)))
        weight = torch.cat((weight, weight.new_zeros(len(weight), int(torch.Size(space.shape).numel()))), dim=1)
        if self.blank_head:
            weight, bias = torch.zeros_like(weight), torch.zeros_like(bias)
        body = learner.in_mode(learner.mode).module
        # The classifier's output is the model's, so without it the model returns the features.
        parent, _, name = head.rpartition(".")
        setattr(body.get_submodule(parent), name, nn.Identity())
        rest = prefix_names("body", ModelState(_without(state.params, head), _without(state.buffers, head)))
        return Concatenated(body, *weight.shape), ModelState(
            {**rest.params, "head.weight": weight, "head.bias": bias}, rest.buffers
        )

    def read(self, observation: UpdateObservation, *, generator: Generator, progress: Progress) -> Reconstruction:
        del progress
        num_examples = known(observation.num_examples, "num_examples", needed_by=self)
        if num_examples > 1 and not self.blank_head:
            return not_applicable(f"the update mixes several {observation.space.kinds}; `blank_head` tells them apart")
        weight, bias = observation.update.params["head.weight"], observation.update.params["head.bias"]
        blank = self.blank_head and observation.labels is None
        labels = head_labels(bias, num_examples) if blank else restored_labels(observation, IDLG(), generator=generator)
        assert labels is not None  # a classifier with a bias gives them away
        pixels = int(torch.Size(observation.space.shape).numel())
        found = head_inputs(weight[:, -pixels:], bias, labels, num_examples)
        if isinstance(found, str):
            return not_applicable(found)
        space = observation.space
        inputs = space.decode(space.relax(found.view(-1, *space.shape)))
        return Reconstruction(inputs, labels, Outcome.SOLVED)


class Concatenated(nn.Module):
    """``head(body(x), x)``."""

    def __init__(self, body: nn.Module, classes: int, features: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(features, classes, device="meta")

    def forward(self, images: Tensor) -> Tensor:
        return self.head(torch.cat((self.body(images), images.flatten(1)), dim=1))


def _without(tensors: ParamTree, head: str) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if name not in (f"{head}.weight", f"{head}.bias")}
