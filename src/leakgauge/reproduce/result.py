"""What an experiment gave, beside what was published; written by the program, never by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from leakgauge.audit.record import Record
from leakgauge.catalogue import describe_metric
from leakgauge.files import finite, write_text
from leakgauge.fingerprint import environment
from leakgauge.reproduce.experiment import Experiment, Row, Scale, Setting
from leakgauge.training.run import Trained
from leakgauge.version import VERSION


@dataclass(frozen=True)
class Measured:
    """Mean over all images, spread over updates as the papers give it; None where there is nothing to take it of."""

    mean: float | None
    deviation: float | None
    standard_error: float | None
    updates: int
    images: int
    best: float | None = None

    @classmethod
    def of(
        cls, scores: Sequence[Sequence[float]], best: int = 0, *, per_image: bool = False, lower: bool = False
    ) -> Measured:
        """Of scores per update and image, NaN where nothing came back; ``best`` is how many of the best to average.

        The best are the highest, or with ``lower`` the lowest; the spread is over updates, or ``per_image``.

        >>> Measured.of([[10.0, 20.0], [30.0, math.nan]], best=1)
        Measured(mean=20.0, deviation=10.606601717798213, standard_error=7.5, updates=2, images=3, best=30.0)
        """
        updates = [found for update in scores if (found := [score for score in update if not math.isnan(score)])]
        images = sorted((score for update in updates for score in update), reverse=not lower)
        spread = images if per_image else [fmean(update) for update in updates]
        deviation = stdev(spread) if len(spread) > 1 else None
        return cls(
            mean=fmean(images) if images else None,
            deviation=deviation,
            standard_error=None if deviation is None else deviation / math.sqrt(len(spread)),
            updates=len(updates),
            images=len(images),
            best=fmean(images[:best]) if best and images else None,
        )


@dataclass(frozen=True)
class RowResult:
    """One row: the records of its updates and of its nulls; ``victims`` are indices into the test images."""

    row: Row
    setting: Setting
    victims: tuple[tuple[int, ...], ...]
    parameters: int
    accuracy: float | None
    records: tuple[Record, ...]
    nulls: tuple[Record, ...]
    utility: Trained | None = None

    def measured(self, metric: str, best: int = 0, *, per_image: bool = False) -> Measured:
        return _measured(self.records, metric, best, per_image)

    def null(self, metric: str, best: int = 0, *, per_image: bool = False) -> Measured:
        return _measured(self.nulls, metric, best, per_image)

    @property
    def steps(self) -> tuple[int, int] | None:
        """The fewest and the most steps that an attack made; None if it does not count steps."""
        made = [int(record.facts["steps"]) for record in self.records if "steps" in record.facts]
        return (min(made), max(made)) if made else None

    @property
    def seconds(self) -> float:
        """Per update."""
        return fmean(record.seconds for record in self.records)

    def to_dict(self, experiment: Experiment) -> dict[str, Any]:
        setting = self.setting
        training = None if setting.training is None else {**asdict(setting.training), "accuracy": self.accuracy}
        return {
            "label": self.row.label,
            "published": None if self.row.published is None else asdict(self.row.published),
            "beside": None if self.row.beside is None else asdict(self.row.beside),
            "also_published": {name: asdict(one) for name, one in self.row.also.items()},
            "ours": {
                name: asdict(self.measured(name, experiment.best, per_image=experiment.per_image))
                for name in experiment.metrics
            },
            "null": {
                name: asdict(self.null(name, experiment.best, per_image=experiment.per_image))
                for name in experiment.metrics
            },
            "steps": None if self.steps is None else list(self.steps),
            "seconds_per_update": round(self.seconds, 3),
            "attack": repr(setting.attack),
            "model": repr(setting.model),
            "parameters": self.parameters,
            "training": training,
            "utility": None if self.utility is None else self.utility.to_dict(),
            "threat_model": setting.threat_model or experiment.threat_model,
            "local_update": repr(setting.local_update),
            "batch_size": setting.batch_size,
            "mode": setting.mode,
            "defence": repr(setting.defence),
            "draw": repr(setting.draw),
            "models": setting.models,
            "classes": setting.classes,
            "assumptions": [fact.to_dict() for fact in self.records[0].ledger],
            "updates": [_update(record, victims) for record, victims in zip(self.records, self.victims, strict=True)],
            "nulls": [_update(record, None) for record in self.nulls],
        }


@dataclass(frozen=True)
class Reproduction:
    """All rows that were run; ``command`` runs them again."""

    experiment: Experiment
    command: str
    scale: Scale
    seed: int
    dataset: str
    rows: tuple[RowResult, ...]
    complete: bool

    def to_dict(self) -> dict[str, Any]:
        return {
            "command": self.command,
            "experiment": self.experiment.name,
            "title": self.experiment.title,
            "scale": self.scale,
            "seed": self.seed,
            "version": VERSION,
            "environment": environment(),
            "dataset": self.dataset,
            "metric": self.experiment.metrics[0],
            "best": self.experiment.best or None,
            "threat_model": self.experiment.threat_model,
            "notes": list(self.notes),
            "complete": self.complete,
            **({} if (verdict := self.verdict) is None else {"verdict": verdict}),
            "rows": self._rows(),
        }

    def _rows(self) -> list[dict[str, Any]]:
        return [row.to_dict(self.experiment) for row in self.rows]

    @property
    def verdict(self) -> dict[str, Any] | None:
        """Who is ahead, where the experiment is a contest; see `Contest`."""
        return None if self.experiment.contest is None else self.experiment.verdict(self._rows())

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know besides the numbers."""
        reduced = (
            ("Fewer images, less work per attack and, where a row says so, smaller models than in the paper.",)
            if self.scale != "full"
            else ()
        )
        verdict = self.verdict
        said = () if verdict is None else (verdict["rule"], *verdict["summary"])
        return (
            *stood_in(self.dataset),
            *reduced,
            *self.experiment.assumptions,
            *orders(self.experiment, self.rows),
            *said,
        )

    def write(self, path: Path) -> None:
        write_text(path, json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")


def orders(experiment: Experiment, rows: Sequence[RowResult]) -> list[str]:
    """For each group of rows, how many pairs we tell apart and how many of these stand in the published order.

    Told apart: the means differ by more than 1.96 standard errors of the difference. Pairs that the paper prints with
    the same number have no order.
    """
    metric = experiment.metrics[0]
    groups: dict[str, list[tuple[float, Measured]]] = {}
    for row in rows:
        ours, published = row.measured(metric, per_image=experiment.per_image), row.row.published or row.row.beside
        if row.row.group and published and published.mean is not None and ours.standard_error is not None:
            groups.setdefault(row.row.group, []).append((published.mean, ours))
    said = []
    for group, found in groups.items():
        pairs = [(p - q, a, b) for (p, a), (q, b) in combinations(found, 2) if p != q]
        apart = [
            (gap, difference)
            for gap, a, b in pairs
            if abs(difference := (a.mean or 0) - (b.mean or 0)) > 1.96 * math.hypot(*map(_error, (a, b)))
        ]
        alike = sum(gap * difference > 0 for gap, difference in apart)
        said.append(
            f"Order by {metric}, {group}: of {len(pairs)} pairs of rows {len(apart)} are told apart here, {alike} of "
            "them in the published order."
        )
    return said


def _error(value: Measured) -> float:
    return value.standard_error or 0.0


def _measured(records: Sequence[Record], metric: str, best: int, per_image: bool) -> Measured:
    scores = [record.scores[metric] for record in records]
    return Measured.of(scores, best, per_image=per_image, lower=not describe_metric(metric).higher_is_leakier)


def stood_in(dataset: str) -> tuple[str, ...]:
    """What to say where the paper's data was not at hand."""
    said = "Embedded photographs stand in for the paper's data: this shows that the code runs."
    return (said,) if dataset == "photos" else ()


def _update(record: Record, victims: tuple[int, ...] | None) -> dict[str, Any]:
    # Of labels alone the batch counts, and may be large: its mean stands for its examples, and the seed for its images.
    of_labels = record.restored_counts is not None and record.pictures.originals is None
    scores: dict[str, Any] = {name: [finite(score) for score in scores] for name, scores in record.scores.items()}
    if of_labels:
        scores = {name: Measured.of([values]).mean for name, values in record.scores.items()}
    return {
        **({} if victims is None or of_labels else {"victims": list(victims)}),
        "scores": scores,
        "outcome": record.outcome.name.lower(),
        "facts": {name: finite(value) for name, value in record.facts.items()},
        "seconds": round(record.seconds, 3),
        "environment": dict(record.environment),
    }
