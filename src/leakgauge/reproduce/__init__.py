"""The papers' experiments, run here: what was published beside what we measure."""

from leakgauge.reproduce.experiment import SCALES, Experiment, Published, Row, Scale, Setting
from leakgauge.reproduce.registry import EXPERIMENTS, named_experiment
from leakgauge.reproduce.result import Reproduction, RowResult
from leakgauge.reproduce.run import Options, reproduce

__all__ = [
    "EXPERIMENTS",
    "SCALES",
    "Experiment",
    "Options",
    "Published",
    "Reproduction",
    "Row",
    "RowResult",
    "Scale",
    "Setting",
    "named_experiment",
    "reproduce",
]
