"""Each operation of torch that the sweeps have a rule for is differentiated as autograd does, and so is any other."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from engine_support import CLASSES, Between, Does, coded, conv, every_derivative_is_autograds, frozen, posed, unsettled
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from leakgauge.attacks.matching import Tangent
from leakgauge.attacks.matching.engine import trace
from leakgauge.attacks.matching.engine.layers.operations import Differentiated


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inputs, self.head = nn.Linear(27, 24), nn.Linear(8, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        query, key, value = self.inputs(images.permute(0, 2, 1, 3).flatten(2)).chunk(3, dim=-1)
        return self.head(functional.scaled_dot_product_attention(query, key, value).mean(dim=1))


def tied() -> nn.Module:
    one, two = conv(), conv()
    two.weight = one.weight
    return nn.Sequential(one, two)


def _overwritten(m: Any, x: Tensor) -> Tensor:
    y = m.conv(x)
    z = functional.relu(y, inplace=True)
    return y + z


def _overwritten_silently(m: Any, x: Tensor) -> Tensor:
    y = m.conv(x)
    y.relu_()
    return y + x


def _overwritten_by_addition(m: Any, x: Tensor) -> Tensor:
    y = m.conv(x)
    z = y
    y += x
    return z + y


def hooked() -> nn.Module:
    layer = conv()
    layer.register_forward_hook(lambda module, inputs, output: 2 * output)
    return layer


Made = Callable[[], nn.Module]


def does(function: Callable[[Any, Tensor], Any], **parts: Any) -> Made:
    return lambda: Between(Does(function, conv=conv(), other=conv(1, padding=0), **copy.deepcopy(parts)))


def parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.rand(*shape) - 0.3)


def tokens(x: Tensor) -> Tensor:
    return x.flatten(2).transpose(1, 2)


def _without_gradient(m: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        y = m.conv(x)
    return y + m.other(x)


def _cells(m: Any, x: Tensor) -> Tensor:
    state = x.new_zeros(x.size(0), 6), x.new_zeros(x.size(0), 6)
    for row in range(3):
        state = m.cell(x[:, :, row].flatten(1), state)
    return state[0]


ONCE_REFUSED: dict[str, Made] = {
    "attention": Attention,
    "a parameter used twice": lambda: Between(coded(lambda m, x: m.conv(torch.relu(m.conv(x))))),
    "tied weights": lambda: Between(tied()),
    "an input overwritten and read again": lambda: Between(coded(_overwritten)),
    "an input overwritten in silence": lambda: Between(coded(_overwritten_silently)),
    "a sum written over a tensor read again": lambda: Between(coded(_overwritten_by_addition)),
    "a hook": lambda: Between(hooked()),
    "a factor that is trained": lambda: Between(
        Does(lambda m, x: x * m.factor, factor=nn.Parameter(torch.rand(4, 1, 1)))
    ),
    "a functional layer": lambda: Between(
        Does(lambda m, x: functional.linear(x, m.w), w=nn.Parameter(torch.rand(9, 9)))
    ),
    "a product of tensors": lambda: Between(coded(lambda m, x: m.conv(x) * x)),
    "a difference of tensors": lambda: Between(coded(lambda m, x: m.conv(x) - x)),
    "a sum that broadcasts": lambda: Between(coded(lambda m, x: m.conv(x) + x.mean(1, keepdim=True))),
    "a weighted sum": lambda: Between(coded(lambda m, x: torch.add(m.conv(x), x, alpha=2))),
    "a sum by name": lambda: Between(coded(lambda m, x: torch.add(x, other=m.conv(x)))),
    "a buffer over a tensor": lambda: Between(coded(lambda m, x: torch.div(m.std, x + 2))),
    "a number over a tensor": lambda: Between(coded(lambda m, x: 1 / (x + 2))),
    "a join by name": lambda: Between(coded(lambda m, x: torch.cat(tensors=[x, x], dim=1))),
    "a join of batches": lambda: Between(coded(lambda m, x: torch.cat([x, x]).view(x.size(0), -1))),
    "a join with a buffer": lambda: Between(coded(lambda m, x: torch.cat([x, m.mask.expand(2, 4, 9, 9)], 1))),
    "a reshape by another tensor's batch": lambda: Between(coded(lambda m, x: x.view(-1, 81).view(x.size(0), -1))),
    "a reshape by channels": lambda: Between(coded(lambda m, x: x.view(-1, x.size(1), 81))),
    "a reshape by a whole shape": lambda: Between(coded(lambda m, x: x.reshape(x.shape))),
    "a slice": lambda: Between(coded(lambda m, x: x[:, 1:])),
    "a transposition": lambda: Between(coded(lambda m, x: x.mT)),
    "indices of a pool": lambda: Between(coded(lambda m, x: functional.max_pool2d(x, 2, return_indices=True)[0])),
    "an activation in place": lambda: Between(nn.Sequential(conv(), nn.SiLU(inplace=True))),
    "a negative slope": lambda: Between(nn.LeakyReLU(-0.5)),
    "an unknown activation": lambda: Between(nn.PReLU()),
    "a transposed convolution": lambda: Between(nn.ConvTranspose2d(4, 4, 3)),
    "running statistics of instances": lambda: Between(nn.InstanceNorm2d(4, track_running_stats=True)),
    "weight norm": lambda: Between(nn.utils.parametrizations.weight_norm(conv())),
    "padding by a constant": lambda: Between(nn.ConstantPad2d(1, 0.5)),
    "softmax": lambda: Between(nn.Softmax(dim=1)),
}
SHAPES: dict[str, Made] = {
    "slice and pad": does(lambda m, x: functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 1, 1))),
    "chunk": does(lambda m, x: torch.cat(m.conv(x).chunk(2, 1)[::-1], 1)),
    "split": does(lambda m, x: m.conv(x).split([1, 3], 1)[1]),
    "unbind and stack": does(lambda m, x: torch.stack(m.conv(x).unbind(1)[::-1], 2)),
    "shuffle": does(lambda m, x: m.conv(x).view(x.size(0), 2, 2, 9, 9).transpose(1, 2).reshape(x.shape)),
    "patches": does(lambda m, x: functional.unfold(m.conv(x), 3)),
    "windows": does(lambda m, x: m.conv(x).unfold(2, 3, 3).unfold(3, 3, 3)),
    "bilinear": does(lambda m, x: functional.interpolate(m.conv(x), scale_factor=2, mode="bilinear")),
    "nearest": does(lambda m, x: functional.interpolate(m.conv(x), size=(5, 4))),
    "roll and flip": does(lambda m, x: m.conv(x).roll(2, 2).flip(3)),
    "token and positions": does(
        lambda m, x: torch.cat([m.token.expand(x.shape[0], -1, -1), tokens(x)], 1) + m.position,
        token=parameter(1, 1, 4),
        position=parameter(1, 82, 4),
    ),
    "embedding": does(lambda m, x: x.flatten(2) + m.table(torch.arange(4))[None], table=nn.Embedding(4, 81)),
    "relative positions": does(
        lambda m, x: (x @ x.mT).softmax(-1) @ x + m.table[m.index],
        table=parameter(7),
        index=torch.arange(81).view(9, 9) % 7,
    ),
}
SUMS_AND_PRODUCTS: dict[str, Made] = {
    "gate": does(lambda m, x: x * torch.sigmoid(m.other(x.mean((2, 3), keepdim=True)))),
    "einsum with a parameter": does(lambda m, x: torch.einsum("bchw,cd->bdhw", x, m.w), w=parameter(4, 5)),
    "einsum of two": does(lambda m, x: torch.einsum("bchw,bdhw->bcd", x, m.conv(x))),
    "a product of matrices": does(lambda m, x: x @ m.w + m.conv(x) @ m.c, w=parameter(9, 5), c=torch.rand(9, 5)),
    "addmm": does(lambda m, x: torch.addmm(m.b, x.flatten(1), m.w), b=parameter(5), w=parameter(324, 5)),
    "an outer product": does(lambda m, x: x.mean((2, 3))[:, :, None] * x.mean((1, 3))[:, None, :]),
    "two quotients": does(lambda m, x: m.k / (x + 2) + m.conv(x) / (x + 3), k=torch.rand(1, 1, 9)),
    "powers": does(lambda m, x: (x + 2) ** 1.5 + 2**x + (x + 3) ** m.e, e=parameter(1)),
    "a tensor made on the way": does(lambda m, x: x + torch.tensor([1.0, 2, 3, 4], dtype=x.dtype).view(4, 1, 1)),
    "a larger constant": does(lambda m, x: x.mean(1, keepdim=True) + m.k, k=torch.rand(4, 9, 9)),
}
NORMS: dict[str, Made] = {
    "layer norm over channels": does(
        lambda m, x: m.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2), norm=nn.LayerNorm(4)
    ),
    "RMS norm": does(lambda m, x: m.norm(x.permute(0, 2, 3, 1)), norm=nn.RMSNorm(4)),
    "RMS norm by hand": does(
        lambda m, x: m.g * x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-6), g=parameter(4, 1, 1)
    ),
    "standardised": does(lambda m, x: (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-3)),
    "unit length": does(lambda m, x: functional.normalize(m.conv(x))),
    "one norm twice": does(lambda m, x: m.norm(m.conv(torch.tanh(m.norm(m.conv(x))))), norm=nn.BatchNorm2d(4)),
    "a scale that is computed": does(
        lambda m, x: functional.group_norm(x, 2, 1 + m.g, torch.tanh(m.g)), g=parameter(4)
    ),
}
ATTENTION: dict[str, Made] = {
    "of heads": does(
        lambda m, x: m.attend(y := tokens(x), y, y)[0], attend=nn.MultiheadAttention(4, 2, batch_first=True)
    ),
    "of heads, fused": does(
        lambda m, x: m.attend(y := tokens(x), y, y, need_weights=False)[0],
        attend=nn.MultiheadAttention(4, 2, batch_first=True),
    ),
    "to another": does(
        lambda m, x: m.attend(tokens(x), tokens(m.conv(x)), tokens(x), need_weights=False)[0],
        attend=nn.MultiheadAttention(4, 2, batch_first=True, add_bias_kv=True),
    ),
    "an encoder": does(
        lambda m, x: m.encoder(tokens(x)),
        encoder=nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, norm_first=True, activation="gelu"),
    ),
    "causal": does(lambda m, x: functional.scaled_dot_product_attention(m.conv(x), x, x, is_causal=True, scale=0.3)),
    "masked": does(
        lambda m, x: functional.scaled_dot_product_attention(
            m.conv(x), x, x, attn_mask=torch.ones(9, 9, dtype=torch.bool).tril(2)
        )
    ),
    "biased": does(
        lambda m, x: functional.scaled_dot_product_attention(m.conv(x), x, x, attn_mask=m.b), b=parameter(9, 9)
    ),
}
ACTIVATIONS: dict[str, Made] = {
    "hard-swish": does(lambda m, x: functional.hardswish(m.conv(3 * x))),
    "hard-sigmoid": does(lambda m, x: functional.hardsigmoid(m.conv(3 * x))),
    "ReLU6": does(lambda m, x: functional.relu6(m.conv(3 * x))),
    "hard tanh": does(lambda m, x: functional.hardtanh(m.conv(3 * x))),
    "shrinkage": does(lambda m, x: functional.softshrink(m.conv(3 * x)) + functional.hardshrink(x, 0.2)),
    "soft sign": does(lambda m, x: functional.softsign(m.conv(3 * x)) + functional.logsigmoid(x)),
    "log softmax": does(lambda m, x: functional.log_softmax(m.conv(3 * x), dim=1)),
    "a slope of each channel": lambda: Between(nn.PReLU(4)),
    "clamps": does(lambda m, x: m.conv(x).clamp(-0.1, 0.2) + x.clamp(min=0) + x.clamp_max(0.1) + x.abs()),
    "chosen": does(lambda m, x: torch.where(x > 0, x, m.conv(x)) + torch.maximum(m.conv(x), x)),
    "masked": does(lambda m, x: m.conv(x) * (x > 0)),
    "largest": does(lambda m, x: m.conv(x).max(1)[0] + m.conv(x).amax((2, 3), keepdim=True)[:, 0]),
    "gated halves": does(lambda m, x: functional.glu(m.conv(x), 1)),
}  # fmt: skip
STRUCTURE: dict[str, Made] = {
    "detached": does(lambda m, x: m.conv(x) * x.detach() + m.other(x).detach()),
    "without gradient": does(_without_gradient),
    "LSTM": does(lambda m, x: m.rnn(x[:, 0, :4])[0], rnn=nn.LSTM(9, 5, batch_first=True, bidirectional=True)),
    "GRU": does(lambda m, x: m.rnn(x[:, 0, :4])[0], rnn=nn.GRU(9, 5, batch_first=True)),
    "cells": does(_cells, cell=nn.LSTMCell(36, 6)),
    "tied and transposed": does(
        lambda m, x: functional.linear(functional.linear(x, m.l.weight), m.l.weight.t()), l=nn.Linear(9, 6)
    ),
    "low rank": does(
        lambda m, x: functional.linear(x, m.l.weight + m.b @ m.a, m.l.bias),
        l=frozen(nn.Linear(9, 6)),
        a=parameter(2, 9),
        b=parameter(6, 2),
    ),
    "a kernel that is computed": does(
        lambda m, x: functional.conv2d(x, m.w * m.s, m.b, padding=1),
        w=parameter(5, 4, 3, 3),
        b=parameter(5),
        s=parameter(5, 1, 1, 1),
    ),
    "a frozen kernel": lambda: Between(nn.Sequential(frozen(conv(), "weight"), nn.BatchNorm2d(4))),
    "a transposed convolution by groups": does(
        lambda m, x: m.norm(m.up(x)), up=nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2), norm=nn.BatchNorm2d(6)
    ),
    "checkpointed": does(lambda m, x: checkpoint(lambda t: torch.tanh(m.conv(t)), x, use_reentrant=False)),
    "checkpointed, reentrant": does(lambda m, x: checkpoint(lambda t: torch.tanh(m.conv(t)), x, use_reentrant=True)),
    "a branch on the shape": does(lambda m, x: m.conv(x) if x.shape[1] == 4 else x),
    "in place on a view": does(lambda m, x: m.conv(x).flatten(1).mul_(2)),
    "an activation of two, in place": does(
        lambda m, x: functional.silu(functional.hardswish(m.conv(x), inplace=True), inplace=True)
    ),
}
OPERATIONS = {
    **ONCE_REFUSED,
    **{
        f"{kind}, {name}": make
        for kind, cases in {
            "shape": SHAPES, "product": SUMS_AND_PRODUCTS, "norm": NORMS, "attention": ATTENTION,
            "activation": ACTIVATIONS, "structure": STRUCTURE,
        }.items()
        for name, make in cases.items()
    },
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # torch's, on checkpoints without gradient
@pytest.mark.parametrize("name", OPERATIONS)
def test_the_sweeps_through_an_operation_are_autograds(name, bits):
    torch.manual_seed(0)
    if name in ("structure, LSTM", "structure, GRU"):
        bits = lambda case, images: images.sum()  # noqa: E731  torch's recurrent layers remember what they last ran with
    every_derivative_is_autograds(*posed(unsettled(OPERATIONS[name]()), composed=True), bits)


BY_AUTOGRAD = {"norm, standardised": 1, "structure, GRU": 1, "attention, an encoder": 0, "norm, RMS norm by hand": 0}


@pytest.mark.parametrize("name", BY_AUTOGRAD)
def test_only_what_has_no_rule_is_left_to_autograd(name):
    torch.manual_seed(0)
    case, images = posed(unsettled(OPERATIONS[name]()))
    steps = trace(case.learner, case.state, images).steps
    assert sum(isinstance(step.layer, Differentiated) for step in steps) == BY_AUTOGRAD[name]


def test_a_layer_in_front_of_everything_trained_is_not_differentiated_for_the_gradient():
    torch.manual_seed(0)
    case, images = posed(
        unsettled(nn.Sequential(frozen(nn.Conv2d(3, 4, 3)), nn.Tanh(), nn.Flatten(), nn.Linear(196, CLASSES)))
    )
    network = trace(case.learner, case.state, images)
    assert [step.output in network.learnt for step in network.steps] == [False, False, False, True]
    assert all(step.output in network.seen for step in network.steps)
    assert Tangent().resolve(case, images) == Tangent()
