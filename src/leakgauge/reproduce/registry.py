"""Every experiment by name. A further paper is one file that lists its ``EXPERIMENTS``, and its name in ``_PAPERS``."""

from __future__ import annotations

from collections.abc import Mapping

from leakgauge.config import build
from leakgauge.reproduce import cinet, geiping2020, huang2021, ma2023
from leakgauge.reproduce.experiment import Experiment

_PAPERS = (geiping2020, huang2021, ma2023, cinet)

EXPERIMENTS: Mapping[str, Experiment] = {
    experiment.name: experiment for paper in _PAPERS for experiment in paper.EXPERIMENTS
}


def named_experiment(name: str) -> Experiment:
    """The experiment of this name, or a sentence that suggests another."""
    table = {key: (lambda experiment=experiment: experiment) for key, experiment in EXPERIMENTS.items()}
    found: Experiment = build(table, name, kind="experiment")
    return found
