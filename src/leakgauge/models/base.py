"""What a model of the catalogue is, and the few pieces all of them share; normalisation is one, so that everything
outside a model speaks in the units of the inputs."""

from __future__ import annotations

import difflib
import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from leakgauge.errors import InvalidCase
from leakgauge.types import Shape

# A channel that varies by less than one grey level shows no picture; dividing by its deviation would blow up noise.
_SMALLEST_STD = 1 / 255


@dataclass(frozen=True)
class Normalisation:
    """Mean and standard deviation of each channel of the images, or each entry of the rows, that a model expects.

    >>> Normalisation.natural(channels=1)
    Normalisation(mean=(0.5,), std=(0.25,))
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.mean or len(self.mean) != len(self.std):
            raise InvalidCase(
                f"A normalisation needs one mean and one std per channel, got {len(self.mean)} and {len(self.std)}; "
                "pass two tuples with one entry per channel."
            )
        if not all(math.isfinite(value) for value in (*self.mean, *self.std)) or min(self.std) <= 0:
            raise InvalidCase(
                f"A normalisation needs finite means and positive stds, got mean={self.mean} and std={self.std}; "
                "compute them with `Normalisation.of(images)`."
            )

    @classmethod
    def natural(cls, channels: int) -> Normalisation:
        """Mean 0.5, std 0.25: close to natural photographs (CIFAR-10: 0.47, 0.25), but not learnt from any data set."""
        return cls((0.5,) * channels, (0.25,) * channels)

    @classmethod
    def of(cls, inputs: Tensor) -> Normalisation:
        """Mean and biased standard deviation of each channel of images n c h w, or of each entry of rows n k.

        The std of a channel is at least one grey level; an entry that never changes keeps its unit.

        >>> Normalisation.of(torch.tensor([0.25, 0.75]).reshape(2, 1, 1, 1))
        Normalisation(mean=(0.5,), std=(0.25,))
        """
        if inputs.ndim not in (2, 4) or inputs.numel() == 0:
            raise InvalidCase(
                f"A normalisation is computed from images n c h w or rows n k, got shape {tuple(inputs.shape)}; "
                "pass at least one with its batch dimension."
            )
        # float64, because a float32 sum over a whole data set loses digits.
        values = inputs.detach().to(torch.float64).transpose(0, 1).flatten(start_dim=1)
        std = values.std(dim=1, correction=0)
        std = std.clamp(min=_SMALLEST_STD) if inputs.ndim == 4 else torch.where(std > 0, std, 1.0)
        return cls(tuple(values.mean(dim=1).tolist()), tuple(std.tolist()))


class Normalise(nn.Module):
    """``(x - mean) / std`` per channel or entry; ``axes`` follow it, as height and width follow a channel."""

    mean: Tensor
    std: Tensor

    def __init__(self, normalisation: Normalisation, axes: int = 2, *, persistent: bool = True) -> None:
        super().__init__()
        mean = torch.tensor(normalisation.mean).reshape(-1, *(1,) * axes)
        self.register_buffer("mean", mean, persistent=persistent)
        std = torch.tensor(normalisation.std).reshape(-1, *(1,) * axes)
        self.register_buffer("std", std, persistent=persistent)

    def forward(self, inputs: Tensor) -> Tensor:
        return (inputs - self.mean) / self.std


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
