"""The control of every attack that brings knowledge of its own: how much of its images does the update give it?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Generator, Tensor

from leakgauge.attacks.base import Progress, finite_update, silent
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.types import Reconstruction, Update


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
        known(observation.num_examples, "num_examples", needed_by=self)
        noise = {name: _alike(tensor, generator) for name, tensor in finite_update(observation).items()}
        seen = replace(observation, update=Update(noise, observation.update.batch_statistics))
        attack: Callable[..., Reconstruction] = self.attack
        found = attack(seen, generator=generator, progress=progress)
        return replace(found, facts={**found.facts, "fed": "Gaussian noise in place of the update"})


def _alike(tensor: Tensor, generator: Generator) -> Tensor:
    noise = torch.randn(tensor.shape, generator=generator).to(tensor)
    return noise * (tensor.norm() / noise.norm().clamp_min(1e-30))
