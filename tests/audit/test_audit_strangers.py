"""Who is compared with whom: nobody with himself."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from leakgauge.audit.crowd import Pool
from leakgauge.audit.draws import draw_victims, others_rows, pool_of_dataset
from leakgauge.audit.strangers import Strangers, choose_decoys, draw_strangers
from leakgauge.data import Dataset, Digits, Photos, share_picture, share_pixels
from leakgauge.space import ImageSpace
from leakgauge.types import Batch


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def drawn(dataset: Dataset, batch_size: int, rounds: int = 1, seed: int = 0) -> tuple[list[Batch], Strangers]:
    victims = draw_victims(dataset, batch_size=batch_size, rounds=rounds, seed=seed)
    held = others_rows(dataset, seed=seed, number=0)
    pool = pool_of_dataset(dataset, torch.cat(victims), held, 500, seed=seed)
    truths = [dataset.test[chosen] for chosen in victims]
    return truths, strangers_of(dataset.space, truths, pool)


def strangers_of(space: ImageSpace, truths: list[Batch], pool: Pool | None, **changes: int) -> Strangers:  # type: ignore[type-arg]
    options = {"tests": sum(map(len, truths)), "distractors": 20, "nulls": 3} | changes

    def labels(like: Tensor, generator: torch.Generator) -> Tensor:
        return like[torch.randperm(len(like), generator=generator)]

    return draw_strangers(space, truths, pool, labels=labels, generator=seeded(), **options)  # type: ignore[arg-type]


def keys(images: Tensor) -> set[bytes]:
    return {image.numpy().tobytes() for image in images}


def cut_from(dataset: Dataset, images: Tensor) -> Tensor:
    """Where each image of the dataset was cut; made ones are left out."""
    parts = [dataset.test, dataset.train, *([] if dataset.strangers is None else [dataset.strangers])]
    regions = [region for part in parts for region in part.regions]  # type: ignore[union-attr]
    everyone = (image for part in parts for image in part.inputs)
    where = {image.numpy().tobytes(): region for image, region in zip(everyone, regions, strict=True)}
    found = [where[name] for image in images if (name := image.numpy().tobytes()) in where]
    return torch.stack(found)


@pytest.mark.parametrize("seed", range(3))
def test_crops_of_one_photograph_are_private_or_in_nulls_or_in_the_crowd_and_never_of_each_other(seed: int) -> None:
    dataset = Photos(size=8)()
    truths, strangers = drawn(dataset, batch_size=4, seed=seed)
    private, crowd = (cut_from(dataset, one) for one in (truths[0].inputs, strangers.crowd.inputs))  # type: ignore[arg-type]
    nulls = torch.cat([cut_from(dataset, batch.inputs) for batch in strangers.decoys[0]])
    assert len(crowd) >= 99
    assert len(nulls) == 3 * len(truths[0])
    for left, right in ((private, nulls), (private, crowd), (nulls, crowd)):
        assert not share_picture(left, right).any()


def test_where_every_photograph_is_private_no_pixel_is_in_a_null_or_in_the_crowd_too() -> None:
    dataset = Photos(size=8)()
    truths, strangers = drawn(dataset, batch_size=14, seed=0)
    private, crowd = (cut_from(dataset, one) for one in (truths[0].inputs, strangers.crowd.inputs))  # type: ignore[arg-type]
    assert len(private[:, 0].unique()) == 7
    assert not share_picture(private, crowd).any()
    for batch in strangers.decoys[0]:
        assert not share_pixels(cut_from(dataset, batch.inputs), private).any()
        assert bool((batch.labels >= 0).all())


def test_the_nulls_of_a_round_share_out_labels_of_its_victims_classes() -> None:
    dataset = Digits()()
    truths, strangers = drawn(dataset, batch_size=6, rounds=2)
    for truth, decoys in zip(truths, strangers.decoys, strict=True):
        dealt = torch.cat([batch.labels for batch in decoys])
        assert torch.equal(dealt.sort().values, torch.cat([truth.labels] * 2).sort().values)
        for batch in decoys:
            for image, label in zip(batch.inputs, batch.labels, strict=True):
                same = (dataset.test.inputs == image).flatten(1).all(dim=1)
                assert label in dataset.test.labels[same]
    every = torch.cat([batch.inputs for decoys in strangers.decoys for batch in decoys])
    assert len(keys(every)) == len(every)


def test_the_null_of_an_attack_on_labels_does_not_have_the_labels_it_is_scored_against() -> None:
    truth = Digits()().test
    one_class = truth[truth.labels == 3][:8]
    pool = Pool(truth.inputs, truth.labels, "digits")
    strangers = strangers_of(ImageSpace(1, 8, 8), [one_class], pool)
    assert all(bool((batch.labels == 3).all()) for batch in strangers.decoys[0])
    assert all(int((batch.labels == 3).sum()) < 5 for batch in strangers.label_decoys[0])


def test_a_folder_of_twenty_pictures_gives_one_victim_three_nulls_and_a_crowd_that_can_convict() -> None:
    images = Photos(size=16)().test[::20][:20].inputs
    dataset = Dataset("mine", Batch(images[:0], torch.empty(0).long()), Batch(images, torch.arange(20)), ("x",) * 20)
    _, strangers = drawn(dataset, batch_size=1)
    assert [len(batch) for batch in strangers.decoys[0]] == [1, 1, 1]
    assert strangers.crowd.words == ("16 other images of mine and 43 augmented copies of these and the private images")


def test_a_small_pool_serves_several_nulls_and_leaves_the_crowd_its_half() -> None:
    batch = Digits()().test[:14]
    truth, pool = batch[:4], Pool(batch.inputs[4:], batch.labels[4:], "references given")
    strangers = strangers_of(ImageSpace(1, 8, 8), [truth], pool)
    used = torch.cat([one.inputs for one in strangers.decoys[0]])
    assert len(keys(used)) == 5
    assert all(len(keys(one.inputs)) == 4 for one in strangers.decoys[0])
    assert strangers.crowd.words.startswith("5 references given and 234 augmented copies")
    assert strangers.crowd.inputs is not None
    assert not keys(used) & keys(strangers.crowd.inputs)


def test_nulls_are_made_where_references_are_fewer_than_a_batch() -> None:
    batch = Digits()().test[:12]
    truth, pool = batch[:8], Pool(batch.inputs[8:], None, "references given")
    strangers = strangers_of(ImageSpace(1, 8, 8), [truth], pool)
    for one in strangers.decoys[0]:
        assert len(keys(one.inputs)) == 8
        assert not keys(one.inputs) & keys(truth.inputs)


def test_references_without_labels_get_those_of_the_private_images_dealt_anew() -> None:
    batch = Digits()().test[:60]
    strangers = strangers_of(ImageSpace(1, 8, 8), [batch[:8]], Pool(batch.inputs[8:], None, "references given"))
    dealt = torch.cat([one.labels for one in strangers.decoys[0]])
    assert torch.equal(dealt.sort().values, torch.cat([batch.labels[:8]] * 3).sort().values)


def test_labels_that_are_probabilities_are_dealt_as_they_are() -> None:
    images = Digits()().test.inputs[:60]
    truth = Batch(images[:3], torch.rand(3, 10, generator=seeded()).softmax(dim=1))
    strangers = strangers_of(ImageSpace(1, 8, 8), [truth], Pool(images[3:], None, "references given"))
    assert all(one.labels.shape == (3, 10) for one in strangers.decoys[0] + strangers.label_decoys[0])
    assert torch.isin(strangers.decoys[0][0].labels, truth.labels).all()


def test_a_copy_of_a_victim_is_left_out_and_the_words_say_so() -> None:
    batch = Digits()().test[:60]
    again = torch.cat((batch.inputs, batch.inputs[:1], batch.inputs[1:2].flip(-1)))
    strangers = strangers_of(ImageSpace(1, 8, 8), [batch[:2]], Pool(again[2:], None, "references given"))
    assert strangers.crowd.words.endswith("; 2 copies of private images left out")
    taken = torch.cat([*(one.inputs for one in strangers.decoys[0]), strangers.crowd.inputs])  # type: ignore[list-item]
    assert not keys(batch.inputs[:2]) & keys(taken)


def test_without_references_nulls_are_photographs_of_other_columns_than_the_crowds() -> None:
    truth = Digits()().test[:3]
    strangers = strangers_of(ImageSpace(1, 8, 8), [truth], None)
    used = torch.cat([one.inputs for one in strangers.decoys[0]])
    assert len(keys(used)) == 9
    regions = torch.cat([one.regions for one in strangers.decoys[0]])  # type: ignore[misc]
    assert torch.equal(share_pixels(regions, regions), torch.eye(9).bool())


def test_rows_of_a_pool_are_taken_once_while_there_are_others() -> None:
    images = torch.rand(8, 1, 4, 4, generator=seeded())
    pool = Pool(images, torch.tensor([0, 0, 0, 1, 1, 2, 2, 2]), "others")
    truths = [Batch(torch.rand(2, 1, 4, 4), torch.tensor([0, 1]))]
    (decoys,), used = choose_decoys(ImageSpace(1, 4, 4), pool, truths, 2, at_most=4, generator=seeded())
    assert torch.cat([one.labels for one in decoys]).sort().values.tolist() == [0, 0, 1, 1]
    assert used.tolist() == [True, True, False, True, True, False, False, False]


def test_private_crops_of_the_embedded_photographs_are_no_strangers_to_themselves() -> None:
    dataset = Photos(size=8)()
    truth = dataset.test[torch.tensor(dataset.highlights)]
    strangers = strangers_of(dataset.space, [truth], None)  # type: ignore[arg-type]
    for decoy in strangers.decoys[0]:
        assert decoy.regions is not None
        assert truth.regions is not None
        assert not share_pixels(decoy.regions, truth.regions).any()


def test_a_batch_larger_than_the_photographs_has_nulls_of_as_many() -> None:
    truth = Digits()().test[:160]
    strangers = strangers_of(ImageSpace(1, 8, 8), [truth], None, distractors=0)
    assert [len(decoy) for decoy in strangers.decoys[0]] == [160] * 3
    assert all(len(keys(decoy.inputs)) == 160 for decoy in strangers.decoys[0])


def test_images_that_nothing_strange_can_be_made_of_have_nulls_too() -> None:
    black = Batch(torch.zeros(3, 2, 5, 4), torch.zeros(3).long())
    for pool in (None, Pool(black.inputs, black.labels, "references given")):
        strangers = strangers_of(ImageSpace(2, 5, 4), [black], pool)
        assert all(float(decoy.inputs.std()) > 0 for decoy in strangers.decoys[0])
