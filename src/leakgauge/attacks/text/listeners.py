"""Which tokens of an encoder's batch belong to one text: those that listen to each other.

The pairs of token and place that were found are all that the first layer read, so its gradient, a sum of cotangents
times reads, is solved for the cotangent of each pair. A query's is then a sum of the keys that it was compared with,
and a key's one of queries: all of them of one text, whatever the batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from leakgauge.attacks.text.layers import TextLayer
from leakgauge.attacks.text.linear_maps import MapReader, Products, ReadingMap, products
from leakgauge.attacks.text.prefixes import Prefix
from leakgauge.types import ParamTree

_SAME = 1e-4
"""Relative difference up to which factors of a product are what a map made."""

_SPARSER, _ROUNDS = 0.6, 25
"""Who explains little is asked to explain less: the exponent, and how often."""

_RIDGE = 1e-12
"""Of the squared singular values: what keeps the equations solvable."""

_DEPENDENT = 1e-4
"""Share up to which a pair's reads are a sum of those of others."""

_UNHEARD = 1e-6
"""Least strength that is told apart."""


class Pair(NamedTuple):
    """A token at a place."""

    place: int
    token: int


class Part(NamedTuple):
    """What a map makes from one output on, shared out to ``heads`` of some size: a map may make more than queries."""

    map: ReadingMap
    start: int
    heads: int
    size: int

    def of(self, outputs: Tensor) -> Tensor:
        """Outputs, last, as heads by size."""
        own = outputs[..., self.start : self.start + self.heads * self.size]
        return own.unflatten(-1, (self.heads, self.size))


@dataclass(frozen=True)
class Listeners:
    """The ``pairs`` of a batch, the cotangents of their queries and keys, and these themselves, n heads each."""

    pairs: tuple[Pair, ...]
    certain: tuple[bool, ...]
    """Whose cotangents the gradient says: not those of pairs that are sums of others, as four are that two tokens and
    two places make."""
    sides: tuple[tuple[Tensor, Tensor], ...]
    """Cotangents, and what they are sums of."""

    @property
    def unique(self) -> bool:
        """Whether there is one solution: fewer pairs than a head has numbers, and none that is a sum of others."""
        return all(self.certain) and all(len(self.pairs) <= parts.shape[-1] for _, parts in self.sides)

    def texts(self, settled: Collection[Prefix]) -> Iterator[Prefix]:
        """Of each pair that the gradient is certain of, and that is in none of those that are ``settled`` by then, the
        text that it listens to."""
        for row in (row for row, certain in enumerate(self.certain) if certain):
            place, token = self.pairs[row]
            if any(text[place : place + 1] == (token,) for text in settled):
                continue
            text = self._read(self._strengths(row))
            if text[place : place + 1] == (token,):
                yield text

    def _strengths(self, row: int) -> Tensor:
        """How much every pair adds to what this one has: of all solutions the one with fewest pairs, the same ones in
        all heads [Cotter et al., 2005]."""
        weights = torch.ones(len(self.pairs), dtype=torch.float64)
        for _ in range(_ROUNDS):
            squares = torch.zeros_like(weights)
            for cotangents, parts in self.sides:
                target = cotangents[row]  # heads size
                scale = parts.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(parts.dtype).tiny)
                scaled = (parts / scale * weights[:, None, None]).transpose(0, 1)  # heads n size
                gram = scaled.mT @ scaled
                ridge = _RIDGE * gram.diagonal(dim1=-2, dim2=-1).sum(dim=-1)[:, None, None]
                gram = gram + ridge * torch.eye(gram.shape[-1], dtype=gram.dtype)
                share = (scaled @ torch.linalg.solve(gram, target[..., None]))[..., 0] * weights
                squares += (share / target.norm(dim=-1, keepdim=True).clamp_min(1e-300)).square().sum(dim=0)
            strengths = squares.sqrt()
            strengths = strengths / strengths.max().clamp_min(1e-300)
            before, weights = weights, strengths**_SPARSER
            if float((weights - before).abs().max()) < _SAME:
                break
        return strengths

    def _read(self, strengths: Tensor) -> Prefix:
        """At each place the strongest, up to where the strength falls most."""
        best: list[tuple[float, int]] = []
        for place in range(max(pair.place for pair in self.pairs) + 1):
            own = [(float(strengths[at]), pair.token) for at, pair in enumerate(self.pairs) if pair.place == place]
            if not own:
                break
            best.append(max(own))
        heard = [max(strength, _UNHEARD) for strength, _ in best] + [_UNHEARD]
        falls = [min(heard[:at]) / max(heard[at:]) for at in range(1, len(heard))]
        return tuple(token for _, token in best[: falls.index(max(falls)) + 1])


def listeners(
    reader: MapReader, layer: TextLayer, update: ParamTree, pairs: Sequence[Pair], length: int
) -> Listeners | None:
    """None where no product of this layer's maps is found, or its gradient does not say what each pair has."""
    tokens = torch.tensor([pair.token for pair in pairs], device=reader.state.device)
    texts, rows = tokens[:, None].expand(-1, length), torch.arange(len(pairs))
    places = torch.tensor([pair.place for pair in pairs])
    seen = products(reader.learner, reader.state, texts)
    found = _attention(layer, seen, len(pairs), length)
    if found is None:
        return None
    reads = reader.at([layer.maps[0]], texts)[0][rows, places].double().cpu()
    inverse = torch.linalg.pinv(reads, rtol=_DEPENDENT)
    certain = ((reads * inverse.mT).sum(dim=1) > 1 - _DEPENDENT).tolist()
    made = [one.of(one.map.texts_first(seen.made[one.map.number])[rows, places].double().cpu()) for one in found]
    owed = [one.of((one.map.gradient(update).cpu() @ inverse).mT) for one in found]
    shared = found[0].heads // found[1].heads
    sides = [(owed[0], made[1].repeat_interleave(shared, dim=1))]
    if shared == 1:
        sides.append((owed[1], made[0]))
    return Listeners(tuple(pairs), tuple(certain), tuple(sides))


def _attention(layer: TextLayer, seen: Products, texts: int, length: int) -> tuple[Part, Part] | None:
    """Queries and keys: the factors of the first product of two things that maps of this layer made."""
    for left, right in seen.batched:
        queries, keys = (_maker(layer, seen, factor, texts, length) for factor in (left, right.mT))
        if queries is not None and keys is not None:
            return queries, keys
    return None


def _maker(layer: TextLayer, seen: Products, factor: Tensor, texts: int, length: int) -> Part | None:
    """What a factor, texts x heads by places by size, is of what a map made, whatever its scale."""
    count, places, size = factor.shape
    if places != length or count % texts:
        return None
    every = count // texts
    for one in layer.maps:
        made = one.texts_first(seen.made[one.number])
        for heads in (heads for heads in range(every, 0, -1) if every % heads == 0):
            for start in range(0, made.shape[-1] - heads * size + 1, heads * size):
                part = Part(one, start, heads, size)
                own = part.of(made).transpose(1, 2).repeat_interleave(every // heads, dim=1).flatten(0, 1)
                scale = (own * factor).sum() / own.square().sum()
                if float((factor - scale * own).norm()) <= _SAME * float(factor.norm()):
                    return part
    return None
