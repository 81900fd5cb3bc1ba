"""Plans that results were made by."""

from __future__ import annotations

from pathlib import Path

import pytest

from leakgauge.config import build_defence, from_mapping
from leakgauge.defences import on_gradient
from leakgauge.plan_files import load_config
from leakgauge.protocol import FedAvg
from leakgauge.tradeoff import TradeoffPlan

FILTERS = Path(__file__).parents[2] / "benchmarks" / "plans" / "filters.toml"
DEPLOYED = (
    "percentile_privacy",
    "svt_privacy",
    "svt_privacy:early=True",
    "exclude_vars:pattern='head'",
    "fixed_clipping",
    "adaptive_clipping:rounds=10",
    "local_dp",
)


def test_the_filters_of_the_plan_are_those_deployed_as_they_are_on_a_gradient():
    plan = from_mapping(TradeoffPlan, load_config(FILTERS), source=str(FILTERS))
    step = FedAvg(batch_size=1, learning_rate=0.02)
    for ours, deployed in zip(plan.defences[1:], DEPLOYED, strict=True):
        for one, other in zip(_settings(build_defence(ours)), _settings(on_gradient(build_defence(deployed), step, 1))):
            assert one == pytest.approx(other)


def _settings(defence):
    parts = getattr(defence, "defences", (defence,))
    return [value for part in parts for value in vars(part).values()]
