"""Who is compared with whom: the unrelated batches of the nulls, and the crowd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil

import torch
from torch import Generator, Tensor

from leakgauge.audit.crowd import (
    NULL_PHOTOGRAPHS,
    Crowd,
    Pool,
    are_classes,
    copies,
    draw_crowd,
    draw_photographs,
    make_strangers,
)
from leakgauge.audit.draws import join_batches
from leakgauge.audit.grid import Round
from leakgauge.data import share_pixels
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.losses import draw_labels
from leakgauge.space import ImageSpace, InputSpace
from leakgauge.types import Batch

Decoys = tuple[tuple[Batch, ...], ...]
"""For each round, a batch for each of its nulls."""

DrawLabels = Callable[[Tensor, Generator], Tensor]
"""As many unrelated labels as the given ones are, and of their type."""


@dataclass(frozen=True)
class Strangers:
    """The batches of the nulls, those of nulls of attacks on labels, and one crowd for all rounds."""

    decoys: Decoys
    label_decoys: Decoys
    crowd: Crowd
    distractors: int

    def rounds(self, truths: Sequence[Batch], others: Sequence[Batch | None] | None = None) -> list[Round]:
        """Each private batch beside its strangers, and what else its client has."""
        beside = others or [None] * len(truths)
        crowd = self.crowd.inputs
        # A copy, as a view would take the whole crowd along to other processes.
        distractors = None if crowd is None else crowd[: self.distractors].clone()
        rounds = zip(truths, self.decoys, self.label_decoys, beside, strict=True)
        return [
            Round(truth, decoys, distractors, other, label_decoys, crowd, self.crowd.kin)
            for truth, decoys, label_decoys, other in rounds
        ]


def labels_for(learner: Learner, width: int) -> DrawLabels:
    """Draws labels that the learner's loss takes, for so many scores of an example."""

    def draw(like: Tensor, generator: Generator) -> Tensor:
        return draw_labels(learner.loss, len(like), width, like=like, generator=generator)

    return draw


def nulls_per_round(nulls: int, rounds: int) -> int:
    """At least so many in all, and as many in each round.

    >>> [nulls_per_round(3, rounds) for rounds in (1, 2, 3, 8)]
    [3, 2, 1, 1]
    """
    return ceil(nulls / rounds)


