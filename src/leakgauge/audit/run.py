"""The pipeline: observe, attack, score, record. The truth enters at the third step and not before."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from leakgauge.attacks.base import SteppedAttack
from leakgauge.audit.case import Case
from leakgauge.audit.explained import fit_truth, is_settled
from leakgauge.audit.record import Pictures, Record
from leakgauge.audit.resumption import SNAPSHOT_EVERY, attack_resumably
from leakgauge.audit.sources import RecordedUpdate
from leakgauge.audit.store import MemoryStore, Store
from leakgauge.clocks import Seconds
from leakgauge.errors import LeakGaugeError, MissingKnowledge, UnsupportedModel
from leakgauge.factories import cause
from leakgauge.fingerprint import answering_code, environment
from leakgauge.metrics import (
    Comparison,
    Evidence,
    Identification,
    Metric,
    align,
    class_counts,
    expected_guess,
    near_copies,
    weigh_evidence,
)
from leakgauge.progress import Progress, silent
from leakgauge.protocol.fit import fit
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.randomness import seeded
from leakgauge.space import ImageSpace, InputSpace
from leakgauge.types import Batch, Outcome, Reconstruction

Metrics = Mapping[str, Metric]
"""By name."""


def run_case(
    case: Case,
    metrics: Metrics,
    progress: Progress = silent,
    store: Store | None = None,
    snapshot_every: float = SNAPSHOT_EVERY,
) -> Record:
    """Attack and score; an attack that was interrupted goes on from the snapshot that ``store`` holds of it."""
    observation = case.source.observe()
    started, before = Seconds.now(), Seconds()
    try:
        reconstruction, before = _attack(case, observation, progress, store or MemoryStore(), snapshot_every)
    except MissingKnowledge as hidden:
        reconstruction = Reconstruction(None, None, Outcome.MISSING_KNOWLEDGE, facts={"reason": str(hidden)})
    except UnsupportedModel as unsupported:
        reconstruction = Reconstruction(None, None, Outcome.NOT_APPLICABLE, facts={"reason": str(unsupported)})
    elapsed = before + (Seconds.now() - started)
    num_classes, space = case.source.num_classes(), case.source.space()
    comparison = _compare(case, reconstruction, space, num_classes)
    found = _weigh(case, reconstruction, case.truth, space)
    true_counts = _count(None if case.truth is None else case.truth.labels, num_classes)
    restored_counts = _count(reconstruction.labels, num_classes)
    return Record(
        key=case.key,
        space=space,
        round=case.round,
        defence=case.defence,
        defence_repr=case.source.description(),
        attack=case.attack_name,
        attack_repr=repr(case.attack),
        null=case.null,
        seed=case.seed,
        batch_size=len(case.truth) if case.truth is not None else case.source.num_examples(),
        outcome=reconstruction.outcome,
        reason=str(reconstruction.facts.get("reason", reconstruction.outcome.value)),
        scores={} if comparison is None else score(comparison, metrics),
        chance=float("nan") if comparison is None else Identification().chance_after_matching(comparison),
        facts=reconstruction.facts,
        ledger=case.ledger,
        seconds=elapsed.wall,
        cpu_seconds=elapsed.cpu,
        steps=_steps(reconstruction),
        environment=environment(),
        code=answering_code(),
        crowd=_size(case, case.distractors),
        strangers=_size(case, case.strangers),
        evidence=found.p,
        nearest=found.nearest,
        control=_weigh_control(case, reconstruction, space),
        copied=_compare_closely(case, reconstruction, case.truth, space) if found.p else (),
        made=case.only_made,
        residual=fit(observation, reconstruction).residual if isinstance(observation, UpdateObservation) else math.nan,
        truth_residual=_truth_residual(case, observation),
        settled=is_settled(reconstruction),
        certificate=reconstruction.certificate,
        true_counts=true_counts,
        restored_counts=restored_counts,
        decoy_counts=_count(None if case.decoy is None else case.decoy.labels, num_classes),
        label_guess={} if true_counts is None or restored_counts is None else expected_guess(true_counts),
        pictures=Pictures() if case.labels_only else _pictures(reconstruction, comparison),
    )


def run_safely(
    case: Case,
    metrics: Metrics,
    progress: Progress = silent,
    store: Store | None = None,
    snapshot_every: float = SNAPSHOT_EVERY,
) -> Record:
    """`run_case`, or a record that says why there is no answer: one case that fails does not stop the others."""
    try:
        return run_case(case, metrics, progress, store, snapshot_every)
    except LeakGaugeError as error:
        return failed(case, str(error))
    except Exception as error:  # a user's model or attack may fail in any way
        return failed(case, f"{case.attack_name} failed ({cause(error).rstrip('.')}); correct the model or the attack.")


def failed(case: Case, reason: str) -> Record:
    """The record of a case without an answer: nothing was measured, and the next run tries it again."""
    return Record(
        key=case.key,
        round=case.round,
        defence=case.defence,
        defence_repr="",
        attack=case.attack_name,
        attack_repr=repr(case.attack),
        null=case.null,
        seed=case.seed,
        batch_size=None if case.truth is None else len(case.truth),
        outcome=Outcome.FAILED,
        reason=reason,
        scores={},
        chance=math.nan,
        facts={"reason": reason},
        ledger=case.ledger,
        seconds=0.0,
        environment=environment(),
        code=answering_code(),
    )


def _truth_residual(case: Case, observation: Any) -> float:
    """Of a recorded update, whose truth is what somebody says it is, and of nulls, to compare with."""
    truth = case.decoy if case.null else case.truth if isinstance(case.source, RecordedUpdate) else None
    if truth is None or not isinstance(observation, UpdateObservation):
        return math.nan
    stands_in = tuple(truth.inputs.shape[1:]) != observation.space.shape  # where nothing but labels is known
    if stands_in or (case.labels_only and not isinstance(observation.space, ImageSpace)):
        return math.nan
    return fit_truth(observation, truth).residual


def _attack(
    case: Case, observation: Any, progress: Progress, store: Store, snapshot_every: float
) -> tuple[Reconstruction, Seconds]:
    # Real case and null share the start, so that they differ by the update and nothing else.
    stream = ("attack", case.round)
    attack = case.attack
    if not isinstance(attack, SteppedAttack):
        return attack(observation, generator=seeded(case.seed, *stream), progress=progress), Seconds()
    return attack_resumably(
        lambda: attack.search([observation], generator=seeded(case.seed, *stream)),
        progress,
        store,
        case.key,
        snapshot_every,
    )


def _steps(reconstruction: Reconstruction) -> int | None:
    made = reconstruction.facts.get("steps")
    return made if isinstance(made, int) else None


def _compare(
    case: Case, reconstruction: Reconstruction, space: InputSpace | None, num_classes: int | None
) -> Comparison | None:
    if case.truth is None:
        return None
    if case.labels_only and (space is None or isinstance(space, ImageSpace)):
        # One pixel stands for each image: a label attack may take batches whose copies would fill the memory.
        truth = Batch(case.truth.inputs[:, :1, :1, :1], case.truth.labels)
        return align(reconstruction, truth, num_classes=num_classes)
    pairing: dict[str, Any] = {"paired": case.paired, "members": case.members}
    return align(reconstruction, case.truth, case.distractors, num_classes, space=space, **pairing)


def _weigh(case: Case, found: Reconstruction, truth: Batch | None, space: InputSpace | None) -> Evidence:
    """What came back as evidence against each example; empty where nothing was attempted or there is no crowd."""
    if truth is None or found.inputs is None or case.strangers is None or case.labels_only:
        return Evidence((), ())
    candidates, originals, strangers = (one.detach().cpu() for one in (found.inputs, truth.inputs, case.strangers))
    return weigh_evidence(candidates, originals, strangers, space or ImageSpace.of(originals), paired=case.paired)


def _weigh_control(case: Case, found: Reconstruction, space: InputSpace | None) -> tuple[float, ...]:
    """The same of a null's own examples; beside made strangers, what is no copy shows nothing."""
    p = _weigh(case, found, case.decoy, space).p
    if not p or not case.only_made:
        return p
    copied = _compare_closely(case, found, case.decoy, space)
    return tuple(one if copy else 1.0 for one, copy in zip(p, copied, strict=True))


