from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from audit_support import *  # noqa: F403
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

import leakgauge
from leakgauge import AuditResult, Batch, FedAvg, Outcome, Verdict
from leakgauge.attacks.analytic import LinearLayer
from leakgauge.audit.executors import in_process
from leakgauge.audit.plan import DEFAULT_DEFENCES
from leakgauge.audit.store import FolderStore
from leakgauge.defences import Clipping
from leakgauge.errors import InvalidCase, InvalidFile

CLASSES = 5


def images(count: int, seed: int = 0) -> Tensor:
    return torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


IMAGES, LABELS = images(1), torch.tensor([2])
CROWD = images(60, seed=1)


def labels(count: int) -> Tensor:
    return torch.arange(count) % CLASSES


def diverged() -> nn.Module:
    model = mlp()
    nn.init.constant_(next(model.parameters()), torch.nan)
    return model


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, CLASSES))


def audit(
    model: nn.Module | None = None, batch: Any = (IMAGES, LABELS), loss: Any = cross_entropy, **options: Any
) -> AuditResult:
    settings = {"attacks": ["linear_layer"], "defences": ["none"], "references": CROWD, "nulls": 1} | options
    return leakgauge.audit(mlp() if model is None else model, loss, batch, **settings)


def test_five_lines_audit_a_model(tmp_path: Path) -> None:
    model = mlp()
    result = leakgauge.audit(model, cross_entropy, (IMAGES, LABELS), attacks=["linear_layer"], nulls=1)
    assert result["none"].verdict is Verdict.LEAKS
    assert list(dict.fromkeys(row.defence for row in result.rows)) == list(DEFAULT_DEFENCES)
    page = result.write_report(tmp_path / "report")
    assert page == tmp_path / "report" / "index.html"
    assert "<html" in page.read_text()


def test_an_audit_without_a_crowd_needs_no_references() -> None:
    result = audit(references=None, distractors=0)
    assert result["none"].measurements["psnr"].attack.mean > 100


def test_a_result_has_a_row_for_each_defence_and_attack() -> None:
    result = audit(defences=["none", "clipping:max_norm=1"], attacks=["linear_layer", "idlg_labels"])
    assert {(row.defence, row.attack) for row in result.rows} == {
        (defence, attack) for defence in ("none", "clipping:max_norm=1") for attack in ("linear_layer", "idlg_labels")
    }
    assert result.complete
    assert result.seed == 0
    row = result["none"]
    assert row.attack == "linear_layer"
    assert row.measurements["psnr"].attack.mean > 100
    # dW_i / db_i is exact up to rounding, in spite of clipping, which scales both.
    assert result["clipping:max_norm=1"].measurements["psnr"].attack.mean > 100
    assert {fact.name for fact in row.assumptions} >= {"model", "update", "labels", "batch size", "defence"}


def test_at_a_prompt_a_result_is_a_line_for_each_defence() -> None:
    result = audit(defences=["none", "gaussian_noise:std=9"])
    first, second = repr(result).splitlines()
    assert first == f"none: {result['none'].verdict.value}, 1 of 1 leaked (linear_layer)"
    assert second.startswith("gaussian_noise:std=9: ")
    assert " leaked" not in second
    assert repr(replace(result, complete=False)).endswith("\nstopped before the end")


def test_names_and_objects_name_the_same_parts() -> None:
    by_name = audit(defences=["clipping:max_norm=1"], attacks=["linear_layer"])
    by_object = audit(defences=[Clipping(1.0)], attacks=[LinearLayer()])
    assert by_object.rows[0].defence == "clipping:max_norm=1.0"
    assert by_object.rows[0].measurements == by_name.rows[0].measurements


def test_a_batch_and_a_pair_are_the_same_and_the_seed_is_all_that_is_random() -> None:
    pair, batch = audit(), audit(batch=Batch(IMAGES, LABELS))
    again, other = audit(defences=["gaussian_noise:std=1"]), audit(defences=["gaussian_noise:std=1"], seed=1)
    assert pair.rows[0].measurements == batch.rows[0].measurements
    assert again.rows[0].measurements == audit(defences=["gaussian_noise:std=1"]).rows[0].measurements
    assert again.rows[0].measurements != other.rows[0].measurements


def test_class_probabilities_may_stand_for_labels() -> None:
    result = audit(batch=(IMAGES, one_hot(LABELS, CLASSES).float()))
    assert result["none"].verdict is Verdict.LEAKS


def test_a_client_of_several_local_steps_can_be_audited() -> None:
    result = audit(local_update=FedAvg(epochs=2, batch_size=1, learning_rate=0.1))
    assert result["none"].measurements["psnr"].attack.mean > 60


