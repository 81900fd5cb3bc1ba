"""Encryption inside ``torch.utils.data``: every epoch a new key for the whole set, or a new key for every batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler, get_worker_info

from leakgauge.encodings.keys import KeySource, SecureKeys
from leakgauge.encodings.schemes import Scheme, apply, check_images, class_weights, encrypt
from leakgauge.errors import InvalidCase
from leakgauge.protocol.encoding import Mixing
from leakgauge.types import Batch


class BatchKey(NamedTuple):
    """What one batch of encodings is made by: its rows of the epoch's mixing, and where its masks come from."""

    mixing: Mixing
    keys: KeySource


class EpochKeys(Sampler[BatchKey]):
    """Draws one key per epoch for the whole set, in the main process, and deals it out in random batches.

    So each private image is the first of exactly one encoding an epoch, however many workers there are.
    """

    def __init__(self, scheme: Scheme, num_private: int, num_public: int, *, batch_size: int, keys: KeySource) -> None:
        if batch_size < 1:
            raise InvalidCase(f"A batch of {batch_size} encodings cannot be trained on; ask for at least 1.")
        self.scheme, self.num_private, self.num_public = scheme, num_private, num_public
        self.batch_size, self.keys = batch_size, keys

    def __len__(self) -> int:
        return -(-self.num_private // self.batch_size)

    def __iter__(self) -> Iterator[BatchKey]:
        mixing = self.scheme.draw(self.num_private, self.num_public, keys=self.keys)
        for rows in self.keys.uniform(self.num_private).argsort().split(self.batch_size):
            yield BatchKey(mixing.rows(rows), self.keys.fork())


@dataclass(frozen=True)
class EncryptedDataset(Dataset[tuple[Tensor, Tensor]]):
    """Encodings and their class weights by key: what a worker does with its share of an epoch's key."""

    scheme: Scheme
    private: Batch
    classes: int
    public: Tensor | None = None

    def __getitem__(self, key: BatchKey) -> tuple[Tensor, Tensor]:
        encoded, _ = apply(
            self.scheme, key.mixing, self.private, classes=self.classes, public=self.public, keys=key.keys
        )
        return encoded.images, encoded.labels


def encrypted_loader(
    scheme: Scheme,
    private: Batch,
    *,
    classes: int,
    public: Tensor | None = None,
    batch_size: int = 128,
    num_workers: int = 0,
    keys: KeySource | None = None,
    **options: Any,
) -> DataLoader[tuple[Tensor, Tensor]]:
    """Batches (images, class weights) of the set, encrypted anew every epoch and in a new order.

    ``options`` go to the ``DataLoader``. Keys are secure unless given.
    """
    sampler = EpochKeys(
        scheme,
        len(private),
        0 if public is None else len(public),
        batch_size=batch_size,
        keys=SecureKeys() if keys is None else keys,
    )
    check_images(private.inputs, public)  # once, not in every batch
    labelled = Batch(private.inputs, class_weights(private.labels, classes))
    dataset = EncryptedDataset(scheme, labelled, classes, public)
    # A sampler of whole batches: torch then neither groups nor collates.
    return DataLoader(dataset, batch_size=None, sampler=sampler, num_workers=num_workers, **options)


@dataclass(frozen=True)
class EncryptingCollate:
    """A ``collate_fn`` that encrypts the samples (image, class) of a batch among themselves, each batch by a new key.

    For a loader that augments its images first; partners come from the same batch only.
    """

    scheme: Scheme
    classes: int
    public: Tensor | None = None
    keys: KeySource = field(default_factory=SecureKeys)

    def __call__(self, samples: Sequence[tuple[Tensor, Any]]) -> tuple[Tensor, Tensor]:
        if not self.keys.secure and get_worker_info() is not None:
            raise InvalidCase(
                "Seeded keys are copied into every worker and so repeat from worker to worker and epoch to epoch; use "
                "SecureKeys, or num_workers=0."
            )
        batch = Batch(
            torch.stack([image for image, _ in samples]), torch.stack([torch.as_tensor(label) for _, label in samples])
        )
        encoded, _ = encrypt(self.scheme, batch, classes=self.classes, public=self.public, keys=self.keys)
        return encoded.images, encoded.labels
