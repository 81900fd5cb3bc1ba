"""The row space of a wide layer's gradient is the span of its inputs, and how far noise lets it be believed."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from span_support import SHAPE, patches, photographs, wide
from torch import nn

from leakgauge.attacks.span.layer_spans import affine_layers, believe, layer_spans, rank_rule
from leakgauge.models import build
from leakgauge.models.resnet import ResNet
from leakgauge.protocol import learner_and_state
from leakgauge.randomness import seeded
from leakgauge.space import ImageSpace


def made(module, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return module().eval()


def spans_of(seen):
    count = seen.num_examples
    return {
        span.layer.weight: span
        for span in layer_spans(seen, affine_layers(seen.learner, seen.state, seen.space, count, seen.labels))
    }


@pytest.mark.parametrize("places", [(0,), (0, 9, 18)], ids=["one image", "three images"])
def test_the_row_space_of_a_gradient_is_the_span_of_the_private_patches(places, attacked):
    module, batch = made(wide), photographs(*places)
    span = spans_of(attacked(module, batch))["4.weight"]
    with torch.no_grad():
        rows = patches(module[4], module[:4](batch.inputs)).double()
    assert span.rank == 16 * len(places) == torch.linalg.matrix_rank(rows)
    outside = rows - rows @ span.directions[0].mT @ span.directions[0]
    assert float(outside.norm() / rows.norm()) < 1e-5
    assert float(span.weights.min()) > 0.999
    assert span.gap > 100


def test_a_scale_and_a_sign_leave_the_span_as_it_is(attacked):
    seen = attacked(made(wide), photographs(0))
    other = replace(seen, update=replace(seen.update, params={k: -3 * v for k, v in seen.update.params.items()}))
    one, two = (spans_of(x)["4.weight"].directions[0] for x in (seen, other))
    assert float((one @ two.mT).det().abs()) == pytest.approx(1, abs=1e-6)


def layers_of(module, count=1, shape=SHAPE):
    learner, state = learner_and_state(module)
    return {layer.weight: layer for layer in affine_layers(learner, state, ImageSpace(*shape), count)}


def test_layers_qualify_by_positions_and_width():
    one, five = layers_of(made(wide)), layers_of(made(wide), 5)
    assert [name for name, layer in one.items() if layer.qualifies] == ["2.weight", "4.weight", "8.weight"]
    assert one["4.weight"].positions == 16
    assert rank_rule(16, 64, 216) == 3
    assert not five["2.weight"].qualifies  # 80 positions, 64 channels
    assert five["4.weight"].qualifies  # 96


def test_positions_that_a_pool_drops_do_not_count():
    module = nn.Sequential(nn.Conv2d(3, 40, 3, stride=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(40, 5))
    layer = layers_of(made(lambda: module))["0.weight"]  # a 3 x 3 map, of which the pool sees 2 x 2
    assert layer.masks[0].tolist() == [[[True, True, False], [True, True, False], [False, False, False]]]


def test_behind_an_average_cotangents_are_all_the_same_and_nothing_is_spanned():
    module = nn.Sequential(nn.Conv2d(3, 99, 3, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(99, 5))
    layer = layers_of(made(lambda: module))["0.weight"]
    assert layer.positions == 9 < min(layer.outputs, layer.inputs)
    assert not layer.qualifies


def test_each_group_of_channels_spans_its_own_inputs(attacked):
    def grouped():
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(8, 40, 3, stride=2, padding=1, groups=2), nn.ReLU(), nn.Flatten(), nn.Linear(160, 5),
        )  # fmt: skip

    module, batch = made(grouped), photographs(3)
    span = spans_of(attacked(module, batch))["2.weight"]
    with torch.no_grad():
        halves = module[:2](batch.inputs).chunk(2, dim=1)
    for directions, half in zip(span.directions, halves, strict=True):
        rows = patches(module[2], half).double()
        assert float((rows - rows @ directions.mT @ directions).norm() / rows.norm()) < 1e-5


def test_a_layer_used_twice_has_the_positions_of_both_uses():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.again, self.head = nn.Linear(192, 30), nn.Linear(30, 30), nn.Linear(30, 5)

        def forward(self, images):
            values = torch.relu(self.first(images.flatten(1)))
            return self.head(torch.relu(self.again(torch.relu(self.again(values)))))

    assert layers_of(made(Twice), 2)["again.weight"].positions == 4


def test_a_narrow_residual_network_has_no_layer_that_qualifies_but_the_classifier():
    module = build(ResNet(depth=8, base_width=16), (3, 32, 32), 10, seed=0)
    found = layers_of(module, 2, (3, 32, 32))
    assert [name for name, layer in found.items() if layer.qualifies] == ["head.weight"]


def test_the_belief_in_a_direction_is_its_overlap_with_the_one_without_noise():
    """Three directions in a 60 x 90 matrix of unit noise: strong, moderate, lost."""
    generator = seeded(0)
    left, right = (torch.linalg.qr(torch.randn(n, 3, generator=generator).double()).Q for n in (60, 90))
    sizes = torch.tensor([100.0, 20.0, 1.0]).double()
    overlaps, beliefs = [], []
    for _ in range(20):
        noisy = left * sizes @ right.mT + torch.randn(60, 90, generator=generator).double()
        _, spectrum, rows = torch.linalg.svd(noisy)
        overlaps.append((rows[:3] * right.mT).sum(dim=1).square())
        beliefs.append(believe(spectrum, 3, 60, 90))
    overlap, belief = torch.stack(overlaps).mean(dim=0), torch.stack(beliefs).mean(dim=0)
    assert torch.allclose(belief[:2], overlap[:2], atol=0.02)
    assert float(belief[2]) < 0.3
    assert list(belief) == sorted(belief, reverse=True)


def test_belief_falls_as_noise_grows():
    spectrum = torch.tensor([9.0, 7.0, 6.0, 0.0, 0.0]).double()
    beliefs = [
        believe(spectrum + torch.tensor([0, 0, 0, size, size]).double(), 3, 5, 40) for size in (1e-6, 0.1, 1.0, 3.0)
    ]
    for stronger, weaker in pairwise(beliefs):
        assert bool((weaker < stronger).all())
    assert float(beliefs[0].min()) == pytest.approx(1)
