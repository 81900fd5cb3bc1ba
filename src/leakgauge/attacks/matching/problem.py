"""What gradient matching has to explain."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import vjp

from leakgauge.attacks.matching.objectives import Objective
from leakgauge.protocol import clients
from leakgauge.protocol.learner import Learner, functional_gradient
from leakgauge.protocol.local_update import LocalUpdate
from leakgauge.types import Batch, ModelState, ParamTree


class ValueAndGradient(NamedTuple):
    """The matching loss and its derivative in the images and, where they are unknown, in labels and position."""

    value: Tensor
    gradient: Tensor
    labels: Tensor | None = None
    position: Tensor | None = None


@dataclass(frozen=True)
class MatchingProblem:
    """Explain ``observed`` by a batch of images with the given labels."""

    learner: Learner
    state: ModelState
    local_update: LocalUpdate
    observed: ParamTree
    objective: Objective
    labels: Tensor

    def update(self, images: Tensor) -> ParamTree:
        batch = Batch(images, self.labels)
        return self.local_update.expected(self.learner, self.state, batch, observed=self.observed)

    def distance(self, update: ParamTree) -> Tensor:
        return self.objective(update, self.observed)

    def functional(self) -> MatchingProblem:
        """The same problem in a form that composes with ``vmap`` and ``jvp``."""
        return replace(self, learner=replace(self.learner, gradient_rule=functional_gradient))

    def client(self) -> LocalUpdate:
        """What computes the client's update, before anything is done to the finished one."""
        return clients.computation(self.local_update)

    def along(self) -> dict[str, Tensor]:
        """A direction to try derivatives on: the observed update, and nothing where nothing was shared."""
        return {
            name: self.observed[name].clone() if name in self.observed else torch.zeros_like(tensor)
            for name, tensor in self.state.params.items()
        }

    def direction(self, update: ParamTree) -> tuple[Tensor, dict[str, Tensor]]:
        """D and v = dD/dg at the client's finished update g, through whatever it does to g afterwards.

        Uses up ``update`` where that saves memory.
        """
        transforms = clients.finishing(self.local_update)
        if not transforms:
            return self.objective.direction(update, self.observed)

        def finish(gradient: ParamTree) -> ParamTree:
            for transform in transforms:
                gradient = transform.anticipate(gradient, observed=self.observed)
            return gradient

        with torch.enable_grad():
            finished, pull = vjp(finish, dict(update))[:2]
            # A copy, since the objective uses up what may be kept for the way back.
            copied = {name: tensor.detach().clone() for name, tensor in finished.items()}
            value, direction = self.objective.direction(copied, self.observed)
            (pulled,) = pull({name: tensor.detach() for name, tensor in direction.items()})
        return value.detach(), {name: tensor.detach() for name, tensor in pulled.items()}
