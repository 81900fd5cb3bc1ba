"""The crowd that private examples are told from: of their kind, large enough, and none of them is one of them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from leakgauge.audit.crowd import Pool, copies, crowd_size, draw_crowd, make_strangers, near
from leakgauge.data import Digits, Photos
from leakgauge.space import Categorical, Continuous, ImageSpace, TableSpace
from leakgauge.types import Batch

TABLE = TableSpace((Continuous("age", 0, 100), Continuous("weight", 40, 140), Categorical("sex", ("f", "m"))))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def digits(count: int) -> Batch:
    return Digits()().test[:count]


def rows(count: int, seed: int = 0) -> Tensor:
    return TABLE.decode(torch.rand(count, 4, generator=seeded(seed)))


def nearest_in(space: ImageSpace, one: Tensor, others: Tensor) -> float:
    both = torch.cat((space.distance(others, one[None]), space.distance(others, one[None].flip(-1))))
    return float(both.min())


@pytest.mark.parametrize(("tests", "size"), [(1, 59), (4, 239), (12, 719), (160, 9599)])
def test_the_nearest_of_all_is_significant_in_as_many_tests_as_there_are(tests: int, size: int) -> None:
    assert crowd_size(tests, 1, ImageSpace(1, 28, 28)) == size
    assert 3 * tests / (size + 1) <= 0.05 < 3 * tests / size


def test_a_crowd_has_what_was_asked_for_and_no_more_than_fits_into_memory() -> None:
    assert crowd_size(1, 99, ImageSpace(1, 28, 28)) == 99
    assert crowd_size(10**6, 99, ImageSpace(1, 28, 28)) == 9999
    assert crowd_size(10**6, 99, ImageSpace(3, 256, 256)) == (1 << 28) // (4 * 3 * 256 * 256)
    assert crowd_size(5, 0, ImageSpace(1, 28, 28)) == 0


def test_the_crowd_is_of_the_victims_classes_while_there_are_enough() -> None:
    test = Digits()().test
    private = Batch(test.inputs[:1], torch.tensor([3]))
    pool = Pool(test.inputs, test.labels, "digits")
    threes = int((test.labels == 3).sum())
    crowd = draw_crowd(ImageSpace(1, 8, 8), private, pool, tests=1, at_least=threes + 40, generator=seeded())
    assert crowd.inputs is not None
    assert crowd.words == f"{threes + 40} digits"
    assert torch.equal(crowd.inputs[:threes], test.inputs[test.labels == 3])
    assert torch.equal(crowd.inputs[threes:], test.inputs[test.labels != 3][:40])


def test_a_pool_that_is_too_small_is_topped_up_and_the_words_say_so() -> None:
    batch = digits(21)
    private, pool = batch[:1], Pool(batch.inputs[1:], batch.labels[1:], "references given")
    crowd = draw_crowd(ImageSpace(1, 8, 8), private, pool, tests=1, at_least=9, generator=seeded())
    assert crowd.inputs is not None
    assert len(crowd.inputs) == 59
    assert crowd.words == "20 references given and 39 augmented copies of these and the private images"
    assert {one.numpy().tobytes() for one in crowd.inputs[:20]} == {one.numpy().tobytes() for one in batch.inputs[1:]}


def test_without_any_others_private_images_are_told_from_their_copies_and_from_photographs_in_their_tones() -> None:
    private = digits(4)
    crowd = draw_crowd(ImageSpace(1, 8, 8), private, None, tests=4, at_least=99, generator=seeded())
    assert crowd.inputs is not None
    assert len(crowd.inputs) == 239
    assert "embedded photographs in their tones" in crowd.words
    assert "augmented copies of the private images" in crowd.words
    # Photographs as they are would be greyer than any digit, and so nearer to whatever is grey.
    assert float(crowd.inputs.std() / private.inputs.std()) == pytest.approx(1, abs=0.1)
    for one in private.inputs:
        assert nearest_in(ImageSpace(1, 8, 8), one, crowd.inputs) > 0.02


def test_images_without_tones_are_told_from_photographs_as_they_are() -> None:
    black = Batch(torch.zeros(2, 3, 8, 8), torch.tensor([0, 1]))
    crowd = draw_crowd(ImageSpace(3, 8, 8), black, None, tests=2, at_least=99, generator=seeded())
    assert crowd.inputs is not None
    assert crowd.words == "59 embedded photographs; rank alone would need 119"


def test_no_crowd_is_none() -> None:
    crowd = draw_crowd(ImageSpace(1, 8, 8), digits(1), None, tests=1, at_least=0, generator=seeded())
    assert crowd.inputs is None
    assert crowd.words == "none"


def test_rows_without_others_are_told_from_rows_made_of_their_cells_and_of_the_ranges() -> None:
    private = Batch(rows(5), torch.arange(5))
    crowd = draw_crowd(TABLE, private, None, tests=5, at_least=99, generator=seeded())
    assert crowd.inputs is not None
    assert len(crowd.inputs) == 99
    assert crowd.words.startswith("99 rows resampled column by column from the private rows")
    TABLE.check(crowd.inputs)
    own = torch.isin(crowd.inputs[:, 0], private.inputs[:, 0]).double().mean()
    assert 0.4 < float(own) < 0.9  # 5 / 7 before those near a private row were dropped
    assert not bool(near(TABLE, crowd.inputs, private.inputs).all())


def test_what_is_made_of_private_examples_is_not_near_them() -> None:
    space, private = ImageSpace(3, 16, 16), Photos(size=16)().test[:3].inputs
    made = make_strangers(space, private, private, 200, generator=seeded())
    assert len(made) == 200
    correlation = torch.corrcoef(torch.cat((private, private.flip(-1), made)).flatten(1))[:6, 6:]
    assert float(correlation.max()) < 0.9
    # A reconstruction at 14 dB is nearer to its original than anything made of it.
    noisy = private[:1] + 0.2 * torch.randn(private[:1].shape, generator=seeded())
    assert float(space.distance(noisy, private[:1])) < float(space.distance(noisy, made).min())


def test_a_copy_of_a_private_image_is_found_as_it_is_mirrored_or_coded_anew() -> None:
    private, others = digits(2).inputs, digits(40).inputs[10:]
    noisy = (private + 0.01 * torch.randn(private.shape, generator=seeded())).clamp(0, 1)
    pool = torch.cat((others, private, private.flip(-1), noisy))
    found = copies(ImageSpace(1, 8, 8), pool, private)
    assert found.tolist() == [False] * 30 + [True] * 6


def test_an_equal_row_is_a_copy_only_where_rows_do_not_repeat_anyway() -> None:
    private, others = rows(2), rows(200, seed=1)
    assert copies(TABLE, torch.cat((others, private)), private).tolist() == [False] * 200 + [True] * 2
    coarse = TableSpace((Categorical("sex", ("f", "m")), Categorical("smokes", ("yes", "no"))))
    many = coarse.decode(torch.rand(200, 4, generator=seeded()))
    assert not copies(coarse, many, many[:2]).any()