def _compare_closely(
    case: Case, found: Reconstruction, truth: Batch | None, space: InputSpace | None
) -> tuple[bool, ...]:
    if truth is None or found.inputs is None or case.strangers is None:
        return ()
    if case.strangers.ndim > truth.inputs.ndim:  # of each example its own, which are of its kind
        return (False,) * len(truth)
    candidates, originals, strangers = (one.detach().cpu() for one in (found.inputs, truth.inputs, case.strangers))
    return near_copies(candidates, originals, strangers, space or ImageSpace.of(originals))


def _size(case: Case, crowd: Tensor | None) -> int:
    return 0 if case.truth is None or crowd is None else crowd.shape[-case.truth.inputs.ndim]


def _count(labels: Tensor | None, num_classes: int | None) -> tuple[int, ...] | None:
    if labels is None or num_classes is None or labels.ndim > 2 or (labels.ndim == 1 and labels.is_floating_point()):
        return None
    return tuple(class_counts(labels.detach().cpu(), num_classes).tolist())


def score(comparison: Comparison, metrics: Metrics) -> dict[str, tuple[float, ...]]:
    """One score per private example, or per batch, and metric that fits the inputs; NaN where it is not measured."""
    fitting = {name: metric for name, metric in metrics.items() if metric.serves.fits(comparison.space)}
    return {name: tuple(metric(comparison).tolist()) for name, metric in fitting.items()}


