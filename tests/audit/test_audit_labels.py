"""Attacks on labels as cases, records and rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from audit_support import *  # noqa: F403
from audit_support import MakeRecord
from torch import Generator, nn

from leakgauge import THREAT_MODELS, Federation, FedSGD, RecordedRound, UpdateObservation, audit, write_round
from leakgauge.attacks.analytic import LinearLayer
from leakgauge.attacks.labels import IDLG
from leakgauge.audit import recorded as recorded_module
from leakgauge.audit.case import Case
from leakgauge.audit.execute import execute, load_result
from leakgauge.audit.grid import Round, grid
from leakgauge.audit.record import Pictures, Record
from leakgauge.audit.recorded import DEFAULT_LABEL_ATTACK, RecordedPlan, label_attacks, prepare_recorded
from leakgauge.audit.result import summarise_records
from leakgauge.audit.run import run_case
from leakgauge.audit.store import FolderStore
from leakgauge.catalogue import label_metrics, standard_metrics
from leakgauge.defences import NoDefence
from leakgauge.errors import InvalidCase
from leakgauge.metrics import expected_guess
from leakgauge.progress import Progress, silent
from leakgauge.protocol import learner_and_state
from leakgauge.protocol.facts import Fact, Subject
from leakgauge.types import Batch, Outcome, Reconstruction

SHAPE, CLASSES = (1, 6, 6), 5
LABELS = torch.tensor([3, 0, 3, 4])
COUNTS = (1, 0, 0, 2, 1)
HIDDEN = (Fact(Subject.LABELS, False, "hidden"),)
GIVEN = (Fact(Subject.LABELS, True, "given"),)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 16), nn.Sigmoid(), nn.Linear(16, CLASSES))


def batch(labels: torch.Tensor = LABELS, seed: int = 0) -> Batch:
    return Batch(torch.rand(len(labels), *SHAPE, generator=torch.Generator().manual_seed(seed)), labels)


def cases(attack: Any, threat_model: str = "informed") -> list[Case]:
    return grid(
        Federation(*learner_and_state(model()), FedSGD()),
        [Round(batch(), (batch(torch.tensor([1, 1, 2, 2]), seed=1),), batch(LABELS.repeat(3), seed=2).inputs)],
        defences={"none": NoDefence()},
        attacks={"attack": attack},
        threat_model=THREAT_MODELS[threat_model],
        seed=0,
    )


@dataclass(frozen=True)
class Diverged:
    """An attack on images that has restored labels by the time it fails."""

    def __call__(
        self, observation: UpdateObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction:
        return Reconstruction(None, LABELS, Outcome.NON_FINITE)


def test_an_attack_on_labels_is_not_given_them_whatever_the_threat_model_says() -> None:
    for case in cases(IDLG()):
        assert case.labels_only
        assert case.source.observe().labels is None
        assert {fact.name: fact.disclosed for fact in case.ledger}["labels"] is False
        assert {fact.name: fact.disclosed for fact in case.ledger}["batch size"] is True
    for case in cases(LinearLayer()):
        assert not case.labels_only
        assert case.source.observe().labels is not None
        assert {fact.name: fact.disclosed for fact in case.ledger}["labels"] is True


def test_a_record_of_labels_keeps_counts_scores_and_the_guess_and_no_picture() -> None:
    real, null = (run_case(case, standard_metrics()) for case in cases(IDLG()))
    assert real.true_counts == null.true_counts == COUNTS
    assert real.restored_counts is not None
    assert null.restored_counts is not None
    assert sum(real.restored_counts) == 4
    assert real.label_guess == expected_guess(COUNTS)
    hits = sum(map(min, COUNTS, real.restored_counts))
    assert sum(real.scores["label_recall"]) == hits
    assert real.scores["label_counts"] == (sum(a == b for a, b in zip(COUNTS, real.restored_counts)) / CLASSES,)
    assert len(real.scores["label_existence"]) == 1
    assert all(math.isnan(score) for name in ("psnr", "ssim") for score in real.scores[name])
    assert real.pictures == Pictures()
    assert sum(map(min, COUNTS, null.restored_counts)) < hits  # the decoy's classes are others


def test_an_attack_on_images_that_failed_keeps_the_originals() -> None:
    record = run_case(cases(Diverged())[0], label_metrics())
    assert record.pictures.originals is not None
    assert torch.equal(record.pictures.originals, batch().inputs)
    assert record.restored_counts == COUNTS


def test_counts_and_guess_return_from_disk(tmp_path: Path, make_record: MakeRecord) -> None:
    record = make_record(
        true_counts=(1, 0), restored_counts=(0, 1), label_guess={"label_recall": 0.1 + 0.2, "x": math.nan}
    )
    store = FolderStore.create(tmp_path)
    store.put(record)
    back = store.get(record.key)
    assert back is not None
    assert (back.true_counts, back.restored_counts) == ((1, 0), (0, 1))
    assert back.label_guess["label_recall"] == 0.1 + 0.2
    assert math.isnan(back.label_guess["x"])


def labelled(make_record: MakeRecord, hits: int = 8, size: int = 8, **changes: Any) -> Record:
    values: dict[str, Any] = {
        "batch_size": size,
        "scores": {"label_recall": (1.0,) * hits + (0.0,) * (size - hits)},
        "true_counts": (size, 0),
        "restored_counts": (hits, size - hits),
        "label_guess": {"label_recall": 0.5},
        "ledger": HIDDEN,
        "chance": math.nan,
    }
    return make_record(**values | changes)


def test_the_guess_of_a_row_is_weighted_as_its_scores_are(make_record: MakeRecord) -> None:
    records = [
        labelled(make_record, size=2, hits=1, label_guess={"label_recall": 0.5}),
        labelled(make_record, size=6, hits=1, round=1, label_guess={"label_recall": 0.1}),
    ]
    (row,) = summarise_records(records, {}).rows
    assert row.measurements["label_recall"].guess == pytest.approx((2 * 0.5 + 6 * 0.1) / 8)
    payload = row.to_dict()
    assert payload["metrics"]["label_recall"]["guess"] == row.measurements["label_recall"].guess
    assert payload["labels"] == [
        {"round": 0, "true": (2, 0), "restored": (1, 1)},
        {"round": 1, "true": (6, 0), "restored": (1, 5)},
    ]
    assert payload["labels_leak"] is False


@pytest.mark.parametrize(
    ("hits", "null_hits", "leak"),
    [
        (8, None, True),  # 0.5^8
        (7, None, True),  # 9 * 0.5^8 = 0.035
        (6, None, False),  # 37 * 0.5^8 = 0.14
        (8, 5, True),
        (8, 7, False),  # who names this class seven times in eight has all eight in a third of the guesses
        (8, 8, False),  # the null, an unrelated update, restored as many
    ],
)
def test_labels_leak_beyond_an_even_guess_and_beyond_the_null(
    make_record: MakeRecord, hits: int, null_hits: int | None, leak: bool
) -> None:
    records = [labelled(make_record, hits)]
    records += [] if null_hits is None else [labelled(make_record, null_hits, null=True)]
    assert summarise_records(records, {}).rows[0].labels_leak is leak


def test_labels_that_were_given_are_neither_a_leak_nor_a_limit(make_record: MakeRecord) -> None:
    given = summarise_records([labelled(make_record, ledger=GIVEN)], {})
    assert given.rows[0].labels_leak is None
    assert given.rows[0].to_dict()["labels"] == []
    with pytest.raises(InvalidCase, match=r"not measured for the defence 'none'.*hidden labels"):
        given.exceeding({"label_recall": 0.5})
    both = summarise_records([labelled(make_record, ledger=GIVEN), labelled(make_record, attack="idlg_labels")], {})
    assert both.exceeding({"label_recall": 0.5}) == ["none: label_recall is 1, the limit is 0.5 (attack idlg_labels)"]


def test_among_attacks_on_labels_the_one_that_restored_most_comes_first(make_record: MakeRecord) -> None:
    records = [labelled(make_record, hits, attack=f"restored {hits}") for hits in (3, 8, 5)]
    rows = summarise_records(records, {}).rows
    assert [row.attack for row in rows] == ["restored 8", "restored 5", "restored 3"]


def test_an_audit_of_labels_leaves_no_image_behind_and_is_read_again(tmp_path: Path) -> None:
    result = audit(model(), batch=(batch().inputs, LABELS), attacks=["idlg_labels"], defences=["none"], out=tmp_path)
    assert list((tmp_path / "tensors").iterdir()) == []
    again = load_result(tmp_path, standard_metrics())
    assert [row.to_dict() for row in again.rows] == [row.to_dict() for row in result.rows]
    assert result["none"].labels_leak is not None
    assert "<h2>Labels</h2>" in (tmp_path / "index.html").read_text()


@pytest.fixture
def rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two recorded rounds of the same model: one says its labels, the other only how many there are."""
    monkeypatch.setattr(recorded_module, "recorded_model", lambda *_: model())
    module = model()
    paths = []
    for number, labels in enumerate((LABELS, torch.tensor([1, 2]))):
        module.zero_grad()
        nn.functional.cross_entropy(module(batch(labels).inputs), labels).backward()
        update = {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}
        known: dict[str, Any] = {"labels": labels} if number == 0 else {"num_examples": 2}
        paths.append(str(tmp_path / f"{number}.safetensors"))
        write_round(Path(paths[-1]), RecordedRound(module.state_dict(), update, SHAPE, **known))
    return paths


