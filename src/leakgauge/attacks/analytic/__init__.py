"""Exact recoveries, without optimisation."""

from leakgauge.attacks.analytic.fully_connected import FullyConnected, read_layers
from leakgauge.attacks.analytic.linear_layer import LinearLayer
