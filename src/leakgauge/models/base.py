"""What a model of the catalogue is, and the few pieces all of them share."""

from __future__ import annotations

import difflib
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod
from typing import Literal, Protocol

import torch
from torch import nn

from leakgauge.errors import InvalidCase
from leakgauge.models.normalisation import Normalisation, Normalise
from leakgauge.types import Shape

Padding = Literal["zeros", "circular"]
"""What a convolution sees beyond the border; circular padding hides where in the image an object is."""

PADDINGS: tuple[Padding, ...] = ("zeros", "circular")

ACTIVATIONS: Mapping[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "elu": nn.ELU,
    "softplus": nn.Softplus,
    "silu": nn.SiLU,
}


class ModelFactory(Protocol):
    """A model's configuration; calling it builds the module, with weights from torch's global generator.

    The module takes inputs of ``shape`` in their own units and normalises inside; ``None`` means
    ``Normalisation.natural`` for images, and rows as they are.
    """

    def __call__(self, shape: Shape, num_classes: int, *, normalisation: Normalisation | None = None) -> nn.Module: ...


def build(
    factory: ModelFactory,
    shape: Shape,
    num_classes: int,
    *,
    seed: int,
    normalisation: Normalisation | None = None,
) -> nn.Module:
    """The module whose initial weights are a function of ``seed`` alone; the global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would also reseed every GPU, which the fork does not restore.
        torch.default_generator.manual_seed(seed)
        return factory(shape, num_classes, normalisation=normalisation)


def make_activation(name: str) -> nn.Module:
    """A fresh activation layer, so that no two places in a network share one module.

    >>> make_activation("leaky_relu")
    LeakyReLU(negative_slope=0.01)
    """
    check_choice("activation", name, ACTIVATIONS)
    return ACTIVATIONS[name]()


def assemble(
    shape: Shape,
    num_classes: int,
    normalisation: Normalisation | None,
    layers: Mapping[str, nn.Module],
    *,
    features: int,
    bias: bool = True,
) -> nn.Sequential:
    """``normalise``, then ``layers``, then the linear ``head`` that maps ``features`` to one logit per class."""
    channels = shape[0]
    if normalisation is None:
        # The units of a row are not known here, so it passes as it is.
        rows = Normalisation((0.0,) * channels, (1.0,) * channels)
        normalisation = rows if len(shape) == 1 else Normalisation.natural(channels)
    if len(normalisation.mean) != channels:
        raise InvalidCase(
            f"The normalisation has {len(normalisation.mean)} channels but the inputs have {channels}; "
            "give one mean and one std per channel."
        )
    head = nn.Linear(features, num_classes, bias=bias)
    return nn.Sequential(
        OrderedDict([("normalise", Normalise(normalisation, len(shape) - 1)), *layers.items(), ("head", head)])
    )


def assemble_convolutions(
    shape: Shape,
    num_classes: int,
    normalisation: Normalisation | None,
    *,
    strides: Sequence[int],
    width: int,
    activation: str,
    kernel: int = 3,
    batch_norm: bool = False,
) -> nn.Sequential:
    """Convolutions of equal width and odd kernel with these strides, each with its activation, and the linear head."""
    incoming, *sides = shape
    layers: dict[str, nn.Module] = {}
    for index, stride in enumerate(strides, start=1):
        layers[f"conv{index}"] = nn.Conv2d(incoming, width, kernel, stride=stride, padding=kernel // 2)
        if batch_norm:
            layers[f"norm{index}"] = nn.BatchNorm2d(width)
        layers[f"act{index}"] = make_activation(activation)
        incoming = width
    layers["flatten"] = nn.Flatten()
    features = width * prod(side_after(side, *strides) for side in sides)
    return assemble(shape, num_classes, normalisation, layers, features=features)


def check_classes(factory: ModelFactory, num_classes: int) -> None:
    """Refuse a task with nothing to tell apart."""
    if num_classes < 2:
        raise InvalidCase(
            f"{type(factory).__name__} needs at least two classes to tell apart, got {num_classes}; "
            "raise `num_classes`."
        )


def check_task(factory: ModelFactory, shape: Shape, num_classes: int, *, minimum: int = 1) -> None:
    """Refuse images or classes that ``factory`` cannot serve, before any layer is built."""
    name = type(factory).__name__
    if len(shape) != 3 or min(shape) < 1:
        raise InvalidCase(
            f"{name} needs an image shape (channels, height, width) of positive numbers, got {shape}; "
            "pass the shape of one image, or choose a model for other inputs, such as MLP."
        )
    check_classes(factory, num_classes)
    _, height, width = shape
    if min(height, width) < minimum:
        raise InvalidCase(
            f"{name} pools and so needs at least {minimum} x {minimum} pixels, "
            f"got {height} x {width}; enlarge the images or choose a model without pooling, such as Compact."
        )


def check_choice(what: str, value: object, options: Collection[object]) -> None:
    """Refuse a ``value`` outside ``options``, and suggest the nearest.

    >>> check_choice("activation", "rellu", ["relu", "tanh"])
    Traceback (most recent call last):
    leakgauge.errors.InvalidCase: There is no activation 'rellu'; did you mean 'relu'?
    """
    if value in list(options):
        return
    by_text = {str(option): option for option in options}
    close = difflib.get_close_matches(str(value), by_text, n=1)
    listing = ", ".join(repr(option) for option in options)
    remedy = f"did you mean {by_text[close[0]]!r}?" if close else f"choose one of {listing}."
    raise InvalidCase(f"There is no {what} {value!r}; {remedy}")


def check_positive(factory: ModelFactory, **sizes: int) -> None:
    """Refuse a field that is not a positive whole number."""
    for name, size in sizes.items():
        if not isinstance(size, int) or size < 1:
            raise InvalidCase(
                f"{type(factory).__name__} needs `{name}` to be a positive whole number, got {size!r}; pass 1 or more."
            )


def check_dropout(factory: ModelFactory, dropout: float) -> None:
    """Refuse a share of dropped units outside [0, 1)."""
    if not 0 <= dropout < 1:
        raise InvalidCase(
            f"{type(factory).__name__} drops out a share of at least 0 and below 1, got {dropout!r}; "
            "pass 0 to drop none."
        )


def start_convolutions(module: nn.Module) -> None:
    """Normal weights of variance 2 / (fan out), which keeps gradients at their size through ReLUs [He et al., 2015]."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")


def side_after(size: int, *strides: int) -> int:
    """Side of an image after convolutions with these strides, each with an odd kernel padded by half of it.

    >>> side_after(33, 2, 2)
    9
    """
    for stride in strides:
        size = (size - 1) // stride + 1
    return size
