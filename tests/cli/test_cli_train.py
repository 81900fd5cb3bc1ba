from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from cli_support import *  # noqa: F403
from cli_support import Command
from safetensors.torch import load_file

from leakgauge.training import DefendedTraining

SMALL = ("train", "--dataset", "digits", "--model", "mlp:hidden=(8,)", "--batch-size", "16", "--learning-rate", "0.05")


def test_a_training_prints_accuracy_and_overhead_and_leaves_weights_that_an_audit_reads(command: Command) -> None:
    answer = command(*SMALL, "--steps", "30", "--defence", "pruning:keep=0.5", "--out", "out", "--json")
    assert answer.code == 0, answer.err
    assert (answer.payload["command"], answer.payload["seed"]) == ("train", 0)
    (row,) = answer.payload["rows"]
    assert row["defence"] == "pruning:keep=0.5"
    assert (row["steps"], row["batch_size"], row["momentum"]) == (30, 16, 0.9)
    low, high = row["accuracy"]["interval"]
    assert 0 <= low < row["accuracy"]["mean"] < high <= 1
    assert row["accuracy"]["count"] == 359
    assert row["overhead"]["median"] > 0
    assert json.loads(Path("out/training.json").read_text()) == {"seed": 0, **row}
    audited = command(
        *("audit", "--dataset", "digits", "--model", "mlp:hidden=(8,)", "--state", "out/model.safetensors"),
        *("--batch-size", "1", "--attack", "linear_layer", "--defence", "none", "--out", "audit", "--json"),
    )
    assert audited.code == 0, audited.err


def test_the_same_command_again_trains_nothing_and_says_the_same(command: Command) -> None:
    words = (*SMALL, "--epochs", "1", "--schedule", "cosine", "--out", "out")
    first = command(*words)
    assert first.code == 0, first.err
    assert first.out.startswith("No defence: accuracy ")
    assert "after 89 steps; a step takes " in " ".join(first.out.split())
    before = Path("out/model.safetensors").read_bytes()
    assert command(*words).out == first.out
    assert Path("out/model.safetensors").read_bytes() == before


def test_a_training_stopped_by_ctrl_c_is_resumed_and_ends_with_the_same_bits(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (*SMALL, "--steps", "20", "--defence", "gaussian_noise:std=0.01")
    step = DefendedTraining.step

    def stopping(self: DefendedTraining) -> None:
        if self.done == 9:
            raise KeyboardInterrupt
        step(self)

    monkeypatch.setattr(DefendedTraining, "step", stopping)
    stopped = command(*words, "--out", "parts", "--json")
    assert (stopped.code, stopped.out) == (130, "")
    assert "Run the same command to resume" in stopped.err
    assert not Path("parts/model.safetensors").exists()
    (kept,) = Path("parts/trainings").iterdir()
    assert int(load_file(kept)["training.step"]) == 9
    monkeypatch.setattr(DefendedTraining, "step", step)
    assert command(*words, "--out", "parts").code == 0
    assert command(*words, "--out", "whole").code == 0
    parts, whole = load_file("parts/model.safetensors"), load_file("whole/model.safetensors")
    assert parts.keys() == whole.keys()
    assert all(torch.equal(parts[name], whole[name]) for name in whole)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (("--defence", "prunning"), "did you mean 'pruning'"),
        (("--steps", "5", "--epochs", "5"), "one of the two"),
        (("--schedule", "step:every=2"), "correct them"),
        (("--recipe", "long"), "no recipe"),
        (("--model", "compakt"), "did you mean 'compact'"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_no_folder(command: Command, wrong: tuple[str, ...], words: str) -> None:
    command(*SMALL, *wrong, "--out", "out").refused(words)
    assert not Path("out").exists()
