from __future__ import annotations

from itertools import permutations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from leakgauge.errors import InvalidCase
from leakgauge.metrics import Comparison, align
from leakgauge.types import Batch, Outcome, Reconstruction


def images(count: int, seed: int = 0, shape: tuple[int, int, int] = (1, 3, 4)) -> Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(seed))


def found(pixels: Tensor | None, labels: Tensor | None = None) -> Reconstruction:
    return Reconstruction(pixels, labels, Outcome.SOLVED)


def private(pixels: Tensor) -> Batch:
    return Batch(pixels, torch.arange(len(pixels)))


def total_error(left: Tensor, right: Tensor) -> float:
    return float((left.double() - right.double()).square().mean(dim=(1, 2, 3)).sum())


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**31), count=st.integers(1, 6), data=st.data())
def test_permuting_a_reconstruction_changes_nothing(seed: int, count: int, data: st.DataObject) -> None:
    truth, guess = images(count, seed), images(count, seed + 1)
    order = data.draw(st.permutations(range(count)))
    expected = align(found(guess), private(truth)).reconstructions
    assert torch.equal(align(found(guess[list(order)]), private(truth)).reconstructions, expected)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**31), originals=st.integers(1, 4), candidates=st.integers(0, 5))
def test_no_exclusive_pairing_has_a_smaller_error(seed: int, originals: int, candidates: int) -> None:
    truth, guess = images(originals, seed), images(candidates, seed + 1)
    comparison = align(found(guess), private(truth))
    kept = comparison.measured
    assert int(kept.sum()) == min(originals, candidates)
    if candidates <= originals:
        every = (total_error(truth[list(rows)], guess) for rows in permutations(range(originals), candidates))
    else:
        every = (total_error(truth, guess[list(rows)]) for rows in permutations(range(candidates), originals))
    assert total_error(truth[kept], comparison.reconstructions[kept]) == pytest.approx(min(every))


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**31), data=st.data())
def test_surplus_reconstructions_are_dropped_and_unmatched_originals_are_nan(seed: int, data: st.DataObject) -> None:
    truth = images(6, seed)
    recovered = sorted(data.draw(st.sets(st.integers(0, 5))))
    far_away = images(7, seed + 1) + 5
    fewer = align(found(truth[recovered]), private(truth))
    assert fewer.measured.nonzero().flatten().tolist() == recovered
    assert torch.equal(fewer.reconstructions[recovered], truth[recovered])
    assert fewer.reconstructions[~fewer.measured].isnan().all()
    more = align(found(torch.cat([far_away, truth])), private(truth))
    assert torch.equal(more.reconstructions, truth)
    assert more.candidates == 13


def test_an_attack_without_images_leaves_only_nan() -> None:
    comparison = align(found(None, labels=torch.tensor([1])), private(images(3)))
    assert comparison.reconstructions.shape == (3, 1, 3, 4)
    assert comparison.reconstructions.isnan().all()
    assert comparison.candidates == 0
    assert comparison.restored_labels is not None


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_one_non_finite_pixel_makes_the_whole_row_missing(bad: float) -> None:
    guess = images(3).clone()
    guess[1, 0, 2, 3] = bad
    comparison = align(found(guess), private(images(3)))
    assert comparison.measured.tolist() == [True, False, True]
    assert comparison.reconstructions[1].isnan().all()


@pytest.mark.parametrize("size", [1e8, 1e30, 1e200])
def test_a_diverged_row_does_not_disturb_the_pairing_of_the_others(size: float) -> None:
    truth = images(6).double()
    guess = truth.clone()
    guess[2] = size
    # First in line, it would take any original before the others are placed.
    comparison = align(found(guess[[2, 5, 4, 3, 1, 0]]), private(truth))
    assert torch.equal(comparison.reconstructions, guess)


def test_near_copies_are_told_apart() -> None:
    base = images(1, shape=(3, 16, 16)).double()
    truth = base + 1e-9 * torch.arange(5.0).view(5, 1, 1, 1)
    assert torch.equal(align(found(truth.flip(0)), private(truth)).reconstructions, truth)


def test_nothing_given_is_changed_and_gradients_are_left_behind() -> None:
    truth, guess = images(3), images(3, seed=1).requires_grad_()
    before = guess.detach().clone()
    comparison = align(found(guess), private(truth))
    assert not comparison.reconstructions.requires_grad
    comparison.reconstructions.zero_()
    assert torch.equal(guess.detach(), before)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_precision_is_kept_and_never_below_float32(dtype: torch.dtype) -> None:
    truth = images(2).to(dtype)
    comparison = align(found(truth), private(truth), distractors=truth)
    expected = torch.promote_types(dtype, torch.float32)
    assert comparison.originals.dtype == comparison.reconstructions.dtype == expected
    assert comparison.distractors is not None
    assert comparison.distractors.dtype == expected


def test_an_empty_batch_is_an_empty_comparison() -> None:
    comparison = align(found(images(2)), private(images(0)))
    assert comparison.measured.shape == (0,)


@pytest.mark.parametrize("shape", [(2, 3, 3, 4), (2, 1, 4, 3), (2, 12), (1, 3, 4)])
def test_images_of_another_shape_are_refused_with_both_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidCase, match=r"\(2, 1, 3, 4\)") as refusal:
        align(found(torch.zeros(shape)), private(images(2)))
    assert str(shape) in str(refusal.value)


def test_an_original_that_is_not_an_image_is_refused() -> None:
    with pytest.raises(InvalidCase, match="n c h w"):
        align(found(torch.zeros(2, 5)), Batch(torch.zeros(2, 5), torch.zeros(2)))


def test_non_finite_truth_is_refused() -> None:
    truth = images(2).clone()
    truth[0, 0, 0, 0] = torch.nan
    with pytest.raises(InvalidCase, match="private images hold values that are not finite"):
        align(found(images(2)), private(truth))


@pytest.mark.parametrize("shape", [(4, 1, 3, 4), (2, 4, 1, 3, 4), (0, 1, 3, 4)])
def test_distractors_are_shared_or_one_set_per_victim(shape: tuple[int, ...]) -> None:
    comparison = align(found(images(2)), private(images(2)), torch.zeros(shape))
    assert comparison.distractors is not None
    assert comparison.distractors.shape == shape


@pytest.mark.parametrize("shape", [(4, 1, 4, 4), (3, 4, 1, 3, 4), (1, 3, 4)])
def test_distractors_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidCase, match="Distractors"):
        align(found(images(2)), private(images(2)), torch.zeros(shape))


def test_non_finite_distractors_are_refused() -> None:
    with pytest.raises(InvalidCase, match="distractors hold values that are not finite"):
        align(found(images(2)), private(images(2)), torch.full((4, 1, 3, 4), torch.inf))


def test_unpaired_rows_are_refused() -> None:
    with pytest.raises(InvalidCase, match="use `align`"):
        Comparison(images(3), images(2), None, torch.zeros(3), None)
    with pytest.raises(InvalidCase, match="one label per original"):
        Comparison(images(3), images(3), None, torch.zeros(2), None)
