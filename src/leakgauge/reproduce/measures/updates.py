"""Rows that attack updates, through the cases of every audit: with nulls, resumed case by case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from leakgauge.attacks.base import Attack
from leakgauge.attacks.budget import Budget, with_budget
from leakgauge.audit.case import Case
from leakgauge.audit.draws import client_others
from leakgauge.audit.grid import Round, grid
from leakgauge.audit.record import Record
from leakgauge.audit.store import FolderStore
from leakgauge.catalogue import build_metrics, describe_metric
from leakgauge.config import build_threat_model
from leakgauge.data import Dataset
from leakgauge.defences import Defence, NoDefence
from leakgauge.errors import InvalidCase
from leakgauge.files import finite, inside, read_tensors
from leakgauge.fingerprint import digest
from leakgauge.metrics.lpips import find_weights
from leakgauge.models import ModelFactory
from leakgauge.progress import Progress, Tick
from leakgauge.protocol.learner import Mode, learner_and_state
from leakgauge.protocol.local_update import FedSGD, LocalUpdate
from leakgauge.protocol.round import Federation
from leakgauge.randomness import seeded
from leakgauge.report.images import MOST
from leakgauge.reproduce.draws import Chosen, Draw, InOrder
from leakgauge.reproduce.generators import WithGenerator
from leakgauge.reproduce.scales import Scale
from leakgauge.reproduce.table import Bench, Found, Measure, Measured, Table
from leakgauge.space import InputSpace
from leakgauge.threads import suitable_threads
from leakgauge.training import (
    Pretrained,
    Trained,
    Training,
    TrainingPlan,
    Victim,
    kept_victim,
    loaded_victim,
    prepare_training,
    run_training,
)
from leakgauge.training.models import require_training_images
from leakgauge.types import Batch, Outcome

if TYPE_CHECKING:
    from leakgauge.reproduce.run import Options

A = TypeVar("A", bound=Attack)

_TESTED = 2000
"""Test images that the accuracy under a defence is taken on."""


@dataclass(frozen=True)
class Setting(Measure):
    """The client, the model it was sent, and the attack on its update.

    ``updates`` are attacked, each of other images, and as many unrelated ones as ``nulls`` says; they are shared out
    among so many ``models``, each of another seed. ``training`` is None for an untrained model. With ``head_only`` the
    client trains the last layer alone, whose update is the same: enough for labels, at a third of the work.
    ``threat_model`` replaces that of the table; ``utility`` is the training that says what the defence costs.
    """

    model: ModelFactory
    attack: Attack
    updates: int
    nulls: int = 1
    batch_size: int = 1
    local_update: LocalUpdate = FedSGD()
    mode: Mode = "eval"
    training: Training | Pretrained | None = None
    draw: Draw = InOrder()
    models: int = 1
    classes: int | None = None
    head_only: bool = False
    defence: Defence = NoDefence()
    threat_model: str | None = None
    utility: TrainingPlan | None = None

    def __call__(self, bench: Bench, names: Sequence[str]) -> dict[str, Found]:
        return {name: self._measure(bench, name) for name in names}

    @property
    def minibatch(self) -> int:
        """How many images share a gradient."""
        return min(self.batch_size, getattr(self.local_update, "batch_size", self.batch_size))

    def planned(self) -> dict[str, Any]:
        names = ("attack", "model", "local_update", "batch_size", "mode", "defence", "draw", "models", "classes")
        return {name: getattr(self, name) for name in names}

    def adapt(self, options: Options) -> Setting:
        changes: dict[str, Any] = {}
        if options.images is not None:
            updates = -(-options.images // self.batch_size)
            changes |= {"updates": updates, "models": min(self.models, updates)}
        if options.seconds is not None:
            changes["attack"] = with_budget(self.attack, Budget(seconds=options.seconds))
        return replace(self, **changes)

    def check(self, bench: Bench) -> None:
        self._draw(bench)
        build_metrics(bench.table.metrics, bench.options.weights)
        if isinstance(self.training, Pretrained):
            self.training.path(find_weights(bench.options.weights))
        elif self.training is not None:
            require_training_images(bench.data, "A trained model needs")

    def read(self, bench: Bench) -> tuple[str, ...]:
        if not isinstance(self.training, Pretrained):
            return ()
        tensors, _ = read_tensors(self.training.path(find_weights(bench.options.weights)))
        return (digest(tensors, tensors.values(), ()),)

    def pieces(self) -> list[str]:
        return [repr(self.attack)] * (self.updates + min(self.nulls, self.updates))

    def summary(self) -> str:
        parts = [brief(self.model)] + ([brief(self.local_update)] if self.local_update != FedSGD() else [])
        return ", ".join(parts)

    def _measure(self, bench: Bench, name: str) -> Found:
        attack, folder = self.attack, bench.options.out
        if isinstance(attack, WithGenerator):
            progress = _lazily(bench, f"training the generator of {name}")
            attack = attack.prepare(
                bench.data, seed=bench.seed, folder=inside(folder, "generators", folder), progress=progress
            )
        ready = replace(self, attack=attack)
        chosen = self._draw(bench)
        truths, decoys = chosen[: self.updates], chosen[self.updates :]
        store = FolderStore.create(folder)
        metrics = build_metrics(bench.table.metrics, bench.options.weights)
        records: list[Record] = []
        for index in range(self.models):
            progress = _lazily(bench, f"training the model of {name}", len(records))
            one = self._victim(bench, index, progress)
            cases = ready._cases(bench, name, one, truths[index :: self.models], decoys[index :: self.models])
            parameters = cases[0].source.num_parameters
            with suitable_threads(parameters):
                records += bench.executor.run(cases, metrics, store, partial(_begin, bench, len(records)))
        if failures := [record for record in records if record.outcome is Outcome.FAILED]:
            raise InvalidCase(f"{len(failures)} of the {len(records)} attacks of {name} failed: {failures[0].reason}")
        # Model by model they were run; here they stand in the order of the updates.
        order = sorted(range(self.updates), key=lambda update: (update % self.models, update))
        attacked = dict(zip(order, (record for record in records if not record.null), strict=True))
        return self._found(
            bench,
            [attacked[update] for update in range(self.updates)],
            [record for record in records if record.null],
            victims=[one.images.tolist() for one in truths],
            parameters=parameters,
            accuracy=one.accuracy,
            utility=self._cost(bench, name),
        )

    def _victim(self, bench: Bench, index: int, progress: Progress) -> Victim:
        """The model of that number: as it is made, trained, or read."""
        seed = bench.seed + index
        if isinstance(self.training, Pretrained):
            path = self.training.path(find_weights(bench.options.weights))
            return loaded_victim(self.model, bench.data, path, seed=seed, classes=self.classes)
        return kept_victim(
            self.model,
            bench.data,
            self.training,
            inside(bench.options.out, "models", bench.options.out),
            seed=seed,
            classes=self.classes,
            progress=progress,
        )

    def _found(
        self,
        bench: Bench,
        records: Sequence[Record],
        nulls: Sequence[Record],
        *,
        victims: Sequence[list[int]],
        parameters: int,
        accuracy: float | None,
        utility: Trained | None,
    ) -> Found:
        made = [int(record.facts["steps"]) for record in records if "steps" in record.facts]
        facts = {
            "steps": [min(made), max(made)] if made else None,
            "seconds_per_update": round(fmean(record.seconds for record in records), 3),
            **self.described(),
            "parameters": parameters,
            "training": None if self.training is None else {**asdict(self.training), "accuracy": accuracy},
            "utility": None if utility is None else utility.to_dict(),
            "threat_model": self.threat_model or bench.table.threat_model,
            "assumptions": [fact.to_dict() for fact in records[0].ledger],
            "updates": [_update(record, images) for record, images in zip(records, victims, strict=True)],
            "nulls": [_update(record, None) for record in nulls],
        }
        pictures = _pictures(bench.table, records)
        return Found(summarise(bench.table, records), summarise(bench.table, nulls), facts, *pictures)

    def _cost(self, bench: Bench, name: str) -> Trained | None:
        """What the defence costs: the training that the output folder may hold already, and its accuracy."""
        if self.utility is None:
            return None
        data = bench.data
        # All test images, ten encodings each under InstaHide, would take longer than the training.
        some = replace(data, test=data.test[:_TESTED], highlights=())
        plan = replace(self.utility, dataset=data.name, seed=bench.seed)
        progress = _lazily(bench, f"training under the defence of {name}", len(self.pieces()) - 1)
        return run_training(prepare_training(plan, some), bench.options.out, progress)

    def _draw(self, bench: Bench) -> list[Chosen]:
        """The images of each update, then those of each null; none is one that the attacker holds."""
        test = bench.data.test
        labels = test.labels[: len(test) - _auxiliary(bench.table, bench.data)]
        classes, nulls = self.classes or int(labels.max()) + 1, min(self.nulls, self.updates)

        def drawn(draw: Draw, updates: int, stage: str) -> list[Chosen]:
            generator = seeded(bench.seed, stage)
            sizes = {"batch_size": self.batch_size, "minibatch": self.minibatch, "classes": classes}
            return draw(labels, updates=updates, generator=generator, **sizes)

        if (of_nulls := self.draw.of_nulls(classes)) == self.draw:
            return drawn(self.draw, self.updates + nulls, "victims")
        return drawn(self.draw, self.updates, "victims") + drawn(of_nulls, nulls, "nulls")

    def _cases(
        self, bench: Bench, name: str, one: Victim, truths: Sequence[Chosen], decoys: Sequence[Chosen]
    ) -> list[Case]:
        device, data = torch.device(bench.options.device), bench.data
        module = one.module.to(device)
        if self.head_only:
            train_head_only(module, data.space)
        learner, state = learner_and_state(module, mode=self.mode)
        real, unrelated = (
            [_on(device, Batch(data.test.inputs[own.images], own.labels)) for own in part] for part in (truths, decoys)
        )
        count = _auxiliary(bench.table, data)
        rounds = [
            Round(
                truth,
                (unrelated[number],) if number < len(unrelated) else (),
                None,
                None
                if (others := client_others(data, seed=bench.seed, number=number)) is None
                else _on(device, others),
            )
            for number, truth in enumerate(real)
        ]
        return grid(
            Federation(learner, state, self.local_update),
            rounds,
            defences={"none": self.defence},
            attacks={name: self.attack},
            threat_model=build_threat_model(self.threat_model or bench.table.threat_model),
            seed=bench.seed,
            auxiliary=_on(device, data.test[-count:]) if count else None,
        )


def train_head_only(module: nn.Module, space: InputSpace) -> None:
    """Freeze everything below the classifier, so that a client's pass through it keeps nothing for a gradient."""
    learner, state = learner_and_state(module)
    head = learner.classifier(state, space.probe(2, state))
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name.startswith(f"{head}."))


