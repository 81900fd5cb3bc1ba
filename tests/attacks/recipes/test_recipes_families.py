"""What decides on the composition for a model: where its layers say positions are, and what was done to the update."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from leakgauge.attacks.budget import Budget
from leakgauge.attacks.matching import LBFGS, Cosine, CosineByTensor
from leakgauge.attacks.matching.priors import Yielding
from leakgauge.attacks.recipes.families import family_of, hides_places, matching_recipe
from leakgauge.config import build_client
from leakgauge.data import Photos
from leakgauge.defences import GaussianNoise, NoDefence
from leakgauge.metrics import PSNR, align
from leakgauge.models import Compact, ConvNet, ResNet, build
from leakgauge.randomness import seeded

SHAPE = (3, 16, 16)
WIDTH, TOKENS = 24, 16


class Transformer(nn.Module):
    """A class token, patches of four pixels, one block; how positions are told is the spelling's."""

    def __init__(self, positions: str) -> None:
        super().__init__()
        self.positions, self.patches = positions, nn.Conv2d(3, WIDTH, 4, 4)
        self.first = nn.Parameter(torch.zeros(1, 1, WIDTH))
        if positions == "embedding":
            self.where = nn.Embedding(TOKENS + 1, WIDTH)
            nn.init.normal_(self.where.weight, std=0.02)
        elif positions in ("table", "long"):
            rows = TOKENS + 1 + 7 * (positions == "long")
            self.where = nn.Parameter(0.02 * torch.randn(1, rows, WIDTH))
        self.norm, self.attention = nn.LayerNorm(WIDTH), nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.head = nn.Linear(WIDTH, 7)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches((images - 0.5) / 0.25).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], dim=1)
        if self.positions == "embedding":
            x = x + self.where(torch.arange(TOKENS + 1))
        elif self.positions != "none":
            x = x + self.where[:, : TOKENS + 1]
        y = self.norm(x)
        return self.head((x + self.attention(y, y, y, need_weights=False)[0])[:, 0])


def _made(positions: str) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return Transformer(positions).eval()


@pytest.mark.parametrize(
    ("positions", "tables"),
    [("table", ("where",)), ("long", ("where",)), ("embedding", ("where.weight",)), ("none", ())],
)
def test_the_rows_of_a_position_embedding_are_found_however_it_is_written(positions, tables, attacked, examples):
    seen = attacked(_made(positions), examples(1, SHAPE))
    assert family_of(seen) == ("transformer" if tables else "smooth")
    recipe = matching_recipe(seen, "auto", Budget(steps=2))
    assert recipe.objective == CosineByTensor(tables)
    assert isinstance(recipe.optimiser, LBFGS)


@pytest.mark.parametrize(("frozen", "family"), [(True, "smooth"), (False, "switching")])
def test_switches_that_no_trained_parameter_moves_leave_an_update_smooth(frozen, family, attacked, examples):
    backbone = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.ReLU(), nn.Flatten()).requires_grad_(not frozen)
    assert family_of(attacked(nn.Sequential(backbone, nn.Linear(196, 5)), examples(1, SHAPE))) == family


