"""Mixup, inside-dataset and cross-dataset InstaHide as Huang et al. [2020] define them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch.nn.functional import one_hot

from leakgauge.encodings import CrossDataset, InsideDataset, Mixup, SecureKeys, SeededKeys, encrypt
from leakgauge.encodings.draws import LAWS, distinct, draw_bounded, permute
from leakgauge.encodings.schemes import shuffle
from leakgauge.errors import InvalidCase
from leakgauge.randomness import seeded
from leakgauge.types import Batch

SHAPE = (3, 6, 5)
SCHEMES = [
    Mixup(1),
    Mixup(4),
    Mixup(4, public=3),
    InsideDataset(1),
    InsideDataset(2, law="half_normal"),
    InsideDataset(4),
    InsideDataset(6),
    CrossDataset(3),
    CrossDataset(4, law="half_normal"),
    CrossDataset(6),
    CrossDataset(6, private=3, least_private=0.8),
]


def keys(seed: int = 0) -> SeededKeys:
    return SeededKeys(seeded(seed, "keys"))


def publics(count: int = 20, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.rand(count, *SHAPE, generator=seeded(0, "public"), dtype=dtype)


# Coefficients.


@settings(deadline=None, max_examples=60)
@given(
    law=st.sampled_from(sorted(LAWS)),
    k=st.integers(2, 6),
    share=st.floats(0.4, 1),
    rows=st.integers(1, 40),
    s=st.integers(0, 99),
)
def test_coefficients_are_positive_sum_to_one_and_stay_below_the_largest(law, k, share, rows, s):
    largest = 1 / k + share * (1 - 1 / k)
    found = draw_bounded(LAWS[law], keys(s).uniform, rows, k, largest=largest)
    assert found.shape == (rows, k)
    torch.testing.assert_close(found.sum(dim=1), torch.ones(rows).double())
    assert 0 <= float(found.min()) <= float(found.max()) <= largest


def test_private_coefficients_sum_to_at_least_what_is_asked():
    free = draw_bounded(LAWS["uniform"], keys().uniform, 500, 6, largest=0.65)
    assert float(free[:, :2].sum(dim=1).min()) < 0.3
    held = draw_bounded(LAWS["uniform"], keys().uniform, 500, 6, largest=0.65, leading=2, least_leading=0.3)
    assert float(held[:, :2].sum(dim=1).min()) >= 0.3
    assert float(held.max()) <= 0.65


def test_the_law_of_two_uniform_coefficients_is_that_of_a_ratio():
    # u / (u + v) has the distribution function x / (2 (1 - x)) below 1/2, and is symmetric.
    drawn = draw_bounded(LAWS["uniform"], keys().uniform, 4000, 2, largest=1.0)[:, 0].numpy()
    assert stats.kstest(np.where(drawn < 0.5, drawn, 1 - drawn), lambda x: x / (1 - x)).pvalue > 1e-4
    assert stats.binomtest(int((drawn < 0.5).sum()), len(drawn)).pvalue > 1e-4


def test_the_law_of_two_half_normal_coefficients_is_that_of_an_angle():
    # |a| / |b| is half Cauchy, so P(lam < x) = 2/pi atan(x / (1 - x)).
    drawn = draw_bounded(LAWS["half_normal"], keys().uniform, 4000, 2, largest=1.0)[:, 0]
    angles = torch.atan2(drawn, 1 - drawn) * 2 / torch.pi
    assert stats.kstest(angles.numpy(), "uniform").pvalue > 1e-4


def test_bounds_that_leave_nothing_are_refused_with_their_remedy():
    with pytest.raises(InvalidCase, match=r"Hardly any 6 coefficients are at most 0\.168 each; raise `largest`"):
        draw_bounded(LAWS["uniform"], keys().uniform, 9, 6, largest=0.168)
    with pytest.raises(InvalidCase, match=r"2 of them summing to 0\.999; raise `largest` or lower `least_private`"):
        draw_bounded(LAWS["uniform"], keys().uniform, 9, 6, largest=0.65, leading=2, least_leading=0.999)


# Partners.


@settings(deadline=None, max_examples=60)
@given(n=st.integers(1, 40), k=st.integers(1, 6), seed=st.integers(0, 99))
def test_partners_are_permutations_the_first_the_identity_and_no_row_repeats(n, k, seed):
    k = min(k, n)
    found = permute(n, k, keys(seed))
    assert found[:, 0].tolist() == list(range(n))
    assert all(sorted(column) == list(range(n)) for column in found.T.tolist())
    assert all(len(set(row)) == k for row in found.tolist())


def test_every_other_image_is_as_likely_a_partner():
    drawn = torch.stack([permute(6, 3, keys(seed))[0, 1:] for seed in range(600)])
    for column in drawn.T:
        assert stats.chisquare(torch.bincount(column, minlength=6)[1:].numpy()).pvalue > 1e-4


@pytest.mark.parametrize(("columns", "population"), [(4, 5), (4, 9), (2, 1000)])
def test_public_choices_are_distinct_in_a_row_and_fair(columns, population):
    drawn = distinct(3000, columns, population, keys())
    assert all(len(set(row)) == columns for row in drawn[:200].tolist())
    assert stats.chisquare(torch.bincount(drawn.flatten(), minlength=population).numpy()).pvalue > 1e-4


# The schemes.


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
def test_an_encoding_is_the_masked_mixture_that_the_secret_says(scheme, copies, examples):
    private, public = examples(8, SHAPE, dtype=torch.float64), publics()
    encoded, secret = encrypt(scheme, private, classes=5, public=public, copies=copies, keys=keys())
    assert encoded.images.shape == secret.flipped.shape == (8 * copies, *SHAPE)
    mixture = secret.mixing.mix(torch.cat([private.inputs, public]))
    expected = torch.where(secret.flipped, 1 - mixture, mixture)
    torch.testing.assert_close(encoded.images, expected)
    assert 0 <= float(encoded.images.min()) <= float(encoded.images.max()) <= 1
    assert secret.mixing.signed is scheme.signed is bool(secret.flipped.any())
    assert secret.mixing.indices[:, 0].tolist() == list(range(8)) * copies


@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
def test_labels_hold_the_private_coefficients_and_nothing_of_the_public_images(scheme, examples):
    private = examples(8, SHAPE, dtype=torch.float64)
    encoded, secret = encrypt(scheme, private, classes=5, public=publics(), copies=2, keys=keys())
    matrix = secret.mixing.matrix(8 + 20)[:, :8]
    torch.testing.assert_close(encoded.labels, matrix @ one_hot(private.labels, 5).double())
    torch.testing.assert_close(
        encoded.labels.sum(dim=1), secret.mixing.coefficients[:, : scheme.private_per_encoding].sum(dim=1)
    )
    assert float(encoded.labels.sum(dim=1).min()) >= scheme.least - 1e-12
    is_private = secret.mixing.indices < 8
    assert is_private.sum(dim=1).tolist() == [scheme.private_per_encoding] * 16
    if scheme.k > 1:
        assert float(secret.mixing.coefficients.max()) <= scheme.largest


def test_the_published_settings_are_the_defaults():
    assert (InsideDataset().k, InsideDataset().largest, InsideDataset().law) == (4, 0.65, "uniform")
    assert (CrossDataset(6).private, CrossDataset(6).least_private, CrossDataset(6).largest) == (2, 0.3, 0.65)
    assert CrossDataset(6).public_per_encoding == 4
    assert Mixup(4, public=3).private_per_encoding == 1


def test_the_mask_hides_signs_and_nothing_else(examples):
    # |x~ - 1/2| is that of Mixup with the same draws: what is published is the magnitude.
    private = examples(8, SHAPE)
    masked, _ = encrypt(InsideDataset(4), private, classes=5, keys=keys())
    plain, _ = encrypt(Mixup(4), private, classes=5, keys=keys())
    torch.testing.assert_close((masked.images - 0.5).abs(), (plain.images - 0.5).abs())
    assert torch.equal(masked.labels, plain.labels)


def test_a_masked_pixel_says_nothing_about_its_sign(examples):
    private = examples(64, SHAPE)
    encoded, secret = encrypt(InsideDataset(2), private, classes=5, copies=20, keys=SecureKeys())
    seen, true = (encoded.images > 0.5), (secret.mixing.mix(private.inputs.double()) > 0.5)
    agreement = (seen == true).double().mean()
    assert abs(float(agreement) - 0.5) < 5 * 0.5 / seen.numel() ** 0.5


@pytest.mark.parametrize("scheme", [InsideDataset(4), CrossDataset(4)], ids=repr)
def test_every_copy_has_its_own_key(scheme, examples):
    private = examples(6, SHAPE)
    encoded, secret = encrypt(scheme, private, classes=5, public=publics(dtype=torch.float32), copies=2, keys=keys())
    for drawn in (encoded.images, secret.flipped, secret.mixing.coefficients, secret.mixing.indices):
        assert not torch.equal(drawn[:6], drawn[6:])
    again, _ = encrypt(scheme, private, classes=5, public=publics(dtype=torch.float32), copies=2, keys=keys())
    assert torch.equal(encoded.images, again.images)


def test_soft_labels_are_mixed_as_they_are(examples):
    private = examples(5, SHAPE)
    soft = Batch(private.inputs, one_hot(private.labels, 5).float())
    one, two = (encrypt(InsideDataset(3), batch, classes=5, keys=keys())[0] for batch in (private, soft))
    assert torch.equal(one.labels, two.labels)


def test_blocks_do_not_show(examples, monkeypatch):
    private, public = examples(30, SHAPE), publics(dtype=torch.float32)
    whole, _ = encrypt(CrossDataset(5), private, classes=5, public=public, copies=2, keys=keys())
    monkeypatch.setattr("leakgauge.encodings.schemes._BLOCK", 7 * 90)
    parts, _ = encrypt(CrossDataset(5), private, classes=5, public=public, copies=2, keys=keys())
    assert torch.equal(whole.images, parts.images)


def test_shuffling_keeps_each_encoding_with_its_key_and_hides_which_image_is_first(examples):
    private = examples(9, SHAPE, dtype=torch.float64)
    before = encrypt(InsideDataset(3), private, classes=5, copies=4, keys=keys())
    encoded, secret = shuffle(*before, keys=keys(1))
    mixture = secret.mixing.mix(private.inputs)
    torch.testing.assert_close(encoded.images, torch.where(secret.flipped, 1 - mixture, mixture))
    assert secret.mixing.indices[:, 0].tolist() != before[1].mixing.indices[:, 0].tolist()
    assert sorted(secret.mixing.indices[:, 0].tolist()) == sorted(list(range(9)) * 4)


def test_what_cannot_be_encrypted_is_refused_in_one_sentence(examples):
    private = examples(3, SHAPE)

    def refused(words: str, scheme, batch=private, **options) -> None:
        with pytest.raises(InvalidCase, match=words) as found:
            encrypt(scheme, batch, classes=5, keys=keys(), **options)
        assert "\n" not in str(found.value)

    refused("mixes 4 private images an encoding, but there are 3; lower k", InsideDataset(4))
    refused("mixes 2 public images an encoding, but there are 0; pass a larger", CrossDataset(4))
    refused("mixes 2 public images an encoding, but there are 1", CrossDataset(4), public=publics(1))
    refused("Public images are .* private ones", CrossDataset(4), public=torch.zeros(9, 3, 4, 4))
    refused("copies=...", InsideDataset(2), copies=0)
    refused(
        r"pixels from -0.985 to .*pass pixels in \[0, 1\]",
        InsideDataset(2),
        Batch(private.inputs - 1.0, private.labels),
    )
    refused(
        "none of the 5 classes, 0 to 4; raise `classes`", InsideDataset(2), Batch(private.inputs, private.labels + 4)
    )
    refused("pixels from nan", InsideDataset(2), Batch(private.inputs * torch.nan, private.labels))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: InsideDataset(0), "k=.* at least 1, got 0"),
        (lambda: InsideDataset(4, 0.25), r"must lie above 1/k = 0.25 .* got 0.25"),
        (lambda: InsideDataset(4, 1.5), "at most 1, got 1.5"),
        (lambda: InsideDataset(1, 7.0), "at most 1, got 7.0"),
        (lambda: InsideDataset(4, law="gauss"), "no law of coefficients 'gauss'; choose from uniform"),
        (lambda: CrossDataset(4, private=4), "between 1 and k - 1 = 3, got 4; .* InsideDataset"),
        (lambda: CrossDataset(4, least_private=1.4), "least_private=.* got 1.4"),
        (lambda: CrossDataset(4, private=1, least_private=0.7), "at most 0.65 reach, got 0.7"),
        (lambda: Mixup(4, public=4), "between 0 and k - 1 = 3, got 4"),
    ],
)
def test_a_scheme_that_makes_no_sense_is_refused(make, words):
    with pytest.raises(InvalidCase, match=words):
        make()
