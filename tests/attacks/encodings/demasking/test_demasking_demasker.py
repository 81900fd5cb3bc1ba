"""Guessing signs: above chance on unseen images, soft and hard, saved and read again."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from encodings_support import fields
from leakgauge.attacks.budget import Budget
from leakgauge.attacks.encodings.algebra.whitening import centred
from leakgauge.attacks.encodings.demasking import Demasker, DemaskerTraining, UNet, load_demasker
from leakgauge.attacks.encodings.simulation import mixtures, train_network
from leakgauge.errors import InvalidCase, InvalidFile
from leakgauge.metrics.intervals import beyond_chance
from leakgauge.randomness import seeded

SMALL = DemaskerTraining(widths=(12, 16), budget=Budget(steps=40), batch_size=32, learning_rate=1e-2)


def landscapes(count: int, seed: int) -> torch.Tensor:
    """Smooth fields under a bright sky: images of a kind whose signs can be told from where they are."""
    sky = torch.linspace(0.35, -0.35, 8).view(1, 1, 8, 1)
    return (0.5 + 0.5 * (fields(count, seed=seed) - 0.5) + sky).clamp(0, 1).float()


@pytest.fixture(scope="module")
def demasker() -> Demasker:
    return SMALL(landscapes(300, 1), 2, generator=seeded(0, "training"))


def right_signs(demasker: Demasker) -> tuple[int, int]:
    """How many encodings of unseen images have most of their signs right, one trial for each encoding."""
    mixed = mixtures(landscapes(300, 2), 2, 100, generator=seeded(1)).images
    flips = torch.rand(mixed.shape, generator=seeded(2)) < 0.5
    guessed = demasker.encodings(torch.where(flips, 1 - mixed, mixed))
    share = ((guessed > 0.5) == (mixed > 0.5)).double().flatten(1).mean(dim=1)
    return int((share > 0.5).sum()), len(share)


def test_a_demasker_beats_chance_on_images_it_has_not_seen(demasker):
    hits, trials = right_signs(demasker)
    assert beyond_chance(hits, trials, 0.5) < 1e-6


def test_where_signs_are_fair_coins_nothing_is_learned():
    noise = torch.rand(300, 1, 8, 8, generator=seeded(3))
    demasker = SMALL(noise, 1, generator=seeded(0, "training"))
    fresh = torch.rand(200, 1, 8, 8, generator=seeded(4))
    right = ((demasker.encodings(fresh) > 0.5) == (fresh > 0.5)).double().mean()
    assert abs(float(right) - 0.5) < 4 * (0.25 / fresh.numel()) ** 0.5


def test_a_demasker_does_not_feel_the_mask(demasker):
    images = landscapes(20, 5)
    flips = torch.rand(images.shape, generator=seeded(6)) < 0.5
    torch.testing.assert_close(demasker.encodings(images), demasker.encodings(torch.where(flips, 1 - images, images)))


def test_hard_signs_keep_magnitudes_and_soft_ones_shrink_them_by_the_belief(demasker):
    images = landscapes(20, 5)
    soft, hard = (centred(view.encodings(images)) for view in (demasker, demasker.hard()))
    magnitudes, logits = centred(images).abs(), demasker.logits(images)
    torch.testing.assert_close(hard.abs(), magnitudes)
    torch.testing.assert_close(soft, magnitudes * (2 * torch.sigmoid(logits) - 1), atol=1e-6, rtol=1e-5)
    assert bool((soft.abs() <= magnitudes + 1e-6).all())


def test_steps_and_a_seed_give_the_same_network_again(demasker):
    again = SMALL(landscapes(300, 1), 2, generator=seeded(0, "training"))
    for name, value in again.network.state_dict().items():
        torch.testing.assert_close(value, demasker.network.state_dict()[name], msg=name)


def test_a_saved_demasker_is_the_same(demasker, tmp_path):
    demasker.save(tmp_path / "demasker.safetensors")
    read = load_demasker(tmp_path / "demasker.safetensors")
    images = landscapes(5, 7)
    torch.testing.assert_close(read.encodings(images), demasker.encodings(images), atol=0, rtol=0)
    assert read.facts == demasker.facts == {"channels": 1, "widths": [12, 16], "k": 2, "steps": 40}


def test_a_file_without_a_demasker_is_refused(tmp_path):
    save_file({"weight": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(InvalidFile, match="holds no demasker; write one with"):
        load_demasker(tmp_path / "other.safetensors")


@pytest.mark.parametrize("shape", [(8, 8), (7, 10), (5, 3)])
def test_images_of_any_size_have_a_logit_for_every_pixel(shape):
    assert UNet(3, (4, 6)).eval()(torch.rand(2, 3, *shape)).shape == (2, 3, *shape)


def test_training_tells_how_far_it_is_and_stops_at_its_budget():
    ticks = []
    small = DemaskerTraining(widths=(2,), budget=Budget(steps=5), batch_size=4)
    small(landscapes(10, 1), 2, generator=seeded(0), progress=ticks.append)
    assert [tick.step for tick in ticks] == [1, 2, 3, 4, 5]
    assert ticks[-1].fraction == 1.0
    small = DemaskerTraining(widths=(2,), budget=Budget(seconds=0.05), batch_size=4)
    assert small(landscapes(10, 1), 2, generator=seeded(0)).facts["steps"] >= 1


def test_a_training_without_meaning_is_refused():
    with pytest.raises(InvalidCase, match="at least one width"):
        DemaskerTraining(widths=())


def test_a_network_is_trained_for_its_budget_at_a_falling_rate_and_then_left_alone():
    network, target, ticks = torch.nn.Linear(1, 1), torch.tensor([[3.0]]), []

    def loss() -> torch.Tensor:
        return (network(torch.ones(1, 1)) - target).square().mean()

    before = float(loss().detach())
    assert train_network(network, loss, Budget(steps=200), 0.1, ticks.append) == 200
    assert [tick.fraction for tick in ticks] == pytest.approx([step / 200 for step in range(1, 201)])
    assert float(loss()) < 1e-2 * before
    assert not network.training
    assert not any(parameter.requires_grad for parameter in network.parameters())
