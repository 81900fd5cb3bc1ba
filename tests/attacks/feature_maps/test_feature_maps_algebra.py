"""The linear algebra of feature maps: overlaps, separation, and the unknowns of a convolution's gradient."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from leakgauge.attacks.feature_maps.overlaps import maps_in_span
from leakgauge.attacks.feature_maps.peeling import noise_floor
from leakgauge.attacks.feature_maps.separation import separate
from leakgauge.attacks.feature_maps.solving import Equations, solve_cotangents, solve_inputs
from leakgauge.attacks.feature_maps.taps import Taps
from leakgauge.attacks.matching.engine.layers import Convolution
from leakgauge.randomness import seeded

PRECISION = 1e-12


def convolution(stride: int = 1, padding: int = 1, dilation: int = 1) -> Convolution:
    return Convolution(
        "weight", None, None, frozenset(), False, (stride,) * 2, (padding,) * 2, (dilation,) * 2, groups=1
    )


def rectified(count: int, channels: int, side: int, seed: int = 0) -> Tensor:
    """Maps as a ReLU leaves them, a third of them zero."""
    drawn = torch.randn(count, channels, side, side, generator=seeded(seed), dtype=torch.float64)
    return (drawn + 0.4).relu()


def gradient_of(maps: Tensor, cotangents: Tensor, layer: Convolution, kernel: int) -> Tensor:
    """By autograd: the gradient of a convolution's weight."""
    weight = torch.zeros(cotangents.shape[1], maps.shape[1], kernel, kernel, dtype=maps.dtype, requires_grad=True)
    given_by = nn.functional.conv2d(maps, weight, None, layer.stride, layer.padding, layer.dilation)
    return torch.autograd.grad((given_by * cotangents).sum(), weight)[0]


def output_side(side: int, layer: Convolution, kernel: int) -> int:
    return (side + 2 * layer.padding[0] - layer.dilation[0] * (kernel - 1) - 1) // layer.stride[0] + 1


def spanned(layer: Convolution, maps: Tensor, outputs: int, kernel: int = 3, seed: int = 1):
    """A gradient of these maps, its row space, and the taps."""
    side = output_side(maps.shape[-1], layer, kernel)
    drawn = torch.randn(len(maps), outputs, side, side, generator=seeded(seed), dtype=torch.float64)
    gradient = gradient_of(maps, drawn, layer, kernel)
    rank = min(len(maps) * side * side, outputs)
    rows = torch.linalg.svd(gradient.flatten(1), full_matrices=False)[2][:rank]
    taps = Taps.of(layer, (kernel, kernel), tuple(maps.shape[2:]), (side, side))
    return gradient.flatten(2), drawn.flatten(2), rows.view(rank, maps.shape[1], kernel * kernel), taps


def outside(maps: Tensor, basis: Tensor) -> float:
    """The largest share of a map that lies outside a span of others."""
    flat, turned = maps.flatten(1), torch.linalg.qr(basis.flatten(1).mT)[0]
    return float(((flat - (flat @ turned) @ turned.mT).norm(dim=1) / flat.norm(dim=1)).max())


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize(
    ("layer", "side", "kernel"),
    [
        (convolution(), 4, 3),
        (convolution(padding=0), 6, 3),
        (convolution(stride=2), 7, 3),
        (convolution(padding=2), 4, 5),
    ],
)
def test_a_span_of_overlapping_patches_holds_the_maps_of_the_batch_and_nothing_else(count, layer, side, kernel):
    maps = rectified(count, 24, side)
    _, _, span, taps = spanned(layer, maps, outputs=100, kernel=kernel)
    found = maps_in_span(span, taps, count)
    assert found.maps.shape == (count, 24, side * side)
    assert outside(maps, found.maps) < 1e-7
    assert float(found.contradiction[count - 1]) < 1e-10
    assert float(found.contradiction[count]) > 1e-3


def test_what_is_too_large_for_all_eigenvalues_is_found_by_inverse_iteration(monkeypatch):
    maps = rectified(3, 16, 4)
    _, _, span, taps = spanned(convolution(), maps, outputs=64)
    monkeypatch.setattr("leakgauge.attacks.feature_maps.overlaps._DENSE", 8)
    found = maps_in_span(span, taps, 3)
    assert outside(maps, found.maps) < 1e-7
    assert found.gap > 1e6


def test_a_span_of_no_maps_has_no_gap():
    generator = seeded(3)
    span = torch.linalg.qr(torch.randn(24 * 9, 16, generator=generator, dtype=torch.float64))[0].mT
    taps = Taps.of(convolution(), (3, 3), (4, 4), (4, 4))
    assert maps_in_span(span.reshape(16, 24, 9), taps, 1).gap < 3


