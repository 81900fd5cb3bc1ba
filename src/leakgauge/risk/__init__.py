"""What a model puts at risk, told in seconds and without data: what can be attacked, at what cost, and what ends it."""

from leakgauge.risk.model_check import ModelCheck, check
from leakgauge.risk.vetting import VettedModel, vet

__all__ = ["ModelCheck", "VettedModel", "check", "vet"]
