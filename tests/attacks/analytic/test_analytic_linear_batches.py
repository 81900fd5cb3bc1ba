"""Whole batches, exactly, from a linear layer under a ReLU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from leakgauge.attacks.analytic import LinearBatches, read_features
from leakgauge.attacks.analytic.sparse_columns import factorise, numerical_rank
from leakgauge.defences import Clipping, GaussianNoise, NoDefence
from leakgauge.metrics import PSNR, align
from leakgauge.models import MLP, Normalisation, build
from leakgauge.protocol import THREAT_MODELS, FedAvg, Federation, FedSGD, learner_and_state, simulate_round
from leakgauge.randomness import seeded
from leakgauge.space import Categorical, Continuous, TableSpace
from leakgauge.types import Batch, Outcome, Update

SHAPE = (3, 6, 6)
CLASSES = 5


def model(width=96, activation="relu"):
    normalisation = Normalisation((0.5, 0.4, 0.5), (0.25, 0.2, 0.25))
    return build(MLP(hidden=(width, 32), activation=activation), SHAPE, CLASSES, seed=0, normalisation=normalisation)


def attack(seen):
    return LinearBatches()(seen, generator=seeded(0))


@pytest.mark.parametrize("count", [1, 2, 8, 12])
@pytest.mark.parametrize("threat_model", ["informed", "honest_but_curious"])
def test_every_image_of_a_batch_comes_back_with_its_label_and_a_certificate(count, threat_model, examples, attacked):
    batch = examples(count, SHAPE, CLASSES, seed=count)
    found = attack(attacked(model(), batch, threat_model=threat_model))
    assert found.outcome is Outcome.SOLVED
    matched = align(found, batch)
    assert float(PSNR()(matched).min()) > 100
    assert torch.equal(found.labels[matched.partners], batch.labels)
    assert found.certificate is not None
    assert found.certificate.residual < 1e-5


def test_clipping_and_steps_on_the_whole_batch_change_nothing(examples, attacked):
    batch = examples(6, SHAPE, CLASSES)
    for changed in ({"defence": Clipping(0.01)}, {"local_update": FedAvg(3, 6, 0.01)}):
        assert float(PSNR()(align(attack(attacked(model(), batch, **changed)), batch)).min()) > 90


def test_small_noise_is_suffered_but_never_certified(examples, attacked):
    batch = examples(4, SHAPE, CLASSES)
    found = attack(attacked(model(), batch, defence=GaussianNoise(1e-6)))
    assert float(PSNR()(align(found, batch)).min()) > 40
    assert found.certificate is None


def test_noise_gives_nothing(examples, attacked):
    seen = attacked(model(), examples(4, SHAPE, CLASSES))
    shapes = {name: tensor.shape for name, tensor in seen.update.params.items()}
    noise = {name: torch.randn(shape, generator=seeded(1, name)) for name, shape in shapes.items()}
    found = attack(replace(seen, update=Update(noise)))
    assert (found.inputs, found.certificate) == (None, None)
    assert "no gap" in str(found.facts["reason"])


def test_a_dense_update_of_low_rank_gives_nothing():
    cotangents, inputs = torch.randn(3, 40, generator=seeded(2)), torch.randn(3, 50, generator=seeded(3))
    found = factorise(cotangents.mT @ inputs, cotangents.sum(dim=0), 3, generator=seeded(0))
    assert isinstance(found, str)
    assert "could be told apart" in found


def test_a_sparse_update_is_factorised_without_knowing_how_many_examples_there_are():
    cotangents = torch.randn(9, 120, generator=seeded(4), dtype=torch.float64)
    cotangents *= torch.rand(9, 120, generator=seeded(5)) > 0.5
    inputs = torch.randn(9, 50, generator=seeded(6), dtype=torch.float64)
    found = factorise(cotangents.mT @ inputs, cotangents.sum(dim=0), None, generator=seeded(0))
    assert not isinstance(found, str)
    order = torch.cdist(inputs, found.inputs).argmin(dim=1)
    torch.testing.assert_close(found.inputs[order], inputs, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(found.cotangents[order], cotangents, rtol=1e-8, atol=1e-9)
    assert torch.equal(found.active[order], cotangents != 0)


def test_the_rank_is_where_the_singular_values_fall():
    assert numerical_rank(torch.tensor([5.0, 4.0, 3.0, 1e-6, 9e-7]), 1e-7) == 3
    assert numerical_rank(torch.tensor([5.0, 4.0, 3.0, 1e-7, 0.0, 0.0]), 1e-7) == 3
    assert numerical_rank(torch.linspace(2, 1, 20), 1e-7) is None


def test_rows_of_a_table_come_back_with_their_categories_decoded():
    colours = Categorical("colour", ("red", "green", "blue"))
    numbers = (Continuous(f"value {place}", -place, 90) for place in range(7))
    space = TableSpace((*numbers, colours, Categorical("sex", ("f", "m"))))
    rows = space.decode(torch.rand(6, 12, generator=seeded(7)))
    batch = Batch(rows, torch.arange(6) % 2)
    torch.manual_seed(0)
    scale = nn.BatchNorm1d(12, affine=False).eval()
    scale.running_mean, scale.running_var = space.probe(1, rows)[0], rows.var(dim=0) + 0.01
    module = nn.Sequential(scale, nn.Linear(12, 120), nn.ReLU(), nn.Linear(120, 40), nn.ReLU(), nn.Linear(40, 2))
    learner, state = learner_and_state(module)
    curious = THREAT_MODELS["honest_but_curious"]
    client = Federation(learner, state, FedSGD(), space)
    found = attack(
        simulate_round(client, batch, threat_model=curious, defence=NoDefence(), generator=seeded(0, "client"))
    )
    order = torch.cdist(rows, found.inputs).argmin(dim=1)
    space.check(found.inputs)
    torch.testing.assert_close(found.inputs[order], rows, rtol=0, atol=1e-2)  # of a range of 90, float32
    assert torch.equal(found.labels[order], batch.labels)
    assert found.certificate is not None


@pytest.mark.parametrize("activation", ["gelu", "tanh"])
def test_without_units_that_rest_the_attack_says_that_it_does_not_apply(activation, examples, attacked):
    found = attack(attacked(model(activation=activation), examples(4, SHAPE, CLASSES)))
    assert found.outcome is Outcome.NOT_APPLICABLE
    assert "under a ReLU" in str(found.facts["reason"])


def test_of_an_inner_layer_the_features_are_exact(examples, attacked):
    torch.manual_seed(0)
    front = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.ReLU(), nn.Flatten())
    module = nn.Sequential(front, nn.Linear(36, 96), nn.ReLU(), nn.Linear(96, CLASSES))
    coarse = examples(3, (3, 2, 2), CLASSES)  # of fine noise a convolution leaves but a grey
    batch = Batch(4 * nn.functional.interpolate(coarse.inputs, SHAPE[1:]) - 2, coarse.labels)
    seen = attacked(module, batch)
    assert "read_features" in str(attack(seen).facts["reason"])
    features, reasons = read_features(seen, generator=seeded(0))
    truth = front(batch.inputs).detach().double()
    order = torch.cdist(truth, features["1"]).argmin(dim=1)
    torch.testing.assert_close(features["1"][order], truth, rtol=1e-4, atol=1e-5)
    assert reasons == {}
