"""Attacks on FedAvg updates as named compositions of parts."""

from __future__ import annotations

from leakgauge.attacks.budget import Budget
from leakgauge.attacks.federated.epoch_copies import EpochCopies, PermutationInvariant
from leakgauge.attacks.federated.local_step_search import LocalStepSearch
from leakgauge.attacks.federated.surrogate_matching import SurrogateMatching
from leakgauge.attacks.matching.attack import GradientMatching
from leakgauge.attacks.matching.published import inverting_gradients, quasi_newton


def surrogate() -> SurrogateMatching:
    return SurrogateMatching(inverting_gradients())


def epoch_copies() -> EpochCopies:
    return EpochCopies(inverting_gradients())


def local_step_search() -> LocalStepSearch:
    return LocalStepSearch(quasi_newton())
