"""A recorded round is described as what it was."""

from __future__ import annotations

import sys

import numpy as np
import torch

from leakgauge.audit.recorded import RecordedPlan, prepare_recorded
from leakgauge.models import ConvNet, build
from leakgauge.protocol.facts import Subject
from leakgauge.protocol.recording import RecordedRound, write_round


def test_a_recorded_client_in_train_mode_is_described_and_repeated_in_train_mode(tmp_path, monkeypatch):
    model = build(ConvNet(width=2), (3, 9, 9), 4, seed=0)
    update = {name: torch.full_like(parameter, len(name)) for name, parameter in model.named_parameters()}
    path = tmp_path / "round.safetensors"
    write_round(path, RecordedRound(model.state_dict(), update, (3, 9, 9), num_examples=2, mode="train"))
    monkeypatch.setattr(sys.modules["leakgauge.audit.recorded"], "recorded_model", lambda *_: model)
    truth = tmp_path / "truth.npz"
    np.savez(truth, images=np.zeros((2, 3, 9, 9), np.float32), labels=np.array([0, 1]))
    plan = RecordedPlan((str(path),), "any:model", truths=(str(truth),), nulls=1)
    case, null = prepare_recorded(plan).cases
    (line,) = (fact for fact in case.ledger if fact.subject is Subject.BATCH_NORM)
    assert not line.disclosed
    assert line.detail.startswith("proxy")
    assert null.source.client.federation.learner.mode == "train"
    assert null.source.observe().learner.mode == "eval"  # what proxy access leaves the attacker with
