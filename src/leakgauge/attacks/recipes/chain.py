"""Attacks one after another under one budget, until one has explained the update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from leakgauge.attacks.base import Snapshot, Stepper
from leakgauge.attacks.feature_maps.attack import MapSearch
from leakgauge.attacks.span.search import SpanSearch
from leakgauge.errors import InvalidFile
from leakgauge.progress import Tick
from leakgauge.protocol.fit import fit
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.types import Outcome, Reconstruction

CHECKPOINT = 0.5
"""The share of its budget at which the first search must be on its way, or gradient matching gets the rest."""

_FIRST, _MATCHING = "first.", "matching."


class ChainSearch(Stepper):
    """A search by maps or spans and, where that is not on its way, gradient matching with the rest of the budget.

    Which of the two results is returned is decided by the update alone: by how far that of each is from the observed
    one, at the best common scale. The record says which answered and why.
    """

    def __init__(
        self,
        observations: Sequence[UpdateObservation],
        first: MapSearch | SpanSearch,
        begin_matching: Callable[[], Stepper],
    ) -> None:
        self.observations, self.first, self.begin_matching = tuple(observations), first, begin_matching
        self.matching: Stepper | None = None
        self.notes: dict[str, str | int | float] = {}

    @property
    def steps(self) -> int:
        return self.first.steps + (0 if self.matching is None else self.matching.steps)

    @property
    def outcome(self) -> Outcome | None:
        return self.first.outcome if self.matching is None else self.matching.outcome

    def step(self) -> Tick:
        """One step of the first search or, where it has been given up, of gradient matching."""
        # Not before its first step, without which it has no result, however late it is.
        late = self.first.steps > 0 and self.first.spent >= CHECKPOINT
        if self.matching is None and late and not self.first.promising:
            self.matching = self.begin_matching()
        if self.matching is None:
            return self.first.step()
        tick = self.matching.step()
        return Tick(self.steps, CHECKPOINT + (1 - CHECKPOINT) * tick.fraction, tick.loss)

    def results(self) -> list[Reconstruction]:
        firsts = [self._explained(found, self.first.name) for found in self.first.results()]
        if self.matching is None:
            return firsts
        matched = [self._explained(found, "gradient matching") for found in self.matching.results()]
        pairs = zip(self.observations, firsts, matched, strict=True)
        return [_better_explained(seen, self.first.name, *pair) for seen, *pair in pairs]

    def _explained(self, found: Reconstruction, link: str) -> Reconstruction:
        return replace(found, facts={**found.facts, "answered by": link, **self.notes, "steps": self.steps})

    # Interruption and resumption

    def snapshot(self) -> Snapshot:
        parts: list[tuple[str, Stepper]] = [(_FIRST, self.first)]
        if self.matching is not None:
            parts.append((_MATCHING, self.matching))
        return {f"{prefix}{name}": tensor for prefix, part in parts for name, tensor in part.snapshot().items()}

    def restore(self, snapshot: Snapshot) -> None:
        parts: dict[str, dict[str, torch.Tensor]] = {_FIRST: {}, _MATCHING: {}}
        for name, tensor in snapshot.items():
            prefix = next((prefix for prefix in parts if name.startswith(prefix)), None)
            if prefix is None:
                raise InvalidFile("The snapshot belongs to another attack; delete it and start again.")
            parts[prefix][name.removeprefix(prefix)] = tensor
        self.first.restore(parts[_FIRST])
        if parts[_MATCHING]:
            self.matching = self.begin_matching()
            self.matching.restore(parts[_MATCHING])


def _better_explained(
    seen: UpdateObservation, name: str, first: Reconstruction, matched: Reconstruction
) -> Reconstruction:
    """The one whose update is nearer to the observed one; that of the first search where this cannot be told."""
    misfits = [fit(seen, found).misfit for found in (first, matched)]
    chosen = matched if misfits[1] < misfits[0] or first.inputs is None else first
    why = f"misfit of {name} {misfits[0]:.3g}, of gradient matching {misfits[1]:.3g}"
    return replace(chosen, facts={**chosen.facts, "why this answer": why})
