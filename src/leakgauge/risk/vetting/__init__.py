"""What a client can see of a model before it trains on it: constructions that serve a server, not the learning."""

from leakgauge.risk.vetting.base import Suspicion, Vetted, VettedModel
from leakgauge.risk.vetting.vet import vet, vet_learner, vet_weights
