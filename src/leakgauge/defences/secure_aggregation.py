"""Secure aggregation: the server sees the mean of many clients and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from leakgauge.errors import InvalidCase
from leakgauge.protocol.local_update import LocalUpdate
from leakgauge.protocol.wrappers import Aggregated


@dataclass(frozen=True)
class SecureAggregation:
    """The mean of ``clients`` clients' updates in place of one client's [Bonawitz et al., 2017].

    An assumption on what the server sees rather than a change of any update. The batch is that of all clients together,
    shared out in equal parts, and the attack explains the whole of it. Last in a chain: what comes before, every client
    does for itself.
    """

    clients: int = 4

    def __post_init__(self) -> None:
        if self.clients < 1:
            raise InvalidCase(f"SecureAggregation(clients=...) must be at least 1, got {self.clients}; correct it.")

    def __call__(self, local_update: LocalUpdate) -> LocalUpdate:
        return local_update if self.clients == 1 else Aggregated(local_update, self.clients)
