"""The crowd that private examples are picked from: others of their kind, and made ones where there are too few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

import torch
from torch import Generator, Tensor

from leakgauge.audit.verdict import SIGNIFICANT
from leakgauge.data import (
    PHOTOGRAPHS,
    STRANGERS,
    Split,
    augment_images,
    count_references,
    in_tones_of,
    reference_batch,
    resample_rows,
    resample_texts,
    share_picture,
    share_pixels,
)
from leakgauge.metrics import count_statistics
from leakgauge.space import ImageSpace, InputSpace, TableSpace, TokenSpace
from leakgauge.types import Batch

_MOST = 9_999
_MOST_BYTES = 1 << 28

_COPY = 0.01
"""Of an image's variance: what differs from it by no more is the same image, coded anew."""

_STRANGE = 1 / 3
"""Of the median distance: what was made of private examples and lies nearer to one is no stranger to it."""

_ATTEMPTS = 5

NULL_PHOTOGRAPHS, CROWD_PHOTOGRAPHS = PHOTOGRAPHS[::2], (*PHOTOGRAPHS[1::2], *STRANGERS)
"""Where a user gives no references: crops of one photograph are never nulls and crowd of each other."""


@dataclass(frozen=True)
class Pool:
    """Inputs that are not private, in the order in which they are taken; ``labels`` None where they are not known.

    ``name`` is what several of them are called; ``regions`` are those of a `Batch`.
    """

    inputs: Tensor
    labels: Tensor | None
    name: str
    regions: Tensor | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: Tensor | slice) -> Pool:
        labels = None if self.labels is None else self.labels[index]
        regions = None if self.regions is None else self.regions[index]
        return Pool(self.inputs[index], labels, self.name, regions)

    def apart_from(self, taken: Batch) -> Pool:
        """Without what is cut from the same pictures as these; or, where that leaves nobody, what shares pixels."""
        if self.regions is None or taken.regions is None:
            return self
        elsewhere = ~share_picture(self.regions, taken.regions).any(dim=1)
        if bool(elsewhere.any()):
            return self[elsewhere]
        return self[~share_pixels(self.regions, taken.regions).any(dim=1)]

    def labelled(self) -> Pool:
        """Those that a client could train on: of some nobody knows a class."""
        if self.labels is None or not are_classes(self.labels) or bool((self.labels >= 0).all()):
            return self
        return self[self.labels >= 0]


def are_classes(labels: Tensor) -> bool:
    """Whether each label is the number of a class, so that examples can be alike in it."""
    return labels.ndim == 1 and not labels.is_floating_point()


@dataclass(frozen=True)
class Crowd:
    """Strangers to the private examples, and in ``words`` of what they consist; None if there are to be none.

    The first ``kin`` of them are of the private examples' own kind, the others were made.
    """

    inputs: Tensor | None
    words: str
    kin: int = 0


