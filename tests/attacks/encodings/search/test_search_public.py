"""The search for public images: blocks do not matter, pursuit is exact where it can be, and nulls stay at chance."""

from __future__ import annotations

import weakref
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from encodings_support import fields, found, instahide, mixup, published
from leakgauge.attacks.encodings.algebra.whitening import (
    Laplacian,
    Magnitudes,
    PlainPixels,
    Squares,
    UnitLength,
    Whitened,
    centred,
)
from leakgauge.attacks.encodings.search.crops import AlignedSearch
from leakgauge.attacks.encodings.search.public_search import PublicPursuit, PublicSearch, Pursuit, pursue, remainder
from leakgauge.attacks.encodings.search.statistics import (
    Correlation,
    FourthMoment,
    MatchedFilter,
    blocks,
    score_pairs,
    score_rows,
    top_matches,
    whitened_squares,
)
from leakgauge.attacks.encodings.simulation import mixtures
from leakgauge.encodings import CrossDataset
from leakgauge.encodings.crops import Cropping
from leakgauge.errors import InvalidCase, MissingKnowledge
from leakgauge.metrics.intervals import beyond_chance
from leakgauge.randomness import seeded

PRIVATE, PUBLIC, AUXILIARY = fields(60, seed=1), fields(400, seed=2), fields(1500, seed=3)


def rows(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=seeded(seed, "rows"), dtype=torch.float64)


@settings(deadline=None, max_examples=40)
@given(
    candidates=st.integers(1, 40),
    size=st.integers(1, 50),
    share=st.floats(0, 1),
    score=st.sampled_from(["inner", "cosine", "absolute cosine"]),
    seed=st.integers(0, 999),
)
def test_the_ranking_does_not_depend_on_the_blocks(candidates, size, share, score, seed):
    queries, pool = rows(5, 7, seed=seed), rows(candidates, 7, seed=seed + 1000)
    most = 1 + int(share * (candidates - 1))
    lengths = 1 if score == "inner" else pool.norm(dim=1)
    full = queries @ pool.mT / lengths
    full = full.abs() if score == "absolute cosine" else full
    ranking = top_matches(queries, blocks(pool, size), most=most, score=score)
    torch.testing.assert_close(ranking.scores, full.sort(dim=1, descending=True).values[:, :most])
    torch.testing.assert_close(full.gather(1, ranking.indices), ranking.scores)


def test_candidates_may_come_one_block_at_a_time_and_are_not_kept():
    produced: list[weakref.ref[torch.Tensor]] = []

    def candidates():
        for seed in range(50):
            assert sum(block() is not None for block in produced) <= 1
            block = rows(10, 4, seed=seed)
            produced.append(weakref.ref(block))
            yield block

    whole = torch.cat([rows(10, 4, seed=seed) for seed in range(50)])
    ranking = top_matches(rows(3, 4, seed=99), candidates(), most=7)
    assert torch.equal(ranking.indices, top_matches(rows(3, 4, seed=99), [whole], most=7).indices)
    assert len(produced) == 50


def test_equal_candidates_rank_in_their_order_across_blocks():
    pool = torch.ones(6, 3)
    assert top_matches(torch.ones(1, 3), blocks(pool, 1), most=4).indices.tolist() == [[0, 1, 2, 3]]


@settings(deadline=None, max_examples=20)
@given(atoms=st.integers(1, 4), size=st.integers(1, 40), seed=st.integers(0, 999))
def test_pursuit_recovers_exact_combinations_of_orthogonal_candidates(atoms, size, seed):
    generator = seeded(seed, "pursuit")
    dictionary = torch.linalg.qr(rows(40, 30, seed=seed)).Q.mT * torch.arange(1, 31)[:, None]
    chosen = torch.stack([torch.randperm(30, generator=generator)[:atoms] for _ in range(6)])
    shares = torch.rand(6, atoms, generator=generator, dtype=torch.float64) + 0.2
    queries = torch.einsum("qa,qad->qd", shares, dictionary[chosen])
    result = pursue(queries, blocks(dictionary, size), atoms=atoms)
    order, wanted = result.indices.argsort(dim=1), chosen.argsort(dim=1)
    torch.testing.assert_close(result.indices.gather(1, order), chosen.gather(1, wanted))
    torch.testing.assert_close(result.coefficients.gather(1, order), shares.gather(1, wanted))


