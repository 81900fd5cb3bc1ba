"""The sweeps through a network are autograd's derivatives, layer by layer; what they do not know they refuse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from engine_support import (
    CLASSES,
    EXACT,
    SHAPE,
    Between,
    Does,
    coded,
    conv,
    error,
    every_derivative_is_autograds,
    frozen,
    plain,
    posed,
    unsettled,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import cross_entropy, mse_loss, one_hot

import memory
from leakgauge import params as tree
from leakgauge.attacks.matching import (
    Automatic,
    Budget,
    Cosine,
    DoubleBackward,
    Euclidean,
    FiniteDifference,
    FrozenDifference,
    GradientMatching,
    StraightLine,
    Tangent,
    differentiation,
)
from leakgauge.attacks.matching.differentiation import Rows, Wanted, plan_evaluation
from leakgauge.attacks.matching.engine import NetworkGradient, trace
from leakgauge.attacks.matching.engine.layers import Affine, ChannelAffine, Smooth
from leakgauge.attacks.matching.engine.layers.activations import SMOOTH, smooth_by_autograd
from leakgauge.attacks.matching.problem import MatchingProblem
from leakgauge.defences import Clipping
from leakgauge.errors import UnsupportedModel
from leakgauge.models import MLP, VGG, Compact, ConvNet, LeNet, ResNet, build
from leakgauge.protocol import FedAvg, FedSGD, learner_and_state
from leakgauge.protocol.local_update import PlainUpdate
from leakgauge.randomness import seeded
from leakgauge.types import Batch, ParamTree


@pytest.fixture(autouse=True, scope="module")
def _traced_once():
    """Reading a module takes longer than all the sweeps; here, where several routes read the same one, once will do."""
    known: dict[Any, Any] = {}

    def once(learner, state, images, *, fold=True):
        key = (learner.module, images.shape, fold)
        if key not in known:
            known[key] = trace(learner, state, images, fold=fold)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(differentiation.sweeps, "trace", once)
        yield


def rows_of(case: MatchingProblem, images: Tensor) -> Rows:
    return Rows(images, case.labels.expand(len(images), *case.labels.shape))


# Layer by layer

CONVOLUTIONS: dict[str, Callable[[], nn.Module]] = {
    "stride": lambda: conv(stride=2),
    "uneven": lambda: nn.Conv2d(4, 5, (3, 1), stride=(2, 1), padding=(0, 2)),
    "dilation": lambda: conv(dilation=2),
    "groups": lambda: conv(groups=2),
    "depthwise": lambda: nn.Conv2d(4, 8, 3, groups=4),
    "without bias": lambda: conv(bias=False),
    "pointwise": lambda: nn.Conv2d(4, 7, 1),
    "circular": lambda: conv(padding_mode="circular"),
    "reflect": lambda: conv(padding_mode="reflect", stride=2),
    "replicate": lambda: conv(padding_mode="replicate", padding=(2, 1)),
    "same": lambda: conv(padding="same"),
    "same, even, dilated": lambda: conv(2, padding="same", dilation=3),
    "same, circular": lambda: conv(padding="same", padding_mode="circular"),
    "valid": lambda: conv(padding="valid"),
    "of rows": lambda: nn.Sequential(nn.Flatten(2), nn.Conv1d(4, 3, 5, stride=2, padding=1)),
    "of volumes": lambda: nn.Sequential(nn.Unflatten(1, (2, 2)), nn.Conv3d(2, 3, (2, 3, 3), stride=(1, 2, 2))),
    "linear on rows": lambda: nn.Linear(9, 4),
    "linear on rows without bias": lambda: nn.Linear(9, 4, bias=False),
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(324, 6)),
}
ACTIVATIONS = {
    "relu": nn.ReLU,
    "relu after a convolution": lambda: nn.Sequential(conv(), nn.ReLU(), conv(), nn.ReLU(inplace=True)),
    "leaky relu": lambda: nn.LeakyReLU(0.2),
    "leaky relu in place": lambda: nn.Sequential(conv(), nn.LeakyReLU(0.3, inplace=True)),
    "leaky relu of slope 0": lambda: nn.LeakyReLU(0.0),
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "gelu by tanh": lambda: nn.GELU("tanh"),
    "silu": nn.SiLU,
    "elu": lambda: nn.ELU(0.7),
    "celu": lambda: nn.CELU(0.7),
    "selu": nn.SELU,
    "mish": nn.Mish,
    "softplus": lambda: nn.Softplus(2.0, 0.5),
}
POOLS = {
    "max": lambda: nn.MaxPool2d(2),
    "max, overlapping and padded": lambda: nn.MaxPool2d(3, stride=1, padding=1),
    "max, ceiling": lambda: nn.MaxPool2d(2, ceil_mode=True),
    "max, dilated": lambda: nn.MaxPool2d(2, stride=1, dilation=2),
    "max of rows": lambda: nn.Sequential(nn.Flatten(2), nn.MaxPool1d(4, 3)),
    "max of volumes": lambda: nn.Sequential(nn.Unflatten(1, (2, 2)), nn.MaxPool3d(2)),
    "max, adaptive": lambda: nn.AdaptiveMaxPool2d((3, 4)),
    "max of rows, adaptive": lambda: nn.Sequential(nn.Flatten(2), nn.AdaptiveMaxPool1d(7)),
    "average": lambda: nn.AvgPool2d(2),
    "average, padded": lambda: nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False),
    "average of rows": lambda: nn.Sequential(nn.Flatten(2), nn.AvgPool1d(4)),
    "average, adaptive": lambda: nn.AdaptiveAvgPool2d((4, 3)),
    "average over all": lambda: nn.AdaptiveAvgPool2d(1),
}
NORMS = {
    "folded": lambda: nn.Sequential(conv(), nn.BatchNorm2d(4)),
    "folded without bias": lambda: nn.Sequential(conv(bias=False), nn.BatchNorm2d(4)),
    "folded without scale": lambda: nn.Sequential(conv(), nn.BatchNorm2d(4, affine=False)),
    "folded into a kernel larger than its map": lambda: nn.Sequential(nn.Conv2d(4, 16, 7), nn.BatchNorm2d(16)),
    "folded into a larger kernel without scale": lambda: nn.Sequential(
        nn.Conv2d(4, 16, 7, bias=False), nn.BatchNorm2d(16, affine=False)
    ),
    "folded through padding": lambda: nn.Sequential(conv(padding_mode="circular"), nn.BatchNorm2d(4), nn.ReLU()),
    "folded by groups": lambda: nn.Sequential(conv(groups=2), nn.BatchNorm2d(4), nn.ReLU()),
    "folded into linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(324, 6), nn.BatchNorm1d(6)),
    "folded into rows": lambda: nn.Sequential(nn.Flatten(2), nn.Conv1d(4, 3, 5), nn.BatchNorm1d(3)),
    "before a convolution": lambda: nn.Sequential(nn.BatchNorm2d(4), conv()),
    "before a convolution, without scale": lambda: nn.Sequential(nn.BatchNorm2d(4, affine=False), conv()),
    "on linear rows": lambda: nn.Sequential(nn.Flatten(2), nn.Linear(81, 6), nn.BatchNorm1d(4)),
    "beside what it reads": lambda: Does(lambda m, x: m.norm(y := m.conv(x)) + y, conv=conv(), norm=nn.BatchNorm2d(4)),
    "by the batch in eval": lambda: nn.Sequential(conv(), nn.BatchNorm2d(4, track_running_stats=False)),
    "group": lambda: nn.GroupNorm(2, 4),
    "group without scale": lambda: nn.GroupNorm(2, 4, affine=False),
    "layer": lambda: nn.LayerNorm([4, 9, 9]),
    "layer over rows": lambda: nn.LayerNorm(9),
    "layer without bias": lambda: nn.LayerNorm([9, 9], bias=False),
    "layer without scale": lambda: nn.LayerNorm(9, elementwise_affine=False),
    "instance": lambda: nn.InstanceNorm2d(4),
    "instance with scale": lambda: nn.InstanceNorm2d(4, affine=True),
    "instance of rows": lambda: nn.Sequential(nn.Flatten(2), nn.InstanceNorm1d(4, affine=True)),
}


def _plus_equals(m: Any, x: Tensor) -> Tensor:
    y = m.conv(x)
    y += x
    return functional.relu(y)


def _times_equals(m: Any, x: Tensor) -> Tensor:
    y = m.conv(x)
    y *= 3
    y -= m.mean
    y /= m.std
    return y


CODE = {
    "residual": lambda m, x: functional.relu(m.conv(x) + x),
    "residual of branches": lambda m, x: torch.add(m.conv(x), m.other(x)).relu(),
    "residual, in place": _plus_equals,
    "residual, add_": lambda m, x: m.conv(x).add_(x),
    "twice itself": lambda m, x: x + x,
    "concatenation": lambda m, x: torch.cat([m.conv(x), x], 1),
    "concatenation of one thing": lambda m, x: torch.cat((x, x), dim=-1),
    "concatenation in three": lambda m, x: torch.concat([x, m.conv(x), m.other(x)], dim=2),
    "view": lambda m, x: x.view(x.size(0), -1),
    "view by shape": lambda m, x: x.reshape(x.shape[0], 4, -1),
    "view by size": lambda m, x: x.reshape((x.size()[0], 2, -1)),
    "view by numbers": lambda m, x: x.view(-1, 4, 81),
    "torch.flatten": lambda m, x: torch.flatten(x, 1),
    "flatten": lambda m, x: x.flatten(start_dim=2),
    "contiguous": lambda m, x: x.contiguous(),
    "torch.relu": lambda m, x: torch.relu(m.conv(x)),
    "F.relu in place": lambda m, x: functional.relu(m.conv(x), inplace=True),
    "relu_": lambda m, x: m.conv(x).relu_(),
    "F.leaky_relu": lambda m, x: functional.leaky_relu(x, 0.3) + functional.leaky_relu(m.conv(x)),
    "torch.sigmoid": lambda m, x: torch.sigmoid(m.conv(x)),
    "tanh": lambda m, x: m.conv(x).tanh(),
    "F.gelu": lambda m, x: functional.gelu(x),
    "F.silu": lambda m, x: functional.silu(x),
    "F.softplus": lambda m, x: functional.softplus(x),
    "F.max_pool2d": lambda m, x: functional.max_pool2d(x, 3, stride=2, padding=1),
    "F.avg_pool2d": lambda m, x: functional.avg_pool2d(x, 2),
    "F.adaptive_avg_pool2d": lambda m, x: functional.adaptive_avg_pool2d(x, (2, 3)),
    "mean": lambda m, x: x.mean((2, 3)),
    "torch.mean": lambda m, x: torch.mean(x, dim=[2, 3], keepdim=True),
    "F.dropout": lambda m, x: functional.dropout(x, 0.5, training=m.training),
    "buffers": lambda m, x: (x - m.mean) / m.std,
    "buffers first": lambda m, x: m.std * (m.mean - x),
    "a mask": lambda m, x: x * m.mask + m.mask,
    "numbers": lambda m, x: (3 - 2 * x) / 4 + 1.5,
    "in place": _times_equals,
    "a module called twice": lambda m, x: m.bend(m.conv(m.bend(x))),
}
PARTS = {
    "identity": nn.Identity,
    "dropout": lambda: nn.Dropout(0.5),
    "dropout of channels": nn.Dropout2d,
    "zero padding": lambda: nn.ZeroPad2d((1, 0, 2, 1)),
    "circular padding": lambda: nn.CircularPad2d(2),
    "reflection padding": lambda: nn.ReflectionPad2d(2),
    "replication padding": lambda: nn.ReplicationPad2d(1),
    "pixel shuffle": lambda: nn.PixelShuffle(2),
    "pixel unshuffle": lambda: nn.PixelUnshuffle(3),
}


FROZEN = {
    "a layer": lambda: nn.Sequential(frozen(conv()), conv()),
    "a kernel": lambda: nn.Sequential(frozen(conv(), "weight"), nn.ReLU()),
    "a bias": lambda: nn.Sequential(frozen(conv(), "bias"), nn.ReLU()),
    "a kernel under a norm": lambda: nn.Sequential(frozen(conv()), nn.BatchNorm2d(4)),
    "a scale": lambda: nn.Sequential(conv(), frozen(nn.BatchNorm2d(4), "weight")),
    "an offset": lambda: nn.Sequential(conv(), frozen(nn.BatchNorm2d(4), "bias")),
    "a norm": lambda: nn.Sequential(conv(), frozen(nn.BatchNorm2d(4))),
    "a norm on its own": lambda: nn.Sequential(frozen(nn.BatchNorm2d(4)), conv()),
    "a group norm": lambda: frozen(nn.GroupNorm(2, 4), "weight"),
    "a factor": lambda: Does(lambda m, x: x * m.factor, factor=nn.Parameter(torch.rand(4, 1, 1), requires_grad=False)),
}
UNUSED = {
    "a layer": lambda: Does(lambda m, x: m.conv(x), conv=conv(), other=conv()),
    "a branch": lambda: Does(lambda m, x: (m.conv(x), m.other(x))[0], conv=conv(), other=conv()),
    "a deep branch": lambda: Does(
        lambda m, x: (m.conv(x), torch.relu(m.norm(m.other(x))))[0], conv=conv(), other=conv(), norm=nn.BatchNorm2d(4)
    ),
}
LAYERS = {
    **{f"convolution, {name}": make for name, make in CONVOLUTIONS.items()},
    **{f"activation, {name}": make for name, make in ACTIVATIONS.items()},
    **{f"pool, {name}": make for name, make in POOLS.items()},
    **{f"norm, {name}": make for name, make in NORMS.items()},
    **{f"code, {name}": partial(coded, function) for name, function in CODE.items()},
    **PARTS,
    **{f"frozen, {name}": make for name, make in FROZEN.items()},
    **{f"unused, {name}": make for name, make in UNUSED.items()},
}
TRAINED = {
    "batch": lambda: nn.BatchNorm2d(4),
    "batch without scale": lambda: nn.BatchNorm2d(4, affine=False),
    "batch of rows": lambda: nn.Sequential(nn.Flatten(2), nn.BatchNorm1d(4)),
    "batch of vectors": lambda: nn.Sequential(nn.Flatten(), nn.Linear(324, 6), nn.BatchNorm1d(6)),
    "batch after a convolution": lambda: nn.Sequential(conv(bias=False), nn.BatchNorm2d(4), nn.ReLU()),
    "instance with running statistics": lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True),
}


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")  # torch's, on its own cost
@pytest.mark.parametrize("name", LAYERS)
def test_the_sweeps_through_a_layer_are_autograds(name, bits):
    torch.manual_seed(0)
    every_derivative_is_autograds(*posed(unsettled(Between(LAYERS[name]()))), bits)


@pytest.mark.parametrize("name", TRAINED)
def test_the_sweeps_through_a_norm_in_train_mode_are_autograds(name, bits):
    torch.manual_seed(0)
    every_derivative_is_autograds(*posed(unsettled(Between(TRAINED[name]())), mode="train", count=3), bits)


@settings(deadline=None, max_examples=12)
@given(
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    groups=st.sampled_from([1, 2, 4]),
    bias=st.booleans(),
    mode=st.sampled_from(["zeros", "circular", "reflect", "replicate"]),
    norm=st.sampled_from([None, True, False]),
)
def test_the_sweeps_through_any_convolution_are_autograds(
    kernel, stride, padding, dilation, groups, bias, mode, norm, bits
):
    torch.manual_seed(0)
    layer = nn.Conv2d(4, 8, kernel, stride, padding, dilation, groups, bias, padding_mode=mode)
    something = layer if norm is None else nn.Sequential(layer, nn.BatchNorm2d(8, affine=norm))
    every_derivative_is_autograds(*posed(unsettled(Between(something))), bits)


@pytest.mark.parametrize("name", SMOOTH)
def test_the_two_derivatives_of_an_activation_are_autograds_far_into_its_tails(name):
    first = 0.1 if name in ("log", "sqrt", "rsqrt", "reciprocal") else -12
    x = torch.linspace(first, 30, 2401, dtype=torch.float64)
    layer = SMOOTH[name]
    for ours, expected in zip(derivatives(layer, x), derivatives(smooth_by_autograd(layer.function), x), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)


def derivatives(layer: Smooth, x: Tensor) -> tuple[Tensor, Tensor]:
    y = layer.function(x)
    slope = layer.slope(x, y)
    return slope, layer.bend(x, y, slope)


def test_the_two_derivatives_of_gelu_are_those_of_x_times_the_normal_distribution():
    x = torch.linspace(-12, 12, 2401, dtype=torch.float64)
    normal = torch.distributions.Normal(torch.zeros((), dtype=torch.float64), 1)
    density = normal.log_prob(x).exp()
    first, second = derivatives(SMOOTH["gelu"], x)
    torch.testing.assert_close(first, normal.cdf(x) + x * density, rtol=0, atol=1e-12)
    torch.testing.assert_close(second, density * (2 - x * x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_only_the_exact_gelu_is_taken_in_closed_form(approximate):
    case, images = posed(unsettled(nn.Sequential(nn.Flatten(), nn.Linear(243, CLASSES), nn.GELU(approximate))))
    (smooth,) = (step.layer for step in trace(case.learner, case.state, images).steps if isinstance(step.layer, Smooth))
    assert (smooth is SMOOTH["gelu"]) == (approximate == "none")


class Everything(nn.Module):
    """Branches, sums and joins over the image itself, which is read three times."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.left = nn.Sequential(nn.Conv2d(6, 6, 3, padding=1, groups=3), nn.GroupNorm(3, 6), nn.SiLU())
        self.right = nn.Sequential(nn.BatchNorm2d(6), nn.LeakyReLU(0.1), nn.Conv2d(6, 6, 1))
        self.pool, self.deep = nn.MaxPool2d(3, 2, 1), nn.Conv2d(9, 32, 5)
        self.last, self.hidden, self.head = nn.BatchNorm2d(32), nn.Linear(35, 8), nn.Linear(8, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        x = functional.relu(self.norm(self.stem(images - 0.5)), inplace=True)
        x = torch.cat([self.left(x) + self.right(x), 2 * images], 1)
        x = functional.relu(self.last(self.deep(self.pool(x)))).view(images.size(0), -1)
        x = torch.cat([x, images.mean((2, 3))], 1)
        return self.head(torch.tanh(self.hidden(x)))


def test_the_sweeps_through_a_net_of_branches_are_autograds(bits):
    torch.manual_seed(0)
    for objective in (Cosine(), Euclidean()):
        every_derivative_is_autograds(*posed(unsettled(Everything()), objective=objective, count=3), bits)


def test_a_norm_is_folded_exactly_where_it_alone_reads_a_layer():
    torch.manual_seed(0)
    norms = {
        "norm, folded": 0,
        "norm, folded into linear": 0,
        "norm, folded through padding": 0,
        "norm, before a convolution": 1,
        "norm, on linear rows": 1,
        "norm, beside what it reads": 1,
    }
    for name, left in norms.items():
        case, images = posed(unsettled(Between(LAYERS[name]())))
        layers = [step.layer for step in trace(case.learner, case.state, images).steps]
        assert sum(isinstance(layer, ChannelAffine) for layer in layers) == left, name
        assert sum(isinstance(layer, Affine) and layer.norm is not None for layer in layers) == 1 - left, name


def test_a_kernel_is_copied_only_to_be_folded_and_only_if_it_is_no_larger_than_its_map():
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 16, 7), nn.BatchNorm2d(16), nn.Flatten(), nn.Linear(16, 5)
    )
    case, images = posed(unsettled(module))
    tensors = {**case.state.params, **case.state.buffers}
    bound = NetworkGradient.at(trace(case.learner, case.state, images), tensors, case.learner.loss)
    kernels = [
        weights.kernel for step, weights in zip(bound.network.steps, bound.weights) if isinstance(step.layer, Affine)
    ]
    shared = [kernel.data_ptr() == tensors[f"{name}.weight"].data_ptr() for kernel, name in zip(kernels, "025")]
    assert shared == [False, True, True]
    originals = [weights.original for weights in bound.weights if getattr(weights, "original", None) is not None]
    assert [o.data_ptr() for o in originals] == [tensors[f"{name}.weight"].data_ptr() for name in "02"]


