"""Run an experiment: row by row through the pipeline of every audit, so that it has nulls and can be resumed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from leakgauge.attacks.budget import Budget, with_budget
from leakgauge.audit.case import Case
from leakgauge.audit.executors import InProcess
from leakgauge.audit.grid import Round, grid
from leakgauge.audit.plan import client_others
from leakgauge.audit.record import Record
from leakgauge.audit.run import Metrics
from leakgauge.audit.store import FolderStore, check_reachable
from leakgauge.catalogue import build_metrics
from leakgauge.config import build, build_threat_model
from leakgauge.data import Dataset
from leakgauge.errors import InvalidCase
from leakgauge.progress import Progress, silent
from leakgauge.protocol.learner import learner_and_state
from leakgauge.protocol.round import Federation
from leakgauge.randomness import seeded
from leakgauge.reproduce.draws import Chosen
from leakgauge.reproduce.experiment import SCALES, Experiment, Named, Row, Scale, Setting
from leakgauge.reproduce.generators import Preparable
from leakgauge.reproduce.result import Reproduction, RowResult
from leakgauge.reproduce.victims import dataset_of, train_head_only
from leakgauge.threads import suitable_threads
from leakgauge.training import Trained, TrainingPlan, Victim, kept_victim, prepare_training, run_training
from leakgauge.types import Batch

_TESTED = 2000
"""Test images that the accuracy under a defence is taken on."""


@dataclass(frozen=True)
class Options:
    """How an experiment is run. ``images`` per row and ``seconds`` per update replace those of the scale.

    ``weights`` are those of LPIPS; without them, and without LEAKGAUGE_WEIGHTS, it is not measured.
    """

    scale: Scale = "smoke"
    data_root: Path | None = None
    out: Path = Path("reproduced")
    images: int | None = None
    seconds: float | None = None
    seed: int = 0
    device: str = "cpu"
    weights: Path | None = None

    def __post_init__(self) -> None:
        build({scale: lambda: None for scale in SCALES}, self.scale, kind="scale")
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

    def command(self, experiment: Named) -> str:
        root = [] if self.data_root is None else ["--data-root DIR"]
        seed = [] if self.seed else ["--seed 0"]
        return " ".join(["leakgauge reproduce", experiment.name, f"--scale {self.scale}", *root, *self.words, *seed])

    def file(self, experiment: Named) -> Path:
        """Where the result goes: another scale, or another option, is another file."""
        words = "".join(word.replace("--", "-").replace(" ", "") for word in self.words)
        return self.out / f"{experiment.name.replace('/', '-')}-{self.scale}{words}.json"


class Watch(Protocol):
    """Who is told how far an experiment has come."""

    def training(self, label: str) -> Progress: ...

    def attacking(self, number: int, case: Case) -> Progress: ...


class Unwatched:
    def training(self, label: str) -> Progress:
        del label
        return silent

    def attacking(self, number: int, case: Case) -> Progress:
        del number, case
        return silent


@dataclass(frozen=True)
class Prepared:
    """An experiment whose data is read and whose settings are fixed; nothing was computed yet."""

    experiment: Experiment
    options: Options
    dataset: Dataset
    settings: dict[str, Setting]
    metrics: Metrics

    @property
    def labels(self) -> list[str]:
        """The row of each case that is to be run."""
        return [label for label, one in self.settings.items() for _ in range(one.updates + min(one.nulls, one.updates))]


def prepare(experiment: Experiment, options: Options) -> Prepared:
    """Read the data and fix the settings; all bad input shows here."""
    check_reachable(options.out)
    settings = {label: _adapted(one, options) for label, one in experiment.settings(options.scale).items()}
    dataset = _dataset(experiment, options)
    for setting in settings.values():
        _draw(setting, _private(experiment, dataset), options.seed)
    metrics = _metrics(experiment, options)
    return Prepared(experiment, options, dataset, settings, metrics)


def reproduce(
    experiment: Experiment | Prepared, options: Options | None = None, watch: Watch | None = None
) -> Reproduction:
    """Run every row that the output folder does not hold yet; a finished experiment is written to its JSON file.

    Interrupted, it returns the rows it has, and the same call resumes.
    """
    prepared = experiment if isinstance(experiment, Prepared) else prepare(experiment, options or Options())
    watch = watch or Unwatched()
    store = FolderStore.create(prepared.options.out)
    rows: list[RowResult] = []
    utilities: dict[TrainingPlan, Trained] = {}
    complete, number = True, 0
    try:
        for row in prepared.experiment.rows:
            setting = prepared.settings[row.label]
            rows.append(_run(row, setting, prepared, store, watch, number))
            if (words := setting.utility) is not None:
                utilities[words] = utilities.get(words) or _utility(words, prepared, row, watch)
                rows[-1] = replace(rows[-1], utility=utilities[words])
            number += prepared.labels.count(row.label)
    except KeyboardInterrupt:
        complete = False
        if not rows:
            raise
    result = Reproduction(
        experiment=prepared.experiment,
        command=prepared.options.command(prepared.experiment),
        scale=prepared.options.scale,
        seed=prepared.options.seed,
        dataset=prepared.dataset.name,
        rows=tuple(rows),
        complete=complete,
    )
    if complete:
        result.write(prepared.options.file(prepared.experiment))
    return result


def _run(row: Row, setting: Setting, prepared: Prepared, store: FolderStore, watch: Watch, number: int) -> RowResult:
    training = watch.training(row.label)
    ready = _ready(setting, prepared, training)
    chosen = _draw(setting, _private(prepared.experiment, prepared.dataset), prepared.options.seed)
    truths, decoys = chosen[: setting.updates], chosen[setting.updates :]
    records: list[Record] = []
    for index in range(setting.models):
        one = kept_victim(
            setting.model,
            prepared.dataset,
            setting.training,
            prepared.options.out / "models",
            seed=prepared.options.seed + index,
            classes=setting.classes,
            progress=training,
        )
        cases = _cases(row, ready, one, prepared, truths[index :: setting.models], decoys[index :: setting.models])
        parameters = cases[0].source.num_parameters
        with suitable_threads(parameters):
            for record in _records(cases, prepared.metrics, store, watch, number + len(records)):
                records.append(record)
    # Model by model they were run; here they stand in the order of the updates.
    attacked = [record for record in records if not record.null]
    order = sorted(range(setting.updates), key=lambda update: (update % setting.models, update))
    by_update = dict(zip(order, attacked, strict=True))
    return RowResult(
        row=row,
        setting=setting,
        victims=tuple(tuple(one.images.tolist()) for one in truths),
        parameters=parameters,
        accuracy=one.accuracy,
        records=tuple(by_update[update] for update in range(setting.updates)),
        nulls=tuple(record for record in records if record.null),
    )


def _ready(setting: Setting, prepared: Prepared, progress: Progress) -> Setting:
    """The setting with what its attack needs made of the public data; the output folder keeps it."""
    attack, options = setting.attack, prepared.options
    if not isinstance(attack, Preparable):
        return setting
    made = attack.prepared(prepared.dataset, seed=options.seed, folder=options.out / "generators", progress=progress)
    return replace(setting, attack=made)


def _utility(words: TrainingPlan, prepared: Prepared, row: Row, watch: Watch) -> Trained:
    """What a defence costs: the training that the output folder may hold already, and its accuracy."""
    data = prepared.dataset
    # All test images, ten encodings each under InstaHide, would take longer than the training.
    some = replace(data, test=data.test[:_TESTED], highlights=())
    plan = replace(words, dataset=data.name, seed=prepared.options.seed)
    return run_training(prepare_training(plan, some), prepared.options.out, watch.training(row.label))


def _metrics(experiment: Experiment, options: Options) -> Metrics:
    return build_metrics(experiment.metrics, options.weights)


def _records(cases: list[Case], metrics: Metrics, store: FolderStore, watch: Watch, number: int) -> Iterator[Record]:
    def attacking(index: int, title: str, slot: int = 0) -> Progress:
        del title, slot
        return watch.attacking(number + index, cases[index])

    return InProcess().run(cases, metrics, store, attacking)


def _cases(
    row: Row, setting: Setting, one: Victim, prepared: Prepared, truths: list[Chosen], decoys: list[Chosen]
) -> list[Case]:
    device = torch.device(prepared.options.device)
    dataset = prepared.dataset
    module = one.module.to(device)
    if setting.head_only:
        train_head_only(module, dataset.space)
    learner, state = learner_and_state(module, mode=setting.mode)
    batches = [_on(device, Batch(dataset.test.inputs[chosen.images], chosen.labels)) for chosen in (*truths, *decoys)]
    real, unrelated = batches[: len(truths)], batches[len(truths) :]
    count = _auxiliary(prepared.experiment, dataset)
    cases = grid(
        Federation(learner, state, setting.local_update),
        [
            Round(
                truth,
                unrelated[number % len(unrelated)] if unrelated else truth,
                None,
                _others(dataset, prepared.options.seed, number, device),
            )
            for number, truth in enumerate(real)
        ],
        defences={"none": setting.defence},
        attacks={row.label: setting.attack},
        threat_model=build_threat_model(setting.threat_model or prepared.experiment.threat_model),
        seed=prepared.options.seed,
        auxiliary=_on(device, dataset.test[-count:]) if count else None,
    )
    return [case for case in cases if not case.null or case.round < len(unrelated)]


def _others(dataset: Dataset, seed: int, number: int, device: torch.device) -> Batch | None:
    others = client_others(dataset, seed=seed, number=number)
    return None if others is None else _on(device, others)


def _private(experiment: Experiment, dataset: Dataset) -> torch.Tensor:
    """The labels of the images that updates are made of: all but those that the attacker holds."""
    return dataset.test.labels[: len(dataset.test) - _auxiliary(experiment, dataset)]


def _auxiliary(experiment: Experiment, dataset: Dataset) -> int:
    """How many test images the attacker holds: half at most, where few stand in for the paper's data."""
    return min(experiment.auxiliary, len(dataset.test) // 2)


def _draw(setting: Setting, labels: torch.Tensor, seed: int) -> list[Chosen]:
    """The images of each update, then those of each null."""
    return setting.draw(
        labels,
        updates=setting.updates + min(setting.nulls, setting.updates),
        batch_size=setting.batch_size,
        minibatch=setting.minibatch,
        classes=setting.classes or int(labels.max()) + 1,
        generator=seeded(seed, "victims"),
    )


def _on(device: torch.device, batch: Batch) -> Batch:
    return Batch(batch.inputs.to(device), batch.labels.to(device))


def _adapted(setting: Setting, options: Options) -> Setting:
    changes: dict[str, Any] = {}
    if options.images is not None:
        updates = -(-options.images // setting.batch_size)
        changes |= {"updates": updates, "models": min(setting.models, updates)}
    if options.seconds is not None:
        # By the work of this process, so that a busy machine does not change what an attack may do.
        budget = Budget(seconds=options.seconds, clock="wall" if options.device == "cuda" else "cpu")
        changes["attack"] = with_budget(setting.attack, budget)
    return replace(setting, **changes)


def _dataset(experiment: Experiment, options: Options) -> Dataset:
    return dataset_of(
        experiment.name, experiment.dataset, options.data_root, options.scale, stands_in=experiment.stands_in
    )