def test_pursuit_recovers_exact_combinations_of_incoherent_candidates_that_the_plain_ranking_misses():
    # 200 random directions in 64 dimensions; the second image's share is a tenth of the first's.
    dictionary, truth = rows(200, 64), torch.tensor([[3, 7, 11]])
    queries = torch.tensor([1.0, 0.3, 0.1]).double() @ dictionary[truth[0]]
    result = pursue(queries[None], blocks(dictionary, 50), atoms=3)
    assert set(result.indices[0].tolist()) == {3, 7, 11}
    assert set(top_matches(queries[None], [dictionary], most=3).indices[0].tolist()) != {3, 7, 11}


def test_whitening_finds_public_images_that_the_published_statistic_misses():
    observation, truth = published(mixup(), PRIVATE, PUBLIC, AUXILIARY)
    shares = {
        name: found(PublicSearch(Correlation(features), most=2)(observation, generator=seeded(0)).indices, truth, 2)
        for name, features in {"published": UnitLength(), "laplacian": Laplacian(), "whitened": Whitened()}.items()
    }
    assert shares["whitened"] > 0.6
    assert shares["published"] < shares["laplacian"] <= shares["whitened"]
    assert shares["published"] < shares["whitened"] - 0.2


def test_pursuit_finds_more_than_the_ranking_and_its_remainder_is_the_private_image():
    observation, truth = published(mixup(), PRIVATE, PUBLIC, AUXILIARY)
    result = PublicPursuit()(observation, generator=seeded(0))
    ranking = PublicSearch(most=2)(observation, generator=seeded(0))
    assert found(result.indices, truth, 2) >= found(ranking.indices, truth, 2)
    right = (result.indices.sort(dim=1).values == truth.sort(dim=1).values).all(dim=1)
    left = remainder(observation.encoded.images, PUBLIC, result)
    assert right.double().mean() > 0.7
    before = (observation.encoded.images - PRIVATE)[right].square().mean()
    assert (left - PRIVATE)[right].square().mean() < before / 4


def test_the_remainder_of_the_true_shares_is_exact():
    images = fields(3, seed=8)
    mixed = 0.5 * images[:1] + 0.3 * images[1:2] + 0.2 * images[2:]
    found_shares = Pursuit(torch.tensor([[1, 2]]), torch.tensor([[0.3, 0.2]]).double())
    torch.testing.assert_close(remainder(mixed, images, found_shares), images[:1])


@pytest.mark.parametrize(
    "statistic",
    [Correlation(UnitLength()), Correlation(), FourthMoment(), whitened_squares(encodings=500)],
    ids=["published", "whitened", "fourth moment", "whitened squares"],
)
@pytest.mark.parametrize("scheme", [mixup(), instahide()], ids=["mixup", "instahide"])
def test_images_that_are_not_in_an_encoding_are_found_by_chance_only(statistic, scheme):
    observation, truth = published(scheme, PRIVATE, PUBLIC, AUXILIARY)
    indices = PublicSearch(statistic, most=40)(observation, generator=seeded(0)).indices
    others = truth.roll(1, dims=0)  # what another encoding holds
    hits = int((indices[:, :, None] == others[:, None]).any(dim=1).sum())
    assert beyond_chance(hits, others.numel(), 40 / len(PUBLIC)) > 1e-3
    assert beyond_chance(others.numel() - hits, others.numel(), 1 - 40 / len(PUBLIC)) > 1e-3


