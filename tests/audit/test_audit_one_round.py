"""A recorded round audited from Python."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy

from leakgauge import RecordedRound
from leakgauge.audit.one_round import audit_round, shared_budget
from leakgauge.audit.result import RECORDED
from leakgauge.audit.verdict import Verdict
from leakgauge.data import Digits
from leakgauge.errors import InvalidCase
from leakgauge.models import MLP, build

DIGITS = Digits()(None)
OTHERS = DIGITS.train.inputs[:200]
CLOSED_FORM = {"attacks": ["linear_layer"], "references": OTHERS}


def linear_first(seed=0):
    return build(MLP(hidden=(16,)), DIGITS.space.shape, DIGITS.num_classes, seed=seed)


@pytest.fixture(scope="module")
def recorded():
    model, batch = linear_first(), DIGITS.test[slice(0, 1)]
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    cross_entropy(model(batch.inputs), batch.labels).backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    known = {"num_examples": 1, "local_update": "fedavg:batch_size=1,learning_rate=0.1"}
    return RecordedRound.between(before, model.state_dict(), DIGITS.space, **known), batch


def test_what_is_read_off_a_round_is_judged_whatever_weights_the_model_given_has(recorded):
    row = audit_round(recorded[0], linear_first(seed=5), recorded[1], **CLOSED_FORM)[RECORDED]
    assert row.verdict.leaks
    assert row.measured("psnr").attack.mean > 80
    assert row.power.seen == 3


def test_behind_a_declared_defence_the_control_is_the_client_without_it(recorded):
    defended = replace(recorded[0], defence="clipping:max_norm=0.001")
    result = audit_round(defended, linear_first(), recorded[1], nulls=2, **CLOSED_FORM)
    assert result[RECORDED].power.tried == 2
    assert result.bounds[RECORDED].at_most is None


def test_without_the_truth_nothing_is_judged(recorded):
    assert audit_round(recorded[0], linear_first(), attacks=["linear_layer"])[RECORDED].verdict is Verdict.NOT_JUDGED


def test_a_truth_of_another_size_and_two_budgets_are_refused(recorded):
    with pytest.raises(InvalidCase, match="only those"):
        audit_round(recorded[0], linear_first(), DIGITS.test[slice(0, 2)], **CLOSED_FORM)
    with pytest.raises(InvalidCase, match="give one of them"):
        audit_round(recorded[0], linear_first(), budget="quick", seconds=1.0)


def test_seconds_are_shared_by_all_that_is_attacked_and_steps_are_not():
    assert shared_budget(60.0, 60, attacks=3, nulls=2, defended=False).seconds == pytest.approx(60 / 9)
    assert shared_budget(60.0, 60, attacks=3, nulls=2, defended=True).seconds == pytest.approx(60 / 15)
    assert shared_budget(1e-3, 60, attacks=3, nulls=2, defended=True).least == 60
