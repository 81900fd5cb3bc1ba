"""Many clients of whom the server sees the mean alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from leakgauge.errors import InvalidCase
from leakgauge.protocol.encoding import Encoding, stack_mixings
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.local_update import Wrapped
from leakgauge.types import Batch, ModelState, ParamTree


@dataclass(frozen=True)
class Aggregated(Wrapped):
    """The mean of the updates of ``clients`` clients, each with an equal part of the batch, in order.

    What a server sees behind secure aggregation [Bonawitz et al., 2017]. The private batch is that of all clients
    together, and so is what an attack has to find.
    """

    clients: int

    def parts(self, batch: Batch) -> list[Batch]:
        """The batch of each client."""
        size, rest = divmod(len(batch), self.clients)
        if rest or not size:
            raise InvalidCase(
                f"{len(batch)} examples cannot be shared equally by {self.clients} clients; use a multiple of "
                f"{self.clients}, the examples of all clients together."
            )
        # Each client mixes what it has: whose the other images would be is not known.
        own = replace(batch, others=None)
        return [own[slice(start, start + size)] for start in range(0, len(batch), size)]

    def expected(self, learner: Learner, state: ModelState, batch: Batch, *, observed: ParamTree) -> ParamTree:
        return _mean([self.inner.expected(learner, state, part, observed=observed) for part in self.parts(batch)])

    def encode(self, learner: Learner, state: ModelState, batch: Batch, *, generator: Generator) -> Encoding:
        encodings = [self.inner.encode(learner, state, part, generator=generator) for part in self.parts(batch)]
        seen = [encoding.batch for encoding in encodings]
        together = Batch(torch.cat([part.inputs for part in seen]), torch.cat([part.labels for part in seen]))
        mixings = [
            encoding.mixing._replace(indices=encoding.mixing.indices + client * len(seen[0]))
            for client, encoding in enumerate(encodings)
            if encoding.mixing is not None
        ]
        return Encoding(together, stack_mixings(mixings) if mixings else None)

    def run(self, learner: Learner, state: ModelState, batch: Batch, *, generator: Generator) -> ParamTree:
        return _mean([self.inner.run(learner, state, part, generator=generator) for part in self.parts(batch)])


def _mean(updates: list[ParamTree]) -> dict[str, Tensor]:
    return {name: torch.stack([update[name] for update in updates]).mean(dim=0) for name in updates[0]}
