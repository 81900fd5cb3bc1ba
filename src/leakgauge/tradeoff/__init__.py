"""What a defence costs and what it buys: accuracy and time beside leakage, in one table."""

from leakgauge.tradeoff.plan import TradeoffPlan
from leakgauge.tradeoff.result import Tradeoff, cheapest, pareto
from leakgauge.tradeoff.run import tradeoff
from leakgauge.training.run import Trained, TrainingPlan, run_training