def test_recorded_rounds_become_one_row_per_method_scored_where_the_truth_is_known(rounds: list[str]) -> None:
    prepared = prepare_recorded(RecordedPlan(tuple(rounds), "any:model", ("idlg_labels",), labels_only=True))
    assert [(case.round, case.null, case.truth is None) for case in prepared.cases] == [
        (0, 0, False),
        (0, 1, False),
        (0, 2, False),
        (1, 0, True),
    ]
    assert all(case.source.observe().labels is None for case in prepared.cases)
    result = execute(prepared, None)
    (row,) = result.rows
    assert [record.true_counts for record in row.records] == [COUNTS, None]
    # Of two examples with labels of their own the sign rule is exact.
    assert row.records[1].restored_counts == (0, 1, 1, 0, 0)
    assert row.measurements["label_recall"].attack.count == 4


def test_a_batch_larger_than_the_embedded_photographs_has_a_null_too(rounds: list[str]) -> None:
    labels = torch.arange(300) % CLASSES
    recorded = recorded_module.read_round(Path(rounds[0]))
    write_round(Path(rounds[0]), replace(recorded, labels=labels))
    _, *nulls = prepare_recorded(RecordedPlan((rounds[0],), "any:model", ("idlg_labels",), labels_only=True)).cases
    assert [null.null for null in nulls] == [1, 2, 3]
    assert len({null.key for null in nulls}) == 3
    assert all(run_case(null, label_metrics()).restored_counts is not None for null in nulls)


