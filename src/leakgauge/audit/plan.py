"""An audit in words or parts: everything a configuration file, the command line or Python can ask for, and how it
becomes cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from leakgauge.attacks.base import Attack, LabelAttack
from leakgauge.attacks.budget import Budget, Clock
from leakgauge.audit.bounded import describe_bounds
from leakgauge.audit.crowd import Pool, crowd_size
from leakgauge.audit.draws import auxiliary_rows, draw_victims, others_rows, pool_of_dataset
from leakgauge.audit.execute import PreparedAudit
from leakgauge.audit.grid import Round, grid
from leakgauge.audit.references import pool_of_references
from leakgauge.audit.strangers import Strangers, draw_strangers, labels_for, nulls_per_round
from leakgauge.catalogue import standard_metrics
from leakgauge.config import (
    build_attack,
    build_budget,
    build_client,
    build_dataset,
    build_defence,
    build_loss,
    build_threat_model,
    name_attack,
    spell_defence,
)
from leakgauge.defences import Defence
from leakgauge.errors import InvalidCase
from leakgauge.progress import Progress, silent
from leakgauge.protocol.learner import Learner, Mode, learner_and_state
from leakgauge.protocol.local_update import LocalUpdate
from leakgauge.protocol.losses import LossFunction
from leakgauge.protocol.round import Federation
from leakgauge.protocol.threat_model import ThreatModel
from leakgauge.protocol.validation import check_batch
from leakgauge.randomness import seeded
from leakgauge.space import ImageSpace, InputSpace, TokenSpace
from leakgauge.training import accuracy, victim_model
from leakgauge.types import Batch, ModelState
from leakgauge.version import VERSION

# Two weights of the image prior: the small one finds detail in clean updates, the large one sees through noise.
DEFAULT_ATTACKS = ("linear_layer", "exact", "quasi_newton", "quasi_newton_smooth")
_WITHOUT_IMAGE_PRIORS = ("linear_layer", "exact", "quasi_newton:tv_weight=0,restarts=8")
_ON_TEXTS = ("token_spans", "tag")
# The last has a bound: beside what was found stands what any attacker could find at most.
DEFAULT_DEFENCES = (
    "none",
    "pruning:keep=0.1",
    "clipping:max_norm=1+gaussian_noise:std=0.1",
    "dpsgd:noise_multiplier=2",
)
MOST_DISTRACTORS, MOST_NULLS = 100_000, 1_000


@dataclass(frozen=True)
class OwnClient:
    """A user's own model and private batch; ``references`` are other inputs of the same kind, for crowd and nulls.

    ``space`` is what the inputs are members of; None = images, of the size that the batch has.
    """

    model: nn.Module
    batch: Batch
    loss: LossFunction = cross_entropy
    references: Tensor | Batch | None = None
    space: InputSpace | None = None


@dataclass(frozen=True)
class AuditPlan:
    """One client audited: its data, model, local algorithm, defences, and the attacks let loose on it.

    Every text names a part in the catalogue's grammar; from Python the part itself may stand in its place. With an
    ``own`` client, which only Python can give, nothing is drawn from a dataset and no model is built or trained.
    ``attacks`` left out are those that suit the inputs. ``nulls`` counts the unrelated updates over all rounds, as many
    in each; the crowd has at least ``distractors``, and as many more as the number of tests needs.
    """

    dataset: str = "photos"
    data_root: str | None = None
    model: str = "compact"
    normalise: str | None = None
    loss: str = "cross_entropy"
    state: str | None = None
    train_steps: int | None = None
    mode: Mode = "eval"
    local_update: str | LocalUpdate = "fedsgd"
    batch_size: int = 4
    rounds: int = 1
    defences: tuple[str | Defence, ...] = DEFAULT_DEFENCES
    attacks: tuple[str | Attack, ...] | None = None
    threat_model: str | ThreatModel = "informed"
    budget: str | Budget | None = None
    steps: int | None = None
    seconds: float | None = None
    clock: Clock | None = None
    distractors: int = 99
    nulls: int = 3
    weights: str | None = None
    seed: int = 0
    own: OwnClient | None = None

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.rounds < 1 or self.distractors < 0 or self.nulls < 0:
            raise InvalidCase(
                f"An audit needs batch_size >= 1, rounds >= 1, distractors >= 0 and nulls >= 0, got {self.batch_size}, "
                f"{self.rounds}, {self.distractors} and {self.nulls}; correct the plan."
            )
        if self.distractors > MOST_DISTRACTORS or self.nulls > MOST_NULLS:
            raise InvalidCase(
                f"A crowd has at most {MOST_DISTRACTORS} distractors and an audit {MOST_NULLS} nulls, got "
                f"{self.distractors} and {self.nulls}; more would take without end and tell no more."
            )
        if self.train_steps is not None and self.train_steps < 0:
            raise InvalidCase(f"The model needs train_steps >= 0, got {self.train_steps}; 0 leaves it as it is.")
        if self.mode not in ("train", "eval"):
            raise InvalidCase(f"There is no mode {self.mode!r}; choose from train, eval.")
        self.work()

    def work(self) -> Budget | None:
        """The budget of each attack; None leaves each its own."""
        return build_budget(self.budget, self.steps, self.seconds, self.clock)

    def words(self) -> dict[str, Any]:
        """The plan as a configuration file would say it, as far as words can; attacks and defences are named apart."""
        parts = ("own", "defences", "attacks")
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in parts}
        if isinstance(self.threat_model, ThreatModel):
            values["threat_model"] = self.threat_model.name
        plain = (str, int, float, type(None))
        return {name: value if isinstance(value, plain) else repr(value) for name, value in values.items()}

    def named_defences(self) -> dict[str, Defence]:
        return dict(
            (one, build_defence(one)) if isinstance(one, str) else (spell_defence(one), one) for one in self.defences
        )

    def named_attacks(self, attacks: Sequence[str | Attack]) -> dict[str, Attack]:
        work = self.work()
        built = [(one, build_attack(one, work)) for one in attacks]
        return {
            name_attack(one, attack, work) if isinstance(one, str) else repr(attack): attack for one, attack in built
        }


def prepare(plan: AuditPlan, progress: Progress = silent) -> PreparedAudit:
    """Load the data, build and train the model, draw the victims. All bad input shows here, before any attack runs."""
    attacks, defences = plan.named_attacks(plan.attacks or ()), plan.named_defences()
    known = plan.threat_model
    threat_model = known if isinstance(known, ThreatModel) else build_threat_model(known)
    metrics = standard_metrics(plan.weights)
    client = _drawn_client(plan, threat_model, progress) if plan.own is None else _own_client(plan, plan.own)
    if plan.attacks is None:
        attacks = plan.named_attacks(default_attacks(client.space))
    cases = grid(
        client.federation,
        client.rounds,
        defences=defences,
        attacks=attacks,
        threat_model=threat_model,
        seed=plan.seed,
        auxiliary=client.auxiliary,
        control=True,
    )
    named = {"defences": list(defences), "attacks": list(attacks)}
    metrics = {name: metric for name, metric in metrics.items() if metric.serves.fits(client.space)}
    bounds = describe_bounds(client.federation, defences, client.rounds, threat_model)
    return PreparedAudit(cases, metrics, client.description | named | {"bounds": bounds})


def default_attacks(space: InputSpace) -> tuple[str, ...]:
    """The attacks of an audit that names none."""
    if isinstance(space, TokenSpace):
        return _ON_TEXTS
    return DEFAULT_ATTACKS if isinstance(space, ImageSpace) else _WITHOUT_IMAGE_PRIORS


def plan_of(description: dict[str, Any]) -> dict[str, Any]:
    """The keys of a description that make up its plan: what a configuration file needs to run it again."""
    return {name: value for name, value in description.items() if name in AuditPlan.__dataclass_fields__}


@dataclass(frozen=True)
class _Client:
    """Whose updates are attacked, and what a report says of it."""

    federation: Federation
    space: InputSpace
    rounds: list[Round]
    auxiliary: Batch | None
    description: dict[str, Any]


def _own_client(plan: AuditPlan, own: OwnClient) -> _Client:
    learner, state = learner_and_state(own.model, own.loss, mode=plan.mode)
    space = own.space or ImageSpace.of(own.batch.inputs)
    width = check_batch(learner, state, own.batch, space)
    references = own.references
    pool = None
    if references is not None:
        pool = pool_of_references(references, own.batch.inputs, space, learner, width)
    strangers = _strangers(plan, space, [own.batch], pool, learner, width)
    said = ("local_update", "threat_model", "mode", "budget", "nulls", "seed")
    description = {name: value for name, value in plan.words().items() if name in said} | {
        "model": type(own.model).__name__,
        "batch_size": len(own.batch),
        "crowd": strangers.crowd.words,
    }
    return _Client(_federation(plan, learner, state, space), space, strangers.rounds([own.batch]), None, description)


def _strangers(
    plan: AuditPlan, space: InputSpace, truths: Sequence[Batch], pool: Pool | None, learner: Learner, width: int
) -> Strangers:
    return draw_strangers(
        space,
        truths,
        pool,
        tests=_attacks_on_inputs(plan, space) * sum(map(len, truths)),
        distractors=plan.distractors,
        nulls=plan.nulls,
        labels=labels_for(learner, width),
        generator=seeded(plan.seed, "crowd"),
    )


def _attacks_on_inputs(plan: AuditPlan, space: InputSpace) -> int:
    named = plan.named_attacks(default_attacks(space) if plan.attacks is None else plan.attacks)
    return sum(not isinstance(attack, LabelAttack) for attack in named.values())


def _drawn_client(plan: AuditPlan, threat_model: ThreatModel, progress: Progress) -> _Client:
    dataset = build_dataset(plan.dataset, plan.data_root)
    victims = draw_victims(dataset, batch_size=plan.batch_size, rounds=plan.rounds, seed=plan.seed)
    loss = build_loss(plan.loss, plan.model)
    model = victim_model(
        plan.model,
        dataset,
        seed=plan.seed,
        state=plan.state,
        steps=plan.train_steps,
        loss=loss,
        normalise=plan.normalise,
        progress=progress,
    )
    learner, state = learner_and_state(model, loss, mode=plan.mode)
    held = [others_rows(dataset, seed=plan.seed, number=number) for number in range(plan.rounds)]
    others = [dataset.train[rows] if len(rows) else None for rows in held]
    auxiliary = None
    if threat_model.auxiliary:
        held.append(auxiliary_rows(dataset, seed=plan.seed))
        auxiliary = dataset.train[held[-1]]
    wanted = plan.batch_size * plan.rounds * nulls_per_round(plan.nulls, plan.rounds)
    tests = _attacks_on_inputs(plan, dataset.space) * plan.batch_size * plan.rounds
    wanted += crowd_size(tests, plan.distractors, dataset.space)
    pool = pool_of_dataset(dataset, torch.cat(victims), torch.cat(held), wanted, seed=plan.seed)
    truths = [dataset.test[chosen] for chosen in victims]
    strangers = _strangers(plan, dataset.space, truths, pool, learner, dataset.num_classes)
    description = plan.words() | {
        "version": VERSION,
        "accuracy": accuracy(model, dataset.test, loss),
        "victims": [chosen.tolist() for chosen in victims],
        "class_names": list(dataset.class_names),
        "crowd": strangers.crowd.words,
    }
    rounds = strangers.rounds(truths, others)
    return _Client(_federation(plan, learner, state, dataset.space), dataset.space, rounds, auxiliary, description)


def _federation(plan: AuditPlan, learner: Learner, state: ModelState, space: InputSpace) -> Federation:
    algorithm = plan.local_update
    if isinstance(algorithm, str):
        algorithm = build_client(algorithm)
    return Federation(learner, state, algorithm, space)
