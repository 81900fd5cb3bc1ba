"""Priors that look at the model and at the other restarts: BatchNorm statistics, group consistency, registration."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from leakgauge.attacks.matching import (
    Adam,
    AnisotropicTotalVariation,
    BatchNormStatistics,
    Budget,
    GradientMatching,
    GroupConsistency,
    PixelNorm,
    Starting,
    TotalVariation,
)
from leakgauge.attacks.matching.priors import Absent, SideBySide, SignedTotalVariation, bind_all
from leakgauge.attacks.matching.priors.images import register, roll, shifts
from leakgauge.models import Compact, ConvNet, build
from leakgauge.randomness import seeded
from leakgauge.types import Batch

SHAPE = (3, 9, 9)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=seeded(seed, "noise"), dtype=torch.float64)


def client(attacked, examples, *, threat_model="strongest", mode="train", seed=0):
    module = build(ConvNet(width=2), SHAPE, 5, seed=0).double()
    batch = examples(3, SHAPE, seed=seed, dtype=torch.float64)
    return attacked(module, batch, threat_model=threat_model, mode=mode), batch


# Total variation


@pytest.mark.parametrize("prior", [TotalVariation(1.0, 0.0), AnisotropicTotalVariation(1.0), SignedTotalVariation()])
@pytest.mark.parametrize("shape", [(1, 5), (5, 1), (1, 1)])
def test_images_one_pixel_high_or_wide_have_a_finite_variation(prior, shape):
    images = noise(2, 3, 1, *shape).requires_grad_()
    penalty = prior(images)
    assert bool(torch.isfinite(penalty).all())
    assert bool(torch.isfinite(torch.autograd.grad(penalty.sum(), images)[0]).all())


# BatchNorm statistics


def test_the_private_batch_has_its_own_statistics_and_another_batch_has_not(attacked, examples):
    seen, batch = client(attacked, examples)
    penalty = BatchNormStatistics().bind(seen)(torch.stack([batch.inputs, noise(3, *SHAPE)]))
    assert float(penalty[0]) == 0
    assert float(penalty[1]) > 1e-2


class TwoNorms(nn.Module):
    """The second-named layer runs first."""

    def __init__(self) -> None:
        super().__init__()
        self.late, self.early = nn.BatchNorm2d(3), nn.BatchNorm2d(3)
        self.head = nn.Linear(192, 5)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.late(2 * self.early(images)).flatten(1))


@pytest.mark.parametrize("first", [1.0, 10.0])
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_the_penalty_is_the_distance_from_the_running_statistics_computed_by_hand(first, mode, attacked, examples):
    module = TwoNorms().double()
    for norm, mean, variance in ((module.early, 0.25, 0.5), (module.late, -1.0, 2.0)):
        norm.running_mean.fill_(mean)
        norm.running_var.fill_(variance)
    seen = attacked(module, examples(2, dtype=torch.float64), threat_model="informed", mode=mode)
    images = noise(2, 2, 3, 8, 8)
    found = BatchNormStatistics(weight=0.5, first=first).bind(seen)(images)
    for row, candidate in zip(found, images):
        mean, variance = candidate.mean(dim=(0, 2, 3)), candidate.var(dim=(0, 2, 3), unbiased=False)
        early = (mean - 0.25).norm() + (variance - 0.5).norm()
        # What the first layer lets through: whitened by the batch itself in train mode, by the running values in eval.
        centre, spread = (mean, variance) if mode == "train" else (0.25, 0.5)
        mean, variance = 2 * (mean - centre) / (spread + 1e-5) ** 0.5, 4 * variance / (spread + 1e-5)
        late = (mean + 1.0).norm() + (variance - 2.0).norm()
        assert float(row) == pytest.approx(0.5 * float(first * early + late), rel=1e-9)


def test_exact_statistics_go_before_running_ones(attacked, examples):
    told, batch = client(attacked, examples)
    untold, _ = client(attacked, examples, threat_model="informed")
    assert untold.batch_norm.statistics is None
    assert float(BatchNormStatistics().bind(told)(batch.inputs[None])) == 0
    assert float(BatchNormStatistics().bind(untold)(batch.inputs[None])) > 1


@pytest.mark.parametrize("threat_model", ["strongest", "informed"])
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_the_slope_of_the_statistics_is_finite_even_where_they_agree(threat_model, mode, attacked, examples):
    seen, batch = client(attacked, examples, threat_model=threat_model, mode=mode)
    images = torch.stack([batch.inputs, noise(3, *SHAPE)]).requires_grad_()
    (slope,) = torch.autograd.grad(BatchNormStatistics().bind(seen)(images).sum(), images)
    assert bool(slope.isfinite().all())
    assert float(slope[1].abs().max()) > 0
    if threat_model == "strongest" and mode == "train":
        assert float(slope[0].abs().max()) == 0


def test_following_the_statistics_downhill_brings_them_nearer(attacked, examples):
    seen, _ = client(attacked, examples)
    prior = BatchNormStatistics().bind(seen)
    images = noise(2, 3, *SHAPE).requires_grad_()
    before = prior(images)
    (slope,) = torch.autograd.grad(before.sum(), images)
    assert bool((prior(images.detach() - 1e-3 * slope) < before).all())


def test_binding_and_evaluating_changes_neither_model_nor_observation(attacked, examples, bits):
    seen, batch = client(attacked, examples)
    before = bits(seen, seen.learner.module)
    BatchNormStatistics().bind(seen)(batch.inputs[None])
    assert bits(seen, seen.learner.module) == before


class Untracked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.BatchNorm2d(3, track_running_stats=False), nn.Linear(192, 5)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.norm(images).flatten(1))


@pytest.mark.parametrize("module", [build(Compact(width=3), (3, 8, 8), 5, seed=0), Untracked()], ids=["none", "kept"])
def test_without_statistics_to_compare_with_the_prior_is_never_in_force(module, attacked, examples):
    seen = attacked(module, examples(2), threat_model="informed")
    bound = BatchNormStatistics(1e6).bind(seen)
    assert bound == Absent()
    assert bound.at(1.0) is None
    with_prior, without = (
        GradientMatching(priors=priors, optimiser=Adam(0.05), budget=Budget(steps=3))(seen, generator=seeded(0))
        for priors in ((Starting(BatchNormStatistics(1e6), 0.0), TotalVariation()), (TotalVariation(),))
    )
    assert torch.equal(with_prior.inputs, without.inputs)
    assert with_prior.facts == without.facts


def test_a_model_that_is_itself_a_norm_is_read_by_its_bare_names(attacked, examples):
    class Scores(nn.BatchNorm2d):
        def forward(self, images: Tensor) -> Tensor:
            return super().forward(images).mean(dim=(2, 3))

    module = Scores(3)
    module.running_mean.fill_(0.5)
    seen = attacked(module, Batch(examples(2).inputs, torch.tensor([0, 1])))
    flat = torch.full((1, 2, 3, 8, 8), 0.5)
    assert float(BatchNormStatistics().bind(seen)(flat)) == pytest.approx(3**0.5)


# Registration


@settings(deadline=None, max_examples=40)
@given(
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    down=st.integers(-9, 9),
    right=st.integers(-9, 9),
    seed=st.integers(0, 999),
)
def test_a_circular_shift_is_found_and_undone(height, width, down, right, seed):
    target = noise(2, 3, height, width, seed=seed)
    moved = torch.roll(target, (down, right), dims=(-2, -1))
    back = shifts(moved, target)
    assert back.tolist() == [[-down % height, -right % width]] * 2
    assert torch.equal(register(moved, target), target)


def test_each_image_has_its_own_shift():
    images = noise(2, 2, 3, 5, 6)
    by = torch.tensor([[[0, 0], [1, 2]], [[4, 5], [3, 0]]])
    found = roll(images, by)
    for row, image in itertools.product(range(2), range(2)):
        expected = torch.roll(images[row, image], by[row, image].tolist(), dims=(-2, -1))
        assert torch.equal(found[row, image], expected)


def test_registration_is_the_nearest_of_all_shifts():
    moving, target = noise(4, 3, 4, 5, seed=1), noise(4, 3, 4, 5, seed=2)
    every = torch.stack([torch.roll(moving, shift, dims=(-2, -1)) for shift in itertools.product(range(4), range(5))])
    nearest = (every - target).square().sum(dim=(2, 3, 4)).min(dim=0).values
    found = (register(moving, target) - target).square().sum(dim=(1, 2, 3))
    torch.testing.assert_close(found, nearest)


# Group consistency


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("restarts", [1, 4])
def test_restarts_that_agree_pay_nothing_and_are_not_moved(restarts, lazy):
    images = noise(1, 2, *SHAPE).repeat(restarts, 1, 1, 1, 1).requires_grad_()
    penalty = GroupConsistency(3.0, registered=not lazy)(images)
    assert penalty.shape == (restarts,)
    assert penalty.tolist() == [0.0] * restarts
    (slope,) = torch.autograd.grad(penalty.sum(), images)
    assert float(slope.abs().max()) == 0


def test_the_lazy_penalty_is_the_distance_from_the_mean():
    images = torch.zeros(2, 1, 1, 2, 2)
    images[1] = 1.0
    # Each is 0.5 away from the mean in 4 pixels.
    assert GroupConsistency(3.0, registered=False)(images).tolist() == [3.0, 3.0]


def test_the_mean_is_where_a_restart_is_pulled_and_the_others_do_not_answer_for_it():
    images = noise(3, 2, *SHAPE).requires_grad_()
    penalty = GroupConsistency(1.0, registered=False)(images)
    (slope,) = torch.autograd.grad(penalty[0], images)
    away = (images[0] - images.mean(dim=0)).detach()
    torch.testing.assert_close(slope[0], away / away.norm())
    assert float(slope[1:].abs().max()) == 0


def test_registration_keeps_shifted_restarts_from_blurring_the_consensus():
    image = noise(1, *SHAPE)
    shifted = torch.stack([image, image, image, torch.roll(image, (2, 3), dims=(-2, -1))])
    with_shift, lazy = (GroupConsistency(1.0, registered=flag)(shifted) for flag in (True, False))
    # The three agree with the registered consensus exactly; the fourth is as far from it as from them.
    assert float(with_shift[:3].max()) < 1e-12
    assert float(with_shift[3]) == pytest.approx(float((shifted[3] - image).norm()))
    assert float(lazy[:3].min()) > 0.1


def test_a_group_that_outweighs_the_update_becomes_one_image(attacked, examples):
    module = build(Compact(width=3), (3, 8, 8), 5, seed=0).double()
    seen = attacked(module, examples(1, dtype=torch.float64))
    spread = {}
    for weight in (0.0, 100.0):
        attack = GradientMatching(
            priors=(GroupConsistency(weight, after=0.5),), optimiser=Adam(0.02), restarts=3, budget=Budget(steps=40)
        )
        search = attack.search([seen], generator=seeded(0))
        search.run()
        spread[weight] = float(search.state.candidate.std(dim=0).mean())
    assert spread[100.0] < 0.2 * spread[0.0]


def test_registration_begins_when_its_share_of_the_budget_is_spent():
    prior = GroupConsistency(0.5, after=0.25)
    assert prior.at(0.2) == GroupConsistency(0.5, registered=False, after=0.25)
    assert prior.at(0.25) == prior
    lazy = GroupConsistency(0.5, registered=False)
    assert lazy.at(0.0) == lazy.at(1.0) == lazy


# Several victims


def test_victims_attacked_together_keep_their_own_statistics_and_groups(attacked, examples):
    seen = [client(attacked, examples, seed=seed) for seed in (0, 1)]
    observations = [observation for observation, _ in seen]
    rows = torch.stack([batch.inputs for _, batch in seen]).repeat_interleave(2, dim=0)
    statistics = bind_all(BatchNormStatistics(), observations)
    assert statistics(rows).tolist() == [0.0] * 4
    assert float(statistics(rows.flip(0)).min()) > 1e-3
    assert float(bind_all(GroupConsistency(), observations)(rows).max()) < 1e-12
    assert bind_all(PixelNorm(), observations[:1]) == PixelNorm()


def test_priors_side_by_side_come_into_force_each_in_its_time():
    early, late = PixelNorm(1.0), Starting(PixelNorm(2.0), 0.5)
    both = SideBySide((early, late))
    assert both.at(0.0) == SideBySide((early, Absent()))
    assert both.at(0.5) == SideBySide((early, PixelNorm(2.0)))
    assert SideBySide((late, late)).at(0.0) is None
    images = torch.ones(4, 1, 1, 2, 2)
    assert both.at(0.0)(images).tolist() == [0.25, 0.25, 0.0, 0.0]
    assert both.at(0.5)(images).tolist() == [0.25, 0.25, 0.5, 0.5]


def test_an_unbound_prior_on_statistics_says_what_is_missing():
    with pytest.raises(NotImplementedError, match="bind it first"):
        BatchNormStatistics()(torch.zeros(1, 1, 3, 8, 8))


def test_the_prior_is_its_configuration_only(attacked, examples):
    seen, _ = client(attacked, examples)
    prior = BatchNormStatistics(0.1, first=10.0)
    assert repr(prior) == "BatchNormStatistics(weight=0.1, first=10.0)"
    prior.bind(seen)
    assert prior == replace(prior)
    assert hash(prior) == hash(BatchNormStatistics(0.1, 10.0))
