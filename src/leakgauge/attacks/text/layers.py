"""Which maps of a model read tokens one by one, which read texts up to a token, and which read whole texts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

import torch
from torch import Tensor

from leakgauge.attacks.span.layer_spans import RowSpace, row_space
from leakgauge.attacks.text.linear_maps import MapReader, ReadingMap, Reads, run
from leakgauge.errors import UnsupportedModel
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.space import TokenSpace
from leakgauge.types import ParamTree

_PROBE = 6
"""Tokens of the texts that a model is watched on."""

_DEEP = 6
"""Layers that see more than one token, of which spans are taken."""

_SAME = 1e-5
"""Relative difference up to which two reads are equal."""


class Sight(Enum):
    """What a map sees of a text when it reads at a token."""

    TOKEN = "the token alone"
    PREFIX = "the token and those before it"
    WHOLE = "the whole text"


@dataclass(frozen=True, eq=False)
class TextLayer:
    """Maps that read the same, and what their gradients span together."""

    maps: tuple[ReadingMap, ...]
    sight: Sight
    placed: bool
    """Whether what is read of a token depends on its place."""
    span: RowSpace | None

    @property
    def name(self) -> str:
        return self.maps[0].weight.removesuffix(".weight")


@dataclass(frozen=True)
class TextLayers:
    """The layers of one model whose updates say something, in the order of execution."""

    reader: MapReader
    layers: tuple[TextLayer, ...]

    def of(self, sight: Sight) -> tuple[TextLayer, ...]:
        """Those of a sight that span most, and not everything; the clear ones, if there are any.

        Who spans less is blind to some: queries to the first token of each text, which has nothing to choose from.
        """
        ranks = {
            layer: (layer.span.is_clear, layer.span.rank)
            for layer in self.layers
            if layer.sight is sight and layer.span is not None
        }
        return tuple(layer for layer, rank in ranks.items() if rank == max(ranks.values()))


def text_layers(observation: UpdateObservation, space: TokenSpace, errors: ParamTree | None = None) -> TextLayers:
    """All maps whose update was shared, with the sizes of its ``errors`` if they are known; `UnsupportedModel` where
    the model has none that reads tokens one by one."""
    learner, state, update = observation.learner, observation.state, observation.update.params
    reader = MapReader(learner, state)
    length = min(space.length, _PROBE)
    # Different tokens, another one at one place, and one token over and over.
    base = space.probe(1, state)[0, :length]
    others = [token for token in range(len(space.vocabulary)) if token != space.pad]
    changed = base.clone()
    changed[length // 2] = others[-1] if int(base[length // 2]) != others[-1] else others[0]
    texts = torch.stack((base, changed, base[:1].expand(length)))
    reads, embedding = run(learner, state, texts)
    reads = [_by_texts(one, other) for one, other in zip(reads, run(learner, state, texts.flip(0))[0], strict=True)]
    uses = [one.map.weight for one in reads]
    found: list[tuple[list[Reads], Sight, bool]] = []
    for one in reads:
        weight = one.map.weight
        alone = weight not in embedding and len({(r.map.offset, r.map.shape) for r in reads if r.map.weight == weight})
        if not alone or uses.count(weight) > alone or weight not in update:
            continue  # a gradient of several products is none of one
        twin = next((group for group, *_ in found if _equal(group[0].values, one.values)), None)
        if twin is not None:
            twin.append(one)
        else:
            found.append(([one], *_sight(one.values, length // 2)))
    rounding = torch.finfo(state.dtype).eps
    readers = [one for one in found if one[1] is Sight.TOKEN]
    # Of a deep model the first layers that see more than a token are enough.
    later = [one for one in found if one[1] is not Sight.TOKEN][:_DEEP]
    layers = tuple(
        TextLayer(
            tuple(one.map for one in group), sight, placed,
            row_space(
                [one.map.gradient(update) for one in group], rounding,
                None if errors is None else [one.map.gradient(errors) for one in group],
            ),
        )
        for group, sight, placed in (*readers, *later)
    )  # fmt: skip
    if not any(layer.sight is Sight.TOKEN for layer in layers):
        raise UnsupportedModel(
            "No trained linear layer of this model reads the embedding of one token, or its update was not shared; "
            "use an attack that matches gradients, such as tag."
        )
    return TextLayers(reader, layers)


def _by_texts(one: Reads, turned: Reads) -> Reads:
    """With each text in one row, which the same texts in another order tell."""
    by_places = replace(one.map, places_first=True)
    values, other = by_places.texts_first(one.values), by_places.texts_first(turned.values)
    same = (one.values - turned.values.flip(0)).norm() <= (values - other.flip(0)).norm()
    return one if bool(same) else Reads(by_places, values)


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one, other)


def _sight(values: Tensor, place: int) -> tuple[Sight, bool]:
    """Of what was read of a text, of the same with another token at one place, and of one token repeated."""
    size = values.norm(dim=-1).amax().clamp_min(torch.finfo(values.dtype).tiny)
    moved = (values[0] - values[1]).norm(dim=-1) > _SAME * size
    placed = bool(((values[2] - values[2, :1]).norm(dim=-1) > _SAME * size).any())
    if bool(moved[:place].any()):
        return Sight.WHOLE, placed
    return (Sight.PREFIX if bool(moved[place + 1 :].any()) else Sight.TOKEN), placed
