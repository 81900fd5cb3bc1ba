"""What a client can do to its update before it leaves: one file per defence."""

from leakgauge.defences.base import Chain, Defence, NoDefence, chain
from leakgauge.defences.clipping import Clipping
from leakgauge.defences.noise import GaussianNoise, LaplaceNoise
from leakgauge.defences.pruning import Pruning

__all__ = ["Chain", "Clipping", "Defence", "GaussianNoise", "LaplaceNoise", "NoDefence", "Pruning", "chain"]
