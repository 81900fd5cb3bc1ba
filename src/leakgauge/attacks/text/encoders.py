"""Texts of an encoder, in which every token sees every other: a token for each place, by who listens to whom, and by
layers that see all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import torch
from torch import Tensor

from leakgauge.attacks.text.layers import TextLayer
from leakgauge.attacks.text.linear_maps import MapReader
from leakgauge.attacks.text.listeners import Pair, listeners
from leakgauge.attacks.text.prefixes import Prefix, ratios_to
from leakgauge.randomness import seeded
from leakgauge.types import ParamTree

_STARTS, _MOST, _SWEEPS = 4, 12, 3
"""Texts by chance, and at most, that a search starts from for each text of a batch; and how often each place of one is
gone through."""


def assemble(
    reader: MapReader,
    layers: tuple[TextLayer, TextLayer],
    found: Tensor,
    count: int,
    update: ParamTree,
    facts: dict[str, str | int | float],
) -> tuple[list[Prefix], bool]:
    """Texts that lie in the span of the first layer that sees whole texts, and whether no others can be put together of
    the same tokens; ``layers`` are one that reads tokens, and that one.

    With one token at each place there is nothing to choose. Otherwise tokens are put together by who listens to whom,
    and where that leaves a text outside the span it is improved place by place.
    """
    if found.shape[1] == 1:
        facts["order"] = "not found: this encoder reads no places"
        return [], False
    choices = [column.nonzero().flatten().tolist() for column in found.T]
    length = next((at for at, tokens in enumerate(choices) if not tokens), len(choices))
    choices = choices[:length]
    facts["choices at each place"] = ", ".join(str(len(tokens)) for tokens in choices)
    if all(len(tokens) == 1 for tokens in choices):
        return [tuple(tokens[0] for tokens in choices)] if choices else [], True
    settled: list[Prefix] = []
    pairs = [Pair(place, token) for place, tokens in enumerate(choices) for token in tokens]
    heard = listeners(reader, layers[0], update, pairs, length)
    starts = _by_chance(choices, count) if heard is None else heard.texts(settled)
    for number, start in enumerate(starts):
        text, distance = _improve(reader, layers[1], choices, start)
        if distance <= 1 and text not in settled:
            settled.append(text)
        if len(settled) == count or number == _MOST * count:
            break
    proved = heard is not None and heard.unique
    if not proved:
        facts["proof"] = "none: not all texts that these tokens could make were excluded"
    return settled, proved


def _by_chance(choices: list[list[int]], count: int) -> Iterator[Prefix]:
    """Texts of one choice at each place, where nobody is known to listen."""
    generator = seeded(0, "encoder starts")
    # Texts that have ended differ in length, so that the end is a choice too.
    ends = [at for at in range(1, len(choices) + 1) if at == len(choices) or len(choices[at]) < len(choices[0])]
    for _ in range(_STARTS * count):
        draw = [tokens[int(torch.randint(len(tokens), (), generator=generator))] for tokens in choices]
        yield tuple(draw[: ends[int(torch.randint(len(ends), (), generator=generator))]])


def _improve(reader: MapReader, layer: TextLayer, choices: list[list[int]], text: Prefix) -> tuple[Prefix, float]:
    """A text of which neither another token at one place nor another end lies nearer to the span, and its distance in
    multiples of what the floor explains."""
    distance = float(_distances(reader, layer, [text])[0])
    for _ in range(_SWEEPS):
        before = text
        for place in range(-1, len(choices)):
            if distance <= 1:
                return text, distance
            for _, alike in groupby(_others(text, choices, place), key=len):
                others = list(alike)
                measured = _distances(reader, layer, others)
                if float(measured.min()) < distance:
                    text, distance = others[int(measured.argmin())], float(measured.min())
        if text == before:
            break
    return text, distance


def _others(text: Prefix, choices: list[list[int]], place: int) -> list[Prefix]:
    """The text with another token at a place; at none, with another end."""
    if place < 0:
        longer = [(*text, token) for tokens in choices[len(text) : len(text) + 1] for token in tokens]
        return [*(text[:end] for end in range(2, len(text))), *longer]
    if place >= len(text):
        return []
    return [(*text[:place], token, *text[place + 1 :]) for token in choices[place] if token != text[place]]


def _distances(reader: MapReader, layer: TextLayer, texts: Sequence[Prefix]) -> Tensor:
    """Of whole texts of one length: the mean of their places."""
    assert layer.span is not None
    values = reader.at([layer.maps[0]], torch.tensor(texts, device=reader.state.device))[0]
    return ratios_to(layer.span, values.flatten(0, 1)).view(len(texts), -1).mean(dim=1)
