"""Other people's programs get the same update and no truth, run by their own interface, and are scored like ours."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import contest_answers
from baseline import steps_by_difference
from peers import compare, worker
from peers.registry import PEERS, attacks_of, projects
from peers.table import rows_of, table
from quality import filled

PROGRAM = """
from types import SimpleNamespace
import torch

def get_attack_config(attack, overrides):
    if attack == "invertinggradients":
        raise RuntimeError("no such operator")
    return SimpleNamespace(attack=attack, steps=int(overrides[0].partition("=")[2]))

class Attacker:
    def __init__(self, model, loss, settings):
        self.model, self.loss, self.settings = model, loss, settings

    def reconstruct(self, sent, shared, secrets, dryrun):
        meta, data = sent[0]["metadata"], shared[0]
        guess = torch.zeros(data["metadata"]["num_data_points"], *meta.shape)
        loss = self.loss(self.model(guess), data["metadata"]["labels"])
        for own, other in zip(torch.autograd.grad(loss, self.model.parameters()), data["gradients"], strict=True):
            assert own.shape == other.shape
        for _ in range(self.settings.steps):
            torch.linalg.inv(torch.eye(60) + torch.rand(60, 60))
        return {"data": guess}, {}

attacks = SimpleNamespace(prepare_attack=lambda model, loss, settings, setup: Attacker(model, loss, settings))
"""
"""A program with the interface of breaching, whose answer is the grey that normalised pixels have at 0."""

OLDER = (("best", "of last week"), ("breaching", "of last week"))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    (folder / "breaching").mkdir(parents=True)
    (folder / "breaching" / "__init__.py").write_text(PROGRAM)
    return folder


def test_a_peer_is_told_the_update_and_not_the_images(tmp_path):
    victims = compare.load_victims(None)
    truth, stranger = compare.victim_and_next(victims.batch, 100, 0, 2)
    seen = compare.seen_on("lenet", truth, victims.num_classes)
    task = compare.task_of("lenet", seen, victims.num_classes, 1.0)
    worker.write_task(tmp_path / "task.npz", **task)
    with np.load(tmp_path / "task.npz", allow_pickle=False) as read:
        target = worker.target_of(read)
        told = sorted(name for name in read if not name.startswith("gradient:"))
    assert told == ["classes", "labels", "model", "seconds", "seed", "shape"]
    assert not any(torch.equal(one, truth.inputs) for one in target.gradient)
    for (name, own), given in zip(target.module.named_parameters(), target.gradient, strict=True):
        assert torch.equal(given, seen.update.params[name])
        assert torch.equal(own, seen.state.params[name])
    normalised = (truth.inputs - target.mean) / target.std
    assert torch.allclose(target.pixels(normalised), truth.inputs, atol=1e-6)
    loss = torch.nn.functional.cross_entropy(target.module(normalised), target.labels)
    for own, given in zip(torch.autograd.grad(loss, target.module.parameters()), target.gradient, strict=True):
        assert torch.allclose(own, given, atol=1e-5)
    assert len(stranger) == 2


@pytest.mark.slow
def test_a_program_runs_in_a_process_of_its_own_for_its_seconds_and_what_it_fails_with_is_no_score(checkout, capsys):
    words = ["--breaching", str(checkout), "--models", "lenet", "--seconds", "0.2", "--images", "1", "--first", "100"]
    assert compare.main([*words, "--out", str(checkout / "peers.json")]) == 0
    assert "breaching" in capsys.readouterr().out
    rows = compare.kept_in(checkout / "peers.json")
    assert [row["by"] for row in rows] == ["best", *attacks_of("breaching")]
    ours, theirs, broken = rows
    assert all(row["cpu_seconds"] >= 0.19 and row["steps"] > 4 for row in (ours, theirs))
    assert len(theirs["psnr"]) == 1
    assert (broken["psnr"], broken["failed"]) == ([], "RuntimeError: no such operator")
    assert "breaching" not in sys.modules


def test_what_best_met_by_earlier_code_is_met_again_unless_it_is_to_be_kept(tmp_path):
    file = tmp_path / "peers.json"
    now, before, peer = ({"by": by, "code": code} for by, code in (("best", compare.answering_code()), *OLDER))
    file.write_text(json.dumps({"attacks": [now, before, peer]}))
    assert compare.kept_in(file) == [now, peer]
    assert compare.kept_in(file, older=True) == [now, before, peer]


def test_a_checkout_that_is_missing_or_another_is_refused_in_a_sentence(tmp_path, capsys):
    assert compare.main(["--gradattack", str(tmp_path)]) == 2
    assert f"There is no folder gradattack in {tmp_path}; give the folder" in capsys.readouterr().err
    assert compare.main([]) == 2
    assert capsys.readouterr().err == (
        "There is no peer to compare with; give the folder of at least one: --breaching, --gradattack, "
        "--invertinggradients.\n"
    )


def attack(by: str, victim: int, psnr: list[float], **more: object) -> dict[str, object]:
    cell = {"model": "lenet", "batch_size": 1, "seconds": 6.0}
    return {**cell, "victim": victim, "by": by, "psnr": psnr, "null": [9.0] * len(psnr), **more}


def test_the_lead_is_over_the_strongest_program_on_the_victims_that_both_met():
    rows = [attack("best", 0, [30.0]), attack("best", 1, [20.0]), attack("breaching", 0, [15.0])]
    rows += [attack("invertinggradients", 0, [11.0]), attack("gradattack", 0, [], failed="an old torch")]
    (row,) = rows_of(rows)
    assert (row["best"], row["breaching"], row["gradattack"]) == (25.0, 15.0, None)
    assert (row["strongest_peer"], row["lead"], row["failed"]) == ("breaching", 15.0, ["gradattack: an old torch"])
    assert " - " in table([row])
    said, _ = contest_answers.peers({"rows": [row], "attacks": rows})
    assert "by 10 dB or more in 1" in said
    assert "| – |" in said
    assert "says nothing" not in said


def test_a_lead_over_others_at_the_null_is_said_to_say_nothing():
    rows = [attack("best", 0, [9.5]), attack("breaching", 0, [8.0])]
    said, _ = contest_answers.peers({"rows": rows_of(rows), "attacks": rows})
    assert "a lead says nothing, on lenet at batch 1." in said


def test_every_project_has_an_option_and_an_attack():
    assert projects() == ("breaching", "gradattack", "invertinggradients")
    assert sorted(name for project in projects() for name in attacks_of(project)) == sorted(PEERS)


def test_steps_are_counted_by_what_they_cost_beside_the_set_up(monkeypatch):
    clock = iter([0.0, 1.4, 10.0, 12.2])  # a second of set-up, a tenth for each step
    monkeypatch.setattr("baseline.time.process_time", lambda: next(clock))
    assert steps_by_difference(11.0, lambda steps: None, (4, 12)) == 100
    clock = iter([0.0, 4.0, 10.0, 20.0])
    found = filled(10.0, 40, lambda steps: torch.tensor(float(steps)))
    assert (found.steps, found.facts["attempts"], float(found.images)) == (100, 2, 100.0)
