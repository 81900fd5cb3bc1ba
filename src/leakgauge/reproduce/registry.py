"""Every experiment by name. A further paper is one file that lists its ``EXPERIMENTS``, and its name in ``_PAPERS``."""

from __future__ import annotations

from collections.abc import Mapping

from leakgauge.config import build
from leakgauge.errors import InvalidCase
from leakgauge.reproduce.experiment import Experiment
from leakgauge.reproduce.papers import geiping2020, huang2021, instahide, ma2023
from leakgauge.reproduce.papers.cinet import comparison, gias
from leakgauge.reproduce.papers.cinet import tables as cinet
from leakgauge.reproduce.papers.huang2020 import tables as huang2020
from leakgauge.reproduce.study import Study

_PAPERS = (geiping2020, huang2021, ma2023, cinet, comparison, gias)

EXPERIMENTS: Mapping[str, Experiment] = {
    experiment.name: experiment for paper in _PAPERS for experiment in paper.EXPERIMENTS
}

STUDIES: Mapping[str, Study] = {study.name: study for study in (*huang2020.STUDIES, *instahide.STUDIES)}
"""Experiments that attack no update."""


def named_experiment(name: str) -> Experiment:
    """The experiment of this name, or a sentence that suggests another."""
    found = named(name)
    if isinstance(found, Study):
        raise InvalidCase(f"{name} attacks no update; run it with `run_study`.")
    return found


def named(name: str) -> Experiment | Study:
    """The experiment or study of this name, or a sentence that suggests another."""
    table = {key: (lambda one=one: one) for key, one in {**EXPERIMENTS, **STUDIES}.items()}
    found: Experiment | Study = build(table, name, kind="experiment")
    return found