def test_a_mask_hides_public_images_from_the_correlation_but_not_from_squares():
    observation, truth = published(instahide(2), PRIVATE, PUBLIC, AUXILIARY)
    blind = PublicSearch(most=4)(observation, generator=seeded(0)).indices
    seeing = PublicSearch(whitened_squares(0.1), most=4)(observation, generator=seeded(0)).indices
    assert found(blind, truth, 4) < 0.1
    assert found(seeing, truth, 4) > 0.5


@pytest.mark.parametrize("statistic", [FourthMoment(), whitened_squares(encodings=500), MatchedFilter(Magnitudes())])
def test_a_statistic_behind_the_mask_does_not_depend_on_the_mask(statistic):
    observation, _ = published(instahide(), PRIVATE, PUBLIC, AUXILIARY)
    images = observation.encoded.images
    flipped = torch.rand(images.shape, generator=seeded(5)) < 0.5
    other = replace(observation, encoded=replace(observation.encoded, images=torch.where(flipped, 1 - images, images)))
    one, two = (PublicSearch(statistic, most=10)(seen, generator=seeded(0)) for seen in (observation, other))
    torch.testing.assert_close(one.scores, two.scores)


def test_the_published_fourth_moment_is_its_formula():
    observation, _ = published(instahide(), PRIVATE, PUBLIC, None)
    ranking = PublicSearch(FourthMoment(), most=400)(observation, generator=seeded(0))
    x, s = centred(observation.encoded.images).flatten(1), centred(PUBLIC).flatten(1)
    formula = x.square() @ s.square().mT - x.square().sum(1)[:, None] * s.square().sum(1) / x.shape[1]
    torch.testing.assert_close(ranking.scores, formula.gather(1, ranking.indices))


def test_the_fourth_moment_is_unbiased_for_gaussian_images():
    # E v_s = 2 (d - 1) lam^2 v^2 for an image of the mixture and 0 for another, over images and masks.
    generator, d, lam, v, draws = seeded(0, "gauss"), 50, 0.6, 0.04, 40_000
    one, two, other = torch.randn(3, draws, d, generator=generator, dtype=torch.float64) * v**0.5
    signs = torch.where(torch.rand(draws, d, generator=generator) < 0.5, -1.0, 1.0)
    sides = FourthMoment().fit(None, generator=generator)
    mixed, inside, outside = (
        value.view(draws, 1, 1, d) / 2 + 0.5 for value in (signs * (lam * one + (1 - lam) * two), one, other)
    )
    values = [(sides.encodings(mixed) * sides.images(image)).sum(dim=1) for image in (inside, outside)]
    for value, expected in zip(values, (2 * (d - 1) * lam**2 * v**2, 0.0)):
        assert abs(float(value.mean()) - expected) < 4 * float(value.std()) / draws**0.5


def test_simulated_mixtures_are_what_their_coefficients_say():
    mixed = mixtures(AUXILIARY, 3, 20, generator=seeded(0))
    torch.testing.assert_close(
        mixed.images, torch.einsum("tk,tkchw->tchw", mixed.coefficients, AUXILIARY[mixed.indices])
    )
    torch.testing.assert_close(mixed.coefficients.sum(dim=1), torch.ones(20).double())


def test_crops_of_public_images_hide_them_from_aligned_search_but_trying_every_crop_finds_them():
    cropping = Cropping(margin=1)
    private, public, auxiliary = fields(20, 12, seed=4), fields(60, 12, seed=5), fields(600, 12, seed=6)
    cropped = cropping(public, generator=seeded(7))
    seen, truth = published(mixup(2), private, cropped, auxiliary)
    observation = replace(seen, public=public)
    statistic = Correlation(Laplacian())
    straight = PublicSearch(statistic, most=1)(observation, generator=seeded(0)).indices
    aligned = AlignedSearch(statistic, cropping, most=1)(observation, generator=seeded(0)).indices
    assert found(aligned, truth, 1) > 0.8
    assert found(straight, truth, 1) < found(aligned, truth, 1) - 0.3


