"""The control of every attack that brings knowledge of its own: how much of its images does the update give it?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Generator, Tensor

from leakgauge.attacks.base import finite_update
from leakgauge.attacks.matching.search import Snapshot
from leakgauge.progress import Progress, Tick, silent
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.types import Outcome, Reconstruction, Update


@dataclass(frozen=True)
class OnNoise:
    """Another attack, fed Gaussian noise that has the length of the observed update, tensor by tensor.

    What it still recovers it owes to its prior, such as a trained generator, and not to the client. Labels that the
    threat model gives stay given.
    """

    attack: Any

    def __call__(
        self, observation: UpdateObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction:
        attack: Callable[..., Reconstruction] = self.attack
        return _told(attack(self._noisy(observation, generator), generator=generator, progress=progress))

    @property
    def search(self) -> Callable[..., NoisySearch]:
        """As that of the attack, to be stepped, interrupted and resumed; absent where the attack has none."""
        of_attack: Callable[..., Any] = self.attack.search

        def search(observations: Sequence[UpdateObservation], *, generator: Generator) -> NoisySearch:
            seen = [self._noisy(observation, generator) for observation in observations]
            return NoisySearch(of_attack(seen, generator=generator))

        return search

    def _noisy(self, observation: UpdateObservation, generator: Generator) -> UpdateObservation:
        known(observation.num_examples, "num_examples", needed_by=self)
        noise = {name: _alike(tensor, generator) for name, tensor in finite_update(observation).items()}
        return replace(observation, update=Update(noise, observation.update.batch_statistics))


class NoisySearch:
    """The search of another attack, whose results say what it was fed."""

    def __init__(self, search: Any) -> None:
        self.search = search

    @property
    def trace(self) -> list[Tensor]:
        trace: list[Tensor] = self.search.trace
        return trace

    @property
    def outcome(self) -> Outcome | None:
        outcome: Outcome | None = self.search.outcome
        return outcome

    def step(self) -> Tick:
        tick: Tick = self.search.step()
        return tick

    def results(self) -> list[Reconstruction]:
        return [_told(found) for found in self.search.results()]

    def snapshot(self) -> Snapshot:
        snapshot: Snapshot = self.search.snapshot()
        return snapshot

    def restore(self, snapshot: Snapshot) -> None:
        self.search.restore(snapshot)


def _told(found: Reconstruction) -> Reconstruction:
    return replace(found, facts={**found.facts, "fed": "Gaussian noise in place of the update"})


def _alike(tensor: Tensor, generator: Generator) -> Tensor:
    noise = torch.randn(tensor.shape, generator=generator).to(tensor)
    return noise * (tensor.norm() / noise.norm().clamp_min(1e-30))
