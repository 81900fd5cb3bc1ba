"""An update that was recorded elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge import params as tree
from leakgauge.audit.sources.base import UpdateSource
from leakgauge.fingerprint import digest
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.randomness import seeded
from leakgauge.types import Batch


@dataclass(frozen=True)
class RecordedUpdate(UpdateSource):
    """What the server kept of a round."""

    observation: UpdateObservation

    @property
    def num_parameters(self) -> int:
        return tree.count(self.observation.state.params)

    def observe(self) -> UpdateObservation:
        return self.observation

    def fingerprint(self) -> str:
        seen = self.observation
        statistics = seen.batch_norm.statistics
        return digest(
            (
                repr(seen.local_update),
                seen.learner.mode,
                seen.batch_norm.access.name,
                repr((seen.space, seen.num_examples)),
            ),
            (
                *seen.state.params.values(),
                *seen.state.buffers.values(),
                *seen.update.params.values(),
                *(() if seen.labels is None else (seen.labels,)),
                *(() if statistics is None else (*statistics.mean.values(), *statistics.variance.values())),
                # Tells apart two models with the same weights.
                *self._probe().values(),
            ),
            (),
        )

    def _probe(self) -> dict[str, Tensor]:
        """The gradient of the attacker's model on two fixed inputs."""
        state = self.observation.state
        inputs = self.observation.space.noise(2, state, generator=seeded(0, "probe"))
        batch = Batch(inputs, torch.zeros(2, dtype=torch.long, device=state.device))
        return self.observation.learner.gradient(state, batch)