def budget_of(attack: Any) -> Any:
    """The budget of an attack or of the one it wraps; None if it has none."""
    while attack is not None:
        if (budget := getattr(attack, "budget", None)) is not None:
            return budget
        attack = getattr(attack, "attack", None)
    return None


def limit(attack: A, scale: Scale, *, cpu: Budget, long: Budget | None = None, full: Budget | None = None) -> A:
    """The attack with the work that a scale allows it: two steps, so much on a CPU, for ``long`` as much unless it is
    given more, and its own for ``full`` where none is given."""
    budgets = {"smoke": Budget(steps=2), "cpu": cpu, "long": long or cpu, "full": full or budget_of(attack)}
    budget = budgets[scale]
    changed: A = with_budget(attack, budget)
    return changed


def summarise(table: Table, records: Sequence[Record]) -> dict[str, Measured]:
    """Means and spreads of all metrics, as the table has them."""
    return {
        metric: Measured.of(
            [record.scores[metric] for record in records],
            table.best,
            per_image=table.per_image,
            lower=not describe_metric(metric).higher_is_leakier,
        )
        for metric in table.metrics
    }


def brief(part: Any) -> str:
    """A configuration without what is its default.

    >>> from leakgauge.models import ResNet
    >>> brief(ResNet(depth=34))
    'ResNet(depth=34)'
    """
    changed = (f"{one.name}={value!r}" for one in fields(part) if (value := getattr(part, one.name)) != one.default)
    return f"{type(part).__name__}({', '.join(changed)})"


