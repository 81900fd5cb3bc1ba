"""``leakgauge.audit``: the whole pipeline on a user's own model and batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from leakgauge.attacks.base import Attack
from leakgauge.attacks.budget import BUDGETS, Budget, with_budget
from leakgauge.audit.case import Case
from leakgauge.audit.executors import Executor, InProcess
from leakgauge.audit.grid import Round, grid
from leakgauge.audit.result import AuditResult, summarise_records
from leakgauge.audit.resumption import SNAPSHOT_EVERY
from leakgauge.audit.run import Metrics, recall
from leakgauge.audit.store import FolderStore, MemoryStore
from leakgauge.catalogue import ATTACKS, standard_metrics
from leakgauge.config import build, build_defence, choose, spell_defence
from leakgauge.data import reference_inputs
from leakgauge.defences import Defence
from leakgauge.errors import InvalidCase
from leakgauge.progress import Watch, unwatched
from leakgauge.protocol.learner import LossFunction, Mode, learner_and_state
from leakgauge.protocol.local_update import FedSGD, LocalUpdate
from leakgauge.protocol.round import Federation
from leakgauge.protocol.threat_model import THREAT_MODELS, ThreatModel
from leakgauge.protocol.validation import check_batch
from leakgauge.randomness import seeded
from leakgauge.space import ImageSpace, InputSpace
from leakgauge.threads import suitable_threads
from leakgauge.types import Batch

# Two weights of the image prior: the small one finds detail in clean updates, the large one sees through noise.
DEFAULT_ATTACKS = ("linear_layer", "quasi_newton", "quasi_newton_smooth")
_WITHOUT_IMAGE_PRIORS = ("linear_layer", "quasi_newton:tv_weight=0")
DEFAULT_DEFENCES = ("none", "clipping:max_norm=1", "pruning:keep=0.1", "clipping:max_norm=1+gaussian_noise:std=0.1")

T = TypeVar("T")


def audit(
    model: nn.Module,
    loss: LossFunction = cross_entropy,
    batch: Batch | tuple[Tensor, Tensor] | None = None,
    *,
    defences: Sequence[str | Defence] = DEFAULT_DEFENCES,
    attacks: Sequence[str | Attack] | None = None,
    local_update: LocalUpdate = FedSGD(),
    threat_model: str | ThreatModel = "informed",
    mode: Mode = "eval",
    budget: str | Budget | None = None,
    references: Tensor | None = None,
    distractors: int = 99,
    weights: str | Path | None = None,
    out: str | Path | None = None,
    seed: int = 0,
    space: InputSpace | None = None,
) -> AuditResult:
    """What one update of ``model`` on a private ``batch`` gives away, undefended and defended.

    ``batch`` holds inputs and class labels: members of ``space``, or without one images, pixels in [0, 1].
    ``references`` are other inputs of the same kind: the crowd that originals are picked from, and the unrelated batch
    of the null; without them, embedded photographs stand in, or random members of another space. ``attacks`` left out
    are those that suit the inputs.
    ``budget`` is the work of each attack: "quick", "standard", "deep" or a ``Budget``; None leaves each its own.
    With ``out``, results and ``index.html`` are kept there and a second call resumes, in the midst of an attack too.
    """
    if batch is None:
        raise InvalidCase("An audit needs a private batch; pass batch=(images, labels).")
    if not isinstance(batch, Batch):
        if len(batch) != 2 or not all(isinstance(part, Tensor) for part in batch):
            raise InvalidCase("The private batch must be a pair of tensors; pass batch=(images, labels).")
        batch = Batch(*batch)
    truth = batch
    learner, state = learner_and_state(model, loss, mode=mode)
    space = space or ImageSpace.of(truth.inputs)
    classes = check_batch(learner, state, truth, space)
    model_of_threat = threat_model if isinstance(threat_model, ThreatModel) else named_threat_model(threat_model)
    work = chosen_budget(budget)
    named_attacks = dict(
        (spec, build_attack(spec, work)) if isinstance(spec, str) else (repr(made := budgeted(spec, work)), made)
        for spec in (default_attacks(space) if attacks is None else attacks)
    )
    named_defences = dict(
        (spec, build_defence(spec)) if isinstance(spec, str) else (spell_defence(spec), spec) for spec in defences
    )
    one = _round(truth, space, references, distractors, classes, seed)
    cases = grid(
        Federation(learner, state, local_update, space),
        [one],
        defences=named_defences,
        attacks=named_attacks,
        threat_model=model_of_threat,
        seed=seed,
    )
    description = {
        "model": type(model).__name__,
        "local_update": repr(local_update),
        "threat_model": model_of_threat.name,
        "mode": mode,
        "defences": list(named_defences),
        "attacks": list(named_attacks),
        "batch_size": len(truth),
        "crowd": "references given" if references is not None else _crowd(space),
        "budget": repr(budget) if isinstance(budget, Budget) else budget,
        "seed": seed,
    }
    return execute(cases, standard_metrics(weights), description, None if out is None else Path(out))


def execute(
    cases: Sequence[Case],
    metrics: Metrics,
    description: Mapping[str, Any],
    out: Path | None,
    watch: Watch = unwatched,
    snapshot_every: float = SNAPSHOT_EVERY,
    executor: Executor = InProcess(),
) -> AuditResult:
    """Run the cases and keep what finishes, in ``out`` if given; interrupted, the finished part is still reported."""
    with suitable_threads(max(case.source.num_parameters for case in cases)):
        return _execute(cases, metrics, description, out, watch, snapshot_every, executor)


def _execute(
    cases: Sequence[Case],
    metrics: Metrics,
    description: Mapping[str, Any],
    out: Path | None,
    watch: Watch,
    snapshot_every: float,
    executor: Executor,
) -> AuditResult:
    keys = [case.key for case in cases]  # first, as this runs each client once: what fails there leaves no folder
    store = MemoryStore() if out is None else FolderStore.create(out)
    if isinstance(store, FolderStore):
        store.begin_run(description, keys)
    records = []
    complete = True
    try:
        for record in executor.run(cases, metrics, store, watch, snapshot_every):
            records.append(record)
    except KeyboardInterrupt:
        # From the store: the interruption may have come between keeping a result and handing it over.
        records = [kept for key in keys if (kept := store.get(key)) is not None]
        complete = len(records) == len(keys)
        if not records:
            raise
    result = summarise_records(records, description, complete=complete)
    if out is not None and result.rows:
        result.write_report(out)
    return result


def load_result(folder: Path, metrics: Metrics) -> AuditResult:
    """The last run kept in a folder, as far as it got."""
    store = FolderStore.open(folder)
    runs = store.runs()
    if not runs:
        raise InvalidCase(f"{folder} holds no finished audit; run `leakgauge audit --out {folder}` again.")
    last = runs[-1]
    records = [record for key in last["keys"] if (record := recall(key, metrics, store)) is not None]
    if not records:
        raise InvalidCase(f"The audit in {folder} was stopped before its first result; run it again.")
    return summarise_records(records, last["description"], complete=len(records) == len(last["keys"]))


def named_threat_model(name: str) -> ThreatModel:
    return choose(THREAT_MODELS, name, kind="threat model")


def chosen_budget(budget: str | Budget | None, steps: int | None = None, seconds: float | None = None) -> Budget | None:
    """The budget that a name, steps and seconds ask for; steps and seconds replace those of the name.

    >>> chosen_budget("deep", seconds=90.0)
    Budget(steps=None, seconds=90.0, clock='wall')
    """
    if budget is None:
        return None if steps is None and seconds is None else Budget(steps, seconds)
    if not isinstance(budget, str | Budget):
        raise InvalidCase(f"A budget is {', '.join(BUDGETS)} or a Budget, got {budget!r}; write Budget(seconds=...).")
    named = budget if isinstance(budget, Budget) else choose(BUDGETS, budget, kind="budget")
    return replace(
        named,
        steps=named.steps if steps is None else steps,
        seconds=named.seconds if seconds is None else seconds,
    )


def build_attack(text: str, budget: Budget | None = None) -> Any:
    """The attack a specification names, with its budget replaced where it has one."""
    return budgeted(build(ATTACKS, text, kind="attack"), budget)


def budgeted(attack: Any, budget: Budget | None) -> Any:
    return attack if budget is None else with_budget(attack, budget)


def default_attacks(space: InputSpace) -> tuple[str, ...]:
    """The attacks of an audit that names none."""
    return DEFAULT_ATTACKS if isinstance(space, ImageSpace) else _WITHOUT_IMAGE_PRIORS


def _crowd(space: InputSpace) -> str:
    return "embedded photographs" if isinstance(space, ImageSpace) else f"random {space.kinds}"


def _round(
    truth: Batch, space: InputSpace, references: Tensor | None, distractors: int, classes: int, seed: int
) -> Round:
    generator = seeded(seed, "crowd")
    needed = distractors + len(truth)
    if references is None:
        references = reference_inputs(space, max(needed, len(truth) + 1), generator=generator)
    if references.shape[1:] != truth.inputs.shape[1:] or len(references) < len(truth) + 1:
        raise InvalidCase(
            f"References need the shape of the private {space.kinds} and more than {len(truth)} of them, got "
            f"{tuple(references.shape)}; pass other {space.kinds} of the same kind."
        )
    try:
        space.check(references)
    except InvalidCase as error:
        raise InvalidCase(f"The references do not fit: {error}") from error
    references = references.to(truth.inputs)
    labels = torch.randint(classes, (len(truth),), generator=generator).to(truth.labels.device)
    decoy_labels = labels if truth.labels.ndim == 1 else torch.nn.functional.one_hot(labels, classes).to(truth.labels)
    return Round(truth, Batch(references[: len(truth)], decoy_labels), references[len(truth) : needed])
