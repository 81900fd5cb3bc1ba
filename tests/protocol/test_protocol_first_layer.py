"""Lemma B.1 of Huang et al. [2021]: every row of the first layer's gradient is a linear combination of the inputs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from leakgauge.defences import DPSGD, InstaHide, MixUp, NoDefence, Pruning, SecureAggregation
from leakgauge.models import MLP, build
from leakgauge.protocol import learner_and_state

SHAPE = (1, 6, 6)
COUNT = 5


def first_layer(module: nn.Module) -> str:
    return next(name for name, layer in module.named_modules() if isinstance(layer, nn.Linear))


def inputs(module: nn.Module, images: Tensor) -> Tensor:
    """What enters the first layer: the model normalises inside."""
    learner, state = learner_and_state(module)
    return learner.layer_inputs(state, images, nn.Linear)[first_layer(module)]


def outside(rows: Tensor, vectors: Tensor) -> float:
    """The share of the rows' length that no combination of the vectors explains."""
    basis = torch.linalg.qr(vectors.T).Q
    return float((rows - rows @ basis @ basis.T).norm() / rows.norm())


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("hidden", [(), (8,), (9, 8), (12, 10, 8, 8, 6)], ids=["one", "two", "three", "six"])
def test_the_first_layers_gradient_lies_in_the_span_of_the_batch(hidden, activation, examples, attacked):
    module = build(MLP(hidden, activation), SHAPE, 5, seed=0).double()
    batch, other = (examples(COUNT, SHAPE, dtype=torch.float64, seed=seed) for seed in (0, 1))
    rows = attacked(module, batch).update.params[f"{first_layer(module)}.weight"]
    assert outside(rows, inputs(module, batch.inputs)) < 1e-12
    assert outside(rows, inputs(module, other.inputs)) > 0.1
    assert int(torch.linalg.matrix_rank(rows, rtol=1e-10)) <= COUNT


def test_the_coefficients_are_the_slopes_of_the_loss_in_the_layers_output(examples, attacked):
    module = build(MLP((8, 7), "tanh"), SHAPE, 5, seed=0).double()
    batch = examples(COUNT, SHAPE, dtype=torch.float64)
    noted: list[Tensor] = []
    layer = module.get_submodule(first_layer(module))
    handle = layer.register_full_backward_hook(lambda _, into, out: noted.append(out[0]))
    nn.functional.cross_entropy(module(batch.inputs.clone().requires_grad_()), batch.labels).backward()
    handle.remove()
    rows = attacked(module, batch).update.params[f"{first_layer(module)}.weight"]
    torch.testing.assert_close(rows, noted[0].T @ inputs(module, batch.inputs))


@pytest.mark.parametrize(
    ("defence", "within"),
    [
        (NoDefence(), True),
        (SecureAggregation(5), True),
        (MixUp(3), True),
        (DPSGD(0.1, 0.0), True),
        (InstaHide(3), False),
        (Pruning(0.3), False),
    ],
    ids=repr,
)
def test_of_the_defences_only_signs_and_those_on_the_finished_update_leave_the_span(
    defence, within, examples, attacked
):
    module = build(MLP((8,), "tanh"), SHAPE, 5, seed=0).double()
    batch = examples(COUNT, SHAPE, dtype=torch.float64)
    rows = attacked(module, batch, defence=defence).update.params[f"{first_layer(module)}.weight"]
    assert (outside(rows, inputs(module, batch.inputs)) < 1e-12) is within
