from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from cli_support import *  # noqa: F403
from cli_support import Command

from leakgauge import RecordedRound, write_round
from leakgauge.types import Batch

METHOD = ("--method", "idlg_labels")


@pytest.fixture
def file(recorded: RecordedRound) -> Path:
    """The label is not in it, only that there is one."""
    write_round(Path("round.safetensors"), replace(recorded, labels=None))
    return Path("round.safetensors")


@pytest.fixture
def truth_file(truth: Batch) -> Path:
    np.savez("truth.npz", images=truth.inputs.numpy(), labels=truth.labels.numpy())
    return Path("truth.npz")


def test_the_label_of_one_example_is_read_from_its_update(command: Command, file: Path, mlp: str) -> None:
    """Zhao et al. 2020: of one example the sign of the classifier's gradient names the label."""
    answer = command("labels", file, "--model", mlp, *METHOD, "--json")
    assert (answer.code, answer.err) == (0, "")
    assert (answer.payload["command"], answer.payload["files"]) == ("labels", ["round.safetensors"])
    (row,) = answer.rows
    assert (row["attack"], row["batch_size"], row["outcome"]) == ("idlg_labels", 1, "solved")
    (counts,) = row["labels"]
    assert counts == {"round": 0, "true": None, "restored": [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]}
    assert (row["metrics"], row["labels_leak"]) == ({}, None)
    assert {fact["name"]: fact["disclosed"] for fact in row["assumptions"]}["labels"] is False
    assert not any(path.is_dir() for path in Path().iterdir() if path.name != "__pycache__")  # no folder was asked for


def test_the_page_of_a_round_names_its_labels_only_where_that_is_asked_for(
    command: Command, file: Path, mlp: str
) -> None:
    words = ("labels", file, "--model", mlp, *METHOD, "--out", "out")
    assert "not which" in " ".join(command(*words).out.split())
    assert "class 3" not in Path("out/index.html").read_text("utf-8")
    assert "not which" not in " ".join(command(*words, "--no-redact").out.split())
    assert "class 3: 1 restored" in Path("out/index.html").read_text("utf-8")


def test_without_a_method_the_strongest_is_used(command: Command, file: Path, mlp: str) -> None:
    (row,) = command("labels", file, "--model", mlp, "--json").rows
    assert row["attack"] == "best_labels"
    assert row["labels"][0]["restored"][3] == 1


def test_with_the_truth_labels_are_scored_beside_null_and_guess(
    command: Command, file: Path, truth_file: Path, mlp: str
) -> None:
    answer = command("labels", file, "--model", mlp, *METHOD, "--truth", truth_file, "--json")
    (row,) = answer.rows
    assert row["metrics"].keys() == {"label_recall", "label_existence", "label_counts"}
    assert row["metrics"]["label_recall"]["mean"] == 1.0
    assert row["metrics"]["label_recall"]["guess"] == pytest.approx(0.1)
    assert row["metrics"]["label_counts"]["guess"] == pytest.approx(0.1 * 1 + 0.9 * 0.8)
    assert row["metrics"]["label_recall"]["null"]["count"] == 3
    assert row["labels"][0]["true"] == row["labels"][0]["restored"]


def test_a_file_that_holds_its_labels_is_scored_against_them_without_showing_them(
    command: Command, recorded: RecordedRound, mlp: str
) -> None:
    write_round(Path("round.safetensors"), recorded)
    (row,) = command("labels", "round.safetensors", "--model", mlp, *METHOD, "--json").rows
    assert row["metrics"]["label_recall"]["mean"] == 1.0
    assert {fact["name"]: fact["disclosed"] for fact in row["assumptions"]}["labels"] is False


def test_the_tables_show_each_file_with_its_counts_its_scores_and_what_was_assumed(
    command: Command, file: Path, truth_file: Path, mlp: str
) -> None:
    other = Path("other.safetensors")
    other.write_bytes(file.read_bytes())
    truths = ("--truth", truth_file, "--truth", truth_file)
    answer = command("labels", file, other, "--model", mlp, *METHOD, *truths)
    assert answer.code == 0
    words = [line.split() for line in answer.out.splitlines()]
    assert words.count(["class", "true", "idlg_labels"]) == 2
    assert words.count(["3", "1", "1"]) == 2
    assert words.count(["all", "1", "1"]) == 2
    assert ["round.safetensors"] in words
    assert ["other.safetensors"] in words
    assert "2 of 2 private examples were restored (guessing: 0.2)" in " ".join(answer.out.split())
    assert "guess 0.1 of 1" in answer.out
    assert answer.out.count("Assumed known: model, update, input space, batch size, local hyper-parameters, ") == 2
    assert "Report:" not in answer.out


