"""A client of many local steps, explained by one gradient on the way."""

from __future__ import annotations

from dataclasses import dataclass

from leakgauge import params as tree
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.local_update import LocalUpdate
from leakgauge.types import Batch, ModelState, ParamTree


@dataclass(frozen=True)
class StraightLine(LocalUpdate):
    """The client's update taken as one gradient on all its images at w0 - a (w0 - wT), a to be found in [0, 1].

    The surrogate of Zhu et al. [2023, SME]: a gradient somewhere between the weights sent and the weights returned
    points along the whole path. One gradient per step, however many steps the client made. ``position`` is where a
    starts; gradient matching moves it along with the images.
    """

    position: float = 0.5

    def expected(self, learner: Learner, state: ModelState, batch: Batch, *, observed: ParamTree) -> ParamTree:
        return learner.gradient(self.halfway(state, observed, self.position), batch)

    def run(self, learner: Learner, state: ModelState, batch: Batch, *, generator: object) -> ParamTree:
        raise NotImplementedError("no client runs the attacker's surrogate")

    @staticmethod
    def halfway(state: ModelState, observed: ParamTree, position: float) -> ModelState:
        return ModelState(tree.add(state.params, observed, scale=-position), state.buffers)
