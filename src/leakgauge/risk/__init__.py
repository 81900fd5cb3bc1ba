"""What a model puts at risk, told in seconds and without data: what can be attacked, at what cost, and what ends it."""

from leakgauge.risk.model_check import ModelCheck, check

__all__ = ["ModelCheck", "check"]
