"""A recorded round is described as what it was."""

from __future__ import annotations

import sys

import torch

from leakgauge.audit.inversion import Inversion, prepare_inversion
from leakgauge.models import ConvNet, build
from leakgauge.protocol.recording import RecordedRound, write_round


def test_a_recorded_client_in_train_mode_is_not_said_to_train_in_eval_mode(tmp_path, monkeypatch):
    model = build(ConvNet(width=2), (3, 9, 9), 4, seed=0)
    update = {name: torch.ones_like(parameter) for name, parameter in model.named_parameters()}
    path = tmp_path / "round.safetensors"
    write_round(path, RecordedRound(model.state_dict(), update, (3, 9, 9), num_examples=2, mode="train"))
    monkeypatch.setattr(sys.modules["leakgauge.audit.inversion"], "import_factory", lambda reference: model)
    (case,) = prepare_inversion(Inversion(str(path), "any:model")).cases
    (line,) = (fact for fact in case.ledger if fact.name == "BatchNorm statistics")
    assert not line.disclosed
    assert line.detail.startswith("proxy")
