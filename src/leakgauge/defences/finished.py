"""Defences where there is nothing but the finished update: in a client mod, a filter, a gateway."""

from __future__ import annotations

from leakgauge.defences.base import Defence, chain
from leakgauge.errors import InvalidCase
from leakgauge.protocol.clients import finishing, gain, layers
from leakgauge.protocol.local_update import FedSGD, LocalUpdate, Transformed, UpdateTransform
from leakgauge.protocol.wrappers import Aggregated, Private


def on_finished(defence: Defence) -> list[UpdateTransform]:
    """What a defence does to an update, in order; one that needs more than the update is refused with the reason."""
    client = defence(FedSGD())
    for layer in layers(client)[:-1]:
        if isinstance(layer, Private):
            raise InvalidCase(
                "DP-SGD clips the gradient of every example while the client trains, which cannot be done to a "
                "finished update; train with it inside the client, or clip the update and add noise here."
            )
        if isinstance(layer, Aggregated):
            raise InvalidCase(
                "Secure aggregation is a protocol among clients and nothing that one of them does to its update; use "
                "the one of the framework."
            )
        if not isinstance(layer, Transformed) or _needs_more(layer.transform):
            name = type(layer.transform if isinstance(layer, Transformed) else layer).__name__
            raise InvalidCase(
                f"{name} needs what the client trains on, and here is its finished update alone; apply it inside the "
                "client's training."
            )
    return finishing(client)


def on_gradient(defence: Defence, client: LocalUpdate, num_examples: int) -> Defence | None:
    """The defence of the mean gradient that does as much as this one does to the client's update.

    An update is worth some mean gradients, one step of SGD its learning rate, so that noise on weights counts the more
    the lower that rate is. None where an update is no multiple of gradients, as with Adam.

    >>> from leakgauge.defences import GaussianNoise
    >>> from leakgauge.protocol import FedAvg
    >>> on_gradient(GaussianNoise(0.25), FedAvg(batch_size=1, learning_rate=0.5), 1)
    GaussianNoise(std=0.5)
    """
    worth = gain(client, num_examples)
    return chain(*(one.scaled(1 / worth) for one in on_finished(defence))) if worth else None


def _needs_more(transform: UpdateTransform) -> bool:
    kind = type(transform)
    return (
        kind.apply is not UpdateTransform.apply
        or kind.encode is not UpdateTransform.encode
        or kind.trains is not UpdateTransform.trains
    )
