"""A trade-off in words: which defences, what they are trained on, who attacks them, and the limit they must meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from leakgauge.attacks.budget import Budget, Clock
from leakgauge.audit.limits import check_limit
from leakgauge.audit.plan import AuditPlan
from leakgauge.catalogue import describe_metric
from leakgauge.config import build_budget, build_threat_model
from leakgauge.errors import InvalidCase
from leakgauge.metrics import Kind
from leakgauge.protocol.learner import Mode
from leakgauge.training import Training, TrainingPlan, default_steps

COMPARED_DEFENCES = (
    "none",
    "clipping:max_norm=1",
    "pruning:keep=0.3",
    "pruning:keep=0.1",
    "pruning:keep=0.01",
    "mixup:k=4",
    "instahide:k=4",
    "instahide:k=4+pruning:keep=0.1",
    "clipping:max_norm=1+gaussian_noise:std=0.1",
    "dpsgd:noise_multiplier=0.5",
)


class Condition(NamedTuple):
    """Who attacks and how large the batch is; ``unaware`` marks the attacker who does not know the defence."""

    threat_model: str
    batch_size: int
    unaware: bool = False


@dataclass(frozen=True)
class TradeoffPlan:
    """Every defence trained and attacked.

    All defences are attacked in the same state of the model, after ``train_steps`` undefended steps, so that they
    differ by what they do and nothing else; early states leak most. ``images`` are private images per cell, in as many
    rounds as the batch size makes of them. ``limit`` maps metrics to the most that may leak. What starts with
    ``training_`` and the learning rate are the utility's, ``budget``, ``steps`` and ``seconds`` the attacks'.
    ``batch_rule`` adds the least batch with which no layer gives whole images away by the rank rule, and a training in
    such batches. ``learning_rates`` maps defences to rates of their own.
    """

    dataset: str = "photos:size=16"
    data_root: str | None = None
    model: str = "compact"
    state: str | None = None
    train_steps: int | None = None
    mode: Mode = "train"
    defences: tuple[str, ...] = COMPARED_DEFENCES
    attacks: tuple[str, ...] = ("adaptive",)
    batch_sizes: tuple[int, ...] = (1, 4)
    batch_rule: bool = False
    images: int = 8
    threat_models: tuple[str, ...] = ("strongest", "honest_but_curious")
    unaware: str | None = "unaware"
    budget: str | None = None
    steps: int | None = None
    seconds: float | None = None
    clock: Clock | None = None
    distractors: int = 99
    weights: str | None = None
    limit: Any = field(default_factory=lambda: {"identification": 0.1})
    recipe: str = "short"
    training_steps: int | None = None
    training_epochs: int | None = None
    training_batch_size: int | None = None
    learning_rate: float | None = None
    learning_rates: Any = field(default_factory=dict)
    schedule: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("defences", "attacks", "batch_sizes", "threat_models"):
            if not getattr(self, name):
                raise InvalidCase(f"A trade-off needs at least one entry in `{name}`; name them.")
            if len(set(getattr(self, name))) < len(getattr(self, name)):
                raise InvalidCase(f"An entry of `{name}` is given twice; each makes a row or column of its own.")
        if min(self.batch_sizes) < 1 or self.images < 1:
            raise InvalidCase(
                f"A trade-off needs batch sizes and images of at least 1, got {self.batch_sizes} and {self.images}."
            )
        if not isinstance(self.limit, Mapping):
            raise InvalidCase(f"The limit is a table such as {{identification = 0.1}}, got {self.limit!r}; correct it.")
        for name, value in self.limit.items():
            check_limit(name, float(value) if isinstance(value, int | float) else float("nan"))
            if describe_metric(name).serves is Kind.LABELS:
                raise InvalidCase(
                    f"A trade-off compares images, so {name!r} cannot be its limit; limit identification."
                )
        rates = self.learning_rates
        if not isinstance(rates, Mapping) or any(
            name not in self.defences or type(rate) not in (int, float) for name, rate in rates.items()
        ):
            raise InvalidCase(
                "`learning_rates` is a table from defences of this plan to their rates, such as "
                f'{{"pruning:keep=0.01" = 0.02}}, got {rates!r}; correct it.'
            )
        for condition in self.conditions():
            threat_model = build_threat_model(condition.threat_model)
            if condition.unaware and threat_model.defence:
                raise InvalidCase(
                    f"The unaware attacker {self.unaware!r} knows the defence; choose a threat model that hides it."
                )
            self.audit(condition)
        for defence in self.defences:
            self.training(defence)

    def conditions(self) -> tuple[Condition, ...]:
        """The columns of leakage: who knows the defence first, then who does not."""
        models = [(name, False) for name in self.threat_models] + (
            [] if self.unaware is None else [(self.unaware, True)]
        )
        return tuple(Condition(name, size, unaware) for name, unaware in models for size in self.batch_sizes)

    def work(self) -> Budget:
        """The budget of each attack: 60 steps unless said otherwise."""
        return build_budget(self.budget, self.steps, self.seconds, self.clock) or Budget(steps=60)

    def audit(self, condition: Condition, state: str | None = None) -> AuditPlan:
        """The audit that fills one column; ``state`` are the weights that all columns share."""
        work = self.work()
        return AuditPlan(
            **self._shared() | {"state": state or self.state},
            train_steps=0,
            mode=self.mode,
            batch_size=condition.batch_size,
            rounds=-(-self.images // condition.batch_size),
            defences=self.defences,
            attacks=self.attacks,
            threat_model=condition.threat_model,
            steps=work.steps,
            seconds=work.seconds,
            clock=None if work.seconds is None else work.clock,
            distractors=self.distractors,
            weights=self.weights,
        )

    def training(self, defence: str) -> TrainingPlan:
        """The training that gives a row its utility."""
        return TrainingPlan(
            **self._shared(),
            defence=defence,
            recipe=self.recipe,
            steps=self.training_steps,
            epochs=self.training_epochs,
            batch_size=self.training_batch_size,
            learning_rate=self.learning_rates.get(defence, self.learning_rate),
            schedule=self.schedule,
        )

    def victim(self) -> TrainingPlan | None:
        """The undefended training of the model that is attacked; None if it is attacked as it comes."""
        steps = default_steps(self.model, self.state) if self.train_steps is None else self.train_steps
        if steps == 0:
            return None
        plain = Training()
        return TrainingPlan(
            **self._shared(),
            steps=steps,
            batch_size=plain.batch_size,
            learning_rate=plain.learning_rate,
            schedule="constant",
        )

    def _shared(self) -> dict[str, Any]:
        """What its audits and trainings are given alike."""
        return {name: getattr(self, name) for name in ("dataset", "data_root", "model", "state", "seed")}

    def words(self) -> dict[str, Any]:
        """What a configuration file needs to run it again."""
        return {name: value for name, value in asdict(self).items() if value is not None}
