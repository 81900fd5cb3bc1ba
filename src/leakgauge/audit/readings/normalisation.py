"""Images that were normalised in the data loader."""

from __future__ import annotations

from collections.abc import Iterator

from leakgauge.audit.readings.base import RoundReading, Seen
from leakgauge.models import NORMALISATIONS
from leakgauge.space import ImageSpace

_BYTES = "mean=[0.0],std=[0.00392156862745098]"
_WORDS = {
    "half": "to [-1, 1]",
    "imagenet": "by ImageNet's mean and std",
    "cifar10": "by CIFAR-10's mean and std",
    "mnist": "by MNIST's mean and std",
}


def read_normalisation(seen: Seen) -> Iterator[RoundReading]:
    """The usual means and stds, of as many channels as there are."""
    space = seen.recorded.space
    if not isinstance(space, ImageSpace):
        return
    if seen.recorded.normalise is not None:
        yield seen.reading.otherwise("normalisation", "the images were not normalised", normalise=None)
    for name, normalisation in NORMALISATIONS.items():
        if len(normalisation.mean) in (1, space.channels) and name != seen.recorded.normalise:
            words = f"the client normalises its images in the loader {_WORDS.get(name, f'by {name}')}"
            yield seen.reading.otherwise("normalisation", words, (("--normalise", name),), normalise=name)
    words = "the client leaves the pixels of its images in [0, 255]"
    yield seen.reading.otherwise("normalisation", words, (("--normalise", _BYTES),), normalise=_BYTES)
