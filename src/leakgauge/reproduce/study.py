"""Experiments of a paper that attack no update: rows that are measured together, in parts, beside published numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Protocol

from torch import Tensor

from leakgauge.audit.store import check_reachable
from leakgauge.data import Dataset, DataSource
from leakgauge.errors import InvalidCase
from leakgauge.files import finite, read_tensors, writable_folder, write_tensors, write_text
from leakgauge.fingerprint import digest, environment
from leakgauge.reproduce.experiment import Published, Scale
from leakgauge.reproduce.result import Measured, stood_in
from leakgauge.reproduce.run import Options
from leakgauge.reproduce.victims import dataset_of
from leakgauge.version import VERSION

_DIGESTED = 2048
_SHOWN = 10
_NOTHING = Measured(None, None, None, 0, 0)
"""The null of what has none, such as a time."""


class StudyWatch(Protocol):
    """Who is told how far a study has come."""

    def part(self, number: int, name: str) -> None: ...

    def step(self, what: str, fraction: float) -> None: ...


class Silent:
    def part(self, number: int, name: str) -> None: ...

    def step(self, what: str, fraction: float) -> None: ...


@dataclass(frozen=True)
class Bench:
    """What a part is measured with: its scale, the data and the seed; ``folder`` keeps what parts share."""

    scale: Scale
    data: Dataset
    seed: int
    folder: Path
    device: str = "cpu"
    watch: StudyWatch = field(default_factory=Silent)


@dataclass(frozen=True)
class Found:
    """One row as measured. ``setting`` is what was run, ``given`` what the attacker was told; pictures are pairs."""

    ours: Mapping[str, Measured]
    null: Mapping[str, Measured]
    seconds: float
    setting: Mapping[str, Any] = field(default_factory=dict)
    given: tuple[str, ...] = ()
    originals: Tensor | None = None
    estimates: Tensor | None = None


@dataclass(frozen=True)
class Line:
    """One row of the table. ``published`` is of the first metric, None for a row of our own; ``also`` of others."""

    label: str
    published: Published | None = None
    also: Mapping[str, Published] = field(default_factory=dict)

    def published_of(self, metric: str, first: str) -> Published | None:
        return self.published if metric == first else self.also.get(metric)


@dataclass(frozen=True)
class Part:
    """Rows that are measured in one go, by their labels; a finished part is kept."""

    name: str
    lines: tuple[Line, ...]
    measure: Callable[[Bench], Mapping[str, Found]]


@dataclass(frozen=True)
class Study:
    """A table or figure of a paper. The first of ``metrics`` is the one it prints; ``shown`` of them are in our table.

    ``assumptions`` are what the paper leaves open and what differs here, ``shrunk`` what a scale makes smaller.
    ``null`` says in words what the null of a row is.
    """

    name: str
    title: str
    dataset: DataSource
    parts: tuple[Part, ...]
    metrics: tuple[str, ...]
    null: str
    assumptions: tuple[str, ...]
    shrunk: Mapping[Scale, str]
    shown: int = 1

    @property
    def lines(self) -> tuple[Line, ...]:
        return tuple(line for part in self.parts for line in part.lines)

    def __repr__(self) -> str:
        return f"Study({self.name!r})"


@dataclass(frozen=True)
class StudyResult:
    """All rows that were measured; ``command`` measures them again."""

    study: Study
    command: str
    scale: Scale
    seed: int
    dataset: str
    rows: tuple[tuple[Line, Found], ...]
    complete: bool

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know besides the numbers."""
        shrunk = (self.study.shrunk[self.scale],) if self.scale in self.study.shrunk else ()
        return (*stood_in(self.dataset), *shrunk, f"Null: {self.study.null}.", *self.study.assumptions)

    def to_dict(self) -> dict[str, Any]:
        return {
            "command": self.command,
            "experiment": self.study.name,
            "title": self.study.title,
            "scale": self.scale,
            "seed": self.seed,
            "version": VERSION,
            "environment": environment(),
            "dataset": self.dataset,
            "metric": self.study.metrics[0],
            "notes": list(self.notes),
            "complete": self.complete,
            "rows": [
                {
                    "label": line.label,
                    "published": None if line.published is None else asdict(line.published),
                    "also_published": {name: asdict(one) for name, one in line.also.items()},
                    **_numbers(found),
                }
                for line, found in self.rows
            ],
        }

    def write(self, path: Path) -> None:
        write_text(path, json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")


@dataclass(frozen=True)
class PreparedStudy:
    """A study whose data is read; nothing was computed yet."""

    study: Study
    options: Options
    dataset: Dataset


def prepare_study(study: Study, options: Options) -> PreparedStudy:
    """Read the data; all bad input shows here."""
    if options.images is not None or options.seconds is not None:
        raise InvalidCase(
            f"{study.name} attacks no updates, so it takes neither --images nor --seconds; leave them out."
        )
    check_reachable(options.out)
    data = dataset_of(study.name, study.dataset, options.data_root, options.scale)
    if len(data.train) == 0:
        raise InvalidCase(
            f"{study.name} needs training images, but the folder holds only the test images of {data.name!r}; add the "
            "training files to --data-root."
        )
    return PreparedStudy(study, options, data)


def run_study(prepared: PreparedStudy, watch: StudyWatch | None = None) -> StudyResult:
    """Measure every part that the output folder does not hold yet; a finished study is written to its JSON file.

    Interrupted, it returns the rows it has, and the same call resumes.
    """
    study, options, watch = prepared.study, prepared.options, watch or Silent()
    folder = writable_folder(options.out / "studies")
    bench = Bench(options.scale, prepared.dataset, options.seed, folder, options.device, watch)
    rows: list[tuple[Line, Found]] = []
    complete = True
    try:
        for number, part in enumerate(study.parts):
            watch.part(number, part.name)
            path = folder / f"{_key(study, part, bench)}.safetensors"
            found = _read(path) if path.is_file() else part.measure(bench)
            if not path.is_file():
                _write(path, found)
            rows += [(line, found[line.label]) for line in part.lines]
    except KeyboardInterrupt:
        complete = False
        if not rows:
            raise
    result = StudyResult(
        study, options.command(study), options.scale, options.seed, prepared.dataset.name, tuple(rows), complete
    )
    if complete:
        result.write(options.file(study))
    return result


def over_seeds(values: Sequence[float], images: int) -> Measured:
    """One number for each seed, each taken over so many images.

    >>> over_seeds([0.25, 0.75], images=10).mean
    0.5
    """
    known = [value for value in values if not math.isnan(value)]
    deviation = stdev(known) if len(known) > 1 else None
    return Measured(
        mean=fmean(known) if known else None,
        deviation=deviation,
        standard_error=None if deviation is None else deviation / math.sqrt(len(known)),
        updates=len(known),
        images=images * len(known),
    )


def data_key(words: Sequence[str], data: Dataset, seed: int) -> str:
    """A fingerprint of words, data and seed: the name of a file that keeps what follows from them."""
    tensors = (data.train.labels, data.train.inputs[:_DIGESTED], data.test.labels, data.test.inputs[:_DIGESTED])
    return digest((VERSION, *words, data.name), tensors, (seed,))


def _key(study: Study, part: Part, bench: Bench) -> str:
    return data_key((study.name, part.name, *study.metrics, bench.scale), bench.data, bench.seed)


def _numbers(found: Found) -> dict[str, Any]:
    return {
        "ours": {name: asdict(one) for name, one in found.ours.items()},
        "null": {name: asdict(found.null.get(name, _NOTHING)) for name in found.ours},
        "seconds": round(found.seconds, 3),
        "setting": {name: finite(value) for name, value in found.setting.items()},
        "assumptions": list(found.given),
    }


def _write(path: Path, found: Mapping[str, Found]) -> None:
    pictures = {
        f"{label}/{name}": images[:_SHOWN]
        for label, one in found.items()
        for name, images in (("originals", one.originals), ("estimates", one.estimates))
        if images is not None
    }
    write_tensors(path, pictures, {label: json.dumps(_numbers(one)) for label, one in found.items()})


def _read(path: Path) -> dict[str, Found]:
    pictures, texts = read_tensors(path)
    found = {}
    for label, text in texts.items():
        kept = json.loads(text)
        found[label] = Found(
            ours={name: Measured(**one) for name, one in kept["ours"].items()},
            null={name: Measured(**one) for name, one in kept["null"].items()},
            seconds=kept["seconds"],
            setting=kept["setting"],
            given=tuple(kept["assumptions"]),
            originals=pictures.get(f"{label}/originals"),
            estimates=pictures.get(f"{label}/estimates"),
        )
    return found
