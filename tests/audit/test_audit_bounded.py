"""Every audit says of each defence the most that any attacker could have found."""

from __future__ import annotations

import json
import sys

import pytest
import torch
from scipy.stats import norm
from torch import nn

from leakgauge import audit
from leakgauge.audit.bounded import describe_bounds
from leakgauge.audit.grid import Round
from leakgauge.audit.plan import AuditPlan, prepare
from leakgauge.audit.recorded import RecordedPlan, prepare_recorded
from leakgauge.bounds import read_bounds
from leakgauge.config import build_defence
from leakgauge.protocol import THREAT_MODELS, Federation, learner_and_state
from leakgauge.protocol.recording import RecordedRound, write_round
from leakgauge.types import Batch

PLAN = AuditPlan(
    dataset="digits",
    model="mlp:hidden=(6,)",
    train_steps=0,
    batch_size=2,
    attacks=("linear_layer",),
    distractors=20,
    defences=("none", "dpsgd:noise_multiplier=1", "gaussian_noise:std=0.01", "gaussian_noise:std=0.1"),
    threat_model="informed",
)


def test_a_plan_knows_the_bounds_of_its_defences_before_anything_runs():
    found = read_bounds(json.loads(json.dumps(prepare(PLAN).description)))
    assert list(found) == list(PLAN.defences)
    private, fine, coarse = list(found.values())[1:]
    # Two reconstructions come back, and either may be taken for the one that is judged.
    assert (private.crowd, private.guesses) == (20, 2)
    assert private.at_most == pytest.approx(norm.cdf(norm.ppf(2 / 21) + 1))
    assert found["none"].at_most is None
    assert found["none"].nearest_decibels is None
    assert fine.nearest_decibels > coarse.nearest_decibels > coarse.unbiased_decibels
    assert f"{fine.nearest_decibels:.1f} dB" in fine.words


def test_a_result_shows_its_bounds_and_keeps_them_in_the_json():
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 5))
    private = Batch(torch.rand(1, 3, 4, 4), torch.tensor([2]))
    result = audit(model, batch=private, defences=["dpsgd", "pruning"], attacks=["linear_layer"])
    assert result.bounds["dpsgd"].words.startswith("No attacker picks")
    assert result.bounds["pruning"].words == "No bound exists: pruning only hides entries of the update."
    written = json.loads(json.dumps(result.to_json(), allow_nan=False))["bounds"]
    assert written["dpsgd"]["at_most"] == result.bounds["dpsgd"].at_most


def test_statistics_that_leave_without_noise_leave_no_bound():
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))
    learner, state = learner_and_state(module, mode="train")
    batch = Batch(torch.rand(2, 1, 4, 4), torch.tensor([0, 1]))
    rounds = [Round(batch, (batch,), torch.rand(9, 1, 4, 4))]
    defences = {"both": build_defence("clipping+gaussian_noise:std=1")}
    for name, bounded in (("strongest", False), ("informed", True)):
        found = describe_bounds(Federation(learner, state), defences, rounds, THREAT_MODELS[name])["both"]
        assert (found["at_most"] is not None) == bounded
        assert ("statistics" in found["words"]) == (not bounded)


def test_a_recorded_round_has_the_bound_of_what_it_is_declared_to_be(tmp_path, monkeypatch):
    model = nn.Sequential(nn.Flatten(), nn.Linear(9, 3))
    monkeypatch.setattr(sys.modules["leakgauge.audit.recorded"], "recorded_model", lambda *_: model)
    update = {
        name: torch.ones_like(tensor) * len(name) + torch.rand(tensor.shape)
        for name, tensor in model.named_parameters()
    }

    def bounds(defence, local_update="fedsgd"):
        path = tmp_path / "round.safetensors"
        kept = RecordedRound(model.state_dict(), update, (1, 3, 3), 2, defence=defence, local_update=local_update)
        write_round(path, kept)
        return read_bounds(prepare_recorded(RecordedPlan((str(path),), "any:model")).description)

    (private,) = bounds("dpsgd:noise_multiplier=1").values()
    assert private.at_most == pytest.approx(norm.cdf(norm.ppf(2 / 100) + 1))
    (plain,) = bounds("none").values()
    assert plain.at_most is None
    assert bounds(None, local_update=None) == {}
