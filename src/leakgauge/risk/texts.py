"""The rank rule for texts: how many tokens a batch may have while the update gives them away."""

from __future__ import annotations

from dataclasses import dataclass

from leakgauge.attacks.text.layers import Sight, TextLayer, text_layers
from leakgauge.errors import LeakGaugeError
from leakgauge.risk.client import NoiseClient
from leakgauge.space import TokenSpace


@dataclass(frozen=True)
class TextRisk:
    """Up to ``tokens`` different ones in a batch, the update gives all of them away; up to ``ordered`` tokens in all,
    the texts as well. 0 = not even of one.

    Of an adapter of rank r on queries, keys and values ``tokens`` is 3r, in its first round r - 1.
    """

    tokens: int
    ordered: int
    layers: tuple[str, ...]
    """Those that read tokens one by one, by the names of their weights."""


def text_risk(client: NoiseClient) -> TextRisk | None:
    """Of a model that takes texts; None for any other, and where no layer reads tokens."""
    if not isinstance(client.space, TokenSpace):
        return None
    try:
        found = text_layers(client.observe("informed"), client.space)
    except LeakGaugeError:
        return None
    update = client.sent.update.params
    moving = [layer for layer in found.layers if any(bool(update[one.weight].any()) for one in layer.maps)]
    readers = [layer for layer in moving if layer.sight is Sight.TOKEN]
    later = [layer for layer in moving if layer.sight is not Sight.TOKEN]
    return TextRisk(
        tokens=max(map(room, readers), default=0),
        ordered=max(map(room, later), default=0),
        layers=tuple(one.weight for layer in readers for one in layer.maps),
    )


def room(layer: TextLayer) -> int:
    """How many different reads the gradients of a layer's maps can span and still leave something outside."""
    inputs = layer.maps[0].shape[0]
    return min(sum(one.shape[1] for one in layer.maps), inputs - 1)