class Noisy(nn.Module):
    """BatchNorm, dropout, a frozen layer, and a buffer that counts calls: all that an audit could disturb."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.flatten = nn.Flatten()
        self.first = nn.Linear(64, 8)
        self.norm = nn.BatchNorm1d(8)
        self.dropout = nn.Dropout(0.5)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.head = nn.Linear(8, CLASSES)
        self.calls: Tensor
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.calls += 1
        return self.head(self.frozen(self.dropout(self.norm(self.first(self.flatten(x))))))


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("training", [True, False])
def test_the_model_and_the_data_are_left_as_they_were(mode: Any, training: bool) -> None:
    model = Noisy().train(training)
    model.head.weight.grad = torch.ones_like(model.head.weight)
    before = copy.deepcopy(model.state_dict())
    parameters = {name: id(parameter) for name, parameter in model.named_parameters()}
    pair, crowd = (images(3, seed=4), torch.tensor([0, 1, 2])), CROWD.clone()
    kept = pair[0].clone()
    result = audit(model, pair, mode=mode, attacks=["quasi_newton:steps=2", "linear_layer"])
    assert result.rows[0].outcome is not Outcome.NON_FINITE
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert {name: id(parameter) for name, parameter in model.named_parameters()} == parameters
    assert [p.requires_grad for p in model.frozen.parameters()] == [False, False]
    assert model.training is training
    assert model.first.weight.grad is None
    assert torch.equal(model.head.weight.grad, torch.ones_like(model.head.weight))
    assert not any(module._forward_hooks for module in model.modules())
    assert torch.equal(pair[0], kept)
    assert torch.equal(CROWD, crowd)
    assert not pair[0].requires_grad


def test_the_global_random_stream_neither_matters_nor_moves() -> None:
    results = []
    for seed in (7, 8):
        model = Noisy()
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        results.append(audit(model, (images(3), torch.tensor([0, 1, 2])), attacks=["quasi_newton:steps=2"]))
        assert torch.equal(torch.get_rng_state(), before)
    assert results[0].rows[0].measurements == results[1].rows[0].measurements


def test_an_attack_that_does_not_apply_is_not_judged() -> None:
    result = audit(batch=(images(3), torch.tensor([0, 1, 2])))
    row = result["none"]
    assert (row.verdict, row.outcome) == (Verdict.NOT_JUDGED, Outcome.NOT_APPLICABLE)
    assert "several images" in row.reason
    assert not any(measurement.measured for measurement in row.measurements.values())


def test_a_model_that_an_attack_cannot_handle_does_not_end_the_audit() -> None:
    torch.manual_seed(0)
    no_linear_head = nn.Sequential(nn.Conv2d(1, CLASSES, 8), nn.Flatten())
    result = audit(no_linear_head, threat_model="honest_but_curious", attacks=["idlg_labels", "linear_layer"])
    assert {row.outcome for row in result.rows} == {Outcome.NOT_APPLICABLE}
    assert any("nn.Linear" in row.reason for row in result.rows)


def test_without_distractors_nothing_can_be_judged() -> None:
    assert audit(distractors=0)["none"].verdict is Verdict.NOT_JUDGED


def test_results_are_kept_in_a_folder_and_a_second_call_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = audit(out=tmp_path / "out")
    assert (tmp_path / "out" / "index.html").is_file()

    def never(*_: Any) -> None:
        raise AssertionError("a finished case was run again")

    monkeypatch.setattr(in_process, "run_safely", never)
    second = audit(out=tmp_path / "out")
    assert json.dumps(second.to_json()) == json.dumps(first.to_json())
    with pytest.raises(AssertionError, match="run again"):
        audit(out=tmp_path / "out", seed=1)


def test_nothing_is_written_without_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    audit()
    assert list(tmp_path.iterdir()) == []


BAD_INPUT: dict[str, tuple[dict[str, Any], str]] = {
    "no batch": ({"batch": None}, r"needs a private batch; pass batch="),
    "empty batch": ({"batch": (images(0), LABELS[:0])}, "batch is empty"),
    "one tensor": ({"batch": (IMAGES,)}, "pair of tensors"),
    "lists": ({"batch": (IMAGES.tolist(), LABELS.tolist())}, "pair of tensors"),
    "no batch dimension": ({"batch": (IMAGES[0], LABELS)}, "n c h w"),
    "two labels for one image": ({"batch": (IMAGES, torch.tensor([1, 2]))}, "1 inputs but 2 labels"),
    "normalised pixels": ({"batch": (IMAGES * 4 - 2, LABELS)}, r"lie in \[0, 1\].*undo the normalisation"),
    "bytes as pixels": ({"batch": ((IMAGES * 255).round(), LABELS)}, r"lie in \[0, 1\]"),
    "NaN pixels": ({"batch": (IMAGES * torch.nan, LABELS)}, r"lie in \[0, 1\]"),
    "label too large": ({"batch": (IMAGES, torch.tensor([CLASSES]))}, "5 classes"),
    "negative label": ({"batch": (IMAGES, torch.tensor([-1]))}, "5 classes"),
    "images of another size": ({"batch": (torch.rand(1, 1, 9, 9), LABELS)}, "cannot take images of 1 x 9 x 9"),
    "labels of another type": ({"batch": (IMAGES, LABELS.to(torch.int32))}, "loss of the private batch|[Ll]abels"),
    "images of another type": (
        {"batch": (IMAGES.double(), LABELS)},
        r"computes in float32 and got float64; use model.double\(\)",
    ),
    "a loss that fails": ({"loss": lambda scores, labels: scores / None}, "loss of the private batch cannot be"),
    "a loss per image": ({"loss": lambda scores, labels: scores, "batch": (images(2), labels(2))}, "instead of one"),
    "a diverged model": ({"model": diverged()}, "not a finite number"),
    "one image under BatchNorm": ({"model": Noisy(), "mode": "train"}, "use a batch of two or more, or the mode eval"),
    "references of another shape": ({"references": torch.rand(50, 1, 9, 9)}, "References are one or more images of"),
    "references without a batch dimension": ({"references": CROWD[0]}, "References are one or more images of"),
    "no references at all": ({"references": CROWD[:0]}, "References are one or more images of"),
    "references with labels that are no classes": (
        {"references": Batch(CROWD, torch.arange(len(CROWD)))},
        "labels of the references do not fit",
    ),
    "references as bytes": ({"references": (CROWD * 255).byte()}, r"references do not fit"),
    "references with NaN": ({"references": CROWD * torch.nan}, r"references do not fit"),
    "unknown attack": ({"attacks": ["linear_lair"]}, "did you mean 'linear_layer'"),
    "unknown defence": ({"defences": ["prunning"]}, "did you mean 'pruning'"),
    "unknown threat model": ({"threat_model": "informd"}, "did you mean 'informed'"),
    "threat model with an option": ({"threat_model": "informed:v=1"}, "did you mean 'informed'"),
    "no attack": ({"attacks": []}, "at least one"),
    "no defence": ({"defences": []}, "at least one"),
    "no trainable parameter": ({"model": mlp().requires_grad_(False)}, "no trainable parameter"),
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_refused_in_one_sentence_before_anything_is_written(tmp_path: Path, name: str) -> None:
    options, message = BAD_INPUT[name]
    with pytest.raises(InvalidCase, match=message) as caught:
        audit(**options, out=tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_an_audit_without_a_batch_argument_says_what_to_pass() -> None:
    with pytest.raises(InvalidCase, match=r"pass batch=\(images, labels\)"):
        leakgauge.audit(mlp())


def test_missing_lpips_weights_are_found_before_any_attack_runs(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="alexnet_features"):
        audit(weights=tmp_path, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_unwritable_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InvalidFile, match="Cannot write to"):
        audit(out=tmp_path / "file" / "out")


def test_an_interrupted_audit_keeps_what_was_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    original = in_process.run_safely

    def interrupted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 6:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(in_process, "run_safely", interrupted)
    options: dict[str, Any] = {"defences": ["none", "clipping:max_norm=1"], "out": tmp_path / "out", "nulls": 3}
    partial = audit(**options)
    assert not partial.complete
    assert [row.defence for row in partial.rows] == ["none", "clipping:max_norm=1"]
    assert partial.rows[1].nulls == ()
    assert (tmp_path / "out" / "index.html").is_file()
    calls = 10
    assert audit(**options).complete
    assert calls == 13  # only the nulls that were missing


def test_an_audit_interrupted_before_its_first_result_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(in_process, "run_safely", interrupted)
    with pytest.raises(KeyboardInterrupt):
        audit()


def test_a_result_that_was_kept_is_reported_even_if_the_interruption_came_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = FolderStore.put

    def interrupted(store: FolderStore, record: Any) -> None:
        original(store, record)
        if record.defence != "none":
            raise KeyboardInterrupt

    monkeypatch.setattr(FolderStore, "put", interrupted)
    partial = audit(defences=["none", "clipping:max_norm=1"], out=tmp_path / "out")
    assert not partial.complete
    assert [row.defence for row in partial.rows] == ["none", "clipping:max_norm=1"]