def recall(key: str, metrics: Metrics, store: Store) -> Record | None:
    """A stored record, with what could not be measured when it was made, such as LPIPS without weights."""
    record = store.get(key)
    if record is None or record.pictures.originals is None or record.pictures.reconstructions is None:
        return record
    wanted = {
        name: metric
        for name, metric in metrics.items()
        if metric.lacks is None and all(math.isnan(score) for score in record.scores.get(name, ()))
    }
    originals = record.pictures.originals
    # Without crowd and labels, which are not stored: what needs them stays as it was.
    unknown = torch.zeros(len(originals))
    space = record.space or ImageSpace.of(originals)
    comparison = Comparison(originals, record.pictures.reconstructions, None, unknown, None, space=space)
    scores = {**record.scores, **score(comparison, wanted)}
    if repr(scores) != repr(dict(record.scores)):
        record = replace(record, scores=scores)
        store.put(record)
    return record


def recall_answer(key: str, metrics: Metrics, store: Store) -> Record | None:
    """A stored record that answers its case; one that failed does not."""
    record = recall(key, metrics, store)
    return None if record is None or record.outcome is Outcome.FAILED else record


def _pictures(reconstruction: Reconstruction, comparison: Comparison | None) -> Pictures:
    trace = None if reconstruction.loss_trace is None else reconstruction.loss_trace.detach().cpu()
    images = None if reconstruction.inputs is None else reconstruction.inputs.detach().cpu()
    pictures = Pictures(None, images, trace)
    if comparison is not None:
        pictures = Pictures(comparison.originals, comparison.reconstructions, trace)
    found = reconstruction.decoding
    if found is None:
        return pictures
    partners = None if comparison is None else comparison.partners
    by_image = found.coefficients if found.public is not None else found.coefficients.mT
    coefficients = _beside(by_image, partners)
    return replace(
        pictures,
        encodings=_beside(found.encodings, partners),
        demasked=_beside(found.demasked, partners),
        coefficients=coefficients if found.public is not None else coefficients.mT.contiguous(),
        named=found.public,
        labels=None if reconstruction.labels is None else _beside(reconstruction.labels, partners),
    )


def _beside(values: Tensor, partners: Tensor | None) -> Tensor:
    """What belongs to each reconstruction, in the order of the originals; NaN, or -1, where there is none."""
    values = values.detach().cpu()
    if partners is None:
        return values
    ordered = values[partners.clamp_min(0)]
    ordered[partners < 0] = torch.nan if values.is_floating_point() else -1
    return ordered
