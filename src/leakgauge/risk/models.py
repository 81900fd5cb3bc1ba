"""A model that words name, built for inputs of a shape without any data."""

from __future__ import annotations

from torch import nn

from leakgauge.config import build_normalised
from leakgauge.errors import InvalidCase
from leakgauge.factories import import_factory
from leakgauge.randomness import global_stream, seeded
from leakgauge.space import Continuous, ImageSpace, InputSpace, TableSpace, TokenSpace
from leakgauge.training.models import catalogue_model, is_own_model

CLASSES = 10
"""Of a model of the catalogue, unless one says."""


def model_by_name(words: str, space: InputSpace, classes: int | None, normalise: str | None) -> nn.Module:
    """A user's own ``package.module:factory``, or a model of the catalogue for these inputs."""
    if is_own_model(words):
        if classes is not None:
            raise InvalidCase(
                f"The model {words!r} has the classes its factory gives it; leave out --classes, or name them among "
                "its arguments, ...:factory:num_classes=10."
            )
        with global_stream(seeded(0, "model")):
            model = import_factory(words)
        return build_normalised(model, normalise).eval()
    if normalise is not None:
        raise InvalidCase(f"The model {words!r} of the catalogue normalises inside; leave out the normalisation.")
    return catalogue_model(words, space, CLASSES if classes is None else classes).eval()


def space_of(shape: tuple[int, ...], vocabulary: int | None = None) -> InputSpace:
    """Images for three numbers; for one, rows of as many values in [0, 1] or, with a vocabulary, texts of such length.

    >>> space_of((3, 32, 32))
    ImageSpace(channels=3, height=32, width=32)
    """
    if not all(type(side) is int and side > 0 for side in shape) or len(shape) not in (1, 3):
        raise InvalidCase(
            f"Inputs of shape {','.join(map(str, shape))} are neither images, channels,height,width such as 3,224,224, "
            "nor rows of values, such as 30; correct the shape."
        )
    if vocabulary is not None:
        if len(shape) != 1 or vocabulary < 2:
            raise InvalidCase(
                f"Texts have a length, --input 32, and two tokens or more, got {shape} and {vocabulary}; correct them."
            )
        return TokenSpace(shape[0], tuple(f" {number}" for number in range(vocabulary)))
    if len(shape) == 3:
        return ImageSpace(*shape)
    return TableSpace(tuple(Continuous(f"column {number}", 0.0, 1.0) for number in range(1, shape[0] + 1)))
