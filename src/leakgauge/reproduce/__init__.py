"""The papers' experiments, run here: what was published beside what we measure."""

from leakgauge.reproduce.experiment import SCALES, Experiment, Published, Row, Scale, Setting
from leakgauge.reproduce.registry import EXPERIMENTS, STUDIES, named_experiment
from leakgauge.reproduce.result import Reproduction, RowResult
from leakgauge.reproduce.run import Options, reproduce
from leakgauge.reproduce.study import Study, StudyResult, prepare_study, run_study

__all__ = [
    "EXPERIMENTS",
    "SCALES",
    "STUDIES",
    "Experiment",
    "Options",
    "Published",
    "Reproduction",
    "Row",
    "RowResult",
    "Scale",
    "Setting",
    "Study",
    "StudyResult",
    "named_experiment",
    "prepare_study",
    "reproduce",
    "run_study",
]
