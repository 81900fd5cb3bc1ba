"""Who is in the batch: how many, with which labels, and whether the private images were mirrored."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from leakgauge.audit.readings.base import RoundReading, Seen
from leakgauge.protocol.clients import local_steps
from leakgauge.space import ImageSpace

_ORDERED = 4
"""Examples up to which every order of them is tried."""

_COUNTS = (1, 2, 4, 8, 16)

_TURNS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "mirrored": lambda images: images.flip(-1),
    "upside down": lambda images: images.flip(-2),
    "turned by 180 degrees": lambda images: images.flip((-1, -2)),
    "with red and blue exchanged": lambda images: images.flip(-3),
}


def read_count(seen: Seen) -> Iterator[RoundReading]:
    """Another number of examples, whose labels are then not known; also a mean of several clients' updates."""
    for count in _COUNTS:
        if count != seen.num_examples:
            words = f"the update covers {count} example{'s' * (count > 1)}"
            options = (("--batch-size", str(count)), ("--read", "without-labels"))
            yield seen.reading.otherwise("examples", words, options, num_examples=count, labels=None)


def read_labels(seen: Seen) -> Iterator[RoundReading]:
    """Other labels than those recorded."""
    if seen.recorded.labels is not None:
        yield seen.reading.otherwise(
            "labels",
            "the recorded labels are not those of the batch",
            (("--read", "without-labels"),),
            labels=None,
            num_examples=seen.num_examples,
        )


def read_order(seen: Seen) -> Iterator[RoundReading]:
    """The examples of several local steps in another order than their labels stand in."""
    count = seen.num_examples or 1
    if not 1 < count <= _ORDERED or (local_steps(seen.client, count) or 1) < 2:
        return
    for order in itertools.islice(itertools.permutations(range(count)), 1, None):
        labels = seen.recorded.labels
        changes = {} if labels is None else {"labels": labels[list(order)]}
        words = f"the client took its examples in the order {', '.join(str(place + 1) for place in order)}"
        yield seen.reading.otherwise("order", words, (("--read", "without-labels"),), order=order, **changes)


def read_truth(seen: Seen) -> Iterator[RoundReading]:
    """Images that the client mirrored or turned before it trained on them."""
    space = seen.recorded.space
    if not isinstance(space, ImageSpace):
        return
    for words, turn in _TURNS.items():
        if "turned" not in words or space.height == space.width:
            yield seen.reading.otherwise("truth", f"the client trained on the images {words}", truth=turn)
    if space.height == space.width:
        for quarter in (1, 3):
            yield seen.reading.otherwise(
                "truth",
                f"the client trained on the images turned by {90 * quarter} degrees",
                truth=lambda images, quarter=quarter: torch.rot90(images, quarter, (-2, -1)),
            )
