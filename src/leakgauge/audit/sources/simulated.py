"""A client simulated here: the batch is private, the threat model decides what of it the attack receives."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property

from leakgauge import params as tree
from leakgauge.audit.sources.base import UpdateSource
from leakgauge.defences import Defence
from leakgauge.fingerprint import digest, foreign_code
from leakgauge.protocol.local_update import Sent
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.protocol.round import Federation, disclose
from leakgauge.protocol.threat_model import ThreatModel
from leakgauge.randomness import global_stream, seeded
from leakgauge.types import Batch

_MEMORY = 1 << 28


class UpdateMemory:
    """The updates that were computed last, as far as they fit into ``limit`` bytes; at least one."""

    def __init__(self, limit: int = _MEMORY) -> None:
        self.limit = limit
        self._kept: OrderedDict[SimulatedClient, Sent] = OrderedDict()

    def send(self, client: SimulatedClient) -> Sent:
        if client not in self._kept:
            self._kept[client] = client.compute()
            while len(self._kept) > 1 and sum(map(_bytes, self._kept.values())) > self.limit:
                self._kept.popitem(last=False)
        self._kept.move_to_end(client)
        return self._kept[client]


@dataclass(frozen=True, eq=False)
class SimulatedClient:
    """One client on one batch; the cases of one update share it, and the clients of one run share a ``memory``.

    So a client is simulated once, however many attacks its update meets; again only if the updates of a run are too
    large to be held all at once.
    """

    federation: Federation
    batch: Batch
    defence: Defence
    seed: int
    round: int
    memory: UpdateMemory = field(default_factory=UpdateMemory, repr=False)

    def compute(self) -> Sent:
        # Whatever draws from the global stream, such as dropout while statistics are taken, depends on the seed alone.
        with global_stream(seeded(self.seed, "global", self.round)):
            return self.defence(self.federation.local_update).send(
                self.federation.learner,
                self.federation.state,
                self.batch,
                # The same stream for every defence, so that two defences differ by what they do and nothing else.
                generator=seeded(self.seed, "client", self.round),
            )

    def send(self) -> Sent:
        return self.memory.send(self)

    @cached_property
    def fingerprint(self) -> str:
        state, algorithm = self.federation.state, self.federation.local_update
        return digest(
            (
                foreign_code(algorithm, self.defence),
                repr(algorithm),
                repr(self.defence),
                self.federation.learner.mode,
                repr(self.federation.space),
            ),
            (
                *state.params.values(),
                *state.buffers.values(),
                self.batch.inputs,
                self.batch.labels,
                # Only what the client computes tells apart two models with the same weights, or two losses.
                *self.send().update.params.values(),
            ),
            (self.seed, self.round),
        )


@dataclass(frozen=True)
class SimulatedUpdate(UpdateSource):
    """What the threat model discloses of a client's update; ``auxiliary`` images reach who is assumed to hold such."""

    client: SimulatedClient
    threat_model: ThreatModel
    auxiliary: Batch | None = None

    @property
    def num_parameters(self) -> int:
        return tree.count(self.client.federation.state.params)

    def observe(self) -> UpdateObservation:
        client = self.client
        return disclose(
            client.federation,
            client.defence,
            client.batch,
            client.send(),
            threat_model=self.threat_model,
            auxiliary=self.auxiliary,
        )

    def fingerprint(self) -> str:
        held = () if self.auxiliary is None else (self.auxiliary.inputs, self.auxiliary.labels)
        return digest((self.client.fingerprint, repr(self.threat_model)), held, ())


def _bytes(sent: Sent) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in sent.update.params.values())