def test_the_best_crops_of_what_was_found_are_those_that_were_mixed():
    cropping, private, public = Cropping(1), fields(10, 12, seed=4), fields(30, 12, seed=5)
    cropped = cropping(public, generator=seeded(7))
    observation, truth = published(mixup(3), private, cropped, fields(50, 12, seed=6))
    search = AlignedSearch(Correlation(Laplacian()), cropping)
    sides = search.statistic.fit(observation, generator=seeded(0))
    crops = search.best_crops(observation.encoded.images, public[truth], sides)
    right = torch.isclose(crops, cropped[truth]).flatten(2).all(dim=2)
    assert float(right.double().mean()) > 0.7  # one of 18 by chance; those mixed in with little stay in doubt


@pytest.mark.parametrize("score", ["inner", "cosine", "absolute cosine"])
def test_scores_of_rows_are_the_diagonal_of_those_of_pairs(score):
    left, right = rows(7, 5), rows(7, 5, seed=1)
    torch.testing.assert_close(score_rows(left, right, score), score_pairs(left, right, score).diagonal())


def test_every_crop_is_one_of_the_places_and_the_middle_one_is_the_image():
    images = fields(3, 6)
    crops = list(Cropping(1).every(images))
    assert len(crops) == len(Cropping(1).places) == 18
    torch.testing.assert_close(crops[4], images)
    torch.testing.assert_close(crops[9 + 4], images.flip(-1))
    drawn = Cropping(1)(images, generator=seeded(0))
    assert all(any(torch.equal(drawn[row], crop[row]) for crop in crops) for row in range(3))
    torch.testing.assert_close(Cropping(0, mirror=False)(images, generator=seeded(0)), images)


def test_a_search_reports_how_far_it_is():
    observation, _ = published(mixup(), PRIVATE, PUBLIC, AUXILIARY)
    ticks = []
    PublicSearch(Correlation(PlainPixels()), block=150)(observation, generator=seeded(0), progress=ticks.append)
    assert [tick.step for tick in ticks] == [150, 300, 400]
    assert ticks[-1].fraction == 1.0


@pytest.mark.parametrize(
    ("attack", "missing", "message"),
    [
        (PublicSearch(), "public", "give the attacker `public` images"),
        (PublicSearch(), "auxiliary", "give the attacker `auxiliary` images"),
        (PublicSearch(MatchedFilter(Squares())), "auxiliary", "give the attacker `auxiliary` images"),
        (PublicPursuit(), "public", "give the attacker `public` images"),
    ],
)
def test_an_attack_names_the_knowledge_it_lacks(attack, missing, message):
    observation, _ = published(mixup(), PRIVATE, PUBLIC, AUXILIARY)
    with pytest.raises(MissingKnowledge, match=message):
        attack(replace(observation, **{missing: None}), generator=seeded(0))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: top_matches(rows(1, 2), [rows(3, 2)], most=0), "most >= 1"),
        (lambda: top_matches(rows(1, 2), [rows(3, 2)], most=4), "There are 3 candidates, fewer than the 4"),
        (lambda: top_matches(rows(1, 2), [rows(3, 2)], most=1, score="dot"), "no score 'dot'; choose from inner"),
        (lambda: blocks(rows(3, 2), 0), "at least one row"),
        (lambda: pursue(rows(1, 5), [rows(2, 5)], atoms=3), "fewer than the atoms"),
        (lambda: mixtures(PUBLIC[:3], 3, 1, generator=seeded(0)), "need more than 3"),
        (lambda: Cropping(-1), "at least 0"),
        (lambda: Cropping(8)(PUBLIC, generator=seeded(0)), "lower it"),
        (lambda: MatchedFilter(encodings=1), "encodings >= 2"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(call, message):
    with pytest.raises(InvalidCase, match=message):
        call()


def test_two_private_images_and_public_ones_need_no_other_code():
    observation, truth = published(CrossDataset(4), PRIVATE, PUBLIC, AUXILIARY)
    assert PublicPursuit()(observation, generator=seeded(0)).indices.shape == truth.shape == (60, 2)
