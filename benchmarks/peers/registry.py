"""The peers by the names they have in options and tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from peers.base import Peer
from peers.breaching_peer import Breaching
from peers.gradattack_peer import GradAttack
from peers.invertinggradients_peer import InvertingGradients

PEERS: Mapping[str, Callable[[Path], Peer]] = {
    "breaching": Breaching,
    "breaching, invertinggradients": partial(Breaching, configuration="invertinggradients"),
    "gradattack": GradAttack,
    "invertinggradients": InvertingGradients,
}


def projects() -> tuple[str, ...]:
    """Those that a checkout can be given for; a project may have several attacks."""
    return tuple(dict.fromkeys(name.partition(",")[0] for name in PEERS))


def attacks_of(project: str) -> tuple[str, ...]:
    return tuple(name for name in PEERS if name.partition(",")[0] == project)
