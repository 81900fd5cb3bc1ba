from __future__ import annotations

import pytest
import torch
from torch import Tensor

from leakgauge.metrics import Comparison, Identification, align, beyond_chance
from leakgauge.types import Batch, Outcome, Reconstruction

METRIC = Identification()
# A true claim of chance is rejected once in ten thousand seeds.
UNLIKELY = 1e-4


def draw(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.rand(*shape, 1, 3, 3, generator=generator)


def guesses(kind: str, count: int, generator: torch.Generator) -> Tensor:
    """Reconstructions that know nothing of the truth."""
    if kind == "constant":
        return torch.full((count, 1, 3, 3), 0.5)
    if kind == "same for all":
        return draw(1, generator=generator).repeat(count, 1, 1, 1)
    return draw(count, generator=generator)


@pytest.mark.parametrize("kind", ["constant", "same for all", "random"])
@pytest.mark.parametrize("distractors", [1, 4])
def test_a_reconstruction_independent_of_the_truth_hits_once_in_m_plus_one(kind: str, distractors: int) -> None:
    generator, trials = torch.Generator().manual_seed(0), 3000
    pool = draw(trials, distractors, generator=generator)
    blind = guesses(kind, trials, generator)
    comparison = Comparison(draw(trials, generator=generator), blind, pool, torch.zeros(trials), None)
    hits = int(METRIC(comparison).sum())
    assert METRIC.chance(comparison) == 1 / (distractors + 1)
    assert beyond_chance(hits, trials, METRIC.chance(comparison)) > UNLIKELY
    assert beyond_chance(trials - hits, trials, 1 - METRIC.chance(comparison)) > UNLIKELY


@pytest.mark.parametrize("kind", ["constant", "random"])
def test_matching_a_single_victim_leaves_chance_unchanged(kind: str) -> None:
    generator, trials, hits = torch.Generator().manual_seed(1), 1500, 0
    for _ in range(trials):
        comparison = blind_comparison(kind, victims=1, candidates=1, distractors=4, generator=generator)
        hits += int(METRIC(comparison).item())
    assert METRIC.chance_after_matching(comparison) == METRIC.chance(comparison) == 1 / 5
    assert beyond_chance(hits, trials, 1 / 5) > UNLIKELY


@pytest.mark.parametrize(("victims", "candidates"), [(4, 4), (4, 2), (1, 8), (2, 5)])
@pytest.mark.parametrize("per_victim", [False, True])
def test_matching_lifts_blind_guesses_above_chance_but_not_above_its_bound(
    victims: int, candidates: int, per_victim: bool
) -> None:
    generator, rates = torch.Generator().manual_seed(2), []
    for _ in range(400):
        comparison = blind_comparison("random", victims, candidates, 19, generator, per_victim=per_victim)
        rates.append(METRIC(comparison).nanmean())
    rate, error = float(torch.stack(rates).mean()), float(torch.stack(rates).std()) / len(rates) ** 0.5
    # The reason for `chance_after_matching`: pairing by the truth is itself a look at the truth.
    assert rate - 3 * error > METRIC.chance(comparison) == 1 / 20
    assert rate - 4 * error < METRIC.chance_after_matching(comparison) <= 1


def blind_comparison(
    kind: str, victims: int, candidates: int, distractors: int, generator: torch.Generator, per_victim: bool = False
) -> Comparison:
    truth = Batch(draw(victims, generator=generator), torch.zeros(victims))
    pool = draw(*((victims,) if per_victim else ()), distractors, generator=generator)
    return align(Reconstruction(guesses(kind, candidates, generator), None, Outcome.SOLVED), truth, pool)


def test_the_bound_after_matching_has_its_stated_form() -> None:
    generator = torch.Generator().manual_seed(0)
    shared = blind_comparison("random", 4, 4, 19, generator)
    surplus = blind_comparison("random", 4, 6, 19, generator)
    own = blind_comparison("random", 4, 4, 19, generator, per_victim=True)
    swamped = blind_comparison("random", 1, 50, 19, generator)
    paired = Comparison(shared.originals, shared.reconstructions, shared.distractors, shared.true_labels, None)
    bounds = [METRIC.chance_after_matching(case) for case in (shared, surplus, own, swamped, paired)]
    assert bounds == [4 / 23, 6 / 23, 4 / 20, 1.0, 1 / 20]


@pytest.mark.parametrize("side", [1, 3, 32])
def test_a_copy_of_the_original_among_the_distractors_is_a_tie_and_so_a_miss(side: int) -> None:
    generator = torch.Generator().manual_seed(0)
    truth = torch.rand(4, 3, side, side, generator=generator)
    guess = truth + 0.01 * torch.rand(truth.shape, generator=generator)
    others = 1 + torch.rand(40, 3, side, side, generator=generator)
    for distractors, score in ((others, 1.0), (torch.cat([others, truth]), 0.0)):
        assert METRIC(Comparison(truth, guess, distractors, torch.zeros(4), None)).tolist() == [score] * 4


def test_distractors_per_victim_are_not_shared() -> None:
    truth = torch.zeros(2, 1, 3, 3)
    guess = truth + 0.2
    pools = torch.stack([torch.full((3, 1, 3, 3), 0.2), torch.full((3, 1, 3, 3), 0.9)])
    assert METRIC(Comparison(truth, guess, pools, torch.zeros(2), None)).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("distractors", [None, torch.zeros(0, 1, 3, 3), torch.zeros(2, 0, 1, 3, 3)])
def test_without_distractors_there_is_neither_a_score_nor_a_chance(distractors: Tensor | None) -> None:
    truth = torch.zeros(2, 1, 3, 3)
    comparison = Comparison(truth, truth, distractors, torch.zeros(2), None, candidates=2)
    assert METRIC(comparison).isnan().all()
    assert METRIC.chance(comparison) != METRIC.chance(comparison)
    assert METRIC.chance_after_matching(comparison) != METRIC.chance_after_matching(comparison)
