"""The client inside whatever it does to its finished update."""

from __future__ import annotations

from dataclasses import replace

from leakgauge.protocol.local_update import LocalUpdate, Transformed


def innermost(local_update: LocalUpdate) -> LocalUpdate:
    """The algorithm that computes the update, without the transforms around it."""
    while isinstance(local_update, Transformed):
        local_update = local_update.inner
    return local_update


def exchanged(local_update: LocalUpdate, client: LocalUpdate) -> LocalUpdate:
    """The same transforms around another client."""
    if isinstance(local_update, Transformed):
        return replace(local_update, inner=exchanged(local_update.inner, client))
    return client