def _lazily(bench: Bench, title: str, piece: int = 0) -> Progress:
    """Tells of work that begins with its first step, if it has any: a training may have been kept."""
    begun: list[Progress] = []

    def tell(tick: Tick) -> None:
        if not begun:
            begun.append(bench.begin(title, piece))
        begun[0](tick)

    return tell


def _begin(bench: Bench, first: int, index: int, title: str, slot: int = 0) -> Progress:
    del slot
    return bench.begin(title, first + index)


def _auxiliary(table: Table, data: Dataset) -> int:
    """How many test images the attacker holds: half at most, where few stand in for the paper's data."""
    return min(table.auxiliary, len(data.test) // 2)


def _on(device: torch.device, batch: Batch) -> Batch:
    return Batch(batch.inputs.to(device), batch.labels.to(device))


def _pictures(table: Table, records: Sequence[Record]) -> tuple[Tensor, Tensor] | tuple[()]:
    """The first images and what came back of them, or the best where the paper shows its best ones."""
    scored = [
        (score, original, found)
        for record in records
        if record.pictures.originals is not None and record.pictures.reconstructions is not None
        for score, original, found in zip(
            record.scores[table.metrics[0]], record.pictures.originals, record.pictures.reconstructions, strict=True
        )
        if bool(torch.isfinite(found).all())
    ]
    if table.best and not table.per_image:
        scored = sorted(scored, key=lambda one: one[0], reverse=True)[: table.best]
    if not scored:
        return ()
    _, originals, found = zip(*scored[:MOST], strict=True)
    return torch.stack(originals), torch.stack(found)


def _update(record: Record, victims: list[int] | None) -> dict[str, Any]:
    # Of labels alone the batch counts, and may be large: its mean stands for its examples, and the seed for its images.
    of_labels = record.restored_counts is not None and record.pictures.originals is None
    scores: dict[str, Any] = {name: [finite(score) for score in scores] for name, scores in record.scores.items()}
    if of_labels:
        scores = {name: Measured.of([values]).mean for name, values in record.scores.items()}
    return {
        **({} if victims is None or of_labels else {"victims": victims}),
        "scores": scores,
        "outcome": record.outcome.name.lower(),
        "facts": {name: finite(value) for name, value in record.facts.items()},
        "seconds": round(record.seconds, 3),
        "environment": dict(record.environment),
    }
