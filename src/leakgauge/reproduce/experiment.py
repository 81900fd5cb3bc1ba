"""What an experiment of a paper is: rows with a published number each, and how to run a row at a scale."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

from leakgauge.attacks.base import Attack
from leakgauge.data import DataSource
from leakgauge.defences import Defence, NoDefence
from leakgauge.models import ModelFactory
from leakgauge.protocol.learner import Mode
from leakgauge.protocol.local_update import FedSGD, LocalUpdate
from leakgauge.reproduce.contest import Contest
from leakgauge.reproduce.draws import Draw, InOrder
from leakgauge.training import Training
from leakgauge.training.run import TrainingPlan

Scale = Literal["smoke", "cpu", "full"]
"""smoke: seconds, to see that it runs; cpu: up to an hour on one core; full: the paper's own numbers, for a GPU."""

SCALES: tuple[Scale, ...] = get_args(Scale)


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
class Setting:
    """One row at one scale: the client, the model it was sent, and the attack on its update.

    ``updates`` are attacked, each of other images, and as many unrelated ones as ``nulls`` says; they are shared out
    among so many ``models``, each of another seed. ``training`` is None for an untrained model. With ``head_only`` the
    client trains the last layer alone, whose update is the same: enough for labels, at a third of the work.
    ``threat_model`` replaces that of the experiment; ``utility`` is the training that says what the defence costs.
    """

    model: ModelFactory
    attack: Attack
    updates: int
    nulls: int = 1
    batch_size: int = 1
    local_update: LocalUpdate = FedSGD()
    mode: Mode = "eval"
    training: Training | None = None
    draw: Draw = InOrder()
    models: int = 1
    classes: int | None = None
    head_only: bool = False
    defence: Defence = NoDefence()
    threat_model: str | None = None
    utility: TrainingPlan | None = None

    @property
    def minibatch(self) -> int:
        """How many images share a gradient."""
        return min(self.batch_size, getattr(self.local_update, "batch_size", self.batch_size))


@dataclass(frozen=True)
class Row:
    """One line of a table. ``published`` is of the first metric, None for a line of our own; ``also`` of others.

    Rows of one ``group`` are those whose order the paper speaks of, or the ``arm``s of a contest on the same updates;
    ``beside`` is what the paper prints for its own attack where a line is of ours.
    """

    label: str
    published: Published | None
    at: Callable[[Scale], Setting]
    also: Mapping[str, Published] = field(default_factory=dict)
    group: str | None = None
    beside: Published | None = None
    arm: str | None = None

    def published_of(self, metric: str, first: str) -> Published | None:
        return self.published if metric == first else self.also.get(metric)


@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper. The first of ``metrics`` is the one it prints; ``shown`` of them are in our table.

    ``assumptions`` are what the paper leaves open and what differs here. ``best``, where the paper shows only its best
    images, is how many: a choice made with the originals in hand, so the mean over all is always given as well.
    ``auxiliary`` test images, the last, are the attacker's if the threat model gives it some. ``stands_in``: without
    its data the experiment runs on embedded photographs at every scale, not only for a smoke test. ``per_image``:
    spread and best are over images, as the paper has them, and not over updates. ``contest`` says who is ahead.
    """

    name: str
    title: str
    dataset: DataSource
    rows: tuple[Row, ...]
    assumptions: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ("psnr", "ssim")
    threat_model: str = "informed"
    best: int = 0
    shown: int = 1
    auxiliary: int = 0
    stands_in: bool = False
    per_image: bool = False
    contest: Contest | None = None

    def settings(self, scale: Scale) -> dict[str, Setting]:
        return {row.label: row.at(scale) for row in self.rows}

    def verdict(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
        """Who is ahead, from the rows of a result file, however old; None without a contest or updates enough."""
        arms = {row.label: (row.group, row.arm) for row in self.rows if row.group is not None and row.arm is not None}
        return None if self.contest is None else self.contest.verdict(rows, arms)

    def __repr__(self) -> str:
        return f"Experiment({self.name!r})"


class Named(Protocol):
    """A table or figure of whatever kind, by its name."""

    @property
    def name(self) -> str: ...


def budget_of(attack: Any) -> Any:
    """The budget of an attack or of the one it wraps; None if it has none."""
    while attack is not None:
        if (budget := getattr(attack, "budget", None)) is not None:
            return budget
        attack = getattr(attack, "attack", None)
    return None
