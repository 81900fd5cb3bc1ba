"""``leakgauge explain``, and what ``leakgauge invert`` says of a round that was misread."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from cli_support import *  # noqa: F403
from cli_support import Command

from leakgauge import RecordedRound, write_round
from leakgauge.types import Batch

EXACT = ("--attack", "linear_layer", "--out", "out")


@pytest.fixture
def truth_file(truth: Batch) -> Path:
    np.savez("truth.npz", images=truth.inputs.numpy(), labels=truth.labels.numpy())
    return Path("truth.npz")


@pytest.fixture
def reversed_file(recorded: RecordedRound) -> Path:
    back = {name: -tensor for name, tensor in recorded.update.items()}
    write_round(Path("round.safetensors"), replace(recorded, update=back))
    return Path("round.safetensors")


def test_a_misread_round_is_explained_by_its_truth_and_what_is_printed_puts_it_right(
    command: Command, reversed_file: Path, truth_file: Path, mlp: str
) -> None:
    words = (reversed_file, "--model", mlp, "--truth", truth_file)
    answer = command("explain", *words, "--json")
    assert answer.payload["options"] == ["--read", "reversed"]
    assert "sign of the update is reversed" in answer.payload["explanation"][0]
    declared = answer.rows[0]
    assert (declared["reading"], declared["explains"]) == ("as declared", False)
    assert declared["residual"] == pytest.approx(2, rel=1e-4)
    again = command("explain", *words, *answer.payload["options"], "--json")
    assert "explained as declared" in again.payload["explanation"][0]
    shown = command("explain", *words)
    assert "Use: --read reversed" in shown.out
    assert "left over" in shown.out


def test_an_inversion_says_whether_its_update_is_explained_and_looks_for_a_reading_if_not(
    command: Command, recorded: RecordedRound, reversed_file: Path, truth_file: Path, mlp: str
) -> None:
    # Exact recovery does not mind the sign: only what the client would have sent tells that the round was misread.
    words = ("invert", reversed_file, "--model", mlp, *EXACT, "--truth", truth_file, "--json")
    wrong = command(*words)
    assert wrong.payload["explained"] is False
    assert wrong.payload["truth_residual"] == pytest.approx(2, rel=1e-4)
    assert wrong.payload["options"] == ["--read", "reversed"]
    silent = command(*words, "--no-explain")
    assert silent.payload["explained"] is False
    assert "readings" not in silent.payload
    right = command(*words, "--read", "reversed")
    assert right.payload["explained"] is True
    assert right.rows[0]["verdict"] == "leaks"
    without = command("invert", reversed_file, "--model", mlp, *EXACT, "--read", "reversed")
    assert "The update is explained by the declared client" in without.out


def test_what_the_file_says_can_be_said_otherwise(command: Command, recorded: RecordedRound, mlp: str) -> None:
    short = {name: 0.01 * tensor for name, tensor in recorded.update.items()}
    write_round(Path("round.safetensors"), replace(recorded, update=short))
    words = ("invert", "round.safetensors", "--model", mlp, *EXACT, "--json", "--no-explain")
    assert command(*words).payload["explained"] is False
    client = "fedavg:epochs=1,batch_size=1,learning_rate=0.01"
    assert command(*words, "--local-update", client).payload["explained"] is True
    command(*words, "--read", "backwards").refused("'backwards'", "reversed, swapped")
    command(*words, "--mode", "sleep").refused("no mode 'sleep'")
    command(*words, "--loss", "huber").refused("no loss 'huber'")
    command(*words, "--local-update", "fedsgx").refused("fedsgx")


def test_labels_that_are_not_the_batch_s_are_told_from_the_truth(
    command: Command, recorded: RecordedRound, truth_file: Path, mlp: str
) -> None:
    write_round(Path("round.safetensors"), replace(recorded, labels=torch.tensor([5])))
    answer = command("explain", "round.safetensors", "--model", mlp, "--truth", truth_file, "--json")
    assert "labels" in answer.payload["explanation"][0]
    assert answer.payload["options"] == ["--read", "without-labels"]


def test_an_update_of_nothing_is_refused_by_every_command(command: Command, recorded: RecordedRound, mlp: str) -> None:
    nothing = {name: torch.zeros_like(tensor) for name, tensor in recorded.update.items()}
    write_round(Path("round.safetensors"), replace(recorded, update=nothing))
    for name in ("invert", "labels", "explain"):
        command(name, "round.safetensors", "--model", mlp).refused("zero in every entry", "clone()")
