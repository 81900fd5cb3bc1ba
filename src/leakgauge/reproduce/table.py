"""What a table of a paper is: rows, each with the numbers that were published and with what measures it at a scale."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from torch import Tensor

from leakgauge.audit.executors import Executor, InProcess
from leakgauge.data import Dataset, DataSource
from leakgauge.errors import InvalidCase
from leakgauge.files import finite, inside
from leakgauge.fingerprint import answering_code, code_fingerprint, digest
from leakgauge.progress import Progress, Watch, unwatched
from leakgauge.reproduce.contest import Contest
from leakgauge.reproduce.scales import Scale
from leakgauge.training.models import require_training_images

if TYPE_CHECKING:
    from leakgauge.reproduce.run import Options

T = TypeVar("T")


@dataclass(frozen=True)
class Published:
    """A number as the paper prints it. ``mean`` is None where it gives none as text; ``spread`` says what follows ±.

    ``best`` is that of the image that came back best, where the paper gives it.
    """

    mean: float | None
    deviation: float | None
    source: str
    spread: Literal["standard deviation", "standard error"] = "standard deviation"
    best: float | None = None


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

    @classmethod
    def over_seeds(cls, values: Sequence[float], images: int) -> Measured:
        """Of one number for each seed, each taken over so many images.

        >>> Measured.over_seeds([0.25, 0.75], images=10).images
        20
        """
        found = cls.of([[value] for value in values])
        return cls(found.mean, found.deviation, found.standard_error, found.updates, images * found.updates)


@dataclass(frozen=True)
class Found:
    """One row as measured: our numbers and those of the null, by metric.

    ``facts`` are what else the file holds of the row, as JSON has it: what was run, what the attacker was told, the
    seconds. ``originals`` and ``estimates`` are pairs of pictures.
    """

    ours: Mapping[str, Measured]
    null: Mapping[str, Measured]
    facts: Mapping[str, Any]
    originals: Tensor | None = None
    estimates: Tensor | None = None

    @classmethod
    def of(
        cls,
        ours: Mapping[str, Measured],
        null: Mapping[str, Measured],
        seconds: float,
        setting: Mapping[str, Any],
        given: Sequence[str] = (),
        pictures: tuple[Tensor, Tensor] | None = None,
    ) -> Found:
        """Where no update is attacked: ``setting`` is what was run, ``given`` what the attacker was told."""
        facts = {
            "seconds": round(seconds, 3),
            "setting": {name: finite(value) for name, value in setting.items()},
            "assumptions": list(given),
        }
        return cls(ours, null, facts, *(pictures or ()))

    @property
    def seconds(self) -> float:
        """Of one update where updates were attacked, of the row otherwise."""
        taken: float = self.facts.get("seconds_per_update", self.facts.get("seconds"))
        return taken


@dataclass(frozen=True)
class Bench:
    """What a row is measured with: the table it is in, how that is run, and its data.

    ``index`` is the number of the row's first piece of work, for whoever watches.
    """

    table: Table
    options: Options
    data: Dataset
    watch: Watch = unwatched
    index: int = 0
    executor: Executor = InProcess()
    _shared: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def scale(self) -> Scale:
        return self.options.scale

    @property
    def seed(self) -> int:
        return self.options.seed

    @property
    def folder(self) -> Path:
        """Keeps finished rows, and what several of them share."""
        return inside(self.options.out, "rows", self.options.out)

    def begin(self, title: str, piece: int = 0) -> Progress:
        """Tell the watch what begins, in one of the row's pieces; the answer is to be told how it goes on."""
        return self.watch(self.index + piece, title)

    def share(self, key: str, make: Callable[[], T]) -> T:
        """What several rows of one run need, made by the first of them."""
        if key not in self._shared:
            self._shared[key] = make()
        found: T = self._shared[key]
        return found


@cache
def measuring_code() -> str:
    """A digest of the source that decides the numbers of a row: that which answers cases, and this room."""
    return digest((answering_code(), code_fingerprint("reproduce")), (), ())


