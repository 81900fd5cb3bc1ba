"""An audit in words: everything a configuration file or the command line can say, and how it becomes cases."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch

from leakgauge.attacks.budget import Budget
from leakgauge.audit.api import DEFAULT_DEFENCES, build_attack, chosen_budget, default_attacks, named_threat_model
from leakgauge.audit.case import Case
from leakgauge.audit.grid import Round, draw_crowd, grid
from leakgauge.audit.run import Metrics
from leakgauge.catalogue import LOCAL_UPDATES, standard_metrics
from leakgauge.config import build, build_dataset, build_defence
from leakgauge.data import Dataset
from leakgauge.errors import InvalidCase
from leakgauge.progress import Progress, silent
from leakgauge.protocol.learner import learner_and_state
from leakgauge.protocol.round import Federation
from leakgauge.randomness import seeded
from leakgauge.training import accuracy, victim_model
from leakgauge.types import Batch
from leakgauge.version import VERSION

_OTHERS = 31
"""Further images of a client whose batch is smaller than what its defence mixes."""

_AUXILIARY = 500
"""How many images an attacker holds who holds some."""


@dataclass(frozen=True)
class Plan:
    """One client audited: its data, model, local algorithm, defences, and the attacks let loose on it.

    ``attacks`` left out are those that suit the inputs.
    """

    dataset: str = "photos"
    data_root: str | None = None
    model: str = "compact"
    state: str | None = None
    train_steps: int | None = None
    mode: str = "eval"
    local_update: str = "fedsgd"
    batch_size: int = 4
    rounds: int = 1
    defences: tuple[str, ...] = DEFAULT_DEFENCES
    attacks: tuple[str, ...] | None = None
    threat_model: str = "informed"
    budget: str | None = None
    steps: int | None = None
    seconds: float | None = None
    distractors: int = 99
    weights: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.rounds < 1 or self.distractors < 0:
            raise InvalidCase(
                f"An audit needs batch_size >= 1, rounds >= 1 and distractors >= 0, got {self.batch_size}, "
                f"{self.rounds} and {self.distractors}; correct the plan."
            )
        if self.train_steps is not None and self.train_steps < 0:
            raise InvalidCase(f"The model needs train_steps >= 0, got {self.train_steps}; 0 leaves it as it is.")
        if self.mode not in ("train", "eval"):
            raise InvalidCase(f"There is no mode {self.mode!r}; choose from train, eval.")
        self.work()

    def work(self) -> Budget | None:
        """The budget of each attack; None leaves each its own."""
        return chosen_budget(self.budget, self.steps, self.seconds)


@dataclass(frozen=True)
class Prepared:
    """A plan made concrete: cases to run, and the description that reruns them."""

    cases: list[Case]
    metrics: Metrics
    description: dict[str, Any]


def prepare(plan: Plan, progress: Progress = silent) -> Prepared:
    """Load the data, build and train the model, draw the victims. All bad input shows here, before any attack runs."""
    attacks = {text: build_attack(text, plan.work()) for text in plan.attacks or ()}
    defences = {text: build_defence(text) for text in plan.defences}
    threat_model = named_threat_model(plan.threat_model)
    local_update = build(LOCAL_UPDATES, plan.local_update, kind="local update")
    metrics = standard_metrics(plan.weights)
    dataset = build_dataset(plan.dataset, plan.data_root)
    if plan.attacks is None:
        attacks = {text: build_attack(text, plan.work()) for text in default_attacks(dataset.space)}
    victims = _victims(dataset, plan)
    model = victim_model(
        plan.model, dataset, seed=plan.seed, state=plan.state, steps=plan.train_steps, progress=progress
    )
    learner, state = learner_and_state(model, mode="train" if plan.mode == "train" else "eval")
    rounds = [_round(dataset, chosen, victims, plan, number) for number, chosen in enumerate(victims)]
    cases = grid(
        Federation(learner, state, local_update, dataset.space),
        rounds,
        defences=defences,
        attacks=attacks,
        threat_model=threat_model,
        seed=plan.seed,
        auxiliary=_auxiliary(dataset, plan) if threat_model.auxiliary else None,
    )
    description = asdict(plan) | {
        "version": VERSION,
        "attacks": list(attacks),
        "accuracy": accuracy(model, dataset.test),
        "victims": [chosen.tolist() for chosen in victims],
        "class_names": list(dataset.class_names),
    }
    return Prepared(cases, metrics, description)


def plan_of(description: dict[str, Any]) -> dict[str, Any]:
    """The keys of a description that make up its plan: what a configuration file needs to run it again."""
    return {name: value for name, value in description.items() if name in Plan.__dataclass_fields__}


def _victims(dataset: Dataset, plan: Plan) -> list[torch.Tensor]:
    """Indices of each round's victims: the dataset's highlights first, then others at random, none twice."""
    total = plan.batch_size * plan.rounds
    order = dataset.draw(min(len(dataset.test), total + len(dataset.highlights)), generator=seeded(plan.seed, "data"))
    queue = list(dict.fromkeys((*dataset.highlights, *order.tolist())))
    if len(queue) < total:
        raise InvalidCase(
            f"{plan.rounds} rounds of {plan.batch_size} need {total} private images, but the test split of "
            f"{dataset.name!r} has {len(dataset.test)}; lower batch_size or rounds."
        )
    return list(torch.tensor(queue[:total]).split(plan.batch_size))


def _round(dataset: Dataset, chosen: torch.Tensor, victims: list[torch.Tensor], plan: Plan, number: int) -> Round:
    truth = dataset.test[chosen]
    taken = torch.zeros(len(dataset.test), dtype=torch.bool)
    taken[torch.cat(victims)] = True
    others = (~taken).nonzero().flatten()
    generator = seeded(plan.seed, "crowd", number)
    others = others[torch.randperm(len(others), generator=generator)]
    if len(others) < plan.batch_size:
        raise InvalidCase(
            f"The null needs {plan.batch_size} further images, but the test split of {dataset.name!r} is used up; "
            "lower batch_size or rounds."
        )
    decoy, rest = dataset.test[others[: plan.batch_size]], dataset.test[others[plan.batch_size :]]
    crowd = draw_crowd(rest, truth, plan.distractors, generator=generator)
    return Round(truth, decoy, crowd, client_others(dataset, seed=plan.seed, number=number))


def client_others(dataset: Dataset, *, seed: int, number: int) -> Batch | None:
    """What a client has besides a batch too small to mix: some training images, neither attacked nor in the crowd."""
    order = torch.randperm(len(dataset.train), generator=seeded(seed, "others", number))
    return dataset.train[order[:_OTHERS]] if len(order) else None


def _auxiliary(dataset: Dataset, plan: Plan) -> Batch:
    """Training images: no private one is among them, as those are test images."""
    if len(dataset.train) == 0:
        raise InvalidCase(
            f"The attacker's auxiliary data would be training images, but {dataset.name!r} has none here; "
            "add the training files or choose another threat model."
        )
    order = torch.randperm(len(dataset.train), generator=seeded(plan.seed, "auxiliary"))
    return dataset.train[order[:_AUXILIARY]]