# Losses and labels


def distance_of_probabilities(scores: Tensor, labels: Tensor) -> Tensor:
    return mse_loss(scores.softmax(dim=1), one_hot(labels, CLASSES).to(scores))


LOSSES = {
    "smoothed": partial(cross_entropy, label_smoothing=0.2),
    "sum": partial(cross_entropy, reduction="sum"),
    "weighted": lambda scores, labels: cross_entropy(scores, labels, weight=torch.arange(1.0, 6.0).to(scores)),
    "squared": distance_of_probabilities,
}


@pytest.mark.parametrize("name", LOSSES)
def test_the_sweeps_are_exact_for_any_loss_of_the_scores(name, bits):
    torch.manual_seed(0)
    every_derivative_is_autograds(*posed(unsettled(Between(nn.ReLU())), loss=LOSSES[name]), bits)


SOFT = torch.softmax(torch.randn(4, CLASSES, generator=seeded(0, "soft"), dtype=torch.float64), dim=1)


@pytest.mark.parametrize("client", [FedSGD(), FedAvg(2, 3, 0.05), Clipping(0.1)(FedSGD()), StraightLine(0.3)], ids=repr)
@pytest.mark.parametrize("route", [DoubleBackward(), Tangent(), FrozenDifference()], ids=repr)
def test_the_derivative_in_class_probabilities_is_autograds(route, client):
    torch.manual_seed(0)
    case, images = posed(unsettled(Between(nn.BatchNorm2d(4))), count=4, labels=SOFT, local_update=client)
    assert route.resolve(case, images) == route
    found, (value, gradient, of_labels) = route.one(case, images), plain(case, images, SOFT)
    torch.testing.assert_close(found.value, value, rtol=1e-10, atol=1e-13)
    assert error(found.gradient, gradient) < EXACT
    assert error(found.labels, of_labels) < EXACT


