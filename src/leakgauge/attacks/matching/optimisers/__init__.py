"""How the variables move. An optimiser is a state machine: the attack evaluates ``state.candidate``, the optimiser
answers with the next one. All restarts advance in lockstep, each with its own state."""

from leakgauge.attacks.matching.optimisers.adam import Adam, Langevin, QuantisedSign, SignedAdam
from leakgauge.attacks.matching.optimisers.base import Optimiser, OptimiserState
from leakgauge.attacks.matching.optimisers.lbfgs import LBFGS, CurvatureMemory
from leakgauge.schedules import ConstantRate, CosineDecay, StepDecay, WarmUp
