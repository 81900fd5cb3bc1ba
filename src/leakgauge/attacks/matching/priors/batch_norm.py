"""The statistics that BatchNorm layers see are those of the private batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.linalg import vector_norm

from leakgauge.attacks.matching.priors.base import Absent, Prior
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.types import BatchStatistics, ModelState, ParamTree


@dataclass(frozen=True)
class BatchNormStatistics(Prior):
    """Weight times the sum over BatchNorm layers of |mean_l(x) - mean_l|_2 + |var_l(x) - var_l|_2.

    R_BN of Yin et al. [2021], over the inputs of the layers. The targets are the private batch's own statistics
    where the threat model gives them, else the running ones the server sent; ``first`` multiplies the first layer's
    part. On a model without BatchNorm the prior is never in force.
    """

    weight: float = 1.0
    first: float = 1.0

    def __call__(self, images: Tensor) -> Tensor:
        raise NotImplementedError("the prior compares with the statistics of an observation; bind it first")

    def bind(self, observation: UpdateObservation) -> Prior:
        learner, state = observation.learner, observation.state
        target = observation.batch_norm.statistics or _running_statistics(learner, state)
        if not target.mean:
            return Absent()
        return _BoundStatistics(self.weight, self.first, learner, state, target)


@dataclass(frozen=True, eq=False)
class _BoundStatistics(Prior):
    """The statistics of each candidate batch against one target; two are equal only if they are one object."""

    weight: float
    first: float
    learner: Learner
    state: ModelState
    target: BatchStatistics

    def __call__(self, images: Tensor) -> Tensor:
        # One restart after another: the statistics are noted by hooks, which do not compose with vmap.
        return self.weight * torch.stack([self._distance(batch) for batch in images])

    def _distance(self, batch: Tensor) -> Tensor:
        own = self.learner.batch_statistics(self.state, batch)  # in the order of execution
        parts = [
            vector_norm(own.mean[name] - self.target.mean[name])
            + vector_norm(own.variance[name] - self.target.variance[name])
            for name in own.mean
            if name in self.target.mean
        ]
        return torch.stack([self.first * parts[0], *parts[1:]]).sum()


def _running_statistics(learner: Learner, state: ModelState) -> BatchStatistics:
    def held(buffer: str) -> ParamTree:
        keys = {name: f"{name}.{buffer}".lstrip(".") for name in learner.batch_norm_layers()}
        return {name: state.buffers[key] for name, key in keys.items() if key in state.buffers}

    return BatchStatistics(held("running_mean"), held("running_var"))