def test_finite_differences_give_the_derivative_in_class_probabilities_too():
    torch.manual_seed(0)
    case, images = posed(unsettled(Between(nn.Sigmoid())), count=4, labels=SOFT)
    found, (_, gradient, of_labels) = FiniteDifference().one(case, images), plain(case, images, SOFT)
    assert error(found.gradient, gradient) < 3e-5
    assert error(found.labels, of_labels) < 3e-5
    at_truth = replace(case, observed=case.update(images), objective=Euclidean())
    assert not FiniteDifference().one(at_truth, images).labels.any()


# What the sweeps do not know


def _branches(m: Any, x: Tensor) -> Tensor:
    return m.conv(x) if x.sum() > 0 else x


def _written_through(m: Any, x: Tensor) -> Tensor:
    y = m.conv(x)
    y.view(x.size(0), -1).relu_()
    return y


def _set(m: Any, x: Tensor) -> Tensor:
    y = m.conv(x).clone()
    y[:, 0] = x[:, 1]
    return y


REFUSED: dict[str, Callable[[], nn.Module]] = {
    "control flow": lambda: Between(coded(_branches)),
    "noise": lambda: Between(coded(lambda m, x: x + torch.rand(4, 9, 9))),
    "a write through a view": lambda: Between(coded(_written_through)),
    "an entry that is set": lambda: Between(coded(_set)),
    "complex numbers": lambda: Between(coded(lambda m, x: torch.fft.rfft2(m.conv(x)).abs())),
}
IRREPRODUCIBLE = {"noise"}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_sweeps_do_not_know_is_refused_and_differentiated_by_autograd(name, monkeypatch):
    torch.manual_seed(0)
    case, images = posed(unsettled(REFUSED[name]()))
    with pytest.raises(UnsupportedModel) as refusal:
        Tangent().resolve(case, images)
    message = str(refusal.value)
    assert message.startswith("The tangent sweeps ")
    assert message.endswith("; use DoubleBackward().")
    assert "\n" not in message
    assert name != "complex numbers" or name in message
    monkeypatch.setattr(differentiation.automatic, "_WORTH_SWEEPING", 0)
    assert Automatic().resolve(case, images) == DoubleBackward()
    if name not in IRREPRODUCIBLE:
        assert error(Automatic().one(case, images).gradient, plain(case, images)[1]) < EXACT


