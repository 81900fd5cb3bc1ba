"""Texts of an encoder, in which every token sees every other: a token for each place, by layers that see all."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from leakgauge.attacks.text.layers import TextLayer
from leakgauge.attacks.text.linear_maps import MapReader
from leakgauge.attacks.text.prefixes import Prefix, ratios_to
from leakgauge.randomness import seeded

_STARTS, _SWEEPS = 24, 6
"""Texts that the search starts from for each text of a batch, and how often each place of one is gone through."""


def assemble(
    reader: MapReader,
    layers: Sequence[TextLayer],
    found: Tensor,
    count: int,
    facts: dict[str, str | int | float],
) -> list[Prefix]:
    """Texts that lie in the span of the first layer that sees whole texts, at every place of theirs.

    With one token at each place there is nothing to choose. Otherwise a text is improved place by place from random
    choices; how far outside the span it lies falls with every token that belongs to the others.
    """
    if found.shape[1] == 1:
        facts["order"] = "not found: this encoder reads no places"
        return []
    choices = [column.nonzero().flatten().tolist() for column in found.T]
    length = next((at for at, tokens in enumerate(choices) if not tokens), len(choices))
    facts["choices at each place"] = ", ".join(str(len(tokens)) for tokens in choices[:length])
    if not length:
        return []
    if all(len(tokens) == 1 for tokens in choices[:length]):
        return [tuple(tokens[0] for tokens in choices[:length])]
    generator = seeded(0, "encoder starts")
    texts: dict[Prefix, float] = {}
    for _ in range(_STARTS * count):
        text, distance = _improve(reader, layers[0], choices[:length], generator)
        texts[text] = distance
        if sum(one <= 1 for one in texts.values()) >= count:
            break
    best = sorted(texts, key=lambda text: texts[text])[:count]
    return [text for text in best if texts[text] <= 1]


def _improve(
    reader: MapReader, layer: TextLayer, choices: list[list[int]], generator: torch.Generator
) -> tuple[Prefix, float]:
    """A text from random choices, and its distance in multiples of what the floor explains."""
    draw = [tokens[int(torch.randint(len(tokens), (), generator=generator))] for tokens in choices]
    # Texts that have ended differ in length, so that the end is a choice too.
    ends = sorted({at for at in range(1, len(choices) + 1) if at == len(choices) or len(choices[at]) < len(choices[0])})
    end = ends[int(torch.randint(len(ends), (), generator=generator))]
    text, distance = tuple(draw[:end]), float("inf")
    for _ in range(_SWEEPS):
        before = text
        for place in torch.randperm(len(text), generator=generator).tolist():
            others = [(*text[:place], token, *text[place + 1 :]) for token in choices[place]]
            measured = _distances(reader, layer, others)
            at = int(measured.argmin())
            text, distance = others[at], float(measured[at])
        others = [text[:at] if at <= len(text) else (*text, *draw[len(text) : at]) for at in ends]
        measured = torch.stack([_distances(reader, layer, [one])[0] for one in others])
        if float(measured.min()) < distance:
            text, distance = others[int(measured.argmin())], float(measured.min())
        if distance <= 1 or text == before:
            break
    return text, distance


def _distances(reader: MapReader, layer: TextLayer, texts: Sequence[Prefix]) -> Tensor:
    """Of whole texts of one length: of the place that is worst."""
    assert layer.span is not None
    values = reader.at([layer.maps[0]], torch.tensor(texts, device=reader.state.device))[0]
    return ratios_to(layer.span, values.flatten(0, 1)).view(len(texts), -1).mean(dim=1)
