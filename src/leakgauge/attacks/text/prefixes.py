"""Texts of a decoder, token by token: what a layer reads at a token depends on the tokens before it alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from leakgauge.attacks.span.layer_spans import RowSpace
from leakgauge.attacks.text.layers import TextLayer, TextLayers
from leakgauge.attacks.text.linear_maps import MapReader
from leakgauge.progress import Progress, Tick
from leakgauge.space import TokenSpace

EXPLAINED = 2.0
"""How many times what the floor explains of a distance may be there."""

_DROWNED = 0.1
"""Of a stranger's distance: where the floor explains more, noise drowns the test."""

UNDECIDED = 0.0
"""The ratio of what a layer cannot decide."""

CLEARLY = 3.0
"""How many times farther outside what was left lies than what was taken, where something is to be proved."""

_REPEATS = 3
"""How often a text may begin with one token over and over, which no layer without places can count."""

Prefix = tuple[int, ...]


@dataclass
class Margins:
    """How far those that were taken lie below the test, and those that were not above it: 1 is the test itself."""

    taken: float = 0.0
    left: float = float("inf")
    tried: int = 0

    def note(self, ratios: Tensor, slack: float = 1.0) -> Tensor:
        """Which of them are inside; what no layer could decide is not, and nothing can be proved beside it."""
        inside = (ratios <= slack) & (ratios > UNDECIDED)
        self.tried += len(ratios)
        if bool(inside.any()):
            self.taken = max(self.taken, float(ratios[inside].max()))
        if not bool(inside.all()):
            self.left = min(self.left, float(ratios[~inside].min()))
        return inside

    def follow(self, later: Margins) -> None:
        """Those of a later test as well."""
        self.taken, self.left = max(self.taken, later.taken), min(self.left, later.left)
        self.tried += later.tried

    @property
    def apart(self) -> float:
        """How many times farther outside the nearest of the others is than the farthest that was taken."""
        return self.left / self.taken if self.taken else float("nan")


def ratios_to(span: RowSpace, features: Tensor) -> Tensor:
    """How far outside the span features lie, in multiples of what its floor explains; up to 1 they are inside."""
    outside, explained = span.distances(features)
    ratios = outside / (EXPLAINED * explained).clamp_min(torch.finfo(torch.float64).tiny)
    return torch.where(EXPLAINED * explained <= _DROWNED * span.stranger, ratios, UNDECIDED)


def token_ratios(layers: TextLayers, readers: Sequence[TextLayer], space: TokenSpace) -> Tensor:
    """How far outside the spans of the layers that read tokens one by one each token of the vocabulary, rows, lies at
    each place, columns; one column where places make no difference.

    Up to 1 it is inside. What a text's place adds to a token may be the sum of what other pairs have, so that with
    places some are inside that were not there.
    """
    places = space.length if any(layer.placed for layer in readers) else 1
    tokens = torch.arange(len(space.vocabulary), device=layers.reader.state.device)
    found = torch.full((len(tokens), places), torch.inf, dtype=torch.float64, device=tokens.device)
    for chunk in tokens[tokens != space.pad].split(2048):
        texts = chunk[:, None].expand(-1, places)
        reads = layers.reader.at([layer.maps[0] for layer in readers], texts)
        spans = [layer.span for layer in readers if layer.span is not None]
        ratios = [ratios_to(span, values.flatten(0, 1)) for span, values in zip(spans, reads, strict=True)]
        found[chunk] = torch.stack(ratios).amax(dim=0).view(len(chunk), places)
    # What no layer can decide was not found.
    return torch.where(found > UNDECIDED, found, torch.inf)


@dataclass
class Growth:
    """Prefixes that grow against the spans of layers that see them; ``ended`` are those with no continuation.

    ``slack`` is how far outside one may lie, 1 as far as the floor explains. The floor hides what differs by less, as
    two commas do in "down, down, down", and then more is needed.
    """

    reader: MapReader
    layers: Sequence[TextLayer]
    allowed: Tensor
    space: TokenSpace
    width: int
    slack: float = 1.0
    margins: Margins = field(default_factory=Margins)
    ended: list[Prefix] = field(default_factory=list)
    overflow: bool = False

    def run(self, progress: Progress, share: float) -> None:
        """Grow all prefixes to their ends; ``share`` is the part of the attack that this is."""
        live: list[Prefix] = [()]
        for length in range(1, self.space.length):
            grown = self._extend(live, length)
            parents = {prefix[:-1] for prefix in grown}
            self.ended += [prefix for prefix in live if prefix and prefix not in parents]
            live = grown
            if len(live) > self.width:
                self.overflow, live = True, []
            progress(Tick(length, share * length / self.space.length))
            if not live:
                break
        self.ended += live
        self.ended = list(dict.fromkeys(_without_echo(one) for one in self.ended if not _is_echo(one, self.ended)))

    def _extend(self, live: Sequence[Prefix], length: int) -> list[Prefix]:
        column = min(length - 1, self.allowed.shape[1] - 1)
        choices = self.allowed[:, column].nonzero().flatten().tolist()
        candidates = [(*prefix, token) for prefix in live for token in choices if not _repeats(prefix, token)]
        if not candidates:
            return []
        texts = torch.tensor(candidates, device=self.allowed.device)
        ratios = torch.full((len(texts),), UNDECIDED, dtype=torch.float64, device=texts.device)
        for layer in self.layers:
            open_ones = (ratios <= CLEARLY * self.slack).nonzero().flatten()
            if not len(open_ones) or layer.span is None:
                break
            values = self.reader.at([layer.maps[0]], texts[open_ones], slice(length - 1, length))[0][:, 0]
            ratios[open_ones] = torch.maximum(ratios[open_ones], ratios_to(layer.span, values))
        kept = self.margins.note(ratios, self.slack)
        return [one for one, keep in zip(candidates, kept.tolist(), strict=True) if keep]


def _repeats(prefix: Prefix, token: int) -> bool:
    return len(prefix) >= _REPEATS and set(prefix) == {token}


def _without_echo(prefix: Prefix) -> Prefix:
    """Of one token over and over nobody can tell how often: once is the least."""
    return prefix[:1] if len(set(prefix)) == 1 else prefix


def _is_echo(prefix: Prefix, found: Sequence[Prefix]) -> bool:
    """Whether it is one token over and over, where another text begins with that token."""
    return (
        len(prefix) > 1 and len(set(prefix)) == 1 and any(other[0] == prefix[0] for other in found if other != prefix)
    )
