"""What a p-value of one private example must do: certain where it is exact, uniform where it is chance."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats
from torch import Tensor

from leakgauge.metrics.evidence import rank_or_margin, tail_exponent, weigh_evidence
from leakgauge.space import Categorical, Continuous, ImageSpace, TableSpace

SPACE = ImageSpace(3, 8, 8)


def scenes(count: int, *, seed: int = 0, space: ImageSpace = SPACE) -> Tensor:
    """Random images with the spectrum of natural ones, 1 / f."""
    generator = torch.Generator().manual_seed(seed)
    waves = torch.fft.rfft2(torch.randn(count, *space.shape, generator=generator))
    rows, columns = torch.fft.fftfreq(space.height)[:, None], torch.fft.rfftfreq(space.width)
    images = torch.fft.irfft2(waves / (rows**2 + columns**2).sqrt().clamp_min(1 / space.height), s=space.shape[1:])
    return (0.5 + 0.2 * images / images.std()).clamp(0, 1)


@pytest.mark.parametrize(
    "change",
    [
        lambda image: image,
        lambda image: image.flip(-1),
        lambda image: 0.5 * image + 0.25,
        lambda image: 1.5 * image,  # not even within the pixel range
        lambda image: image.double(),
    ],
    ids=["itself", "mirrored", "half the contrast", "brighter", "in float64"],
)
@pytest.mark.parametrize("strangers", [5, 99])
def test_an_exact_match_is_nearly_certain_in_any_crowd(change, strangers: int) -> None:
    images = scenes(strangers + 4)
    found = weigh_evidence(change(images[1:2]), images[:4], images[4:], SPACE)
    assert found.p[1] < 1e-12
    assert all(p > 0.05 for place, p in enumerate(found.p) if place != 1)
    assert found.nearest == (-1, 0, -1, -1)


@pytest.mark.parametrize(("count", "nearest"), [(0, -1), (1, 0), (7, 0)])
def test_any_number_of_candidates_is_judged(count: int, nearest: int) -> None:
    images = scenes(60)
    noise = torch.rand(7, *SPACE.shape, generator=torch.Generator().manual_seed(1))
    candidates = torch.cat([images[:1], noise])[:count]
    found = weigh_evidence(candidates, images[:3], images[3:], SPACE)
    assert len(found.p) == 3
    assert (found.p[0] < 1e-9, found.nearest[0]) == (count > 0, nearest)


def test_what_is_not_a_number_or_has_diverged_is_no_evidence() -> None:
    images = scenes(40)
    for value in (math.nan, math.inf, 1e30):
        assert min(weigh_evidence(torch.full((2, *SPACE.shape), value), images[:2], images[2:], SPACE).p) > 0.02
    broken = torch.cat([torch.full((1, *SPACE.shape), math.nan), images[:1]])
    assert weigh_evidence(broken, images[:1], images[2:], SPACE).nearest == (1,)


def test_a_stranger_that_is_a_copy_of_the_original_hides_it() -> None:
    images = scenes(40)
    assert weigh_evidence(images[:1], images[:1], images, SPACE).p[0] >= 2 * 2 / 41
    assert weigh_evidence(images[:1], images[:1], images.flip(-1), SPACE).p[0] >= 2 * 2 / 41


def test_a_copy_of_one_original_says_nothing_of_another_that_resembles_it_and_everything_of_its_twin() -> None:
    images = scenes(100)
    twin, alike = images[0], 0.8 * images[0] + 0.2 * images[1]
    originals = torch.stack([images[0], twin, alike])
    p = weigh_evidence(images[:1], originals, images[2:], SPACE).p
    assert p[0] == p[1] < 1e-12
    assert p[2] == 1


def test_paired_rows_are_judged_by_their_own_candidate_and_crowds_may_be_their_own() -> None:
    images = scenes(120)
    originals, crowd = images[:3], images[3:]
    straight = weigh_evidence(originals, originals, crowd, SPACE, paired=True)
    crossed = weigh_evidence(originals.roll(1, 0), originals, crowd, SPACE, paired=True)
    assert max(straight.p) < 1e-12
    assert min(crossed.p) > 0.02
    assert straight.nearest == (0, 1, 2)
    per_victim = torch.stack([crowd[:30], crowd[30:60], originals.repeat(10, 1, 1, 1)])
    own = weigh_evidence(originals, originals, per_victim, SPACE, paired=True)
    assert [p < 1e-9 for p in own.p] == [True, True, False]


def test_without_strangers_there_is_no_evidence() -> None:
    images = scenes(2)
    assert weigh_evidence(images, images, images[:0], SPACE).p == ()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["noise", "scene", "blurred", "mean", "constant"])
def test_candidates_that_know_nothing_are_found_no_more_often_than_chance_says(kind: str) -> None:
    trials, strangers, hits = 120, 40, 0
    images = scenes(3000, seed=3)
    generator = torch.Generator().manual_seed(5)
    noise = torch.rand(trials, *SPACE.shape, generator=generator)
    known = {
        "noise": noise,
        "scene": images[-trials:],
        "blurred": torch.nn.functional.avg_pool2d(images[-trials:], 3, 1, 1),
        "mean": images.mean(dim=0).expand(trials, -1, -1, -1) + 0.01 * noise,
        "constant": noise[:, :, :1, :1].expand(-1, -1, 8, 8),
    }
    for trial in range(trials):
        victim, *crowd = torch.randperm(len(images) - trials, generator=generator)[: strangers + 1].tolist()
        hits += weigh_evidence(known[kind][trial][None], images[victim][None], images[crowd], SPACE).p[0] <= 0.05
    assert stats.binomtest(hits, trials, 0.05, alternative="greater").pvalue > 0.01


def test_the_tail_of_a_power_law_is_extrapolated_as_it_is_drawn() -> None:
    """P(d < t) = t^3: the nearest of 99 strangers lies near 0.215; half as far is eight times as unlikely."""
    generator = torch.Generator().manual_seed(0)
    crowd = torch.rand(9999, generator=generator, dtype=torch.float64).pow(1 / 3).sort().values
    exponent = tail_exponent(crowd)
    assert 2.7 < exponent < 3
    nearest = float(crowd[0])
    assert rank_or_margin(nearest / 2, crowd, exponent) == pytest.approx(0.5**exponent / 10000)
    assert rank_or_margin(nearest, crowd, exponent) == pytest.approx(2 / 10000)
    assert rank_or_margin(2.0, crowd, exponent) == 1
    copies = crowd[:50].repeat_interleave(200)
    assert tail_exponent(copies) < exponent  # fifty values, however often each is copied


CATEGORIES = TableSpace(tuple(Categorical(name, ("a", "b", "c")) for name in "vwxyz"))
NUMBERS = TableSpace((*(Continuous(name, 0.0, 1.0) for name in "vwxyz"), Categorical("kind", ("a", "b"))))


@pytest.mark.parametrize("space", [CATEGORIES, NUMBERS], ids=["categories", "numbers"])
def test_rows_are_judged_by_their_rank_and_by_their_margin_only_where_they_hold_numbers(space: TableSpace) -> None:
    generator = torch.Generator().manual_seed(2)
    rows = space.decode(torch.rand(700, *space.shape, generator=generator)).unique(dim=0)[:200]
    p = weigh_evidence(rows[:1], rows[:2], rows[2:], space).p
    assert p[1] == 1
    # Categories match by chance alone: the exact match of one of 199 is as rare as its rank, and no rarer.
    assert p[0] == pytest.approx(1 / 199) if space is CATEGORIES else p[0] < 1e-12


@pytest.mark.parametrize("across", [2, 6])
def test_a_picture_that_came_back_displaced_has_come_back(across: int) -> None:
    space = ImageSpace(3, 24, 24)
    images = scenes(240, space=space)
    moved = images[:8].roll((3, across), dims=(2, 3))
    found, null = (weigh_evidence(moved, images[at : at + 8], images[16:], space).p for at in (0, 8))
    assert max(found) < 0.05 / 8
    assert min(null) > 0.05 / 8
