"""Recorded updates as cases of label attacks: which classes a client trained on, and how often."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from leakgauge.attacks.base import LabelAttack
from leakgauge.audit.case import Case
from leakgauge.audit.plan import Prepared
from leakgauge.audit.recorded import OpenRound
from leakgauge.catalogue import ATTACKS, Table, label_metrics
from leakgauge.config import build
from leakgauge.data import reference_inputs
from leakgauge.errors import InvalidCase
from leakgauge.factories import import_factory
from leakgauge.protocol.recording import RecordedRound, read_round
from leakgauge.randomness import seeded
from leakgauge.space import ImageSpace
from leakgauge.types import Batch
from leakgauge.version import VERSION

DEFAULT_METHOD = "best_labels"

_UNRELATED = 64
"""Photographs of the null; a larger batch has each several times, with labels of their own."""


@dataclass(frozen=True)
class Restoration:
    """Which rounds to read labels from and how; ``truths`` are .npz files with the private batches, one per round.

    A round that holds its labels is scored against them; no attack sees them.
    """

    files: tuple[str, ...]
    model: str
    methods: tuple[str, ...] = (DEFAULT_METHOD,)
    batch_size: int | None = None
    truths: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        if self.truths and len(self.truths) != len(self.files):
            raise InvalidCase(
                f"There are {len(self.files)} rounds and {len(self.truths)} truths; "
                "give --truth once for each round, in the same order."
            )


def label_methods() -> Table:
    """The attacks of the catalogue that restore labels alone."""
    return {name: part for name, part in ATTACKS.items() if isinstance(part(), LabelAttack)}


def prepare_restoration(restoration: Restoration) -> Prepared:
    """Read and check the rounds, the model and the truths; nothing is attacked yet."""
    table = label_methods()
    methods = {text: build(table, text, kind="label method") for text in restoration.methods}
    cases = [case for number in range(len(restoration.files)) for case in _cases(restoration, number, methods)]
    # Method by method, as an audit runs them.
    cases.sort(key=lambda case: list(methods).index(case.attack_name))
    description: dict[str, Any] = asdict(restoration) | {"version": VERSION}
    return Prepared(cases, label_metrics(), description)


def _cases(restoration: Restoration, number: int, methods: dict[str, Any]) -> Iterator[Case]:
    file = restoration.files[number]
    recorded = _of_size(read_round(Path(file)), restoration.batch_size, file)
    opened = OpenRound.of(recorded, import_factory(restoration.model)).without_labels()
    truth = recorded.labels
    if restoration.truths:
        truth = opened.truth(Path(restoration.truths[number])).labels
    for name, method in methods.items():
        case = opened.case(name, method, seed=restoration.seed, number=number)
        if truth is None:
            yield case
            continue
        generator = seeded(restoration.seed, "null", number)
        space, size = opened.observation.space, len(truth)
        unrelated = reference_inputs(space, min(size, _UNRELATED), generator=generator)
        unrelated = unrelated[torch.arange(size) % len(unrelated)]
        # The labels are what is compared: a pixel stands for each image.
        images = isinstance(space, ImageSpace)
        stand_ins = torch.zeros(size, 1, 1, 1) if images else space.probe(size, opened.observation.state)
        yield from opened.scored(case, Batch(stand_ins, truth), unrelated, None, generator=generator)


def _of_size(recorded: RecordedRound, batch_size: int | None, file: str) -> RecordedRound:
    if batch_size is not None and batch_size < 1:
        raise InvalidCase(f"An update covers at least one example, got --batch-size {batch_size}; correct it.")
    stated = recorded.num_examples
    if stated is None and recorded.labels is not None:
        stated = len(recorded.labels)
    if stated is None and batch_size is None:
        raise InvalidCase(f"{file} does not say how many examples its update covers; give --batch-size.")
    if stated is not None and batch_size not in (None, stated):
        raise InvalidCase(
            f"{file} says that its update covers {stated} examples, not {batch_size}; leave out --batch-size."
        )
    return replace(recorded, num_examples=stated or batch_size)
