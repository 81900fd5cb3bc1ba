"""The control of every attack that brings knowledge of its own: how much of its images does the update give it?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from leakgauge.attacks.base import SteppedAttack, StepperAround, finite_update
from leakgauge.attacks.budget import Around
from leakgauge.errors import InvalidCase
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.types import Reconstruction, Update


@dataclass(frozen=True)
class OnNoise(SteppedAttack, Around):
    """Another attack, fed Gaussian noise that has the length of the observed update, tensor by tensor.

    What it still recovers it owes to its prior, such as a trained generator, and not to the client. Labels that the
    threat model gives stay given.
    """

    attack: SteppedAttack

    def __post_init__(self) -> None:
        if not isinstance(self.attack, SteppedAttack):
            raise InvalidCase(
                f"OnNoise(attack=...) must match gradients, got {type(self.attack).__name__}; give it such an attack."
            )

    def search(self, observations: Sequence[UpdateObservation], *, generator: Generator) -> NoisySearch:
        seen = [self._noisy(observation, generator) for observation in observations]
        return NoisySearch(self.attack.search(seen, generator=generator))

    def _noisy(self, observation: UpdateObservation, generator: Generator) -> UpdateObservation:
        known(observation.num_examples, "num_examples", needed_by=self)
        noise = {name: _alike(tensor, generator) for name, tensor in finite_update(observation).items()}
        return replace(observation, update=Update(noise, observation.update.batch_statistics))


class NoisySearch(StepperAround):
    """The search of another attack, whose results say what it was fed."""

    def results(self) -> list[Reconstruction]:
        said = {"fed": "Gaussian noise in place of the update"}
        return [replace(found, facts={**found.facts, **said}) for found in self.inner.results()]


def _alike(tensor: Tensor, generator: Generator) -> Tensor:
    noise = torch.randn(tensor.shape, generator=generator).to(tensor)
    return noise * (tensor.norm() / noise.norm().clamp_min(1e-30))
