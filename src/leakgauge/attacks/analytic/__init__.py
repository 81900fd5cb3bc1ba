"""Exact recoveries, without optimisation."""

from leakgauge.attacks.analytic.linear_layer import LinearLayer

__all__ = ["LinearLayer"]
