"""Run a table: row by row, each kept as soon as it is measured, so that the same call resumes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from leakgauge.attacks.budget import Budget
from leakgauge.audit.executors import Executor, InProcess
from leakgauge.audit.store import check_reachable
from leakgauge.config import choose
from leakgauge.data import Dataset, Photos
from leakgauge.data.datasets import rank_within_class
from leakgauge.errors import InvalidCase, InvalidFile
from leakgauge.files import read_tensors, writable_folder, write_tensors
from leakgauge.fingerprint import digest
from leakgauge.progress import Watch, unwatched
from leakgauge.report.images import MOST
from leakgauge.reproduce.result import RowResult, TableResult, found_of, numbers_of, recipe_fingerprint
from leakgauge.reproduce.scales import SCALES, Scale
from leakgauge.reproduce.table import Bench, Found, Measure, Row, Table, measuring_code

_DIGESTED = 2048


@dataclass(frozen=True)
class Options:
    """How a table is run. ``images`` per row and ``seconds`` per update replace those of the scale.

    ``rows``: only those whose label is one of these texts, or holds one that is no row's, are measured, and put into
    the file beside what it has.

    ``weights`` is the folder with those of LPIPS, which is not measured without them, and of models that are trained
    elsewhere; LEAKGAUGE_WEIGHTS stands in for it.
    """

    scale: Scale = "smoke"
    data_root: Path | None = None
    out: Path = Path("reproduced")
    images: int | None = None
    seconds: float | None = None
    seed: int = 0
    device: str = "cpu"
    weights: Path | None = None
    rows: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        choose(dict.fromkeys(SCALES), self.scale, kind="scale")
        if self.images is not None and self.images < 1:
            raise InvalidCase(f"A row needs at least one image, got {self.images}; raise --images.")
        if self.seconds is not None:
            Budget(seconds=self.seconds)  # refuses what is no duration
        if self.device not in ("cpu", "cuda"):
            raise InvalidCase(f"There is no device {self.device!r}; choose cpu or cuda.")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise InvalidCase("This machine offers no CUDA device; use --device cpu.")

    @property
    def words(self) -> list[str]:
        """The options that differ from the defaults and change the numbers, without the paths of this machine."""
        changed = {"images": self.images, "seconds": self.seconds, "seed": self.seed or None}
        device = [] if self.device == "cpu" else [f"--device {self.device}"]
        return [*(f"--{name} {value}" for name, value in changed.items() if value is not None), *device]

    def command(self, table: Table) -> str:
        root = [] if self.data_root is None else ["--data-root DIR"]
        seed = [] if self.seed else ["--seed 0"]
        return " ".join(["leakgauge reproduce", table.name, f"--scale {self.scale}", *root, *self.words, *seed])

    def file(self, table: Table) -> Path:
        """Where the result goes: another scale, or another option, is another file."""
        words = "".join(word.replace("--", "-").replace(" ", "") for word in self.words)
        return self.out / f"{table.name.replace('/', '-')}-{self.scale}{words}.json"


@dataclass(frozen=True)
class PreparedTable:
    """A table whose data is read and whose measures are fixed; nothing was computed yet."""

    bench: Bench
    measures: Mapping[str, Measure]

    def groups(self) -> list[tuple[Measure, list[Row]]]:
        """Rows that are measured in one go, with what measures them; only a row with an ``of`` shares a measure."""
        groups: list[tuple[Measure, list[Row]]] = []
        for row in self.bench.table.rows:
            if row.label not in self.measures:
                continue
            measure = self.measures[row.label]
            if row.of is not None and groups and groups[-1][0] == measure:
                groups[-1][1].append(row)
            else:
                groups.append((measure, [row]))
        return groups

    @property
    def pieces(self) -> list[str]:
        """What there is to watch, one after another; pieces alike take equally long."""
        return [piece for measure, _ in self.groups() for piece in measure.pieces()]


def prepare(table: Table, options: Options) -> PreparedTable:
    """Read the data and fix what measures each row; all bad input shows here."""
    check_reachable(options.out)
    table = table.at(options.scale)
    measures = {
        label: one.adapt(options)
        for label, one in table.measures(options.scale).items()
        if not options.rows or _chosen(label, table, options.rows)
    }
    if not measures:
        raise InvalidCase(
            f"No row of {table.name} is called anything like {' or '.join(map(repr, options.rows))}; leave out --rows, "
            f"or take a part of: {', '.join(row.label for row in table.rows)}."
        )
    bench = Bench(table, options, _dataset(table, options))
    for measure in measures.values():
        measure.check(bench)
    if options.rows:
        _beside(bench)  # a damaged file shows now, not after hours
    return PreparedTable(bench, measures)


def _chosen(label: str, table: Table, texts: Sequence[str]) -> bool:
    labels = {row.label for row in table.rows}
    return any(text == label if text in labels else text in label for text in texts)


def embedded(size: int = 16) -> Dataset:
    """The embedded photographs, the classes in turn, in place of a dataset that is not there."""
    photos = Photos(size=size)()
    order = rank_within_class(photos.test.labels).argsort(stable=True)
    return Dataset(photos.name, photos.train, photos.test[order], photos.class_names)


def _dataset(table: Table, options: Options) -> Dataset:
    """The data of a table, or embedded photographs where those will do."""
    if options.data_root is not None:
        return table.dataset(options.data_root)
    if options.scale == "smoke" or table.stands_in:
        return embedded(16 if options.scale == "smoke" else 32)
    raise InvalidCase(
        f"{table.name} at scale {options.scale!r} needs the data of {table.dataset!r}; name its folder with "
        "--data-root, or use --scale smoke, which makes do with embedded photographs."
    )


def reproduce(
    table: Table | PreparedTable,
    options: Options | None = None,
    watch: Watch = unwatched,
    executor: Executor = InProcess(),
) -> TableResult:
    """Measure every row that the output folder does not hold yet; a finished table is written to its JSON file.

    Interrupted, it returns the rows it has, and the same call resumes.
    """
    prepared = table if isinstance(table, PreparedTable) else prepare(table, options or Options())
    bench = replace(prepared.bench, watch=watch, executor=executor)
    rows: list[RowResult] = []
    complete = True
    try:
        for measure, own in prepared.groups():
            found = _measure(bench, measure, [row.name for row in own])
            rows += [RowResult(row, measure, found[row.name]) for row in own]
            bench = replace(bench, index=bench.index + len(measure.pieces()))
    except KeyboardInterrupt:
        complete = False
        if not rows:
            raise
    result = TableResult(bench, tuple(rows), complete, _beside(bench) if bench.options.rows else {})
    if complete:
        result.write(bench.options.file(bench.table))
    return result


def _beside(bench: Bench) -> dict[str, Any]:
    """The rows of the file, by label, that would be measured today as they were; each says by which code it was."""
    options, table = bench.options, bench.table
    file = options.file(table)
    if not file.is_file():
        return {}
    try:
        result = json.loads(file.read_text(encoding="utf-8"))
        kept = {row["label"]: {"code": result["fingerprint"], **row} for row in result["rows"]}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InvalidFile(f"The result in {file} is damaged; delete it, and measure all rows.") from error
    recipes = {row.label: recipe_fingerprint(row, row.at(options.scale).adapt(options)) for row in table.rows}
    return {label: row for label, row in kept.items() if row.get("fingerprint") == recipes.get(label)}


def row_key(bench: Bench, measure: Measure, names: Sequence[str]) -> str:
    """The name of the file that keeps rows: another recipe, other code, data or options give another one."""
    table, options = bench.table, bench.options
    words = (
        repr(measure),
        *measure.read(bench),
        *names,
        *table.metrics,
        options.scale,
        options.device,
        repr(options.weights),
    )
    frame = (table.name, table.threat_model, table.auxiliary, table.best, table.per_image)
    return data_key((*words, repr(frame)), bench)


def data_key(words: Sequence[str], bench: Bench) -> str:
    """A fingerprint of words, code, data and seed: the name of a file that keeps what follows from them."""
    data = bench.data
    tensors = (data.train.labels, data.train.inputs[:_DIGESTED], data.test.labels, data.test.inputs[:_DIGESTED])
    return digest((measuring_code(), *words, data.name), tensors, (bench.seed,))


def _measure(bench: Bench, measure: Measure, names: Sequence[str]) -> Mapping[str, Found]:
    path = writable_folder(bench.folder) / f"{row_key(bench, measure, names)}.safetensors"
    if path.is_file():
        return read_rows(path)
    found = measure(bench, names)
    pictures = {
        f"{name}/{kind}": images[:MOST]
        for name, one in found.items()
        for kind, images in (("originals", one.originals), ("estimates", one.estimates))
        if images is not None
    }
    write_tensors(path, pictures, {name: json.dumps(numbers_of(one)) for name, one in found.items()})
    return found


def read_rows(path: Path) -> dict[str, Found]:
    """What was kept of rows that are measured in one go."""
    pictures, texts = read_tensors(path)
    try:
        return {
            name: found_of(json.loads(text), pictures.get(f"{name}/originals"), pictures.get(f"{name}/estimates"))
            for name, text in texts.items()
        }
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InvalidFile(f"The rows in {path} are damaged; delete the file, and they are measured again.") from error