def test_every_method_is_an_attack_of_the_catalogue_that_returns_labels_alone(rounds: list[str]) -> None:
    methods = label_attacks()
    assert {"idlg_labels", DEFAULT_LABEL_ATTACK} <= methods.keys()
    assert "quasi_newton" not in methods
    prepared = prepare_recorded(RecordedPlan((rounds[0],), "any:model", tuple(methods), labels_only=True))
    result = execute(prepared, None)
    assert {row.attack for row in result.rows} == set(methods)
    for row in result.rows:
        assert row.records[0].pictures == Pictures()
        assert row.outcome is not Outcome.SOLVED or row.restored_labels


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attacks": ("idlg_label",)}, "no label method 'idlg_label'; did you mean 'idlg_labels'"),
        ({"attacks": ("quasi_newton",)}, "no label method 'quasi_newton'; choose from .*idlg_labels"),
        ({"batch_size": 3}, "covers 4 examples, not 3; leave out --batch-size"),
        ({"batch_size": 0}, "at least one example"),
        ({"truths": ("a.npz", "b.npz")}, "1 rounds and 2 truths"),
    ],
    ids=["misspelt", "of images", "another size", "no size", "truths"],
)
def test_what_makes_no_sense_is_refused(rounds: list[str], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidCase, match=message):
        prepare_recorded(
            replace(RecordedPlan((rounds[0],), "any:model", ("idlg_labels",), labels_only=True), **changes)
        )


def test_the_labels_of_a_round_must_fit_the_model(rounds: list[str]) -> None:
    recorded = recorded_module.read_round(Path(rounds[0]))
    write_round(Path(rounds[0]), replace(recorded, labels=torch.tensor([CLASSES])))
    with pytest.raises(InvalidCase, match="5 classes"):
        prepare_recorded(RecordedPlan((rounds[0],), "any:model", ("idlg_labels",), labels_only=True))
