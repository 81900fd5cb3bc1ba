"""From what an activation returned back to what it was given."""

from __future__ import annotations

import torch
from torch import Tensor

from leakgauge.attacks.analytic.structure import Activation

# Dense around zero, where activations bend, and out to the ends, where a second preimage may hide.
_GRID_POINTS, _GRID_REACH = 1025, 14.6
_HALVINGS = 100


def preimage(activation: Activation, values: Tensor) -> Tensor:
    """The y with activation(y) = value, feature by feature; NaN where there is none or more than one.

    A table over [-1e6, 1e6] counts the crossings and bisection finds the single one: everywhere for a strictly monotone
    activation, where the output is positive for ReLU, GELU and SiLU.

    >>> preimage(torch.nn.functional.gelu, torch.tensor([1.0, -0.1, 0.0], dtype=torch.float64)).round(decimals=6)
    tensor([1.1445,    nan,    nan], dtype=torch.float64)
    """
    grid = torch.linspace(-_GRID_REACH, _GRID_REACH, _GRID_POINTS, dtype=values.dtype, device=values.device).sinh()
    with torch.no_grad():
        table = activation(grid[:, None].repeat(1, len(values)))
        below, above = table < values, table > values
        hits = (table == values).sum(dim=0)
        once = (_changes(below) == 1) & (_changes(above) == 1) & (hits <= 1)
        rising = above[-1]
        before = torch.where(rising, below, above).sum(dim=0)
        left = grid[(before - 1).clamp(0, _GRID_POINTS - 1)]
        right = grid[(before + hits).clamp(0, _GRID_POINTS - 1)]
        for _ in range(_HALVINGS):
            middle = (left + right) / 2
            reached = activation(middle[None])[0]
            on = torch.where(rising, reached < values, reached > values)
            left, right = torch.where(on, middle, left), torch.where(on, right, middle)
    return torch.where(once, (left + right) / 2, torch.nan)


def slope(activation: Activation, at: Tensor) -> Tensor:
    """The derivative of an elementwise function, feature by feature."""
    with torch.enable_grad():
        at = at.detach().requires_grad_()
        (result,) = torch.autograd.grad(activation(at[None]).sum(), at, materialize_grads=True)
    return result


def _changes(flags: Tensor) -> Tensor:
    return (flags[1:] != flags[:-1]).sum(dim=0)