def crowd_size(tests: int, at_least: int, space: InputSpace) -> int:
    """How many strangers it takes for the nearest of all to be significant in so many tests, as far as they fit.

    >>> crowd_size(12, 99, ImageSpace(3, 32, 32))
    719
    """
    if at_least < 1:
        return 0
    return max(at_least, min(_needed(tests, space), _MOST, _MOST_BYTES // (4 * torch.Size(space.shape).numel())))


def _needed(tests: int, space: InputSpace) -> int:
    return ceil(count_statistics(space) * tests / SIGNIFICANT) - 1


def draw_crowd(
    space: InputSpace, private: Batch, pool: Pool | None, *, tests: int, at_least: int, generator: Generator
) -> Crowd:
    """As many strangers as ``tests`` need, of the private examples' classes first: a label alone must not identify.

    Where the pool is too small, the others are made of it and of the private examples; without a pool, of those and
    of embedded photographs.
    """
    size = crowd_size(tests, at_least, space)
    if size == 0:
        return Crowd(None, "none")
    parts: dict[str, Tensor] = {}
    if pool is not None:
        parts[pool.name] = pool.inputs[_alike_first(pool, private)[:size]].to(private.inputs)
    elif isinstance(space, ImageSpace):
        photographs = draw_photographs(space, private, size // 2, "train", CROWD_PHOTOGRAPHS, generator=generator)
        parts[photographs.name] = photographs.inputs
    real = sum(map(len, parts.values()))
    if real < size:
        of = torch.cat([*(parts.values() if pool is not None else ()), private.inputs])
        parts[_made_name(space, pool)] = make_strangers(space, of, private.inputs, size - real, generator=generator)
    inputs = torch.cat(list(parts.values()))
    if len(inputs) == 0:
        return Crowd(None, "none")
    if pool is None:
        inputs = inputs[torch.randperm(len(inputs), generator=generator).to(inputs.device)]
    words = " and ".join(f"{len(part):,} {name}" for name, part in parts.items() if len(part))
    needed = _needed(tests, space)
    if len(inputs) < needed:
        words += f"; rank alone would need {needed:,}"
    return Crowd(inputs, words, 0 if pool is None else real)


def draw_photographs(
    space: ImageSpace, private: Batch, at_most: int, split: Split, names: Sequence[str], *, generator: Generator
) -> Pool:
    """Crops of these embedded photographs in the tones of the private images, of which none is one."""
    count = min(at_most, count_references(split, names))
    crops = reference_batch(space.shape, count, generator=generator, split=split, names=names)
    crops = crops[~copies(space, crops.inputs, private.inputs)]
    toned = in_tones_of(crops.inputs, private.inputs, generator=generator)
    strange = ~near(space, toned, private.inputs).cpu()
    pool = Pool(toned[strange], None, "embedded photographs in their tones", None)
    if crops.regions is not None:
        pool = replace(pool, regions=crops.regions[strange])
    if len(pool) == 0:  # private images without any tones have none to lend
        pool = Pool(crops.inputs.to(private.inputs), None, "embedded photographs", crops.regions)
    return pool.apart_from(private)


def make_strangers(space: InputSpace, of: Tensor, private: Tensor, count: int, *, generator: Generator) -> Tensor:
    """``count`` inputs made of some, none of them near a private one; fewer where too many come out near."""
    made = private[:0]
    for _ in range(_ATTEMPTS):
        if len(made) >= count:
            break
        more = _make(space, of, count, generator).to(private)
        made = torch.cat((made, more[~near(space, more, private)]))
    return made[:count]


def near(space: InputSpace, made: Tensor, private: Tensor) -> Tensor:
    """Which of the made inputs lie so near to a private one that it could be told from them only by chance."""
    distances = _distances(space, made, private)
    if len(made) == 0:
        return torch.zeros(0, dtype=torch.bool, device=made.device)
    return (distances <= _STRANGE * distances.median(dim=0).values).any(dim=1)


def copies(space: InputSpace, inputs: Tensor, private: Tensor) -> Tensor:
    """Which of the inputs are private ones over again, or their mirror images; in the crowd they would hide a leak."""
    distances = _distances(space, inputs, private)
    if isinstance(space, ImageSpace):
        variance = private.flatten(1).double().var(dim=1, correction=0)
        return (distances <= (_COPY * variance).clamp_min(1e-9).cpu()).any(dim=1).to(inputs.device)
    same = (distances <= 1e-9).any(dim=1).to(inputs.device)
    # Where rows repeat anyway, an equal one is another person's.
    repeated = len(inputs) - len(inputs.unique(dim=0))
    return same if repeated <= 0.01 * len(inputs) else torch.zeros_like(same)


def _distances(space: InputSpace, inputs: Tensor, private: Tensor) -> Tensor:
    """The squared error of each input and each private example or its mirror image, over their parts."""
    if isinstance(space, TokenSpace):
        return space.distance(inputs.cpu(), private.cpu())
    left, right = (space.vectors(one.cpu()).double() for one in (inputs, private))
    found = _squares(left, right)
    if isinstance(space, ImageSpace):
        found = torch.minimum(found, _squares(left, space.vectors(private.cpu().flip(-1)).double()))
    return found / space.parts


def _squares(left: Tensor, right: Tensor) -> Tensor:
    # By a product, as there may be thousands; the digits that cancel are far below what counts as a copy.
    products = left @ right.T
    return (left.square().sum(dim=1)[:, None] + right.square().sum(dim=1) - 2 * products).clamp_min(0)


def _make(space: InputSpace, of: Tensor, count: int, generator: Generator) -> Tensor:
    if isinstance(space, ImageSpace):
        return augment_images(of, count, generator=generator)
    if isinstance(space, TableSpace):
        return resample_rows(space, of, count, generator=generator)
    if isinstance(space, TokenSpace):
        return resample_texts(space, of, count, generator=generator)
    return space.draw(count, generator=generator)


def _made_name(space: InputSpace, pool: Pool | None) -> str:
    of = f"the private {space.kinds}" if pool is None else f"these and the private {space.kinds}"
    if isinstance(space, ImageSpace):
        return f"augmented copies of {of}"
    if isinstance(space, TableSpace):
        return f"rows resampled column by column from {of} and the columns' ranges"
    if isinstance(space, TokenSpace):
        return f"texts of words drawn from {of} and the vocabulary"
    return f"random {space.kinds}"


def _alike_first(pool: Pool, private: Batch) -> Tensor:
    """The rows of a pool, those of the private examples' classes first, each part in its order."""
    order = torch.arange(len(pool))
    if pool.labels is None or not are_classes(private.labels):
        return order
    alike = torch.isin(pool.labels.cpu(), private.labels.cpu())
    return torch.cat((order[alike], order[~alike]))
