"""Which guarantees a client carries: its wrappers read from the inside out, each noise against what it hides.

Types are asked for exactly: a subclass may do anything, so that it counts as a part that is not known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from leakgauge.bounds.guarantees import ConcentratedGuarantee, GaussianGuarantee, Guarantee
from leakgauge.defences import (
    Clipping,
    ExcludeVars,
    GaussianNoise,
    LaplaceNoise,
    Mixer,
    PercentilePrivacy,
    Pruning,
    Soteria,
)
from leakgauge.protocol.client_parts import Augmentation, Sharing
from leakgauge.protocol.clients import algorithm, layers, transforms
from leakgauge.protocol.local_update import FedAvg, FedSGD, LocalUpdate, Transformed, UpdateTransform, Wrapped
from leakgauge.protocol.wrappers import Aggregated, Private

_SHORTER = (Clipping, Pruning, Soteria, PercentilePrivacy, ExcludeVars)
"""What makes no update longer."""


@dataclass(frozen=True)
class HeldGuarantee:
    """A guarantee that stands so far; ``adds``: its noise still lies on top, so that a mean over clients averages."""

    guarantee: Guarantee
    adds: bool


@dataclass(frozen=True)
class Standing:
    """How far a client is known on the way out.

    ``length`` bounds the update itself, ``shift`` what one client's batch can move of it; ``spoiled`` names who looked
    at the data after the noise had fallen.
    """

    held: tuple[HeldGuarantee, ...] = ()
    length: float = math.inf
    shift: float = math.inf
    spoiled: str | None = None


def guarantees(client: LocalUpdate) -> Standing:
    """What stands once the update has left the client.

    DP-SGD changes the gradients themselves, so it comes first wherever it is wrapped. What is done to a noisy update
    without another look at the data takes nothing away from a guarantee.
    """
    standing = Standing(_private(client))
    for layer in reversed(layers(client)):
        if isinstance(layer, Transformed):
            standing = _after(standing, layer.transform)
        elif type(layer) is Aggregated:
            standing = _in_a_mean(standing, layer.clients)
        elif isinstance(layer, Wrapped) and type(layer) is not Private:
            standing = Standing(spoiled=type(layer).__name__)
    return standing


def participations(steps: LocalUpdate | None) -> int | None:
    """In how many gradients of one round an example takes part; None where that is not known."""
    if type(steps) is FedSGD:
        return 1
    return steps.epochs if type(steps) is FedAvg else None


def _private(client: LocalUpdate) -> tuple[HeldGuarantee, ...]:
    """The guarantee of DP-SGD: of several the innermost, whose gradients the others never see."""
    found = [layer for layer in layers(client) if type(layer) is Private]
    steps = algorithm(client)
    times = participations(steps)
    if not found or not found[-1].noise_multiplier or times is None or any(map(spreads, transforms(client))):
        return ()
    shift = math.sqrt(times) / found[-1].noise_multiplier
    return (HeldGuarantee(GaussianGuarantee(shift, "example"), adds=type(steps) is FedSGD),)


def spreads(transform: UpdateTransform) -> bool:
    """Whether one example may enter several of what the client trains on, each clipped for itself."""
    encodes = type(transform).encode is not UpdateTransform.encode
    alone = isinstance(transform, Augmentation) or (isinstance(transform, Mixer) and transform.k == 1)
    return encodes and not alone


def peeks(transform: UpdateTransform) -> bool:
    """Whether what a transform does to an update depends on the data in another way than through the update."""
    return type(transform).apply is not UpdateTransform.apply


def _after(standing: Standing, transform: UpdateTransform) -> Standing:
    if type(transform) is GaussianNoise or type(transform) is LaplaceNoise:
        return _with_noise(standing, transform)
    if isinstance(transform, Mixer | Augmentation | Sharing):
        return standing  # the update stays as it is, or some of its entries do
    known = type(transform) in _SHORTER
    if peeks(transform):
        length = standing.length if known else math.inf
        lost = type(transform).__name__ if standing.held else standing.spoiled
        return Standing((), length, length, lost)
    held = tuple(replace(one, adds=False) for one in standing.held)
    if type(transform) is Clipping:
        # A projection on a ball: no two points move apart.
        bound = transform.max_norm
        return replace(standing, held=held, length=min(standing.length, bound), shift=min(standing.shift, bound))
    length = standing.length if known else math.inf
    return replace(standing, held=held, length=length, shift=length)


def _with_noise(standing: Standing, noise: GaussianNoise | LaplaceNoise) -> Standing:
    size = noise.std if isinstance(noise, GaussianNoise) else noise.scale
    if not size:
        return standing
    reach = min(standing.length, standing.shift) / size
    held = standing.held
    if math.isfinite(reach):
        gaussian = isinstance(noise, GaussianNoise)
        new = GaussianGuarantee(reach, "client") if gaussian else ConcentratedGuarantee(reach**2 / 2, "client")
        held = (*held, HeldGuarantee(new, adds=True))
    return replace(standing, held=held, length=math.inf, shift=math.inf)


def _in_a_mean(standing: Standing, clients: int) -> Standing:
    held = tuple(replace(one, guarantee=one.guarantee.averaged(clients)) if one.adds else one for one in standing.held)
    return replace(standing, held=held, shift=min(standing.length, standing.shift) / clients)
