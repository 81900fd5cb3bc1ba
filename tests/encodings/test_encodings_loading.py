"""Encryption inside a real DataLoader: each image once an epoch, new keys every epoch, in as many workers as wanted."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import one_hot
from torch.utils.data import DataLoader, TensorDataset

from leakgauge.encodings import CrossDataset, InsideDataset, SecureKeys, SeededKeys
from leakgauge.encodings.loading import EncryptingCollate, EpochKeys, encrypted_loader
from leakgauge.errors import InvalidCase
from leakgauge.randomness import seeded
from leakgauge.types import Batch

SHAPE = (3, 6, 6)


def epoch(loader) -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = zip(*loader, strict=True)
    return torch.cat(images), torch.cat(labels)


def own_classes(count: int) -> Batch:
    """Each image its own class, so that a label says what was mixed."""
    return Batch(torch.rand(count, *SHAPE, generator=seeded(0)), torch.arange(count))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("secure", [True, False])
def test_an_epoch_uses_every_image_k_times_and_the_next_has_another_key(workers, secure):
    private = own_classes(11)
    keys = SecureKeys() if secure else SeededKeys(seeded(1))
    loader = encrypted_loader(InsideDataset(3), private, classes=11, batch_size=4, num_workers=workers, keys=keys)
    assert len(loader) == 3
    epochs = [epoch(loader) for _ in range(2)]
    for images, labels in epochs:
        assert images.shape == (11, *SHAPE)
        assert ((labels > 0).sum(dim=0) == 3).all()
        assert ((labels > 0).sum(dim=1) == 3).all()
        mixture = torch.tensordot(labels, private.inputs, dims=1)
        torch.testing.assert_close((images - 0.5).abs(), (mixture - 0.5).abs())
    (_, labels), (_, other_labels) = epochs
    assert not torch.equal(labels.sort(dim=0).values, other_labels.sort(dim=0).values)
    # The mask of each batch is its own: no two agree beyond chance.
    flips = torch.stack([(one > 0.5) ^ (torch.tensordot(by, private.inputs, dims=1) > 0.5) for one, by in epochs])
    rows = flips.flatten(0, 1).flatten(1).double() * 2 - 1
    agreement = (rows @ rows.T / rows.shape[1]).fill_diagonal_(0).abs()
    assert float(agreement.max()) < 6 / rows.shape[1] ** 0.5


def test_seeded_epochs_are_the_same_with_workers_as_without():
    private = own_classes(9)
    one, two = (
        epoch(
            encrypted_loader(
                InsideDataset(2), private, classes=9, batch_size=4, num_workers=workers, keys=SeededKeys(seeded(2))
            )
        )
        for workers in (0, 2)
    )
    assert torch.equal(one[0], two[0])
    assert torch.equal(one[1], two[1])


def test_public_images_are_mixed_in_and_left_out_of_the_labels():
    private, public = own_classes(8), torch.ones(5, *SHAPE)
    images, labels = epoch(encrypted_loader(CrossDataset(4), private, classes=8, public=public, batch_size=3))
    mixture = torch.tensordot(labels, private.inputs, dims=1) + (1 - labels.sum(dim=1)).view(-1, 1, 1, 1)
    torch.testing.assert_close((images - 0.5).abs(), (mixture - 0.5).abs())


def test_keys_are_drawn_for_the_epoch_not_for_the_batch():
    # A batch of one still has partners: they come from the whole set.
    sampler = EpochKeys(InsideDataset(4), 6, 0, batch_size=1, keys=SecureKeys())
    drawn = torch.cat([key.mixing.indices for key in sampler])
    assert len(sampler) == len(drawn) == 6
    assert sorted(drawn[:, 0].tolist()) == list(range(6))
    assert (torch.bincount(drawn.flatten(), minlength=6) == 4).all()


@pytest.mark.parametrize("workers", [0, 2])
def test_the_collate_function_encrypts_what_any_dataset_yields(workers):
    private = own_classes(12)
    data = TensorDataset(private.inputs, private.labels)
    collate = EncryptingCollate(InsideDataset(3), classes=12)
    loader = DataLoader(data, batch_size=6, collate_fn=collate, num_workers=workers)
    epochs = [epoch(loader) for _ in range(2)]
    for images, labels in epochs:
        mixture = torch.tensordot(labels, private.inputs, dims=1)
        torch.testing.assert_close((images - 0.5).abs(), (mixture - 0.5).abs())
        assert (labels[:6, 6:] == 0).all()  # partners come from the batch
    assert not torch.equal(epochs[0][1], epochs[1][1])


def test_plain_numbers_and_class_weights_are_labels_too():
    collate = EncryptingCollate(InsideDataset(2), classes=3, keys=SeededKeys(seeded(0)))
    images, classes = torch.rand(4, *SHAPE, generator=seeded(0)), [0, 2, 1, 2]
    weights = one_hot(torch.tensor(classes), 3).float()
    plain = collate(list(zip(images, classes, strict=True)))
    same = EncryptingCollate(InsideDataset(2), classes=3, keys=SeededKeys(seeded(0)))
    assert torch.equal(plain[1], same(list(zip(images, weights, strict=True)))[1])


def test_seeded_keys_are_refused_where_workers_would_repeat_them():
    private = own_classes(8)
    data = TensorDataset(private.inputs, private.labels)
    collate = EncryptingCollate(InsideDataset(2), classes=8, keys=SeededKeys(seeded(0)))
    with pytest.raises(InvalidCase, match="repeat from worker to worker"):
        epoch(DataLoader(data, batch_size=4, collate_fn=collate, num_workers=1))


def test_what_cannot_be_loaded_is_refused_before_training():
    private = own_classes(4)
    with pytest.raises(InvalidCase, match="at least 1"):
        encrypted_loader(InsideDataset(2), private, classes=4, batch_size=0)
    with pytest.raises(InvalidCase, match="pass pixels in"):
        encrypted_loader(InsideDataset(2), Batch(private.inputs * 2, private.labels), classes=4)
