"""Feature maps: what they flatten, what they leave, and that rotations of a whitening do not matter."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from encodings_support import fields
from leakgauge.attacks.encodings.algebra.whitening import (
    HighPass,
    Laplacian,
    PlainPixels,
    UnitLength,
    Whitened,
    centred,
    uncentred,
    whitener,
)
from leakgauge.errors import InvalidCase

IMAGES = fields(500)


def test_whitened_images_have_mean_zero_and_the_identity_as_covariance():
    rows = Whitened(0.0).fit(IMAGES)(IMAGES)
    torch.testing.assert_close(rows.mean(dim=0), torch.zeros(64).double(), atol=1e-9, rtol=0)
    torch.testing.assert_close(rows.mT @ rows / len(rows), torch.eye(64).double(), atol=1e-7, rtol=0)


def test_pixels_of_smooth_fields_are_far_from_white():
    rows = PlainPixels().fit(IMAGES)(IMAGES)
    variances = torch.linalg.eigvalsh((rows - rows.mean(dim=0)).mT @ (rows - rows.mean(dim=0)))
    assert variances[-1] > 20 * variances[0]


@settings(deadline=None, max_examples=15)
@given(ridge=st.floats(1e-4, 1.0), seed=st.integers(0, 99))
def test_inner_products_are_those_of_the_inverse_covariance_whatever_the_root(ridge, seed):
    rows, other = centred(IMAGES).flatten(1), centred(fields(10, seed=seed + 1)).flatten(1)
    covariance = torch.cov(rows.mT, correction=0)
    damped = covariance + ridge * covariance.diagonal().mean() * torch.eye(64).double()
    deviations = other - rows.mean(dim=0)
    whitened = Whitened(ridge).fit(IMAGES)(uncentred(other).view(-1, 1, 8, 8))
    torch.testing.assert_close(
        whitened @ whitened.mT, deviations @ torch.linalg.solve(damped, deviations.mT), atol=1e-7, rtol=1e-7
    )


def test_normalised_images_have_no_mean_and_length_one():
    rows = UnitLength().fit(IMAGES)(IMAGES)
    torch.testing.assert_close(rows.mean(dim=1), torch.zeros(500).double(), atol=1e-12, rtol=0)
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(500).double())


@pytest.mark.parametrize("features", [Laplacian(), HighPass(), HighPass(0.5)])
def test_a_filter_is_linear_and_blind_to_brightness(features):
    mapped = features.fit(IMAGES)
    x, y = IMAGES[:3], IMAGES[3:6]
    torch.testing.assert_close(mapped(0.3 * x + 0.7 * y), 0.3 * mapped(x) + 0.7 * mapped(y))
    torch.testing.assert_close(mapped(x + 0.1), mapped(x))
    assert float(mapped(torch.full((1, 1, 8, 8), 0.9)).abs().max()) < 1e-6


def test_the_laplacian_of_a_single_bright_pixel_is_its_stencil():
    image = torch.full((1, 1, 5, 5), 0.5)
    image[0, 0, 2, 2] = 1.0
    shown = Laplacian().fit(image)(image).view(5, 5)
    assert shown[2, 2] == 1.0
    assert shown[1, 2] == shown[3, 2] == shown[2, 1] == shown[2, 3] == -0.25
    assert float(shown.abs().sum()) == 2.0


def test_centring_is_undone():
    torch.testing.assert_close(uncentred(centred(IMAGES)), IMAGES)


def test_a_singular_covariance_is_refused_and_a_ridge_is_the_remedy():
    with pytest.raises(InvalidCase, match="singular; pass more auxiliary images or a larger `ridge`"):
        whitener(centred(IMAGES[:10]).flatten(1), 0.0)
    assert Whitened(1e-3).fit(IMAGES[:10])(IMAGES).isfinite().all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Whitened(-1.0), "A ridge is at least 0"),
        (lambda: HighPass(0.0), "must be positive"),
    ],
)
def test_configurations_without_meaning_are_refused(make, message):
    with pytest.raises(InvalidCase, match=message):
        make()
