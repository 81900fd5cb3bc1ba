"""Whether an update is explained: by what came back, by the truth, and whether the attack had come to rest."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from leakgauge.attacks.recipes import quasi_newton
from leakgauge.audit.explained import fit_truth, is_settled
from leakgauge.defences import InstaHide, Pruning
from leakgauge.models import Compact, build
from leakgauge.protocol import FedAvg
from leakgauge.protocol.fit import compare_updates, fit, predict
from leakgauge.randomness import seeded
from leakgauge.types import Batch, Outcome, Reconstruction, Update

SHAPE = (3, 8, 8)
MODULE = build(Compact(width=4), SHAPE, 5, seed=0)


def found(inputs, labels, trace=None, outcome=Outcome.STEPS_EXHAUSTED) -> Reconstruction:
    return Reconstruction(inputs, labels, outcome, None if trace is None else torch.tensor(trace))


@pytest.mark.parametrize("client", [FedAvg(2, 1, 0.1), FedAvg(1, 2, 0.1)])
def test_the_private_examples_explain_their_own_update_and_others_do_not(client, attacked, examples):
    batch, other = examples(2, SHAPE), examples(2, SHAPE, seed=1)
    seen = attacked(MODULE, batch, local_update=client)
    assert fit(seen, found(batch.inputs, batch.labels)).residual < 1e-6
    assert fit(seen, found(other.inputs, batch.labels)).residual > 0.1


def test_a_wrong_rate_is_all_length_and_a_wrong_sign_is_seen_in_it(attacked, examples):
    batch = examples(2, SHAPE)
    seen = attacked(MODULE, batch)
    for factor in (0.1, 10.0, -1.0):
        scaled = replace(seen, update=Update({name: factor * t for name, t in seen.update.params.items()}))
        told = fit(scaled, found(batch.inputs, batch.labels))
        assert told.misfit < 1e-6
        assert told.scale == pytest.approx(factor, rel=1e-5)
        assert told.residual == pytest.approx(abs(1 / factor - 1), rel=1e-5)


def test_an_update_of_nothing_can_not_be_compared_with():
    nothing = {"weight": torch.zeros(3)}
    assert math.isnan(compare_updates({"weight": torch.ones(3)}, nothing).residual)


def test_what_the_attacker_anticipates_of_a_defence_counts(attacked, examples):
    batch = examples(2, SHAPE)
    seen = attacked(MODULE, batch, defence=Pruning(0.3))
    assert fit(seen, found(batch.inputs, batch.labels)).residual < 1e-6


def test_nothing_is_said_where_nothing_can_be_computed(attacked, examples):
    batch = examples(2, SHAPE)
    seen = attacked(MODULE, batch)
    assert predict(seen, None, batch.labels) is None
    assert predict(seen, batch.inputs[:1], batch.labels) is None
    assert predict(replace(seen, labels=None), batch.inputs, None) is None
    assert predict(replace(seen, local_update=None), batch.inputs, batch.labels) is None
    assert predict(attacked(MODULE, batch, defence=InstaHide(2)), batch.inputs, batch.labels) is None


def test_the_truth_may_stand_in_another_order_but_not_with_other_labels(attacked, examples):
    batch = examples(2, SHAPE)
    batch = Batch(batch.inputs, torch.tensor([1, 3]))
    seen = attacked(MODULE, batch)
    assert fit_truth(replace(seen, labels=torch.tensor([3, 1])), batch).residual < 1e-6
    assert fit_truth(replace(seen, labels=torch.tensor([1, 2])), batch).residual > 0.1
    assert fit_truth(replace(seen, labels=None), batch).residual < 1e-6


def test_an_attack_may_return_the_examples_in_an_order_of_its_own(attacked, examples):
    batch = Batch(examples(2, SHAPE).inputs, torch.tensor([1, 3]))
    seen = attacked(MODULE, batch)
    assert fit(seen, found(batch.inputs.flip(0), batch.labels.flip(0))).residual < 1e-6


@pytest.mark.parametrize(
    ("trace", "outcome", "settled"),
    [
        (None, Outcome.SOLVED, True),
        (None, Outcome.NOT_APPLICABLE, None),
        ([1.0] * 20, Outcome.STEPS_EXHAUSTED, True),
        ([0.9**step for step in range(20)], Outcome.STEPS_EXHAUSTED, False),
        ([0.9**step for step in range(20)], Outcome.CONVERGED, True),
        # What oscillates above its lowest value has come to rest.
        ([1.0, 0.1] + [0.5, 0.2] * 9, Outcome.STEPS_EXHAUSTED, True),
        ([1.0], Outcome.STEPS_EXHAUSTED, False),
        ([math.nan] * 20, Outcome.NON_FINITE, False),
    ],
)
def test_a_loss_that_still_fell_at_the_end_has_not_settled(trace, outcome, settled):
    assert is_settled(found(None, None, trace, outcome)) is settled


def test_a_short_attack_explains_the_right_update_and_not_the_reversed_one(attacked, examples):
    seen = attacked(MODULE, examples(1, SHAPE))
    back = replace(seen, update=Update({name: -tensor for name, tensor in seen.update.params.items()}))
    right, wrong = (fit(one, quasi_newton(steps=40)(one, generator=seeded(0))).residual for one in (seen, back))
    assert right < 0.05
    assert wrong > 0.5
