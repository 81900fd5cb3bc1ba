"""Studies: what they publish, that their nulls are at chance, and that scores mean what they say."""

from __future__ import annotations

from dataclasses import fields as parts

import pytest
import torch
from measures_support import compare_pairs, recover_from_one, similarities

from encodings_support import area, fields
from leakgauge.attacks.encodings.algebra.whitening import AsPublished, Magnitudes, UnitLength, Whitened, centred
from leakgauge.attacks.encodings.demasking import Demasker, UNet
from leakgauge.attacks.encodings.search.public_search import PublicPursuit, PublicSearch
from leakgauge.attacks.encodings.search.statistics import Correlation
from leakgauge.encodings import CrossDataset, InsideDataset, Mixup
from leakgauge.encodings.crops import Cropping
from leakgauge.errors import InvalidCase
from leakgauge.metrics.intervals import beyond_chance
from leakgauge.reproduce.measures.averaging import average_encryptions
from leakgauge.reproduce.measures.pools import Deployment, Pools, publish
from leakgauge.reproduce.measures.recovery import Judge, identified
from leakgauge.reproduce.measures.searching import (
    attacks_by_similarity,
    attacks_on_instahide,
    attacks_on_mixup,
    hit_members,
    search_public_images,
)
from leakgauge.types import Batch

POOLS = Pools(Batch(fields(80, seed=31), torch.arange(80) % 5), fields(300, seed=32), fields(900, seed=33))


def test_a_publication_is_the_mixture_its_truth_says():
    publication = publish(Mixup(3, public=2), POOLS, 20, seed=0, copies=2)
    everything = torch.cat([publication.private.inputs, POOLS.public])
    torch.testing.assert_close(publication.observation.encoded.images, publication.mixing.mix(everything))
    assert publication.members.shape == (40, 2)
    assert publication.anchors.tolist() == [*range(20), *range(20)]