def test_patches_side_by_side_do_not_overlap():
    assert not Taps.of(convolution(padding=0), (1, 1), (4, 4), (4, 4)).overlap
    assert not Taps.of(convolution(stride=2, padding=0), (2, 2), (4, 4), (2, 2)).overlap
    assert Taps.of(convolution(), (3, 3), (4, 4), (4, 4)).overlap


@given(st.integers(0, 2), st.integers(1, 2), st.integers(1, 2), st.integers(4, 7))
def test_taps_cut_the_patches_that_unfold_cuts(padding, stride, dilation, side):
    layer = convolution(stride, padding, dilation)
    if output_side(side, layer, 3) < 1:
        return
    maps = rectified(2, 3, side)
    target = output_side(side, layer, 3)
    taps = Taps.of(layer, (3, 3), (side, side), (target, target))
    expected = nn.functional.unfold(maps, 3, dilation, padding, stride).mT.reshape(2, target**2, 3, 9)
    assert torch.equal(taps.cut(maps.flatten(2)), expected)


@pytest.mark.parametrize("count", [2, 4, 8])
def test_maps_behind_a_relu_are_told_apart_whatever_was_mixed(count):
    maps = rectified(count, 32, 4).flatten(2)
    mixing = torch.randn(count, count, generator=seeded(5), dtype=torch.float64)
    found = separate((mixing @ maps.flatten(1)).view_as(maps), precision=PRECISION, generator=seeded(0))
    assert found is not None
    flat = maps.flatten(1) / maps.flatten(1).norm(dim=1, keepdim=True)
    cosines = found.flatten(1) @ flat.mT
    assert sorted(cosines.argmax(dim=1).tolist()) == list(range(count))
    assert float(cosines.amax(dim=1).min()) > 1 - 1e-10


def test_maps_that_are_not_sparse_are_not_told_apart():
    dense = torch.randn(3, 16, 16, generator=seeded(0), dtype=torch.float64)
    assert separate(dense, precision=PRECISION, generator=seeded(0)) is None


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("count", [1, 3])
def test_gradient_and_cotangents_give_the_inputs_and_gradient_and_inputs_the_cotangents(count, stride):
    layer = convolution(stride)
    maps = rectified(count, 12, 6)
    gradient, cotangents, _, taps = spanned(layer, maps, outputs=120)
    inputs = solve_inputs(Equations(gradient, cotangents, taps))
    behind = solve_cotangents(gradient, maps.flatten(2), taps)
    assert inputs is not None
    assert behind is not None
    torch.testing.assert_close(inputs.value, maps.flatten(2), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(behind.value, cotangents, rtol=1e-8, atol=1e-8)
    assert max(inputs.residual, behind.residual) < 1e-10


def test_where_several_inputs_give_the_same_gradient_none_is_returned():
    maps = rectified(1, 4, 8)
    gradient, cotangents, _, taps = spanned(convolution(), maps, outputs=5)
    assert solve_inputs(Equations(gradient, cotangents, taps)) is None  # 45 equations for 64 positions
    assert solve_cotangents(gradient, maps.flatten(2), taps) is None


def test_two_convolutions_that_see_the_same_say_more_than_each_alone():
    maps = rectified(1, 4, 8)
    both = []
    for seed in (1, 2):
        gradient, cotangents, _, taps = spanned(convolution(), maps, outputs=5, seed=seed)
        both.append(Equations(gradient, cotangents, taps))
        assert solve_inputs(both[-1]) is None
    solved = solve_inputs(*both)
    assert solved is not None
    torch.testing.assert_close(solved.value, maps.flatten(2), rtol=1e-7, atol=1e-7)


def test_a_residual_tells_of_wrong_cotangents():
    maps = rectified(1, 12, 4)
    gradient, cotangents, _, taps = spanned(convolution(), maps, outputs=60)
    cotangents[0, 3, 5] = 0.0
    solved = solve_inputs(Equations(gradient, cotangents, taps))
    assert solved is not None
    assert solved.residual > 1e-4


@given(st.floats(1e-9, 1e-3))
def test_the_noise_floor_lies_between_errors_and_values(error):
    values = rectified(1, 8, 8, seed=7).flatten()
    values = torch.where((values > 0) & (values < 100 * error), 100 * error, values)
    noise = error * (2 * torch.rand(len(values), generator=seeded(1), dtype=torch.float64) - 1)
    floor = noise_floor(values + noise)
    assert torch.equal(values + noise > floor, values > 0)
