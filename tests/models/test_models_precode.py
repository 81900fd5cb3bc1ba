"""PRECODE: a random code before the head, and the attack that does not care."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from leakgauge.attacks.analytic import LinearLayer
from leakgauge.catalogue import MODELS
from leakgauge.config import build as build_part
from leakgauge.errors import InvalidCase
from leakgauge.models import MLP, Precode, build
from leakgauge.protocol import learner_and_state
from leakgauge.randomness import seeded

SHAPE = (1, 6, 6)


@pytest.fixture
def module() -> nn.Module:
    return build(Precode(size=5), SHAPE, 4, seed=0).double()


def test_the_code_is_normal_with_the_mean_and_spread_that_the_encoder_gives(module):
    layer = module.sample.train()
    given = torch.tensor([[2.0, -1.0, 0.5, -3.0]]).double().expand(20_000, 4)
    torch.manual_seed(0)
    code = layer(given)
    spread = nn.functional.softplus(given[:1, 2:])
    assert bool(((code.mean(0) - given[0, :2]).abs() < 5 * spread / 20_000**0.5).all())
    torch.testing.assert_close(code.std(0)[None], spread, rtol=0.03, atol=0)
    assert torch.equal(layer.eval()(given), given[:, :2])


def test_two_updates_of_one_batch_differ_and_an_attacker_runs_the_expected_network(module, examples, attacked):
    batch = examples(2, SHAPE, classes=4, dtype=torch.float64)
    one, two = (attacked(module, batch, mode="train", seed=seed) for seed in (0, 1))
    assert not torch.equal(one.update.params["decode.weight"], two.update.params["decode.weight"])
    learner, state = learner_and_state(module, mode="eval")
    for name, tensor in learner.gradient(state, batch).items():
        torch.testing.assert_close(one.learner.gradient(one.state, batch)[name], tensor)


def test_the_ratio_of_weight_to_bias_in_the_first_layer_gives_the_image_as_if_there_were_no_bottleneck(
    module, examples, attacked
):
    batch = examples(1, SHAPE, classes=4, dtype=torch.float64)
    seen = attacked(module, batch, mode="train")
    found = LinearLayer()(seen, generator=seeded(0))
    torch.testing.assert_close(found.inputs, batch.inputs, rtol=0, atol=1e-9)
    # The same by hand: any row of the first layer whose bias has a gradient.
    weight, bias = (seen.update.params[f"{first_layer(module)}.{part}"] for part in ("weight", "bias"))
    row = int(bias.abs().argmax())
    learner, state = learner_and_state(module)
    entered = learner.layer_inputs(state, batch.inputs, nn.Linear)[first_layer(module)][0]
    torch.testing.assert_close(weight[row] / bias[row], entered)


def first_layer(module: nn.Module) -> str:
    return next(name for name, layer in module.named_modules() if isinstance(layer, nn.Linear))


def test_what_is_around_the_bottleneck_is_the_model_it_is_put_into(module):
    plain = build(MLP(), SHAPE, 4, seed=0)
    kept = [name for name, _ in plain.named_children()]
    assert [name for name, _ in module.named_children()] == [*kept[:-1], "encode", "sample", "decode", "head"]
    assert build_part(MODELS, "precode:base=compact,size=8", kind="model") == Precode("compact", 8)
    with pytest.raises(InvalidCase, match="no base of Precode 'mpl'; did you mean 'mlp'"):
        Precode("mpl")
    with pytest.raises(InvalidCase, match="`size`"):
        replace(Precode(), size=0)
