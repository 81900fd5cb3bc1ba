"""What torch differentiates once is differentiated twice by a composition that computes the same."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.backends import cuda
from torch.nn import functional

from leakgauge.protocol.second_derivatives import composed

X = torch.randn(2, 2, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
ONCE = {
    "hardsigmoid": functional.hardsigmoid,
    "hardsigmoid, a layer": nn.Hardsigmoid(),
    "attention": lambda x: functional.scaled_dot_product_attention(x, x + 1, 2 * x),
    "causal attention": lambda x: functional.scaled_dot_product_attention(x, x, x, is_causal=True),
    "attention of heads": lambda x: _attend(x.flatten(0, 1)),
    "distances": lambda x: torch.cdist(x, x + 1),
}


def _attend(x):
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(4, 2, batch_first=True).double().eval()
    return layer(x, x, x, need_weights=False)[0]


def _second(function):
    x = X.clone().requires_grad_()
    (first,) = torch.autograd.grad(function(x).square().sum(), x, create_graph=True)
    return torch.autograd.grad(first.square().sum(), x)[0]


@pytest.mark.parametrize("name", ONCE)
def test_a_composition_computes_the_same_and_has_the_second_derivative_torch_lacks(name):
    function = ONCE[name]
    with pytest.raises(RuntimeError, match="not implemented"):
        _second(function)

    def twice(x):
        with composed():
            return function(x)

    torch.testing.assert_close(twice(X), function(X), rtol=1e-12, atol=1e-13)
    assert bool(_second(twice).isfinite().all())
    assert torch.autograd.gradgradcheck(twice, (X[:1, :, :2].clone().requires_grad_(),))


def test_the_settings_of_the_process_are_as_before_whatever_happens():
    def settings():
        return (
            cuda.flash_sdp_enabled(),
            cuda.mem_efficient_sdp_enabled(),
            cuda.math_sdp_enabled(),
            torch.backends.mha.get_fastpath_enabled(),
            torch.backends.cudnn.enabled,
        )

    before, inside = settings(), []

    def fail():
        with composed():
            inside.append(settings())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert inside != [before]
    assert settings() == before
