"""Rows of the classifier in each other's place: a trained model errs, and small gradients become large."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn

from leakgauge.attacks.base import Attack
from leakgauge.attacks.budget import Around
from leakgauge.attacks.malicious.base import MaliciousAttack, head_tensors, replace_tensors
from leakgauge.attacks.recipes import quasi_newton
from leakgauge.errors import InvalidCase
from leakgauge.progress import Progress
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.space import InputSpace
from leakgauge.types import ModelState, Reconstruction


@dataclass(frozen=True)
class LabelFlip(MaliciousAttack, Around):
    """An ordinary attack after rows of the classifier were permuted [Geiping et al., 2020, A.2, Fig. 7].

    A trained model is sure of the right label, so its gradient is small; with the weight and bias of two ``classes``
    swapped it is as sure of a wrong one. The server does not know the label: by default every row moves to the next
    class, so that each is wrong.
    """

    attack: Attack = field(default_factory=quasi_newton)
    classes: tuple[int, ...] | None = None
    server: ClassVar[str] = "swaps rows of the classifier"

    def __post_init__(self) -> None:
        if self.classes is not None and (len(set(self.classes)) != 2 or len(self.classes) != 2):
            raise InvalidCase(f"LabelFlip swaps two different classes, got {self.classes}; name two, or None for all.")

    def rebuild(
        self, learner: Learner, state: ModelState, space: InputSpace, public: Tensor | None
    ) -> tuple[nn.Module, ModelState]:
        del public
        _, tensors = head_tensors(learner, state, space)
        order = self._order(learner.num_classes(state, space.probe(2, state)))
        return learner.module, replace_tensors(state, {name: tensor[order] for name, tensor in tensors.items()})

    def read(self, observation: UpdateObservation, *, generator: Generator, progress: Progress) -> Reconstruction:
        return self.attack(observation, generator=generator, progress=progress)

    def _order(self, num_classes: int) -> Tensor:
        """The row that each class gets."""
        order = torch.arange(num_classes)
        if self.classes is None:
            return order.roll(1)
        if not 0 <= min(self.classes) <= max(self.classes) < num_classes:
            raise InvalidCase(
                f"LabelFlip swaps the classes {self.classes}, but the model has {num_classes} "
                f"(0 to {num_classes - 1}); name two of them."
            )
        order[list(self.classes)] = order[list(self.classes)].flip(0)
        return order
