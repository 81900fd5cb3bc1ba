"""The spaces there are: images, and rows of a table; texts are in `token_space`, what a space is in `input_space`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isfinite, prod
from typing import Any, ClassVar

import torch
from torch import Tensor

from leakgauge.errors import InvalidCase, UnsupportedModel
from leakgauge.input_space import Cells, InputSpace
from leakgauge.token_space import TokenSpace
from leakgauge.types import ModelState, Shape

MOST_PIXELS = 1 << 26
"""Channels counted, of one image: a file may say any size."""


@dataclass(frozen=True)
class ImageSpace(InputSpace):
    """Pixels in [0, 1], channels first."""

    channels: int
    height: int
    width: int

    kind: ClassVar[str] = "image"
    one: ClassVar[str] = "an image"
    kinds: ClassVar[str] = "images"

    def __post_init__(self) -> None:
        if not all(type(side) is int and side > 0 for side in self.shape):
            raise InvalidCase(f"Images have positive channels, height and width, got {self.shape}; correct them.")
        if prod(self.shape) > MOST_PIXELS:
            raise InvalidCase(f"An image of {self.shape} has over {MOST_PIXELS} pixels; correct its size.")

    @classmethod
    def of(cls, inputs: Tensor) -> ImageSpace:
        """The space of a batch of images ``n c h w``."""
        if inputs.ndim != 4:
            raise InvalidCase(
                f"Images must be n c h w, got shape {tuple(inputs.shape)}; add the missing dimension, or, if these are "
                "rows of a table, say what their columns are: space=TableSpace(...)."
            )
        return cls(*inputs.shape[1:])

    @property
    def shape(self) -> Shape:
        return self.channels, self.height, self.width

    @property
    def size(self) -> str:
        return f"{' x '.join(map(str, self.shape))} (channels x height x width)"

    def describe(self) -> str:
        return "channels, height, width and the pixel range [0, 1]"

    def check(self, inputs: Tensor) -> None:
        if ImageSpace.of(inputs) != self:
            raise InvalidCase(f"Images must be {self.size}, got shape {tuple(inputs.shape)}; bring them to it.")
        low, high = float(inputs.min()), float(inputs.max())
        if not 0 <= low <= high <= 1:
            raise InvalidCase(
                f"Pixels must lie in [0, 1], got {low:.3g} to {high:.3g}; "
                "undo the normalisation and let the model do it."
            )

    def probe(self, count: int, like: Tensor | ModelState) -> Tensor:
        return torch.full((count, *self.shape), 0.5, dtype=like.dtype, device=like.device)

    def relax(self, inputs: Tensor) -> Tensor:
        return inputs

    def lift(self, relaxed: Tensor) -> Tensor:
        return relaxed

    def decode(self, relaxed: Tensor) -> Tensor:
        return relaxed.clamp(0, 1)

    @property
    def parts(self) -> int:
        return prod(self.shape)

    def vectors(self, inputs: Tensor) -> Tensor:
        return inputs.flatten(1)

    def render(self, member: Tensor) -> Tensor:
        return member


@dataclass(frozen=True)
class Continuous:
    """A column of numbers between ``low`` and ``high``: one entry of a row."""

    name: str
    low: float
    high: float

    def __post_init__(self) -> None:
        if not (isfinite(self.low) and isfinite(self.high) and self.low < self.high):
            raise InvalidCase(f"The column {self.name!r} runs from {self.low} to {self.high}; give a range.")

    @property
    def width(self) -> int:
        return 1

    def check(self, block: Tensor) -> None:
        low, high = float(block.min()), float(block.max())
        # What float32 makes of a bound belongs to the range.
        slack = 1e-6 * max(abs(self.low), abs(self.high))
        if not self.low - slack <= low <= high <= self.high + slack:
            raise InvalidCase(
                f"The column {self.name!r} must lie in [{self.low:.6g}, {self.high:.6g}], got {low:.6g} to {high:.6g}; "
                "correct the rows or the range."
            )

    def nearest(self, block: Tensor) -> Tensor:
        return block.clamp(self.low, self.high)

    def render(self, block: Tensor) -> str:
        return f"{float(block[0]):.6g}"


@dataclass(frozen=True)
class Categorical:
    """A column of one out of several ``categories``: an entry for each, 1 where it holds and 0 elsewhere."""

    name: str
    categories: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "categories", tuple(self.categories))
        if len(set(self.categories)) != len(self.categories) or len(self.categories) < 2:
            raise InvalidCase(f"The column {self.name!r} needs two or more different categories; name them.")

    @property
    def width(self) -> int:
        return len(self.categories)

    def check(self, block: Tensor) -> None:
        if not torch.equal(self.nearest(block), block):
            raise InvalidCase(
                f"The column {self.name!r} must be 1 for one of its {self.width} categories and 0 for the others, in "
                "every row; encode it so."
            )

    def nearest(self, block: Tensor) -> Tensor:
        return torch.zeros_like(block).scatter(-1, block.argmax(dim=-1, keepdim=True), 1.0)

    def render(self, block: Tensor) -> str:
        return self.categories[int(block.argmax())]


Column = Continuous | Categorical


@dataclass(frozen=True)
class TableSpace(InputSpace):
    """Rows of a table, their columns side by side in one vector."""

    columns: tuple[Column, ...]

    kind: ClassVar[str] = "row"
    one: ClassVar[str] = "a row"
    kinds: ClassVar[str] = "rows"

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        if len({column.name for column in self.columns}) != len(self.columns) or not self.columns:
            raise InvalidCase("A table needs one or more columns of different names; correct them.")

    @classmethod
    def of(cls, rows: Tensor, names: tuple[str, ...]) -> TableSpace:
        """Continuous columns, each over the range that it has in ``rows``; one that never changes gets the width 1."""
        ends = zip(names, rows.amin(dim=0).tolist(), rows.amax(dim=0).tolist(), strict=True)
        return cls(tuple(Continuous(name, low, high if high > low else low + 1) for name, low, high in ends))

    @property
    def shape(self) -> Shape:
        return (sum(column.width for column in self.columns),)

    @property
    def size(self) -> str:
        return f"{len(self.columns)} columns in {self.shape[0]} entries"

    def describe(self) -> str:
        return "columns and their ranges"

    def blocks(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """The entries of each column."""
        return inputs.split([column.width for column in self.columns], dim=-1)

    def check(self, inputs: Tensor) -> None:
        if not inputs.is_floating_point() or inputs.ndim != 2 or tuple(inputs.shape[1:]) != self.shape:
            raise InvalidCase(
                f"Rows must be floats of shape n x {self.shape[0]}, got {inputs.dtype} of shape {tuple(inputs.shape)}; "
                "give each number one entry and each category its own."
            )
        for column, block in zip(self.columns, self.blocks(inputs), strict=True):
            column.check(block)

    def probe(self, count: int, like: Tensor | ModelState) -> Tensor:
        middle = torch.full((count, *self.shape), 0.5, dtype=like.dtype, device=like.device)
        return self.decode(middle)

    def relax(self, inputs: Tensor) -> Tensor:
        low, high = self._ends(inputs)
        return (inputs - low) / (high - low)

    def lift(self, relaxed: Tensor) -> Tensor:
        low, high = self._ends(relaxed)
        return low + relaxed * (high - low)

    def decode(self, relaxed: Tensor) -> Tensor:
        blocks = zip(self.columns, self.blocks(self.lift(relaxed)), strict=True)
        return torch.cat([column.nearest(block) for column, block in blocks], dim=-1)

    @property
    def parts(self) -> int:
        return len(self.columns)

    def vectors(self, inputs: Tensor) -> Tensor:
        # Two categories differ in two entries, two numbers in one.
        weights = [
            1.0 if isinstance(column, Continuous) else 0.5 for column in self.columns for _ in range(column.width)
        ]
        return self.relax(inputs.double()) * inputs.new_tensor(weights, dtype=torch.float64).sqrt()

    def render(self, member: Tensor) -> Cells:
        blocks = zip(self.columns, self.blocks(member), strict=True)
        return tuple((column.name, column.render(block)) for column, block in blocks)

    def _ends(self, like: Tensor) -> tuple[Tensor, Tensor]:
        low, high = [], []
        for column in self.columns:
            least, greatest = (column.low, column.high) if isinstance(column, Continuous) else (0.0, 1.0)
            low += [least] * column.width
            high += [greatest] * column.width
        return like.new_tensor(low), like.new_tensor(high)


def as_space(given: InputSpace | Shape) -> InputSpace:
    """The space itself; three numbers are the channels, height and width of images.

    >>> as_space((3, 32, 32))
    ImageSpace(channels=3, height=32, width=32)
    """
    if isinstance(given, InputSpace):
        return given
    if len(given) != 3:
        raise InvalidCase(f"An image shape is (channels, height, width), got {given}; pass these or an InputSpace.")
    return ImageSpace(*given)


def require(space: InputSpace, served: type[InputSpace], part: object) -> None:
    """Refuse a space that this part of an attack does not serve."""
    if not isinstance(space, served):
        raise UnsupportedModel(
            f"{type(part).__name__} serves {served.kinds}, and this model takes {space.kinds}; use an attack for these."
        )


def space_to_json(space: InputSpace) -> dict[str, Any]:
    """The space as plain values."""
    if isinstance(space, TableSpace):
        return {"columns": [asdict(column) for column in space.columns]}
    if isinstance(space, TokenSpace):
        return {"tokens": asdict(space)}
    return {"image_shape": list(space.shape)}


def space_from_json(values: Mapping[str, Any]) -> InputSpace:
    """What ``space_to_json`` wrote; ``ValueError`` or ``TypeError`` where it did not."""
    try:
        if "columns" in values:
            kinds = (Categorical if "categories" in column else Continuous for column in values["columns"])
            return TableSpace(tuple(kind(**column) for kind, column in zip(kinds, values["columns"])))
        if "tokens" in values:
            return TokenSpace(**values["tokens"])
        shape = tuple(values["image_shape"])
        if len(shape) != 3 or not all(type(side) is int and 0 < side <= 1 << 16 for side in shape):
            raise ValueError(f"image_shape {shape}")
        return ImageSpace(*shape)
    except InvalidCase as error:
        raise ValueError(str(error)) from error
