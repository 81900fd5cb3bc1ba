"""One question to be answered: this attack, on this update, scored against this truth."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from leakgauge import params as tree
from leakgauge.attacks.base import Attack, LabelAttack
from leakgauge.defences import Defence
from leakgauge.fingerprint import digest
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.protocol.round import Federation, simulate_round
from leakgauge.protocol.threat_model import Fact, ThreatModel
from leakgauge.randomness import global_stream, seeded
from leakgauge.types import Batch
from leakgauge.version import VERSION


class Source(Protocol):
    """Where the observed update comes from."""

    @property
    def num_parameters(self) -> int: ...

    def observe(self) -> UpdateObservation: ...

    def fingerprint(self) -> str: ...


@dataclass(frozen=True)
class SimulatedUpdate:
    """A client simulated here: the batch is private, the threat model decides what of it the attack receives."""

    federation: Federation
    batch: Batch
    defence: Defence
    threat_model: ThreatModel
    seed: int
    round: int
    auxiliary: Batch | None = None

    @property
    def num_parameters(self) -> int:
        return tree.count(self.federation.state.params)

    def observe(self) -> UpdateObservation:
        # Whatever draws from the global stream, such as dropout while statistics are taken, depends on the seed alone.
        with global_stream(seeded(self.seed, "global", self.round)):
            return simulate_round(
                self.federation,
                self.batch,
                threat_model=self.threat_model,
                defence=self.defence,
                # The same stream for every defence, so that two defences differ by what they do and nothing else.
                generator=seeded(self.seed, "client", self.round),
                auxiliary=self.auxiliary,
            )

    def fingerprint(self) -> str:
        state = self.federation.state
        return digest(
            (
                repr(self.federation.local_update),
                repr(self.defence),
                repr(self.threat_model),
                self.federation.learner.mode,
            ),
            (
                *state.params.values(),
                *state.buffers.values(),
                self.batch.inputs,
                self.batch.labels,
                # Only what the client computes tells apart two models with the same weights, or two losses.
                *self.observe().update.params.values(),
                *(() if self.auxiliary is None else (self.auxiliary.inputs, self.auxiliary.labels)),
            ),
            (self.seed, self.round),
        )


@dataclass(frozen=True)
class RecordedUpdate:
    """An update that was recorded elsewhere."""

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
        """The gradient of the attacker's model on two fixed images."""
        state, shape = self.observation.state, self.observation.space.shape
        ramp = torch.linspace(0, 1, 2 * torch.Size(shape).numel(), dtype=state.dtype, device=state.device)
        images = ramp.sin().view(2, *shape)
        batch = Batch(images, torch.zeros(2, dtype=torch.long, device=state.device))
        return self.observation.learner.gradient(state, batch)


@dataclass(frozen=True)
class Case:
    """``null`` marks the control: the same attack on an unrelated update, scored against the same truth."""

    round: int
    defence: str
    attack_name: str
    attack: Attack
    null: bool
    source: Source
    truth: Batch | None
    distractors: Tensor | None
    ledger: tuple[Fact, ...]
    seed: int

    @property
    def labels_only(self) -> bool:
        """Whether the attack is after labels alone, so that no private pixel is looked at."""
        return isinstance(self.attack, LabelAttack)

    @cached_property
    def key(self) -> str:
        """Identifies the result: equal keys mean that running again would give the same record."""
        truth = () if self.truth is None else (self.truth.inputs, self.truth.labels)
        distractors = () if self.distractors is None else (self.distractors,)
        return digest(
            (VERSION, self.source.fingerprint(), self.defence, repr(self.attack), self.attack_name, repr(self.ledger)),
            (*truth, *distractors),
            (self.round, self.null, self.seed),
        )
