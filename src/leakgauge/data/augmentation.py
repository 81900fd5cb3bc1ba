"""Inputs made of others where there are too few of their kind to compare with: strangers that look like the family."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from leakgauge.space import TableSpace, TokenSpace

_AT_ONCE = 64
"""Images that are made together: several times as many pieces of them are in memory."""


def augment_images(images: Tensor, count: int, *, generator: Generator) -> Tensor:
    """``count`` new images out of pieces of the given ones: turned, mirrored, moved, recoloured, cut up and mixed.

    Strong enough to be of something else to a measure that compares pixel by pixel; tones, edges and grain stay.
    """
    sizes = [min(_AT_ONCE, count - done) for done in range(0, count, _AT_ONCE)]
    return torch.cat([images[:0], *(_augment(images, size, generator) for size in sizes)])


def in_tones_of(pictures: Tensor, images: Tensor, *, generator: Generator) -> Tensor:
    """The pictures with the pixel values of the images: each has those of one image, in its own arrangement."""
    chosen = torch.randint(len(images), (len(pictures),), generator=generator).to(images.device)
    tones = images[chosen].flatten(2).sort(dim=-1).values
    # Pixels that are equal are ordered at random: in order of place they would become a ramp.
    grain = torch.rand(pictures.shape, generator=generator) * 1e-4
    order = (pictures.to(images) + grain.to(images)).flatten(2).argsort(dim=-1)
    return torch.empty_like(tones).scatter_(-1, order, tones).view(-1, *images.shape[1:])


def resample_rows(space: TableSpace, rows: Tensor, count: int, *, generator: Generator) -> Tensor:
    """``count`` new rows, column by column: the value of a random one of these rows, or any value of the column.

    The fewer rows there are, the less of a row is taken from them: with one, a third of its cells.
    """
    anything = space.decode(torch.rand(count, *space.shape, generator=generator).to(rows))
    blocks = []
    for own, any_value in zip(space.blocks(rows), space.blocks(anything), strict=True):
        source = torch.randint(len(rows), (count,), generator=generator).to(rows.device)
        taken = torch.rand(count, 1, generator=generator).to(rows.device) < len(rows) / (len(rows) + 2)
        blocks.append(torch.where(taken, own[source], any_value))
    return torch.cat(blocks, dim=-1)


def resample_texts(space: TokenSpace, texts: Tensor, count: int, *, generator: Generator) -> Tensor:
    """``count`` new texts of the lengths that these have, token by token: one of theirs, or any of the vocabulary.

    As of rows, the fewer texts there are, the less of a new one is taken from them.
    """
    source = torch.randint(len(texts), (count,), generator=generator).to(texts.device)
    spoken = texts[texts != space.pad]
    taken = spoken[torch.randint(len(spoken), (count, space.length), generator=generator).to(texts.device)]
    foreign = torch.randint(len(space.vocabulary) - 1, (count, space.length), generator=generator).to(texts.device)
    own = torch.rand(count, space.length, generator=generator).to(texts.device) < len(texts) / (len(texts) + 2)
    made = torch.where(own, taken, foreign + (foreign >= space.pad))
    return torch.where(texts[source] == space.pad, space.pad, made)


def _augment(images: Tensor, count: int, generator: Generator) -> Tensor:
    pieces = [_rearrange(images, count, generator) for _ in range(4)]
    weight = torch.rand(count, 1, 1, 1, generator=generator).to(images) * 0.4 + 0.3
    # A mixture by itself would be paler than its parts.
    mixture = in_tones_of(weight * pieces[0] + (1 - weight) * pieces[1], images, generator=generator)
    made = torch.stack((pieces[0], _mosaic(pieces, generator), mixture))
    kind = torch.randint(len(made), (count,), generator=generator).to(images.device)
    return made[kind, torch.arange(count, device=images.device)]


def _rearrange(images: Tensor, count: int, generator: Generator) -> Tensor:
    """Each a random image turned by quarters, mirrored, mostly rolled by a quarter or more, some channels swapped."""
    _, channels, height, width = images.shape
    made = []
    for _ in range(count):
        draw = torch.randint(1 << 20, (7,), generator=generator).tolist()
        image = images[draw[0] % len(images)]
        image = image.rot90(draw[1] % 4 if height == width else 2 * (draw[1] % 2), dims=(1, 2))
        image = image.flip(2) if draw[2] % 2 else image
        if draw[6] % 4:
            image = image.roll((_quarters(draw[3], height), _quarters(draw[4], width)), dims=(1, 2))
        made.append(image[torch.randperm(channels, generator=generator).to(images.device)] if draw[5] % 2 else image)
    return torch.stack(made)


def _quarters(draw: int, side: int) -> int:
    """From one to three quarters of a side."""
    return side // 4 + draw % max(side // 2, 1)


def _mosaic(pieces: list[Tensor], generator: Generator) -> Tensor:
    """Four pieces side by side, cut somewhere in their middle half."""
    first, second, third, fourth = pieces
    row, column = map(_quarters, torch.randint(1 << 20, (2,), generator=generator).tolist(), first.shape[-2:])
    above = torch.cat((first[..., :row, :column], second[..., :row, column:]), dim=-1)
    below = torch.cat((third[..., row:, :column], fourth[..., row:, column:]), dim=-1)
    return torch.cat((above, below), dim=-2)
