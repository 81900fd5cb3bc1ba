"""Why a client carries no bound, part by part."""

from __future__ import annotations

from leakgauge.bounds.unwrapping import Standing, participations, spreads
from leakgauge.defences import (
    Clipping,
    ExcludeVars,
    GaussianNoise,
    LaplaceNoise,
    Mixer,
    PercentilePrivacy,
    Pruning,
    Soteria,
    SVTPrivacy,
)
from leakgauge.protocol.client_parts import Augmentation, Sharing, Transport
from leakgauge.protocol.clients import algorithm, layers
from leakgauge.protocol.local_update import LocalUpdate, Transformed, UpdateTransform
from leakgauge.protocol.wrappers import Aggregated, Private

_WITHOUT_NOISE = "without noise the update is a function of the data"


def why_none(client: LocalUpdate, standing: Standing) -> str:
    """The reasons in one clause, from the inside out; of use only where nothing stands."""
    parts = [_of_layer(layer, client) for layer in reversed(layers(client))]
    if standing.spoiled is not None:
        parts.append(f"{standing.spoiled} looks at the data after the noise has fallen")
    found = [part for part in parts if part is not None]
    return "; ".join(dict.fromkeys(found)) if found else _WITHOUT_NOISE


def _of_layer(layer: LocalUpdate, client: LocalUpdate) -> str | None:
    if isinstance(layer, Transformed):
        return _of_transform(layer.transform)
    if isinstance(layer, Aggregated):
        return f"a sum over {layer.clients} clients is exact for whoever knows the others"
    if not isinstance(layer, Private):
        return None
    if not layer.noise_multiplier:
        return "clipping every gradient without noise only shortens it"
    if participations(algorithm(client)) is None:
        return f"how often an example enters the gradients of {type(algorithm(client)).__name__} is not known"
    return None


def _of_transform(transform: UpdateTransform) -> str | None:
    if isinstance(transform, Clipping):
        return "clipping only shortens the update"
    if isinstance(transform, Pruning):
        return "pruning only hides entries of the update"
    if isinstance(transform, PercentilePrivacy):
        return "truncating some entries and hiding others is no noise"
    if isinstance(transform, SVTPrivacy):
        return "noise on each entry for itself adds up over the entries"
    if isinstance(transform, Sharing | ExcludeVars):
        return "sharing a part of the update only keeps the rest"
    if isinstance(transform, Transport):
        return "rounding is no noise"
    if isinstance(transform, Augmentation):
        return "what comes back is the augmented example"
    if isinstance(transform, Soteria):
        return "Soteria only hides columns of one layer"
    if isinstance(transform, GaussianNoise | LaplaceNoise):
        silent = not (transform.std if isinstance(transform, GaussianNoise) else transform.scale)
        return (
            "noise of size 0 changes nothing"
            if silent
            else "noise without a clip before it: an example may move the update by any amount"
        )
    if isinstance(transform, Mixer):
        return (
            "mixing is no noise, and lets one example into several gradients"
            if spreads(transform)
            else "a mask of signs is no noise"
        )
    return f"what {type(transform).__name__} leaves of the update is not known"
