"""Soteria: which columns go, and that nothing else does."""

from __future__ import annotations

import pytest
import torch
from torch.autograd.functional import jacobian

from leakgauge.defences import Soteria
from leakgauge.errors import InvalidCase
from leakgauge.models import MLP, Compact, ConvNet, build
from leakgauge.protocol import learner_and_state

SHAPE = (3, 9, 9)


def test_a_score_is_the_slope_of_a_feature_over_its_height_summed_over_the_batch(examples):
    module, batch = build(Compact(width=2), SHAPE, 5, seed=0).double(), examples(3, SHAPE, dtype=torch.float64)
    learner, state = learner_and_state(module)
    features = torch.nn.Sequential(*list(module.children())[:-1])
    expected = torch.zeros(module.head.in_features, dtype=torch.float64)
    for image in batch.inputs:
        slopes = jacobian(lambda one: features(one[None])[0], image).flatten(1).norm(dim=1)
        expected += slopes / features(image[None])[0].detach().abs()
    torch.testing.assert_close(Soteria().scores(learner, state, batch.inputs, "head"), expected)


def test_a_feature_that_is_always_zero_scores_nothing(examples):
    module, batch = build(MLP((6,), "relu"), SHAPE, 5, seed=0).double(), examples(2, SHAPE, dtype=torch.float64)
    next(layer for layer in module.modules() if isinstance(layer, torch.nn.Linear)).bias.data[2] = -1e3
    learner, state = learner_and_state(module)
    assert float(Soteria().scores(learner, state, batch.inputs, "head")[2]) == 0


@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize("percentile", [10.0, 50.0, 80.0, 100.0])
def test_the_columns_with_the_lowest_scores_go_and_nothing_else(percentile, mode, examples, attacked):
    module, batch = build(ConvNet(width=2), SHAPE, 5, seed=0).double(), examples(3, SHAPE, dtype=torch.float64)
    learner, state = learner_and_state(module, mode=mode)
    plain = attacked(module, batch, mode=mode).update.params
    sent = attacked(module, batch, defence=Soteria(percentile=percentile), mode=mode).update.params
    score = Soteria().scores(learner, state, batch.inputs, "head")
    gone = score.argsort()[: round(percentile / 100 * len(score))]
    kept = torch.ones_like(score).index_fill(0, gone, 0.0)
    for name, tensor in plain.items():
        assert torch.equal(sent[name], tensor * kept if name == "head.weight" else tensor)
    assert int((sent["head.weight"] == 0).all(dim=0).sum()) >= len(gone) > 0


def test_a_layer_can_be_named_and_must_exist(examples, attacked):
    module, batch = build(MLP((6, 4), "tanh"), SHAPE, 5, seed=0), examples(2, SHAPE)
    hidden = [name for name, layer in module.named_modules() if isinstance(layer, torch.nn.Linear)][1]
    plain = attacked(module, batch).update.params
    sent = attacked(module, batch, defence=Soteria(hidden, 50.0)).update.params
    assert {name for name in plain if not torch.equal(plain[name], sent[name])} == {f"{hidden}.weight"}
    with pytest.raises(InvalidCase, match=rf"^Soteria\(layer='body'\) names no trainable linear layer .*{hidden}"):
        attacked(module, batch, defence=Soteria("body"))