class Measure(ABC):
    """What fills rows of a table. Frozen dataclasses: the ``repr`` is the recipe, which files and keys go by."""

    @abstractmethod
    def __call__(self, bench: Bench, names: Sequence[str]) -> Mapping[str, Found]:
        """Measure the rows of these names in one go."""

    @abstractmethod
    def planned(self) -> dict[str, Any]:
        """What of the facts is known before anything is run."""

    def described(self) -> dict[str, Any]:
        """What is planned, as a file says it: numbers and words as they are, all else by its recipe."""
        planned = self.planned().items()
        return {name: one if isinstance(one, str | int | float | None) else repr(one) for name, one in planned}

    def adapt(self, options: Options) -> Measure:
        """The measure with the images and seconds that replace those of its scale."""
        if options.images is not None or options.seconds is not None:
            raise InvalidCase(
                "The table attacks no updates, so it takes neither --images nor --seconds; leave them out."
            )
        return self

    def check(self, bench: Bench) -> None:
        """Refuse what cannot be measured, before anything is."""
        require_training_images(bench.data, "The table needs")

    def read(self, bench: Bench) -> tuple[str, ...]:
        """Digests of the files that the numbers depend on besides the data."""
        del bench
        return ()

    def pieces(self) -> list[str]:
        """The pieces of work to be watched for one name; pieces alike take equally long."""
        return [type(self).__name__]

    def summary(self) -> str:
        """What a reader of the table is to know besides the row's label."""
        return ""


@dataclass(frozen=True)
class Row:
    """One line of a table. ``published`` is of the first metric, None for a line of our own; ``also`` of others.

    Rows that follow one another with equal measures are measured in one go, where ``of`` says which part of it is
    theirs. Rows of one ``group`` are those whose order the paper speaks of, or the ``arm``s of a contest on the same
    updates; ``beside`` is what the paper prints for its own attack where a line is of ours. Scales that are
    ``left_out`` go without the row.
    """

    label: str
    published: Published | None
    at: Callable[[Scale], Measure]
    also: Mapping[str, Published] = field(default_factory=dict)
    group: str | None = None
    beside: Published | None = None
    arm: str | None = None
    of: str | None = None
    left_out: frozenset[Scale] = frozenset()

    @classmethod
    def printed(
        cls,
        label: str,
        numbers: Mapping[str, Published],
        first: str,
        at: Callable[[Scale], Measure],
        left_out: frozenset[Scale] = frozenset(),
    ) -> Row:
        """A row with all that the paper prints of it, by metric; ``first`` is the table's own."""
        also = {metric: value for metric, value in numbers.items() if metric != first}
        return cls(label, numbers.get(first), at, also, left_out=left_out)

    @property
    def name(self) -> str:
        return self.of or self.label

    def published_of(self, metric: str, first: str) -> Published | None:
        return self.published if metric == first else self.also.get(metric)


@dataclass(frozen=True)
class Table:
    """A table or figure of a paper. The first of ``metrics`` is the one it prints; ``shown`` of them are in our table.

    ``assumptions`` are what the paper leaves open and what differs here; ``shrunk`` says what a scale makes smaller and
    ``null`` what the null of a row is, where it is not the attack on an unrelated update. ``best``, where the paper
    shows only its best images, is how many: a choice made with the originals in hand, so the mean over all is always
    given as well. ``auxiliary`` test images, the last, are the attacker's if the threat model gives it some.
    ``stands_in``: without its data the table runs on embedded photographs at every scale, not only for a smoke test.
    ``per_image``: spread and best are over images, as the paper has them, and not over updates. ``contest`` says who is
    ahead.
    """

    name: str
    title: str
    dataset: DataSource
    rows: tuple[Row, ...]
    assumptions: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ("psnr", "ssim")
    threat_model: str = "informed"
    null: str | None = None
    shrunk: Mapping[Scale, str] = field(
        default_factory=lambda: dict.fromkeys(
            ("smoke", "cpu", "long"),
            "Fewer images, less work per attack and, where a row says so, smaller models than in the paper.",
        )
    )
    best: int = 0
    shown: int = 1
    auxiliary: int = 0
    stands_in: bool = False
    per_image: bool = False
    contest: Contest | None = None

    def at(self, scale: Scale) -> Table:
        """The table with the rows that a scale affords."""
        return replace(self, rows=tuple(row for row in self.rows if scale not in row.left_out))

    def measures(self, scale: Scale) -> dict[str, Any]:
        """What measures each row, by its label."""
        return {row.label: row.at(scale) for row in self.rows}

    def verdict(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
        """Who is ahead, from the rows of a result file, however old; None without a contest or updates enough."""
        arms = {row.label: (row.group, row.arm) for row in self.rows if row.group is not None and row.arm is not None}
        return None if self.contest is None else self.contest.verdict(rows, arms)

    def __repr__(self) -> str:
        return f"Table({self.name!r})"
