"""The lift and the alternation: identities, exact recovery with the mixing known, and robustness to wrong rows."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from encodings_support import fields
from leakgauge.attacks.encodings.algebra.lift import _power, alternate, expected, lift, products, residuals
from leakgauge.attacks.encodings.clustering.refinement import lift_coefficients, repair
from leakgauge.randomness import seeded


def mixing(rows: int, images: int, k: int = 3, *, seed: int = 0) -> torch.Tensor:
    generator = seeded(seed, "mixing")
    chosen = torch.rand(rows, images, generator=generator).topk(k, dim=1).indices
    shares = torch.rand(rows, k, generator=generator, dtype=torch.float64) + 0.1
    return torch.zeros(rows, images, dtype=torch.float64).scatter(1, chosen, shares / shares.sum(dim=1, keepdim=True))


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 6), st.integers(1, 8), st.integers(0, 100))
def test_squares_of_mixtures_are_linear_in_the_products_of_pixels(images, rows, seed) -> None:
    generator = seeded(seed, "any")
    matrix = torch.randn(rows, images, generator=generator, dtype=torch.float64)
    pixel = torch.randn(images, generator=generator, dtype=torch.float64)
    one, two = torch.triu_indices(images, images)
    scale = torch.where(one == two, 1.0, 2.0).double().sqrt()
    vector = pixel[one] * pixel[two] * scale
    torch.testing.assert_close(products(matrix) @ vector, (matrix @ pixel).square())
    torch.testing.assert_close(products(matrix) @ products(matrix).T, (matrix @ matrix.T).square())


@pytest.mark.parametrize(("images", "rows"), [(6, 60), (8, 40)])
def test_lift_and_alternation_recover_every_pixel_up_to_one_sign_with_the_mixing_known(images, rows) -> None:
    matrix, truth = mixing(rows, images), 2 * fields(images).flatten(1) - 1
    sizes = (matrix @ truth).abs()
    found = alternate(matrix, sizes, lift(matrix, sizes.square()), steps=20)
    signs = (found * truth).sum(dim=0).sign()
    assert float((found * signs - truth).abs().max()) < 1e-7


def test_the_lift_needs_no_start_for_coefficients_either() -> None:
    matrix, pictures = mixing(12, 5), 2 * fields(5).flatten(1) - 1
    found = lift_coefficients(pictures, (matrix @ pictures).abs())
    torch.testing.assert_close(found, matrix, atol=0.02, rtol=0)


def test_weights_keep_wrong_rows_from_spoiling_the_rest() -> None:
    matrix, truth = mixing(120, 6), 2 * fields(6).flatten(1) - 1
    sizes = (matrix @ truth).abs()
    sizes[:12] = sizes[:12].flip(1)
    variances = torch.full((120,), 1e-10, dtype=torch.float64)
    variances[:12] = 1.0
    start = lift(matrix, sizes.square(), weights=(variances < 0.5).double() + 1e-6)
    found = alternate(matrix, sizes, start, variances=variances, steps=20)
    assert float(residuals(matrix, sizes, found)[12:].mean()) < 1e-12
    assert float(residuals(matrix, sizes, alternate(matrix, sizes, start, steps=20))[12:].mean()) > 1e-6


def test_signs_are_hard_without_errors_and_vanish_with_large_ones() -> None:
    mixtures, sizes = torch.tensor([[-0.5, 0.3]]), torch.tensor([[0.4, 0.2]])
    torch.testing.assert_close(expected(mixtures, sizes), torch.tensor([[-0.4, 0.2]]))
    torch.testing.assert_close(expected(mixtures, sizes, torch.tensor([1e-6])), torch.tensor([[-0.4, 0.2]]))
    assert float(expected(mixtures, sizes, torch.tensor([1e6])).abs().max()) < 1e-6


def test_alternation_never_raises_the_error() -> None:
    matrix, truth = mixing(40, 6), 2 * fields(6).flatten(1) - 1
    sizes = (matrix @ truth).abs()
    found = torch.randn(truth.shape, generator=seeded(0, "start"), dtype=torch.float64)
    errors = []
    for _ in range(10):
        found = alternate(matrix, sizes, found, steps=1)
        errors.append(float(residuals(matrix, sizes, found).mean()))
    assert all(later <= before + 1e-9 for before, later in itertools.pairwise(errors))


def test_short_of_as_many_encodings_as_products_neighbours_help_pixels_out_of_poor_minima() -> None:
    matrix, truth = mixing(30, 8), 2 * fields(8, decay=2.5).flatten(1) - 1
    sizes = (matrix @ truth).abs()
    found = alternate(matrix, sizes, lift(matrix, sizes.square()), steps=20)
    before = residuals(matrix, sizes, found).mean(dim=0)
    better = repair(matrix, sizes, found, (1, 8, 8), variances=torch.full((30,), 1e-9, dtype=torch.float64))
    after = residuals(matrix, sizes, better).mean(dim=0)
    assert int((after > 1e-9).sum()) < int((before > 1e-9).sum())
    assert bool((after <= before + 1e-12).all())


def test_the_top_eigenvector_is_found_where_another_eigenvalue_is_larger_in_size() -> None:
    vectors, _ = torch.linalg.qr(torch.randn(4, 4, generator=seeded(0), dtype=torch.float64))
    matrix = vectors @ torch.diag(torch.tensor([2.0, 0.5, -1.0, -3.0]).double()) @ vectors.T
    found = _power(lambda x: matrix @ x, torch.randn(4, 1, generator=seeded(1), dtype=torch.float64))
    torch.testing.assert_close(found @ found.T, 2 * vectors[:, :1] @ vectors[:, :1].T, atol=1e-3, rtol=0)
