"""Attacks on clients of many local steps: what is not known of the steps is replaced, copied or searched for."""

from leakgauge.attacks.federated.epoch_copies import EpochCopies, FedAvgOnCopies, PermutationInvariant, merge_copies
from leakgauge.attacks.federated.local_step_search import LocalStepSearch
from leakgauge.attacks.federated.one_gradient import MidwayMatching, SurrogateMatching
