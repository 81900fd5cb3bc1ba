"""Labels of other tasks than plain cross-entropy: restored where they are classes, refused in a sentence elsewhere."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from leakgauge.attacks.labels import IDLG, Alternating, BestLabels
from leakgauge.attacks.labels.base import mean_gradient
from leakgauge.defences import NoDefence
from leakgauge.errors import UnsupportedModel
from leakgauge.protocol import THREAT_MODELS, FedAvg, Federation, FedSGD, learner_and_state, simulate_round
from leakgauge.protocol.losses import BinaryCrossEntropy, CrossEntropy, MeanSquaredError, MultiLabel
from leakgauge.protocol.optimisers import LocalSGD
from leakgauge.randomness import seeded
from leakgauge.types import Batch

SHAPE = (1, 6, 6)


def seen_of(loss, labels, *, width, client=None, seed=0, head=None):
    """What a server sees of a small client with these labels, none of them disclosed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = nn.Sequential(nn.Flatten(), nn.Linear(36, 24), nn.ReLU(), nn.Linear(24, width)).double()
    if head is not None:
        module.load_state_dict(
            {name: torch.cat([0 * t, t]) if name.startswith("3.") else t for name, t in head.items()}
        )
    learner, state = learner_and_state(module, loss)
    images = torch.rand(len(labels), *SHAPE, generator=seeded(seed, "images"), dtype=torch.float64)
    return simulate_round(
        Federation(learner, state, client or FedSGD()),
        Batch(images, labels),
        threat_model=THREAT_MODELS["honest_but_curious"],
        defence=NoDefence(),
        generator=seeded(0, "client"),
    )


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("client", [FedSGD(), FedAvg(1, 8, 0.01, optimiser=LocalSGD(0.9))], ids=["fedsgd", "momentum"])
def test_one_score_is_read_as_the_softmax_of_two_that_it_is(client, reduction):
    """sigmoid(z) is the second of softmax(0, z), so both clients send the same of what is common to them."""
    labels = torch.tensor([0, 1, 1, 0, 1, 1])
    one = seen_of(BinaryCrossEntropy(reduction), labels, width=1, client=client)
    two = seen_of(CrossEntropy(reduction), labels, width=2, client=client, head=one.state.params)
    left, right = (mean_gradient(seen, needed_by=None) for seen in (one, two))
    for ours, theirs in zip(left, right):
        assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-15)
    assert (
        BestLabels().restore(one, generator=seeded(0)).tolist()
        == BestLabels().restore(two, generator=seeded(0)).tolist()
    )


@pytest.mark.parametrize("label", [0, 1])
def test_the_sign_of_one_score_tells_one_label(label):
    seen = seen_of(BinaryCrossEntropy(), torch.tensor([label]), width=1)
    assert IDLG().restore(seen, generator=seeded(0)).tolist() == [label]


@pytest.mark.parametrize("rule", [Alternating(), BestLabels()], ids=repr)
@pytest.mark.parametrize(
    "loss", [CrossEntropy("sum"), CrossEntropy(label_smoothing=0.2), CrossEntropy("sum", label_smoothing=0.1)], ids=repr
)
def test_smoothed_and_summed_labels_are_counted_as_they_were(rule, loss):
    for seed in range(3):
        labels = torch.randint(5, (8,), generator=seeded(seed, "labels"))
        found = rule.restore(seen_of(loss, labels, width=5, seed=seed), generator=seeded(0))
        assert found.bincount(minlength=5).tolist() == labels.bincount(minlength=5).tolist()


@pytest.mark.parametrize(
    ("loss", "labels"), [(MultiLabel(), torch.eye(3)), (MeanSquaredError(), torch.rand(3, 3))], ids=["tags", "values"]
)
def test_labels_that_are_no_classes_are_refused_in_a_sentence(loss, labels):
    with pytest.raises(UnsupportedModel, match="disclose"):
        BestLabels().restore(seen_of(loss, labels, width=3), generator=seeded(0))
