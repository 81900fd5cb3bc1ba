"""Recorded updates as cases: each attack on each round, and with the truth at hand its scores and its null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Generator, Tensor, nn

from leakgauge.attacks.base import Attack, LabelAttack
from leakgauge.attacks.budget import Clock, with_budget
from leakgauge.audit.bounded import describe_recorded_bounds
from leakgauge.audit.case import Case
from leakgauge.audit.declaration import redeclare
from leakgauge.audit.execute import PreparedAudit
from leakgauge.audit.executors.memory import check_inputs
from leakgauge.audit.grid import Round
from leakgauge.audit.plan import MOST_NULLS
from leakgauge.audit.references import load_references, pool_of_references
from leakgauge.audit.result import RECORDED, UNDEFENDED
from leakgauge.audit.sources import RecordedUpdate, SimulatedClient, SimulatedUpdate
from leakgauge.audit.strangers import draw_strangers, labels_for, nulls_per_round
from leakgauge.catalogue import ATTACKS, Shelf, label_metrics, standard_metrics
from leakgauge.config import (
    build,
    build_budget,
    build_client,
    build_defence,
    build_loss,
    build_normalised,
    name_attack,
)
from leakgauge.data import read_batch, reference_inputs
from leakgauge.errors import InvalidCase
from leakgauge.protocol.facts import Fact, Subject
from leakgauge.protocol.learner import Learner, Mode
from leakgauge.protocol.local_update import LocalUpdate
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.protocol.recording import RecordedRound, not_shared, observe, read_round
from leakgauge.protocol.round import Federation
from leakgauge.protocol.state_dicts import some
from leakgauge.protocol.threat_model import ThreatModel
from leakgauge.protocol.validation import check_batch
from leakgauge.randomness import seeded
from leakgauge.space import ImageSpace, TokenSpace
from leakgauge.training.models import recorded_model
from leakgauge.types import Batch
from leakgauge.version import VERSION

DEFAULT_LABEL_ATTACK = "best_labels"

CROWD = 99
"""Strangers beside a recorded truth, at least."""

_UNRELATED = 64
"""Inputs of the null of a label attack; a larger batch has each several times, with labels of their own."""


@dataclass(frozen=True)
class RecordedPlan:
    """Which recorded rounds to attack and how; ``truths`` are .npz files with the private batches, one per round.

    With ``labels_only`` the attacks restore labels and nothing else: no attack sees those that a round holds, and what
    comes back is scored against them. ``batch_size`` is how many examples an update covers, where its file is silent.
    ``attacks`` left out are the one that suits the first round. ``local_update``, ``defence``, ``mode``, ``loss`` and
    ``normalise`` stand in the place of what the files say; ``read`` names `CORRECTIONS` of how they were recorded.
    ``references`` are other inputs of the private ones'
    kind, for crowd and nulls: a folder of images, an .npz, or a dataset below ``data_root``. ``nulls`` counts the
    unrelated updates over all rounds. Only with ``trust`` may a file name a loss that is imported.
    """

    files: tuple[str, ...]
    model: str
    attacks: tuple[str, ...] | None = None
    labels_only: bool = False
    batch_size: int | None = None
    truths: tuple[str, ...] = ()
    budget: str | None = None
    steps: int | None = None
    seconds: float | None = None
    clock: Clock | None = None
    references: str | None = None
    data_root: str | None = None
    nulls: int = 3
    weights: str | None = None
    seed: int = 0
    normalise: str | None = None
    loss: str | None = None
    local_update: str | None = None
    defence: str | None = None
    mode: Mode | None = None
    read: tuple[str, ...] = ()
    trust: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.nulls <= MOST_NULLS:
            raise InvalidCase(f"An audit has nulls >= 0 and at most {MOST_NULLS}, got {self.nulls}; correct it.")
        if self.references is not None and not self.truths:
            raise InvalidCase("References are what a truth is told from; give --truth as well, or leave them out.")
        if self.truths and len(self.truths) != len(self.files):
            raise InvalidCase(
                f"There are {len(self.files)} rounds and {len(self.truths)} truths; "
                "give --truth once for each round, in the same order."
            )

    def open(self, file: str) -> RecordedRound:
        """The round of a file as the plan says that it is to be read."""
        # A loss that is said here stands in the place of the file's, whatever that is.
        recorded = read_round(Path(file), trust=self.trust or self.loss is not None)
        names = ("local_update", "defence", "mode", "loss", "normalise")
        said = {name: getattr(self, name) for name in names}
        if not self.labels_only:  # whose size must agree with what a file says
            said["num_examples"] = self.batch_size
        return redeclare(recorded, said, self.read)

    def named_attacks(self, names: Sequence[str]) -> dict[str, Attack]:
        shelf, kind = (label_attacks(), "label method") if self.labels_only else (ATTACKS, "attack")
        work = build_budget(self.budget, self.steps, self.seconds, self.clock)
        attacks: dict[str, Attack] = {text: build(shelf, text, kind=kind) for text in names}
        if work is None:
            return attacks
        return {name_attack(text, attack, work): with_budget(attack, work) for text, attack in attacks.items()}


def label_attacks() -> Shelf:
    """The attacks of the catalogue that restore labels alone."""
    return {name: part for name, part in ATTACKS.items() if isinstance(part(), LabelAttack)}


def prepare_recorded(plan: RecordedPlan) -> PreparedAudit:
    """Read and check the rounds, the model and the truths; nothing is attacked yet."""
    rounds = [plan.open(file) for file in plan.files]
    usual = DEFAULT_LABEL_ATTACK if plan.labels_only else default_attack(rounds[0])
    attacks = plan.named_attacks(plan.attacks or (usual,))
    if plan.labels_only:
        rounds = [_state_size(one, plan.batch_size, file) for one, file in zip(rounds, plan.files, strict=True)]
    opened = [OpenRound.of(one, recorded_model(plan.model, one.space, one.state)) for one in rounds]
    description = asdict(plan) | {"attacks": list(attacks), "version": VERSION}
    if plan.labels_only:
        by_round = _score_labels(plan, opened, attacks)
    else:
        by_round, description["crowd"] = _score_inputs(plan, opened, attacks)
        description["bounds"] = describe_recorded_bounds([one.observation for one in opened], CROWD)
    # Attack by attack, as an audit runs them.
    cases = sorted(
        (case for cases in by_round for case in cases), key=lambda case: list(attacks).index(case.attack_name)
    )
    metrics = label_metrics() if plan.labels_only else standard_metrics(plan.weights)
    return PreparedAudit(cases, metrics, description)


def open_plan(plan: RecordedPlan) -> tuple[OpenRound, nn.Module, Batch | None]:
    """The first round of a plan, the model it belongs to, and the truth if there is one."""
    recorded = plan.open(plan.files[0])
    model = recorded_model(plan.model, recorded.space, recorded.state)
    opened = OpenRound.of(recorded, model)
    return opened, model, opened.truth(Path(plan.truths[0])) if plan.truths else None


def default_attack(recorded: RecordedRound) -> str:
    """The attack on the inputs of a round where none is named: the strongest there is for their kind."""
    # Steps rather than seconds: a second run gives the same answer.
    return "token_spans" if isinstance(recorded.space, TokenSpace) else "best:steps=600"


def _score_inputs(
    plan: RecordedPlan, opened: Sequence[OpenRound], attacks: Mapping[str, Attack]
) -> tuple[list[list[Case]], str]:
    truths = [one.truth(Path(path)) for one, path in zip(opened, plan.truths)]
    references = None
    if plan.references is not None:
        references = load_references(plan.references, opened[0].observation.space, plan.data_root)
    return score_inputs(opened, attacks, truths, references, nulls=plan.nulls, seed=plan.seed)


def score_inputs(
    opened: Sequence[OpenRound],
    attacks: Mapping[str, Attack],
    truths: Sequence[Batch],
    references: Tensor | Batch | None,
    *,
    nulls: int,
    seed: int,
) -> tuple[list[list[Case]], str]:
    """The cases of each round, those with a truth beside their nulls and controls; and what the crowd consists of."""
    named = [
        [one.for_attack(attack).case(name, attack, seed=seed, number=number) for name, attack in attacks.items()]
        for number, one in enumerate(opened)
    ]
    if not truths:
        return named, "none"
    seen = opened[0].observation
    width = seen.learner.width(seen.state, seen.probe)
    pool = None
    if references is not None:
        pool = pool_of_references(references, truths[0].inputs, seen.space, seen.learner, width)
    strangers = draw_strangers(
        seen.space,
        truths,
        pool,
        tests=sum(not isinstance(attack, LabelAttack) for attack in attacks.values()) * sum(map(len, truths)),
        distractors=CROWD,
        nulls=nulls,
        labels=labels_for(seen.learner, width),
        generator=seeded(seed, "crowd"),
    )
    scored = [
        [scored for case in cases for scored in one.for_attack(case.attack).score(case, beside)]
        for one, cases, beside in zip(opened, named, strangers.rounds(truths), strict=True)
    ]
    return scored, strangers.crowd.words


def _score_labels(plan: RecordedPlan, opened: Sequence[OpenRound], attacks: Mapping[str, Attack]) -> list[list[Case]]:
    """The cases of each round, those with known labels beside their nulls and controls."""
    per_round = nulls_per_round(plan.nulls, len(opened))
    rounds = []
    for number, one in enumerate(opened):
        truth = one.truth(Path(plan.truths[number])) if plan.truths else None
        labels = one.recorded.labels if truth is None else truth.labels
        seen = one.without_labels()
        cases = [seen.case(name, attack, seed=plan.seed, number=number) for name, attack in attacks.items()]
        if labels is not None:
            beside = _round_of_labels(one, labels, per_round, seeded(plan.seed, "null", number))
            beside = beside if truth is None else replace(beside, truth=truth)
            cases = [scored for case in cases for scored in seen.score(case, beside)]
        rounds.append(cases)
    return rounds


def _round_of_labels(opened: OpenRound, labels: Tensor, nulls: int, generator: Generator) -> Round:
    """Labels to be restored, and those of unrelated updates: of a few inputs, each with several labels of its own."""
    seen, size = opened.observation, len(labels)
    draw = labels_for(seen.learner, seen.learner.width(seen.state, seen.probe))
    unrelated = reference_inputs(seen.space, min(size, _UNRELATED), generator=generator)
    unrelated = unrelated[torch.arange(size) % len(unrelated)]
    unrelated = seen.space.place(unrelated, seen.state)
    decoys = tuple(Batch(unrelated, draw(labels, generator)) for _ in range(nulls))
    # The labels are what is compared: a pixel stands for each image.
    images = isinstance(seen.space, ImageSpace)
    stand_ins = torch.zeros(size, 1, 1, 1) if images else seen.space.probe(size, seen.state)
    return Round(Batch(stand_ins, labels), decoys, None)


@dataclass(frozen=True)
class OpenRound:
    """A recorded round that was checked against its model; ``plain`` is the client's algorithm without its defence."""

    recorded: RecordedRound
    observation: UpdateObservation
    plain: LocalUpdate | None
    missing: tuple[str, ...] = ()
    """What the model would train and the update lacks."""

    @classmethod
    def of(cls, recorded: RecordedRound, model: nn.Module) -> OpenRound:
        plain = recorded.local_update
        algorithm: LocalUpdate | None = None if plain is None else build_client(plain)
        client = algorithm
        if algorithm is not None and recorded.defence is not None:
            client = build_defence(recorded.defence)(algorithm)
        seen = build_normalised(model, recorded.normalise)
        loss = None if recorded.loss is None else build_loss(recorded.loss)
        held = observe(recorded, seen, loss, local_update=client)
        return cls(recorded, held, algorithm, not_shared(recorded, seen))

    def for_attack(self, attack: object) -> OpenRound:
        """As the attack may see it."""
        return self.without_labels() if isinstance(attack, LabelAttack) else self

    def without_labels(self) -> OpenRound:
        """As an attack on labels sees it, which still learns how many there are."""
        known = replace(self.recorded, labels=None, num_examples=self.observation.num_examples)
        return replace(self, recorded=known, observation=replace(self.observation, labels=None))

    @property
    def threat_model(self) -> ThreatModel:
        """The knowledge that the file itself discloses."""
        recorded = self.recorded
        return ThreatModel(
            "recorded",
            labels=recorded.labels is not None,
            num_examples=self.observation.num_examples is not None,
            local_hyperparameters=recorded.local_update is not None,
            defence=recorded.defence is not None,
            batch_norm=self.observation.batch_norm.access,
            source="what the recorded round holds",
        )

    def case(self, name: str, attack: Attack, *, seed: int, number: int = 0) -> Case:
        """The attack on this round, not scored."""
        if not isinstance(attack, LabelAttack) and self.observation.num_examples is not None:
            check_inputs(self.observation.num_examples, self.observation.space)
        # Of the client's mode, not of the mode the attacker works in.
        client = self.observation.learner.in_mode(self.recorded.mode)
        return Case(
            round=number,
            defence=RECORDED,
            attack_name=name,
            attack=attack,
            null=0,
            source=RecordedUpdate(self.observation),
            truth=None,
            distractors=None,
            ledger=self._ledger(client),
            seed=seed,
        )

    def _ledger(self, client: Learner) -> tuple[Fact, ...]:
        """What the file discloses, and what of the update it lacks."""
        ledger = self.threat_model.ledger(
            client, defence=self.recorded.defence or "not stated", space=self.recorded.space
        )
        if not self.missing:
            return ledger
        untrained = [name for name in self.missing if name in self.observation.state.buffers]
        rest = ", taken as not trained" if untrained else ", which stayed with the client"
        part = f"in part: without {some(list(self.missing))}{rest}"
        return tuple(replace(fact, detail=part) if fact.subject is Subject.UPDATE else fact for fact in ledger)

    def score(self, case: Case, beside: Round) -> list[Case]:
        """The case scored against the truth, its nulls, the same client on unrelated inputs, and its controls.

        The controls are the nulls of the client without its defence; where it has none, the nulls are.
        """
        scored = replace(case, truth=beside.truth, distractors=beside.distractors, crowd=beside.crowd, kin=beside.kin)
        if self.plain is None:
            return [scored]  # without the client's algorithm there is no unrelated update to compute
        seen, declared = self.observation, self.recorded.defence or UNDEFENDED
        client = Federation(seen.learner.in_mode(self.recorded.mode), seen.state, self.plain, seen.space)
        cases = [scored]
        for name, defence in {RECORDED: declared, UNDEFENDED: UNDEFENDED}.items():
            if name == UNDEFENDED == declared:
                break
            for number, decoy in enumerate(beside.batches(case.attack)[1:], start=1):
                batch = Batch(seen.space.place(decoy.inputs, seen.state), decoy.labels)
                made = SimulatedClient(client, batch, build_defence(defence), seed=case.seed, round=case.round)
                source = SimulatedUpdate(made, self.threat_model)
                cases.append(replace(scored, defence=name, null=number, decoy=batch, source=source))
        return cases

    def truth(self, path: Path) -> Batch:
        """The private batch in an .npz, after making sure that it can be the one of this round."""
        return self.checked(read_batch(path, self.observation.space), f" in {path}")

    def checked(self, truth: Batch, where: str = "") -> Batch:
        """The private batch, after making sure that it can be the one of this round."""
        seen = self.observation
        kinds = seen.space.kinds
        if tuple(truth.inputs.shape[1:]) != seen.space.shape:
            raise InvalidCase(
                f"The true {kinds}{where} are {tuple(truth.inputs.shape[1:])}, the round says {seen.space.shape}; "
                f"give the {kinds} of this update."
            )
        if seen.num_examples not in (None, len(truth)):
            raise InvalidCase(
                f"There are {len(truth)} true {kinds}{where}, but the update covers {seen.num_examples}; "
                f"give the {kinds} of this update, and only those."
            )
        check_batch(seen.learner, seen.state, truth, seen.space)
        return truth


def _state_size(recorded: RecordedRound, batch_size: int | None, file: str) -> RecordedRound:
    if batch_size is not None and batch_size < 1:
        raise InvalidCase(f"An update covers at least one example, got --batch-size {batch_size}; correct it.")
    stated = _stated_size(recorded)
    if stated is None and batch_size is None:
        raise InvalidCase(f"{file} does not say how many examples its update covers; give --batch-size.")
    if stated is not None and batch_size not in (None, stated):
        raise InvalidCase(
            f"{file} says that its update covers {stated} examples, not {batch_size}; leave out --batch-size."
        )
    return replace(recorded, num_examples=stated or batch_size)


def _stated_size(recorded: RecordedRound) -> int | None:
    """How many examples the file says that its update covers."""
    if recorded.num_examples is None and recorded.labels is not None:
        return len(recorded.labels)
    return recorded.num_examples
