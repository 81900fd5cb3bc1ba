"""Labels read off the sign of the classifier's update."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from leakgauge.attacks.labels import IDLG
from leakgauge.attacks.labels.idlg import labels_from_scores
from leakgauge.catalogue import MODELS
from leakgauge.errors import UnsupportedModel
from leakgauge.models import MLP, Compact, ConvNet, LeNet, ResNet, build
from leakgauge.protocol import FedAvg, FedSGD
from leakgauge.randomness import seeded
from leakgauge.types import Batch, Outcome

SHAPE = (3, 9, 9)
SMALL = [Compact(width=3), ConvNet(width=2), LeNet(), MLP(hidden=(8,)), ResNet(depth=20, base_width=2)]


@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("bert", "gpt")])
def test_the_label_of_one_example_is_exact_on_every_model_of_images_in_the_catalogue(name, mode, attacked, examples):
    shape = (3, 12, 12)  # the least that all of them take
    module = build(MODELS[name](), shape, 3, seed=0)
    images = examples(1, shape).inputs
    for label in range(3):
        seen = attacked(module, Batch(images, torch.tensor([label])), threat_model="honest_but_curious", mode=mode)
        assert IDLG().restore(seen, generator=torch.Generator()).tolist() == [label]


@settings(deadline=None, max_examples=15)
@given(
    factory=st.sampled_from(SMALL),
    seed=st.integers(0, 10_000),
    classes=st.integers(2, 12),
    local_update=st.sampled_from([FedSGD(), FedAvg(1, 1, 0.01), FedAvg(3, 1, 1e-3)]),
)
def test_the_label_of_one_example_is_exact_for_every_class(factory, seed, classes, local_update, attacked, examples):
    module = build(factory, SHAPE, classes, seed=seed)
    images = examples(1, SHAPE, seed=seed).inputs
    for label in range(classes):
        batch = Batch(images, torch.tensor([label]))
        seen = attacked(module, batch, threat_model="honest_but_curious", local_update=local_update)
        assert IDLG().restore(seen, generator=torch.Generator()).tolist() == [label]


# The bias update of class i is mean(p_i) - share of i: negative for each class present as long as mean(p_i) < 1/n.
@settings(deadline=None, max_examples=25)
@given(factory=st.sampled_from(SMALL), seed=st.integers(0, 10_000), count=st.integers(1, 6))
def test_distinct_labels_of_a_batch_are_exact_while_the_model_is_not_confident(
    factory, seed, count, attacked, examples
):
    module = build(factory, SHAPE, 10, seed=seed).eval()
    labels = torch.randperm(10, generator=seeded(seed))[:count]
    batch = Batch(examples(count, SHAPE, seed=seed).inputs, labels)
    with torch.no_grad():
        confidence = module(batch.inputs).softmax(dim=1).mean(dim=0)[labels]
    assume(bool((confidence < 0.99 / count).all()))
    seen = attacked(module, batch, threat_model="honest_but_curious")
    assert IDLG().restore(seen, generator=torch.Generator()).tolist() == sorted(labels.tolist())


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 10_000), label=st.integers(0, 4))
def test_without_a_bias_the_row_sum_tells_the_label_when_features_are_not_negative(seed, label, attacked, examples):
    module = build(MLP(hidden=(16,), bias=False), SHAPE, 5, seed=seed)
    batch = Batch(examples(1, SHAPE, seed=seed).inputs, torch.tensor([label]))
    assert IDLG().restore(attacked(module, batch), generator=torch.Generator()).tolist() == [label]


def test_the_attack_returns_labels_and_no_images(attacked, examples):
    batch = examples(3, SHAPE)
    found = IDLG()(attacked(build(Compact(width=3), SHAPE, 5, seed=0), batch), generator=seeded(0))
    assert found.inputs is None
    assert found.outcome is Outcome.SOLVED
    assert len(found.labels) == 3


@settings(deadline=None, max_examples=100)
@given(
    scores=st.lists(st.floats(-10, 10, width=32), min_size=1, max_size=12),
    count=st.integers(1, 30),
)
def test_there_are_always_as_many_labels_as_examples(scores, count):
    labels = labels_from_scores(torch.tensor(scores), count)
    assert labels.shape == (count,)
    assert labels.dtype == torch.int64
    assert labels.tolist() == sorted(labels.tolist())
    negative = {index for index, score in enumerate(scores) if score < 0}
    # Only classes present are named if there are any; each once before one repeats.
    assert set(labels.tolist()) <= negative or not negative
    assert len(set(labels.tolist())) == max(1, min(count, len(negative)))


def test_repeats_go_to_the_most_negative_classes_in_turn():
    assert labels_from_scores(torch.tensor([-0.1, 0.3, -0.5, -0.2]), 5).tolist() == [0, 2, 2, 3, 3]


def test_a_model_whose_output_is_no_linear_layer_is_refused(attacked, examples):
    module = nn.Sequential(nn.Flatten(), nn.Linear(243, 5), nn.Tanh())
    with pytest.raises(UnsupportedModel, match=r"nn\.Linear"):
        IDLG().restore(attacked(module, examples(1, SHAPE)), generator=torch.Generator())
