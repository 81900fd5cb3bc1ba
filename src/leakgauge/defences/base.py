"""A defence maps a local update to a safer local update; defences chain."""

from __future__ import annotations

from dataclasses import dataclass

from leakgauge.protocol.local_update import Defence, LocalUpdate


@dataclass(frozen=True)
class NoDefence:
    """The update leaves as it was computed."""

    def __call__(self, local_update: LocalUpdate) -> LocalUpdate:
        return local_update


@dataclass(frozen=True)
class Chain:
    """Several defences, the first applied first."""

    defences: tuple[Defence, ...]

    def __call__(self, local_update: LocalUpdate) -> LocalUpdate:
        for defence in self.defences:
            local_update = defence(local_update)
        return local_update


def parts(defence: Defence) -> tuple[Defence, ...]:
    """The links of a chain, or a defence alone."""
    return defence.defences if isinstance(defence, Chain) else (defence,)


def chain(*defences: Defence) -> Defence:
    """The defences in order, nested chains flattened, so that chaining is associative to the letter.

    >>> from leakgauge.defences import Clipping, Pruning
    >>> chain(Clipping(1.0), chain(Pruning(0.1)))
    Chain(defences=(Clipping(max_norm=1.0), Pruning(keep=0.1)))
    """
    flat: list[Defence] = []
    for defence in defences:
        flat.extend(part for part in parts(defence) if part != NoDefence())
    if not flat:
        return NoDefence()
    return flat[0] if len(flat) == 1 else Chain(tuple(flat))
