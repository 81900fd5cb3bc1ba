"""Secure aggregation: what the server sees is a mean, and the attack has all clients' examples to find."""

from __future__ import annotations

import pytest
import torch

from leakgauge import params as tree
from leakgauge.defences import Clipping, GaussianNoise, SecureAggregation, chain
from leakgauge.errors import InvalidCase
from leakgauge.models import Compact, ConvNet, build
from leakgauge.protocol import THREAT_MODELS, FedAvg, FedSGD, learner_and_state
from leakgauge.protocol.facts import Subject
from leakgauge.randomness import seeded

SHAPE = (3, 9, 9)


@pytest.mark.parametrize("local_update", [FedSGD(), FedAvg(2, 1, 0.1)], ids=repr)
@pytest.mark.parametrize("clients", [2, 3, 6])
def test_the_server_sees_the_mean_of_the_clients_updates(clients, local_update, examples, attacked):
    module, batch = build(Compact(width=3), SHAPE, 5, seed=0).double(), examples(6, SHAPE, dtype=torch.float64)
    defence = chain(Clipping(0.01), SecureAggregation(clients))
    seen = attacked(module, batch, defence=defence, local_update=local_update)
    assert seen.num_examples == 6
    size = 6 // clients
    alone = [
        attacked(module, batch[slice(at, at + size)], defence=Clipping(0.01), local_update=local_update).update.params
        for at in range(0, 6, size)
    ]
    for name, tensor in seen.update.params.items():
        torch.testing.assert_close(tensor, sum(update[name] for update in alone) / clients)


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_plain_gradients_add_up_to_that_of_all_examples_unless_they_meet_in_batch_norm(mode, examples, attacked):
    module, batch = build(ConvNet(width=2), SHAPE, 5, seed=0).double(), examples(4, SHAPE, dtype=torch.float64)
    one = attacked(module, batch, mode=mode).update.params
    mean = attacked(module, batch, defence=SecureAggregation(2), mode=mode).update.params
    apart = float(tree.norm(tree.sub(mean, one)) / tree.norm(one))
    assert apart < 1e-12 if mode == "eval" else apart > 1e-3


def test_every_client_draws_its_own_noise(examples, attacked):
    module, batch = build(Compact(width=3), SHAPE, 5, seed=0).double(), examples(4, SHAPE, dtype=torch.float64)
    plain = attacked(module, batch).update.params
    noisy = attacked(module, batch, defence=chain(GaussianNoise(0.1), SecureAggregation(4))).update.params
    noise = tree.flatten(tree.sub(noisy, plain))
    assert float(noise.std()) == pytest.approx(0.1 / 4**0.5, rel=5 / (2 * len(noise)) ** 0.5)


def test_examples_that_cannot_be_shared_equally_are_refused(examples):
    learner, state = learner_and_state(build(Compact(width=3), SHAPE, 5, seed=0))
    for count in (1, 4):
        with pytest.raises(InvalidCase, match=f"{count} examples cannot be shared equally by 3 clients"):
            SecureAggregation(3)(FedSGD())(learner, state, examples(count, SHAPE), generator=seeded(0))


def test_the_ledger_says_that_no_update_is_seen_alone():
    learner, _ = learner_and_state(build(Compact(width=3), SHAPE, 5, seed=0))
    threat_model = THREAT_MODELS["informed"]

    def update(client):
        return next(
            fact.detail for fact in threat_model.ledger(learner, client=client) if fact.subject is Subject.UPDATE
        )

    assert "alone, not an aggregate" in update(None)
    assert "alone, not an aggregate" in update(Clipping()(FedSGD()))
    assert "the mean of 4 clients' updates" in update(chain(Clipping(), SecureAggregation(4))(FedSGD()))
    assert "the mean of 6 clients' updates" in update(chain(SecureAggregation(2), SecureAggregation(3))(FedSGD()))
