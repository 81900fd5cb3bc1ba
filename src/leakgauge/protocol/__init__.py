"""One federated round: learner, local update, threat model, observation."""

from leakgauge.protocol.facts import Fact
from leakgauge.protocol.learner import Learner, learner_and_state
from leakgauge.protocol.local_update import FedAvg, FedSGD, LocalUpdate, Transformed, UpdateTransform, fedavg
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.protocol.optimisers import LocalAdam, LocalAdamW, LocalOptimiser, LocalSGD
from leakgauge.protocol.round import Federation, simulate_round
from leakgauge.protocol.threat_model import THREAT_MODELS, BatchNormAccess, BatchNormKnowledge, ThreatModel
