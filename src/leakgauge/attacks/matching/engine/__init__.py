"""A network as a list of layers, each of which can carry values, cotangents and the tangents of both."""

from leakgauge.attacks.matching.engine.network import Network
from leakgauge.attacks.matching.engine.passes import NetworkGradient, Pulled, Remembered
from leakgauge.attacks.matching.engine.trace import trace