def test_another_seed_publishes_other_images_and_the_same_seed_the_same():
    one, same, other = (publish(InsideDataset(3), POOLS, 20, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one.observation.encoded.images, same.observation.encoded.images)
    assert not torch.equal(one.private.inputs, other.private.inputs)
    assert one.observation.public is None


def test_a_deployment_rounds_crops_and_hides_that_it_did():
    cropped = Deployment(public_crops=Cropping(1), private_crops=Cropping(1), levels=256)
    publication = publish(CrossDataset(4), POOLS, 20, seed=0, deployment=cropped)
    images = publication.observation.encoded.images * 255
    torch.testing.assert_close(images, images.round())
    assert publication.observation.public is POOLS.public
    straight = publish(CrossDataset(4), POOLS, 20, seed=0, deployment=Deployment(levels=256))
    everything = torch.cat([straight.private.inputs, POOLS.public])
    mixed, seen = straight.mixing.mix(everything), straight.observation.encoded.images
    torch.testing.assert_close(centred(seen).abs(), centred(mixed).abs(), atol=1.1 / 255, rtol=0)


def test_a_search_finds_what_is_there_and_its_null_is_at_chance():
    attacks = {
        "published": PublicSearch(Correlation(UnitLength()), 30),
        "whitened": PublicSearch(Correlation(Whitened()), 30),
        "pursuit": PublicPursuit(),
    }
    rows = search_public_images(POOLS, Mixup(3, public=2), attacks, queries=60, seeds=(0, 1), depths=(2, 30))
    assert [(row.attack, row.seed) for row in rows] == [(name, seed) for name in attacks for seed in (0, 1)]
    by_name = {name: [row for row in rows if row.attack == name] for name in attacks}
    for seed in (0, 1):
        assert by_name["whitened"][seed].found[2] > by_name["published"][seed].found[2]
        assert by_name["pursuit"][seed].found.keys() == {2}
    for row in rows:
        for depth, share in row.found_null.items():
            assert beyond_chance(round(share * 120), 120, depth / 300) > 1e-3
        assert all(row.any_found[depth] >= row.found[depth] for depth in row.found)
        assert row.milliseconds > 0
        assert any("auxiliary" in line for line in row.given)
        assert "in the alignment that was mixed" in row.given[1]


def test_the_ledger_says_that_public_images_were_cropped():
    deployment = Deployment(public_crops=Cropping(1))
    attacks = attacks_by_similarity(AsPublished(), cropping=Cropping(1), most=10)
    rows = search_public_images(POOLS, Mixup(2, public=1), attacks, queries=10, depths=(1, 10), deployment=deployment)
    assert [row.attack for row in rows] == ["SSIM, published", "every alignment, Laplacian"]
    assert all("uncropped" in row.given[1] for row in rows)
    assert rows[1].found[1] > rows[0].found[1]


@pytest.mark.parametrize("scheme", [Mixup(3, public=2), CrossDataset(3, private=1)])
def test_every_listed_attack_runs(scheme):
    torch.manual_seed(0)
    demasker = Demasker(UNet(1, (4,)).double().eval())
    attacks = attacks_on_instahide(demasker, 20) if scheme.signed else attacks_on_mixup(20)
    rows = search_public_images(POOLS, scheme, attacks, queries=5, depths=(2, 20))
    assert [row.attack for row in rows] == list(attacks)
    assert len(attacks_on_instahide()) < len(attacks_on_instahide(demasker))


def test_averaging_recovers_known_sets_and_its_null_recovers_nothing():
    results = average_encryptions(POOLS, Mixup(4, public=2), AsPublished(), private=10, copies=40, queries=20)
    rows = {result.attack: result for result in results}
    best = rows["known sets, weighted by label"]
    assert best.recovery.identification_whitened == 1.0
    assert best.recovery.psnr_fitted > best.null.psnr_fitted + 3
    assert best.null.identification_whitened <= 0.1
    weak = rows["nearest, whitened"]
    assert weak.precision > weak.precision_null + 0.1
    assert 2 / 10 < weak.precision_null < 0.5  # two private images each, of ten
    assert "which encodings encrypt the same image" in best.given
    assert "the labels of the encodings" in best.given
    assert all(result.estimates.shape == result.originals.shape for result in results)


def test_pairs_that_share_an_image_are_told_apart_and_shuffled_similarities_tell_nothing():
    rows = compare_pairs(POOLS, Mixup(3), similarities(), private=30, copies=5)
    by_name = {row.similarity: row for row in rows}
    white, plain = by_name["inner product, whitened"], by_name["inner product, published"]
    assert white.auc > plain.auc > 0.5
    assert white.auc_large > white.auc
    assert white.precision > white.precision_null
    for row in rows:
        assert row.auc_null == pytest.approx(0.5, abs=0.03)
        # Three of thirty each: 1 - C(27, 3) / C(30, 3) by chance.
        assert row.precision_null == pytest.approx(1 - (27 * 26 * 25) / (30 * 29 * 28), abs=0.05)


def test_a_mask_leaves_pairs_to_squares_and_not_to_inner_products():
    rows = {row.similarity: row for row in compare_pairs(POOLS, InsideDataset(2), similarities(), private=30, copies=5)}
    assert rows["inner product, whitened"].auc == pytest.approx(0.5, abs=0.04)
    assert rows["squares, high-pass"].auc > 0.6


def test_recovery_of_the_image_itself_is_perfect_and_does_not_feel_brightness_and_contrast():
    images, judge = POOLS.private.inputs[:5], Judge(POOLS.public, Whitened().fit(POOLS.auxiliary))
    perfect = judge(images, images)
    assert perfect.psnr_fitted == perfect.psnr == 200.0
    assert perfect.ssim_fitted == pytest.approx(1.0)
    assert perfect.correlation == pytest.approx(1.0)
    assert perfect.identification_by_correlation == perfect.identification_whitened == 1.0
    dull = judge(0.3 * images + 0.2, images)
    assert dull.psnr_fitted > 100
    assert dull.psnr < 20
    assert dull.identification_by_correlation == 1.0


def test_recovery_of_other_images_identifies_nothing():
    images, judge = POOLS.private.inputs, Judge(POOLS.public, Whitened().fit(POOLS.auxiliary))
    other = judge(images.roll(1, dims=0), images)
    assert other.identification_by_correlation <= 3 / 80
    assert other.identification_whitened <= 3 / 80
    assert all(isinstance(getattr(other, part.name), float) for part in parts(other))


def test_a_copy_among_the_decoys_hides_an_image():
    rows = UnitLength().fit(POOLS.public)(POOLS.public[:3])
    assert bool(identified(rows, rows, -rows).all())
    assert not bool(identified(rows, rows, rows).any())


def test_members_are_hit_wherever_they_are_answered():
    answers, members = torch.tensor([[5, 1, 2], [0, 1, 2]]), torch.tensor([[2, 5], [7, 1]])
    assert hit_members(answers, members).tolist() == [[True, True], [False, True]]


def test_the_area_of_equal_scores_is_a_half_and_that_of_none_is_not_measured():
    assert area(torch.ones(3), torch.ones(5)) == 0.5
    assert area(torch.ones(3), torch.zeros(5)) == 1.0
    assert area(torch.ones(0), torch.zeros(5)) != area(torch.ones(0), torch.zeros(5))


def test_more_private_images_than_there_are_is_refused():
    with pytest.raises(InvalidCase, match="There are 80 private images, fewer than the 81"):
        publish(InsideDataset(2), POOLS, 81, seed=0)


def test_magnitudes_are_a_view_that_averaging_accepts():
    results = average_encryptions(POOLS, CrossDataset(4), Magnitudes(), private=8, copies=10, queries=8)
    rows = {result.attack: result for result in results}
    assert len(rows) == 7
    # Neighbours by magnitudes are the same whatever the view that is averaged, here magnitudes too.
    assert rows["nearest by magnitudes, whitened"].precision == rows["nearest, whitened"].precision


@pytest.mark.parametrize("scheme", [Mixup(3, public=2), CrossDataset(3, private=1)])
def test_one_encoding_gives_its_private_image_away_and_no_other(scheme):
    private = Batch(fields(40, 12, seed=34), torch.zeros(40, dtype=torch.long))
    pools = Pools(private, fields(300, 12, seed=35), fields(1500, 12, seed=36))
    (result,) = recover_from_one(pools, scheme, queries=40)
    assert result.row.found > 0.4
    assert result.row.recovery.correlation > result.row.null.correlation + 0.3
    assert result.row.recovery.identification_whitened > result.row.null.identification_whitened + 0.1
    if scheme.signed:
        assert result.row.recovery.correlation > result.row.baseline.correlation
    assert torch.equal(result.unmasked, result.encodings) is not scheme.signed


def test_several_private_images_in_one_encoding_are_another_question():
    with pytest.raises(InvalidCase, match="study one with a single private image"):
        recover_from_one(POOLS, CrossDataset(4), queries=5)