class Several(nn.Module):
    """Not one tensor, for a loss that knows what to read."""

    def __init__(self, assemble: Callable[..., Any]) -> None:
        super().__init__()
        self.conv, self.head, self.assemble = nn.Conv2d(3, 4, 3), nn.Linear(196, CLASSES), assemble

    def forward(self, images: Tensor) -> Any:
        features = torch.tanh(self.conv(images))
        return self.assemble(self.head(features.flatten(1)), features.mean((2, 3)))


class OwnLoss(torch.autograd.Function):
    """A loss with a backward of its own, which torch.func cannot see into."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        ctx.save_for_backward(scores)
        return scores.square().sum()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 2 * ctx.saved_tensors[0] * gradient


LOSSES_OF_SEVERAL = {
    "a pair": (lambda one, two: (one, two), lambda found, labels: cross_entropy(found[0], labels)),
    "a dict, weighted": (
        lambda one, two: {"logits": one, "aux": [two, 3]},
        lambda found, labels: cross_entropy(found["logits"], labels) + 0.3 * found["aux"][0].square().mean(),
    ),
    "the same twice": (lambda one, two: (one, one), lambda found, labels: cross_entropy(found[0] + found[1], labels)),
}


@pytest.mark.parametrize("name", LOSSES_OF_SEVERAL)
def test_the_sweeps_are_exact_for_a_loss_of_several_outputs(name, bits):
    torch.manual_seed(0)
    assemble, loss = LOSSES_OF_SEVERAL[name]
    every_derivative_is_autograds(*posed(unsettled(Several(assemble)), loss=loss), bits)


def test_the_sweeps_are_exact_for_a_loss_with_a_backward_of_its_own(bits):
    torch.manual_seed(0)
    case, images = posed(unsettled(Between(nn.Tanh())), loss=lambda scores, labels: OwnLoss.apply(scores))
    every_derivative_is_autograds(case, images, bits)


def test_a_loss_the_sweeps_cannot_differentiate_is_left_to_autograd(monkeypatch):
    torch.manual_seed(0)

    def loss(scores: Tensor, labels: Tensor) -> Tensor:
        assert scores.grad_fn is not None, "scores of nothing"
        return cross_entropy(scores, labels)

    case, images = posed(unsettled(Between(nn.ReLU())), loss=loss)
    with pytest.raises(UnsupportedModel, match=r"^The tangent sweeps [^\n]*; use DoubleBackward\(\)\.$"):
        Tangent().resolve(case, images)
    monkeypatch.setattr(differentiation.automatic, "_WORTH_SWEEPING", 0)
    assert Automatic().resolve(case, images) == DoubleBackward()


def test_the_record_says_which_route_an_automatic_attack_took(attacked, examples):
    torch.manual_seed(0)
    wide = {
        "Tangent": nn.Linear(324, 400),
        "DoubleBackward": Does(lambda m, x: m.a(x) if x.sum() else x, a=nn.Linear(324, 400)),
    }
    for route, layer in wide.items():
        module = Between(nn.Sequential(nn.Flatten(), layer))
        assert tree.count(dict(module.named_parameters())) > 100_000
        found = GradientMatching(budget=Budget(steps=2))(attacked(module, examples(1, SHAPE)), generator=seeded(0))
        assert found.facts["route"] == route
        assert ("in something.1: " in str(found.facts.get("why this route"))) == (route == "DoubleBackward")


def test_a_gradient_that_is_nothing_but_rounding_does_not_speak_against_the_sweeps(attacked, examples):
    # In train mode the bias of a convolution before BatchNorm has no gradient; float32 leaves noise in its place.
    module = build(ConvNet(width=4), SHAPE, CLASSES, seed=0)
    seen = attacked(module, examples(4, SHAPE), mode="train")
    case, images = GradientMatching().problem(seen, generator=torch.Generator()), examples(4, SHAPE, seed=1).inputs
    assert Tangent().resolve(case, images) == Tangent()


@pytest.mark.parametrize(
    "factory", [ConvNet(width=4), ResNet(depth=20, base_width=4), LeNet(), MLP(hidden=(16,))], ids=repr
)
def test_in_float32_the_sweeps_are_no_further_from_the_truth_than_autograd(factory):
    module = build(factory, SHAPE, CLASSES, seed=1)
    learner, _ = learner_and_state(module)
    true, images = posed(unsettled(module))
    exact = plain(true, images)[1]
    state = replace(
        true.state,
        **{side: tree.map_tensors(Tensor.float, getattr(true.state, side)) for side in ("params", "buffers")},
    )
    case = replace(true, learner=learner, state=state, observed=tree.map_tensors(Tensor.float, true.observed))
    errors = [error(route.one(case, images.float()).gradient, exact) for route in (Tangent(), DoubleBackward())]
    assert errors[0] < max(2 * errors[1], 1e-4)


# Several local steps


class Wasteful(nn.Module):
    """BatchNorm, a max-pool, and a layer that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.idle = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(2, 2)
        self.head = nn.Linear(36, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(functional.max_pool2d(torch.tanh(self.norm(self.conv(images))), 2).flatten(1))


@pytest.mark.parametrize(
    ("epochs", "batch_size", "count"),
    [(1, 4, 4), (2, 4, 3), (1, 2, 5), (2, 2, 3), (3, 2, 4), (1, 1, 5), (3, 3, 7), (3, 1, 4)],
)
def test_local_steps_one_by_one_are_autograd_through_all_of_them(epochs, batch_size, count, bits):
    torch.manual_seed(0)
    module, client = unsettled(Wasteful()), FedAvg(epochs, batch_size, 0.3)
    assert 1 <= len(client.batches(count)) <= 12
    for local_update in (client, Clipping(0.05)(client)):
        case, images = posed(module, count=count, local_update=local_update, objective=Euclidean())
        value, gradient, _ = plain(case, images)
        before = bits(case, images)
        for route, tolerance in ((DoubleBackward(), EXACT), (Tangent(), EXACT), (FrozenDifference(), 1e-4)):
            assert route.resolve(case, images) == route
            found = route.one(case, images)
            torch.testing.assert_close(found.value, value, rtol=1e-10, atol=1e-13)
            assert error(found.gradient, gradient) < tolerance, route
        assert bits(case, images) == before


@pytest.mark.parametrize("route", [DoubleBackward(), Tangent()], ids=repr)
def test_memory_hardly_grows_with_the_local_steps(route):
    torch.manual_seed(0)
    module = unsettled(
        nn.Sequential(conv(), nn.Tanh(), conv(), nn.Tanh(), conv(), nn.Flatten(), nn.Linear(324, CLASSES))
    )
    module[0] = nn.Conv2d(3, 4, 3, padding=1).double()
    peaks = []
    for steps in (2, 16):
        case, images = posed(module, count=8, local_update=FedAvg(steps, 8, 0.05))
        matcher = route.matcher(case, images)
        matcher(images, case.labels)
        peaks.append(memory.peak_memory(lambda matcher=matcher, images=images, case=case: matcher(images, case.labels)))
    assert peaks[1] < 2 * peaks[0]


@pytest.mark.parametrize("position", [0.0, 0.3, 1.0])
def test_on_the_straight_line_the_derivatives_in_images_and_position_are_autograds(position):
    torch.manual_seed(0)
    case, images = posed(unsettled(Wasteful()), count=4, local_update=StraightLine(position))
    leaf, at = images.clone().requires_grad_(), torch.tensor(position, dtype=torch.float64, requires_grad=True)
    state = replace(case.state, params={n: p - at * case.observed[n] for n, p in case.state.params.items()})
    value = case.distance(case.learner.gradient(state, Batch(leaf, case.labels)))
    gradient, along = torch.autograd.grad(value, (leaf, at))
    for route, tolerance in ((DoubleBackward(), EXACT), (Tangent(), EXACT), (FrozenDifference(), 1e-4)):
        found = route.one(case, images)
        torch.testing.assert_close(found.value, value.detach(), rtol=1e-10, atol=1e-13)
        assert error(found.gradient, gradient) < tolerance
        assert abs(float(found.position - along)) < tolerance * abs(float(along))


def test_rows_on_the_straight_line_have_their_own_positions():
    torch.manual_seed(0)
    case, images = posed(unsettled(Wasteful()), count=4, local_update=StraightLine())
    positions = torch.tensor([0.1, 0.9], dtype=torch.float64)
    rows = rows_of(case, torch.stack([images, images]))._replace(position=positions)
    evaluator = plan_evaluation(case, Tangent(), rows)
    assert evaluator.route == "Tangent"
    together = evaluator.evaluate(rows, case.objective)
    for index, position in enumerate(positions.tolist()):
        alone = Tangent().one(replace(case, local_update=StraightLine(position)), images)
        assert torch.equal(together.gradient[index], alone.gradient)
        assert torch.equal(together.position[index], alone.position)


class Signed(PlainUpdate):
    """An algorithm of the user's own: a gradient of a batch that is turned upside down."""

    def compute(self, learner, state, batch) -> ParamTree:
        return learner.gradient(state, Batch(batch.inputs.flip(2), batch.labels))


def test_an_algorithm_of_the_users_own_is_differentiated_as_a_whole_for_each_rows_labels():
    torch.manual_seed(0)
    case, images = posed(unsettled(Wasteful()), count=4, local_update=Signed())
    with pytest.raises(UnsupportedModel, match=r"Tangent needs a client of plain gradient steps.*; use DoubleBackward"):
        Tangent().resolve(case, images)
    others = (case.labels + 1) % CLASSES
    rows = Rows(torch.stack([images, images]), torch.stack([case.labels, others]))
    for chunk in (1, 2):
        found = DoubleBackward().rowwise(case, images, chunk=chunk)(rows, case.objective)
        for index, labels in enumerate(rows.labels):
            value, gradient, _ = plain(replace(case, labels=labels), images)
            torch.testing.assert_close(found.value[index], value, rtol=1e-10, atol=1e-13)
            assert error(found.gradient[index], gradient) < EXACT
    soft = DoubleBackward().one(replace(case, labels=SOFT), images)
    assert error(soft.labels, plain(replace(case, labels=SOFT), images, SOFT)[2]) < EXACT


# Rows together

TOGETHER = {
    "lenet": lambda: build(LeNet(), SHAPE, CLASSES, seed=0),
    "folded": lambda: Between(NORMS["folded"]()),
    "folded into a larger kernel": lambda: Between(NORMS["folded into a kernel larger than its map"]()),
    "frozen kernel": lambda: Between(FROZEN["a kernel under a norm"]()),
    "unused": Wasteful,
    "everything": Everything,
}


@pytest.mark.parametrize("labels", [None, SOFT[:2]], ids=["classes", "probabilities"])
@pytest.mark.parametrize("route", [DoubleBackward(), Tangent()], ids=repr)
@pytest.mark.parametrize("name", TOGETHER)
def test_rows_of_several_victims_together_are_each_alone(name, route, labels):
    torch.manual_seed(0)
    module = unsettled(TOGETHER[name]())
    cases, candidates = zip(*(posed(module, seed=seed, labels=labels) for seed in range(3)))
    rows = Rows(
        torch.stack(candidates),
        torch.stack([case.labels for case in cases]),
        {key: torch.stack([case.observed[key] for case in cases]) for key in cases[0].observed},
    )
    alone = [route.one(case, images) for case, images in zip(cases, candidates)]
    evaluator = plan_evaluation(cases[0], route, rows)
    assert evaluator.route == f"{type(route).__name__}, 3 at a time"
    for chunk in (1, 2, 3):
        found = route.rowwise(cases[0], candidates[0], chunk=chunk)(rows, cases[0].objective)
        for index, one in enumerate(alone):
            assert error(found.gradient[index], one.gradient) < EXACT
            torch.testing.assert_close(found.value[index], one.value, rtol=1e-10, atol=1e-13)
            if labels is not None:
                assert error(found.labels[index], one.labels) < EXACT


@pytest.mark.parametrize(
    ("route", "client"),
    [(FrozenDifference(), FedSGD()), (Tangent(), FedAvg(2, 1, 0.1)), (DoubleBackward(), StraightLine())],
    ids=repr,
)
def test_a_route_that_takes_rows_one_by_one_says_so(route, client):
    torch.manual_seed(0)
    case, images = posed(unsettled(Between(nn.ReLU())), local_update=client)
    rows = rows_of(case, torch.stack([images, images.flip(0)]))
    if isinstance(client, StraightLine):
        rows = rows._replace(position=torch.tensor([0.2, 0.7]))
    assert plan_evaluation(case, route, rows).route == type(route).__name__


# The frozen difference


def first_pull(route: FrozenDifference, case: MatchingProblem, images: Tensor) -> Any:
    sweeps = route.linearise(case, images)
    gradient, pull = sweeps.at(case.state.params, Batch(images, case.labels), Wanted())
    _, direction = case.direction(gradient)
    return sweeps, direction, pull(tree.map_tensors(torch.clone, direction))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_step_of_a_frozen_difference_finds_the_change_of_logits_it_is_to_make(dtype, scale):
    torch.manual_seed(0)
    case, images = posed(unsettled(Between(nn.ReLU())).to(dtype))
    case = replace(case, objective=Euclidean(), observed=tree.scale(case.observed, scale))
    sweeps, direction, _ = first_pull(FrozenDifference(), case, images)
    moved = tree.add(case.state.params, direction, scale=sweeps.step)
    with torch.no_grad():
        here, there = (case.learner.logits(params, case.state.buffers, images) for params in (case.state.params, moved))
    wished = 3e-3 if dtype == torch.float32 else 3e-7
    assert wished / 5 < float((here - there).abs().max()) < 5 * wished


def test_a_frozen_difference_is_repeatable_and_one_that_must_be_better_than_exact_is_exact():
    torch.manual_seed(0)
    case, images = posed(unsettled(Between(nn.ReLU())).float())
    path = [images + 0.01 * k for k in range(4)]

    def walk(route: FrozenDifference) -> list[Tensor]:
        matcher = route.matcher(case, images)
        return [matcher(x, case.labels).gradient for x in path]

    exact = [Tangent().one(case, x).gradient for x in path]
    once, again = walk(FrozenDifference()), walk(FrozenDifference())
    assert all(torch.equal(one, two) for one, two in zip(once, again))
    assert not any(torch.equal(one, two) for one, two in zip(once, exact))
    assert all(error(one, two) < 2e-2 for one, two in zip(once, exact))
    # No cosine reaches 2: the first check fails, and from there on the exact derivative is taken.
    assert all(torch.equal(one, two) for one, two in zip(walk(FrozenDifference(agreement=2.0)), exact))


def test_a_frozen_difference_that_bends_too_far_takes_a_shorter_step():
    torch.manual_seed(0)
    case, images = posed(unsettled(Between(nn.Tanh())).float())
    matcher = FrozenDifference(logit_change=0.1, agreement=0.9999).matcher(case, images)
    exact = Tangent().one(case, images).gradient
    found = [matcher(images, case.labels).gradient for _ in range(3)]
    assert torch.equal(found[0], exact)
    assert matcher.gradient.shortened
    assert not matcher.gradient.exact
    assert all(0 < error(one, exact) < 0.02 for one in found[1:])


def test_a_frozen_difference_recovers_from_a_step_that_went_wrong():
    torch.manual_seed(0)
    case, images = posed(unsettled(Between(nn.ReLU())))
    matcher = FrozenDifference().matcher(case, images)
    exact = Tangent().one(case, images).gradient
    assert error(matcher(images, case.labels).gradient, exact) < 1e-4
    matcher.gradient.step = float("inf")
    matcher(images, case.labels)
    assert error(matcher(images, case.labels).gradient, exact) < 1e-4


def test_held_switches_make_a_difference_of_what_would_jump():
    # Over the same step, with ReLUs free to switch, the quotient is far off.
    torch.manual_seed(0)
    module = build(ResNet(depth=20, base_width=4), SHAPE, CLASSES, seed=0)
    case, images = posed(unsettled(module).float())
    exact = Tangent().one(case, images).gradient
    assert error(FrozenDifference().one(case, images).gradient, exact) < 5e-2
    assert error(FiniteDifference(1e-2).one(case, images).gradient, exact) > 0.2


def test_compact_is_swept_as_every_model_of_the_catalogue():
    for factory in (
        Compact(width=4),
        LeNet(),
        ConvNet(width=2),
        ConvNet(width=2, padding="circular"),
        MLP(hidden=(8,)),
        VGG(11, width=2, batch_norm=True, dropout=0.5),
    ):
        case, images = posed(unsettled(build(factory, SHAPE, CLASSES, seed=0)))
        assert Tangent().resolve(case, images) == Tangent()


def test_a_switch_that_rounding_flips_at_the_start_does_not_close_the_route(attacked, examples):
    """Folded and unfolded BatchNorm round differently; at the start of seed 50 this opens or shuts one switch."""
    module = build(ConvNet(width=4), (3, 16, 16), 10, seed=0).eval()
    truth = Batch(torch.rand(1, 3, 16, 16, generator=seeded(1)), torch.tensor([3]))
    case = GradientMatching(budget=Budget(steps=1)).problem(attacked(module, truth), generator=seeded(0))
    for seed in (0, 50):
        start = torch.rand(1, 3, 16, 16, generator=seeded(seed, "start"))
        assert Tangent().resolve(case, start) == Tangent()