def test_a_bias_for_each_channel_is_no_table_of_positions(attacked, examples):
    class Biased(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.bias = nn.Conv2d(3, 4, 3, bias=False), nn.Parameter(torch.zeros(1, 4, 1, 1))
            self.head = nn.Linear(4, 5)

        def forward(self, images: Tensor) -> Tensor:
            return self.head(torch.tanh(self.conv(images) + self.bias).mean((2, 3)))

    assert matching_recipe(attacked(Biased(), examples(1, SHAPE)), "auto", Budget(steps=2)).objective == (
        CosineByTensor()
    )


def averaging() -> nn.Module:
    """Kinked, without shortcuts, and its head reads means over the image."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        body = [nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        return nn.Sequential(*body, nn.Linear(16, 5)).eval()


@pytest.mark.parametrize(
    ("module", "hidden"),
    [
        (build(ConvNet(width=4), (3, 32, 32), 5, seed=0), False),
        (build(Compact(width=2), (3, 32, 32), 5, seed=0), False),
        (averaging(), True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_angles_are_matched_tensor_by_tensor_where_means_over_the_image_hide_places(module, hidden, attacked, examples):
    seen = attacked(module, examples(1, (3, 32, 32)))
    assert hides_places(seen) is hidden
    assert isinstance(matching_recipe(seen, "auto", Budget(steps=2)).objective, CosineByTensor) is hidden


def test_with_shortcuts_one_angle_is_matched_slowly_and_the_prior_follows(attacked, examples):
    model = build(ResNet(depth=20, base_width=4), (3, 32, 32), 5, seed=0)
    plain, noisy = (
        matching_recipe(attacked(model, examples(1, (3, 32, 32)), defence=one), "auto", Budget(steps=2))
        for one in (NoDefence(), GaussianNoise(0.1))
    )
    assert hides_places(attacked(model, examples(1, (3, 32, 32))))
    assert plain.objective == noisy.objective == Cosine()
    assert plain.priors == (Yielding(), *noisy.priors)
    assert plain.optimiser.learning_rate < noisy.optimiser.learning_rate / 3


def test_a_loss_of_values_is_asked_without_warnings(attacked, examples):
    """torch warns of a target of another size, which is ours and no fault of the user's."""
    seen = attacked(build(ResNet(depth=20, base_width=4), (3, 32, 32), 5, seed=0), examples(1, (3, 32, 32)))
    assert hides_places(replace(seen, learner=replace(seen.learner, loss=functional.mse_loss)))


def test_a_loss_that_takes_no_class_as_label_hides_no_places(attacked, examples):
    def lengths(scores: Tensor, targets: Tensor) -> Tensor:
        raise KeyError("lengths")

    seen = attacked(build(ConvNet(width=2), SHAPE, 5, seed=0), examples(1, SHAPE))
    assert not hides_places(replace(seen, learner=replace(seen.learner, loss=lengths)))


def test_of_a_noisy_update_or_a_large_batch_one_angle_is_matched(attacked, examples):
    shape = (3, 32, 32)
    model, budget = averaging(), Budget(steps=2)
    noisy = attacked(model, examples(1, shape), defence=GaussianNoise(0.1))
    large, small = (attacked(model, examples(count, shape)) for count in (4, 3))
    assert matching_recipe(noisy, "auto", budget).objective == Cosine()
    assert matching_recipe(large, "auto", budget).objective == Cosine()
    assert matching_recipe(small, "auto", budget).objective == CosineByTensor()


@pytest.mark.slow
@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_what_is_sent_in_half_precision_is_matched_like_what_is_not(half, attacked, examples):
    """Rounding errs in proportion and drowns no tensor, so that it is no reason to match one angle for all."""
    shape = (3, 32, 32)
    model, truth = averaging(), examples(1, shape)
    sent = attacked(model, truth, local_update=build_client(f"fedsgd+transport:dtype={half}"))
    plain = attacked(model, truth)
    assert [matching_recipe(one, "auto", Budget(steps=2)).objective for one in (sent, plain)] == [CosineByTensor()] * 2


# Measured when written: 17.2 and 11.0 dB.
@pytest.mark.slow
def test_patches_come_back_in_their_places_through_attention(attacked):
    """One angle over all tensors finds the patches, if at all, in another order."""
    truth = Photos(size=16)().test[:1]
    seen = attacked(_made("table"), truth)
    ours = matching_recipe(seen, "auto", Budget(steps=100))
    found = [one(seen, generator=seeded(0)) for one in (ours, replace(ours, objective=Cosine()))]
    scores = [float(PSNR()(align(one, truth)).mean()) for one in found]
    assert scores[0] > 15
    assert scores[0] > scores[1] + 4
