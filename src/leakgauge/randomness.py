"""One random stream per stage, so that changing a defence changes neither the data nor the attack's start."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def seeded(seed: int, *stage: str | int) -> torch.Generator:
    """A generator for one stage of one case.

    >>> a, b = seeded(0, "data"), seeded(0, "attack")
    >>> bool(torch.rand((), generator=a) == torch.rand((), generator=b))
    False
    """
    text = "/".join(map(str, (seed, *stage)))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)


@contextmanager
def global_stream(generator: torch.Generator) -> Iterator[None]:
    """Let code that draws from torch's global stream (dropout, initialisation) draw from ``generator`` instead."""
    seed = int(torch.randint(2**62, (), generator=generator))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