def test_with_a_folder_there_is_a_report_that_can_be_written_again(
    command: Command, file: Path, truth_file: Path, mlp: str, count_runs: list[str]
) -> None:
    words = ("labels", file, "--model", mlp, *METHOD, "--truth", truth_file, "--out", "out")
    assert "Report:" in command(*words).out
    assert command(*words).code == 0
    assert count_runs == ["as recorded idlg_labels real", *["as recorded idlg_labels null"] * 3]
    assert "<h2>Labels</h2>" in Path("out/index.html").read_text()
    assert list(Path("out/tensors").iterdir()) == []
    Path("out/index.html").unlink()
    assert command("report", "out").code == 0
    assert "<h2>Labels</h2>" in Path("out/index.html").read_text()


def test_labels_can_be_gated(command: Command, file: Path, truth_file: Path, mlp: str) -> None:
    words = ("labels", file, "--model", mlp, *METHOD)
    assert command(*words, "--truth", truth_file, "--fail-above", "label_recall=0.5").code == 1
    # One label of ten classes is right by chance too often for a verdict.
    doubtful = command(*words, "--truth", truth_file, "--fail-above", "label_recall=1")
    assert doubtful.code == 3
    assert "could have been guessed" in " ".join(doubtful.err.split())
    allowed = command(*words, "--truth", truth_file, "--fail-above", "label_recall=1", "--allow-inconclusive")
    assert allowed.code == 0
    command(*words, "--fail-above", "label_recall=0.5").refused("label_recall", "--truth")
    command(*words, "--truth", truth_file, "--fail-above", "psnr=20").refused("psnr", "label_recall")


def test_a_round_of_unknown_size_needs_the_size(command: Command, recorded: RecordedRound, mlp: str) -> None:
    write_round(Path("round.safetensors"), replace(recorded, num_examples=None, labels=None))
    words = ("labels", "round.safetensors", "--model", mlp, *METHOD)
    command(*words).refused("round.safetensors", "does not say how many examples", "--batch-size")
    (row,) = command(*words, "--batch-size", "1", "--json").rows
    assert row["labels"][0]["restored"][3] == 1
    assert {fact["name"]: fact["disclosed"] for fact in row["assumptions"]}["batch size"] is True


def test_what_makes_no_sense_is_refused(command: Command, file: Path, truth_file: Path, mlp: str) -> None:
    words = ("labels", file, "--model", mlp)
    command(*words, "--method", "quasi_newton").refused("no label method 'quasi_newton'", "idlg_labels")
    command(*words, "--batch-size", "2").refused("covers 1 examples, not 2", "leave out --batch-size")
    command(*words, file, "--truth", truth_file).refused("2 rounds and 1 truths", "--truth once for each round")
    command("labels", "missing.safetensors", "--model", mlp).refused("missing.safetensors")
    command("labels", file).refused("--model")
    np.savez("two.npz", images=np.zeros((2, 1, 8, 8), np.float32), labels=np.array([1, 2]))
    command(*words, "--truth", "two.npz").refused("covers 1")
    assert not Path("out").exists()


def test_a_method_that_cannot_be_applied_says_why(
    command: Command, recorded: RecordedRound, module: Callable[[str], str]
) -> None:
    source = """
from torch import nn


class Scaled(nn.Sequential):
    def forward(self, x):
        return 1 * super().forward(x)


def build():
    return Scaled(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))
"""
    write_round(Path("round.safetensors"), recorded)
    words = ("labels", "round.safetensors", "--model", f"{module(source)}:build", *METHOD)
    answer = command(*words)
    assert answer.code == 0
    assert "not the output of an nn.Linear layer" in " ".join(answer.out.split())
    assert "class" not in answer.out.split()


def test_an_audit_restores_labels_without_being_told_them(command: Command) -> None:
    torch.manual_seed(0)
    words = ("--dataset", "digits", "--model", "mlp:hidden=(8,)", "--train-steps", "2", "--batch-size", "8")
    attack = ("--attack", "idlg_labels", "--defence", "none", "--out", "out")
    answer = command("audit", *words, *attack, "--fail-above", "label_recall=0.01", "--json")
    (row,) = answer.rows
    assert (row["verdict"], row["metrics"]["label_recall"]["count"]) == ("not judged", 8)
    assert answer.code == 1
    command("audit", *words, "--attack", "quasi_newton", "--fail-above", "label_recall=0.5").refused(
        "label_recall", "not given"
    )
    shown = command("audit", *words, *attack)
    assert "guess" in shown.out
    assert "labels" in shown.out
