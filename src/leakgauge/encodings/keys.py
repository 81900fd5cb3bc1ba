"""Where the one-time keys come from: the operating system's secure generator, or a seed for tests and studies."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import prod
from typing import ClassVar, Protocol

import numpy as np
import torch
from torch import Generator, Tensor


class KeySource(Protocol):
    """Everything that a key is made of is drawn here: masks as bits, choices and coefficients as uniform numbers."""

    @property
    def secure(self) -> bool: ...

    def uniform(self, *shape: int) -> Tensor:
        """Independent uniform numbers in [0, 1), float64."""

    def flips(self, *shape: int) -> Tensor:
        """Independent fair coins, bool."""

    def fork(self) -> KeySource:
        """A source for another process, whose draws are independent of this one's."""


@dataclass(frozen=True)
class SecureKeys:
    """Keys from the operating system's cryptographically secure generator; they cannot be drawn again.

    A mask from an ordinary generator can be undone by whoever recovers the generator's state from it [Carlini et al.,
    2021].
    """

    secure: ClassVar[bool] = True

    def uniform(self, *shape: int) -> Tensor:
        words = np.frombuffer(os.urandom(8 * prod(shape)), dtype=np.uint64)
        return torch.from_numpy((words >> np.uint64(11)) * 2.0**-53).reshape(shape)

    def flips(self, *shape: int) -> Tensor:
        return _bits(np.frombuffer(os.urandom(-(-prod(shape) // 8)), dtype=np.uint8), shape)

    def fork(self) -> SecureKeys:
        return self


@dataclass(frozen=True)
class SeededKeys:
    """INSECURE: keys that a seed repeats, for tests and studies; whoever learns or guesses the seed has every key."""

    secure: ClassVar[bool] = False

    generator: Generator

    def __repr__(self) -> str:
        return "SeededKeys(insecure: for tests and studies only)"

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self.generator, dtype=torch.float64)

    def flips(self, *shape: int) -> Tensor:
        drawn = torch.randint(256, (-(-prod(shape) // 8),), generator=self.generator, dtype=torch.uint8)
        return _bits(drawn.numpy(), shape)

    def fork(self) -> SeededKeys:
        seed = int(torch.randint(2**62, (), generator=self.generator))
        return SeededKeys(torch.Generator().manual_seed(seed))


def _bits(octets: np.ndarray, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(np.unpackbits(octets, count=prod(shape)).view(np.bool_)).reshape(shape)
