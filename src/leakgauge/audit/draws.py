"""What an audit draws from a dataset: whom it attacks, what clients and attackers hold, and who is a stranger."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from leakgauge.audit.crowd import Pool
from leakgauge.data import Dataset, share_picture
from leakgauge.errors import InvalidCase
from leakgauge.randomness import seeded
from leakgauge.types import Batch

_OTHERS = 31
"""Further images of a client whose batch is smaller than what its defence mixes."""

_AUXILIARY = 500
"""How many images an attacker holds who holds some."""

_SPARE = 4
"""Times as many strangers as are wanted: some share pixels with others."""


def draw_victims(dataset: Dataset, *, batch_size: int, rounds: int, seed: int) -> list[Tensor]:
    """Indices of each round's victims: the dataset's highlights first, then others at random, none twice."""
    total = batch_size * rounds
    order = dataset.draw(min(len(dataset.test), total + len(dataset.highlights)), generator=seeded(seed, "data"))
    queue = list(dict.fromkeys((*dataset.highlights, *order.tolist())))
    if len(queue) < total:
        raise InvalidCase(
            f"{rounds} rounds of {batch_size} need {total} private images, but the test split of "
            f"{dataset.name!r} has {len(dataset.test)}; lower batch_size or rounds."
        )
    return list(torch.tensor(queue[:total]).split(batch_size))


def client_others(dataset: Dataset, *, seed: int, number: int) -> Batch | None:
    """What a client has besides a batch too small to mix: some training images, neither attacked nor in the crowd."""
    rows = others_rows(dataset, seed=seed, number=number)
    return dataset.train[rows] if len(rows) else None


def others_rows(dataset: Dataset, *, seed: int, number: int) -> Tensor:
    """Indices into ``train`` of what a client has besides."""
    return torch.randperm(len(dataset.train), generator=seeded(seed, "others", number))[:_OTHERS]


def auxiliary_rows(dataset: Dataset, *, seed: int) -> Tensor:
    """Indices into ``train`` of the attacker's images: no private one is among them, as those are test images."""
    if len(dataset.train) == 0:
        raise InvalidCase(
            f"The attacker's auxiliary data would be training images, but {dataset.name!r} has none here; "
            "add the training files or choose another threat model."
        )
    return torch.randperm(len(dataset.train), generator=seeded(seed, "auxiliary"))[:_AUXILIARY]


def pool_of_dataset(dataset: Dataset, victims: Tensor, held: Tensor, wanted: int, *, seed: int) -> Pool:
    """Who is neither a victim, by index into ``test``, nor ``held`` by a client or attacker, by index into ``train``.

    Those that only serve as strangers come first, then those of the victims' classes, and of these the ones that no
    model was trained on; some more than ``wanted``, and not all of a large dataset.
    """
    generator = seeded(seed, "pool")
    private = dataset.test[victims]
    parts: list[tuple[Batch, Tensor]] = []
    for batch, taken in ((dataset.test, victims), (dataset.train, held)):
        rows = torch.randperm(len(batch), generator=generator)
        rows = _elsewhere(batch, rows[~torch.isin(rows, taken)], private)
        alike = torch.isin(batch.labels[rows], private.labels)
        parts += [(batch, rows[alike]), (batch, rows[~alike])]
    limit, chosen = _SPARE * wanted, []
    for batch, rows in (parts[0], parts[2], parts[1], parts[3]):
        chosen.append(batch[rows[:limit]])
        limit -= len(chosen[-1])
    if dataset.strangers is not None:
        order = torch.randperm(len(dataset.strangers), generator=generator)
        chosen.insert(0, dataset.strangers[order[: _SPARE * wanted]])
    both = join_batches(chosen)
    return Pool(both.inputs, both.labels, f"other {dataset.space.kinds} of {dataset.name}", both.regions)


def _elsewhere(batch: Batch, rows: Tensor, private: Batch) -> Tensor:
    """The rows that are not cut from the pictures of the private examples; all where there are no others."""
    if batch.regions is None or private.regions is None or len(rows) == 0:
        return rows
    kept = rows[~share_picture(batch.regions[rows], private.regions).any(dim=1)]
    return kept if len(kept) else rows


def join_batches(batches: Sequence[Batch]) -> Batch:
    """All examples, with their regions if all have some."""
    regions = [batch.regions for batch in batches if batch.regions is not None]
    return Batch(
        torch.cat([batch.inputs for batch in batches]),
        torch.cat([batch.labels for batch in batches]),
        regions=torch.cat(regions) if len(regions) == len(batches) else None,
    )
