"""A wrapped model is the model: the same names, the same update, and attacked in the same way."""

from __future__ import annotations

import pytest
import torch
from opacus import GradSampleModule
from torch import nn
from torch.optim.swa_utils import AveragedModel

from leakgauge.protocol import learner_and_state
from leakgauge.protocol.bare_modules import bare_module
from leakgauge.types import Batch


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 36, 5))


def _inside() -> nn.Module:
    whole = model()
    whole[0] = torch.compile(whole[0])
    return whole


WRAPPED = {
    "data parallel": lambda: nn.DataParallel(model()),
    "compiled": lambda: torch.compile(model()),
    "compiled inside": _inside,
    "opacus": lambda: GradSampleModule(model()),
    "averaged": lambda: AveragedModel(model()),
    "wrapped twice": lambda: torch.compile(nn.DataParallel(model())),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_a_wrapped_model_has_the_update_of_the_model_inside(name):
    batch = Batch(torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 3]))
    (learner, state), (inside, own) = learner_and_state(WRAPPED[name]()), learner_and_state(model())
    expected, found = inside.gradient(own, batch), learner.gradient(state, batch)
    assert list(found) == list(expected)
    assert all(torch.equal(found[key], expected[key]) for key in expected)
    leaf = batch.inputs.clone().requires_grad_()
    twice = learner.gradient(state, Batch(leaf, batch.labels))
    assert torch.autograd.grad(sum(g.square().sum() for g in twice.values()), leaf)[0].isfinite().all()


def test_the_wrapped_module_stays_as_it_was_and_a_bare_one_is_itself():
    wrapped, bare = GradSampleModule(model()), model()
    bare_module(wrapped)
    assert all(layer._forward_hooks for layer in wrapped.modules() if isinstance(layer, nn.Linear))
    assert bare_module(bare) is bare
