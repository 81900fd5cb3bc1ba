"""Attacks one after another under one budget, until one has explained the update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from leakgauge.attacks.base import Snapshot, Stepper
from leakgauge.attacks.span.search import SpanSearch
from leakgauge.errors import InvalidFile
from leakgauge.progress import Tick
from leakgauge.protocol.fit import fit
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.types import Outcome, Reconstruction

CHECKPOINT = 0.5
"""The share of its budget at which span matching must be on its way, or gradient matching gets the rest."""

PROMISING = 3e-2
"""The residual below which it is."""

_SPAN, _MATCHING = "span.", "matching."


class ChainSearch(Stepper):
    """Span matching and, where that does not come to an end, gradient matching with the rest of the budget.

    Which of the two results is returned is decided by the update alone: by how far that of each is from the observed
    one, at the best common scale. The record says which answered and why.
    """

    def __init__(
        self, observations: Sequence[UpdateObservation], span: SpanSearch, begin_matching: Callable[[], Stepper]
    ) -> None:
        self.observations, self.span, self.begin_matching = tuple(observations), span, begin_matching
        self.matching: Stepper | None = None
        self.notes: dict[str, str | int | float] = {}

    @property
    def steps(self) -> int:
        return self.span.steps + (0 if self.matching is None else self.matching.steps)

    @property
    def outcome(self) -> Outcome | None:
        return self.span.outcome if self.matching is None else self.matching.outcome

    def step(self) -> Tick:
        """One step of span matching or, where it has been given up, of gradient matching."""
        if self.matching is None and self._hopeless():
            self.matching = self.begin_matching()
        if self.matching is None:
            return self.span.step()
        tick = self.matching.step()
        return Tick(self.steps, CHECKPOINT + (1 - CHECKPOINT) * tick.fraction, tick.loss)

    def _hopeless(self) -> bool:
        return self.span.spent >= CHECKPOINT and bool((self.span.found_residuals() > PROMISING).any())

    def results(self) -> list[Reconstruction]:
        spanned = [self._explained(found, "span matching") for found in self.span.results()]
        if self.matching is None:
            return spanned
        matched = [self._explained(found, "gradient matching") for found in self.matching.results()]
        pairs = zip(self.observations, spanned, matched, strict=True)
        return [_better_explained(seen, *pair) for seen, *pair in pairs]

    def _explained(self, found: Reconstruction, link: str) -> Reconstruction:
        return replace(found, facts={**found.facts, "answered by": link, **self.notes, "steps": self.steps})

    # Interruption and resumption

    def snapshot(self) -> Snapshot:
        parts: list[tuple[str, Stepper]] = [(_SPAN, self.span)]
        if self.matching is not None:
            parts.append((_MATCHING, self.matching))
        return {f"{prefix}{name}": tensor for prefix, part in parts for name, tensor in part.snapshot().items()}

    def restore(self, snapshot: Snapshot) -> None:
        parts: dict[str, dict[str, torch.Tensor]] = {_SPAN: {}, _MATCHING: {}}
        for name, tensor in snapshot.items():
            prefix = next((prefix for prefix in parts if name.startswith(prefix)), None)
            if prefix is None:
                raise InvalidFile("The snapshot belongs to another attack; delete it and start again.")
            parts[prefix][name.removeprefix(prefix)] = tensor
        self.span.restore(parts[_SPAN])
        if parts[_MATCHING]:
            self.matching = self.begin_matching()
            self.matching.restore(parts[_MATCHING])


def _better_explained(seen: UpdateObservation, spanned: Reconstruction, matched: Reconstruction) -> Reconstruction:
    """The one whose update is nearer to the observed one; span matching's where that cannot be told."""
    misfits = [fit(seen, found).misfit for found in (spanned, matched)]
    chosen = matched if misfits[1] < misfits[0] or spanned.inputs is None else spanned
    why = f"misfit of span matching {misfits[0]:.3g}, of gradient matching {misfits[1]:.3g}"
    return replace(chosen, facts={**chosen.facts, "why this answer": why})