def draw_strangers(
    space: InputSpace,
    truths: Sequence[Batch],
    pool: Pool | None,
    *,
    tests: int,
    distractors: int,
    nulls: int,
    labels: DrawLabels,
    generator: Generator,
) -> Strangers:
    """Strangers to the private batches of all rounds, from the pool as far as it goes, and made where it does not.

    No example of the pool is both in a null and in the crowd, and none is private. What is cut from one picture is only
    private, only in nulls or only in the crowd, while there are others; at the least no pixel is in two of them.
    ``nulls`` counts over all rounds; the crowd has at least ``distractors``, and as many as ``tests``, of each example
    by each attack, need. ``labels`` draws those of the nulls of attacks on labels where the pool has none.
    """
    private = join_batches(truths)
    left_out, kin = 0, None
    if pool is not None:
        pool = pool if are_classes(private.labels) else replace(pool, labels=None)
        again = copies(space, pool.inputs, private.inputs)
        kin, apart = pool[~again].labelled().apart_from(private), pool.apart_from(private)
        again = copies(space, apart.inputs, private.inputs)
        pool, left_out = apart[~again], int(again.sum())
        kin = pool if len(kin) == len(pool) else kin
    per_round = nulls_per_round(nulls, len(truths))
    source = _source_of_decoys(space, private, kin, per_round * len(private), generator)
    # Of a small pool half, as the crowd needs the rest.
    at_most = min(per_round * len(private), len(source) // 2 if source is pool else len(source))
    decoys, used = choose_decoys(space, source, truths, per_round, at_most=at_most, generator=generator)
    label_decoys = tuple(
        tuple(_unrelated_labels(source, truth, labels, generator) for _ in range(per_round)) for truth in truths
    )
    rest = pool
    if rest is not None and source is kin:
        rest = rest[~used] if source is pool else rest
        for batch in (batch for one in decoys for batch in one):
            rest = rest.apart_from(batch)
    crowd = draw_crowd(space, private, rest, tests=tests, at_least=distractors, generator=generator)
    if left_out and crowd.inputs is not None:
        counted = "1 copy" if left_out == 1 else f"{left_out} copies"
        crowd = replace(crowd, words=f"{crowd.words}; {counted} of private {space.kinds} left out")
    return Strangers(decoys, label_decoys, crowd, distractors)


def choose_decoys(
    space: InputSpace, pool: Pool, truths: Sequence[Batch], per_round: int, *, at_most: int, generator: Generator
) -> tuple[Decoys, Tensor]:
    """A batch for each null of each round, and which of the pool they take.

    Their labels are those of the round's private examples, dealt anew to its nulls, while the pool has examples of
    them; no two share pixels while there are others. No more than ``at_most`` of the pool are taken: then they serve
    again in another null, and where they are fewer than a batch needs, others are made of them.
    """
    choice = _Choice(pool, at_most, generator)
    rounds = []
    for truth in truths:
        dealt = torch.cat([truth.labels] * per_round) if per_round else truth.labels[:0]
        dealt = dealt[torch.randperm(len(dealt), generator=generator).to(dealt.device)]
        batches = []
        for labels in dealt.split(len(truth)) if per_round else ():
            rows = choice.choose([None] * len(labels) if pool.labels is None else labels.tolist())
            batches.append(_fill(space, pool, torch.tensor(rows), labels, truth, generator))
        rounds.append(tuple(batches))
    used = torch.zeros(len(pool), dtype=torch.bool)
    used[choice.taken] = True
    return tuple(rounds), used


class _Choice:
    """Picks rows of a pool one after another, each once while it may take further ones."""

    def __init__(self, pool: Pool, at_most: int, generator: Generator) -> None:
        self.pool, self.at_most, self.generator = pool, at_most, generator
        self.taken: list[int] = []
        self._free = torch.ones(len(pool), dtype=torch.bool)
        self._apart = torch.ones(len(pool), dtype=torch.bool)

    def choose(self, labels: Sequence[int | None]) -> list[int]:
        """A different row for each label, of that label if there is one; -1 where none is left."""
        rows: list[int] = []
        for label in labels:
            rows.append(self._choose_another(label) if len(self.taken) < self.at_most else self._choose_again(rows))
        return rows

    def _choose_another(self, label: int | None) -> int:
        anyone = torch.ones_like(self._free)
        alike = anyone if label is None or self.pool.labels is None else self.pool.labels.cpu() == label
        row = next(
            int(found[0])
            for wanted in (alike & self._apart, alike, self._apart, anyone)
            if len(found := (self._free & wanted).nonzero())
        )
        self.taken.append(row)
        self._free[row] = False
        if self.pool.regions is not None:
            self._apart &= ~share_pixels(self.pool.regions, self.pool.regions[row : row + 1])[:, 0]
        return row

    def _choose_again(self, rows: Sequence[int]) -> int:
        left = [row for row in self.taken if row not in rows]
        return left[int(torch.randint(len(left), (), generator=self.generator))] if left else -1


def _fill(space: InputSpace, pool: Pool, rows: Tensor, labels: Tensor, truth: Batch, generator: Generator) -> Batch:
    """The rows of the pool, and what is made where there is none; with labels of their own where these are known."""
    there = rows >= 0
    inputs = torch.empty_like(truth.inputs)
    inputs[there] = pool.inputs[rows[there]].to(inputs)
    if lacking := int((~there).sum()):
        of = pool.inputs.to(inputs) if len(pool) else truth.inputs
        inputs[~there] = _make_all(space, of, truth.inputs, lacking, generator)
    if pool.labels is not None:
        labels = labels.clone()
        labels[there] = pool.labels[rows[there]].to(labels)
    regions = None if pool.regions is None or lacking else pool.regions[rows]
    return Batch(inputs, labels, regions=regions)


def _unrelated_labels(pool: Pool, truth: Batch, draw: DrawLabels, generator: Generator) -> Batch:
    """A batch for the null of an attack on labels, which must not have the labels that it is scored against."""
    order = torch.randperm(len(pool), generator=generator)
    rows = order.repeat(ceil(len(truth) / len(pool)))[: len(truth)]
    labels = draw(truth.labels, generator) if pool.labels is None else pool.labels[rows].to(truth.labels)
    return Batch(pool.inputs[rows].to(truth.inputs), labels)


def _source_of_decoys(space: InputSpace, private: Batch, pool: Pool | None, count: int, generator: Generator) -> Pool:
    """Where the nulls' batches come from: the pool, or else photographs in the tones of the private images."""
    if pool is not None and len(pool) > 1:
        return pool
    if isinstance(space, ImageSpace):
        # Several times as many as are taken, so that they can be taken side by side.
        photographs = draw_photographs(space, private, 4 * count + 16, "test", NULL_PHOTOGRAPHS, generator=generator)
        if len(photographs):
            return photographs
    made = _make_all(space, private.inputs, private.inputs, count + 1, generator)
    return Pool(made, None, f"made {space.kinds}")


def _make_all(space: InputSpace, of: Tensor, private: Tensor, count: int, generator: Generator) -> Tensor:
    """As many strangers as are asked for: random ones where nothing strange can be made."""
    made = make_strangers(space, of, private, count, generator=generator)
    anything = space.draw(count - len(made), generator=generator)
    return torch.cat((made, anything.to(made)))
