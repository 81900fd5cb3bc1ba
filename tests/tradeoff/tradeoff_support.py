"""Trade-offs made of given numbers; a second conftest.py would collide with the first, as both are doctested."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from leakgauge.audit.result import Measurement
from leakgauge.audit.verdict import Verdict
from leakgauge.metrics import LPIPSVGG, PSNR, Identification, LPIPSAlex, Metric, Summary, summarise
from leakgauge.protocol import learner_and_state
from leakgauge.tradeoff.plan import Condition, TradeoffPlan
from leakgauge.tradeoff.result import Cell, Tradeoff, TradeoffRow
from leakgauge.training.run import Quartiles, Trained, TrainingPlan

STRONG, REAL, UNAWARE = Condition("strongest", 1), Condition("honest_but_curious", 1), Condition("unaware", 1, True)
MODULE = nn.Linear(2, 2)
LEARNER, STATE = learner_and_state(MODULE)

__all__ = ["REAL", "STRONG", "UNAWARE", "cell", "row", "table_of", "trained"]


def trained(defence: str = "none", accuracy: float = 0.9, overhead: float = 1.0, **changes: Any) -> Trained:
    hits = torch.zeros(100, dtype=torch.float64)
    hits[: round(100 * accuracy)] = 1.0
    values: dict[str, Any] = {
        "plan": TrainingPlan(defence=defence),
        "steps": 400,
        "accuracy": summarise(hits, Identification()),
        "guess": 0.2,
        "overhead": Quartiles(overhead, overhead - 0.1, overhead + 0.1, 39),
        "seconds_per_step": 0.01,
        "diverged": False,
        "state": STATE,
        "module": MODULE,
    }
    return Trained(**(values | changes))


def cell(identified: int | None, psnr: float = 12.0, images: int = 8) -> Cell:
    """A cell in which so many images were identified; None = identification was not measured."""
    scores = torch.zeros(images, dtype=torch.float64)
    scores[: identified or 0] = 1.0
    seen = summarise(scores if identified is not None else scores[:0], Identification())
    null = summarise(torch.zeros(images), Identification())
    measurements = {
        "identification": Measurement(Identification(), seen, null),
        "psnr": _measurement(PSNR(), psnr),
        "lpips_vgg": _measurement(LPIPSVGG(), 1 - psnr / 40),
        "lpips_alex": Measurement(LPIPSAlex(), _nothing(), _nothing()),
    }
    # Images differ among themselves by far more than the rows of a table do on one of them.
    single = {"psnr": tuple(psnr + 3 * (n % 2) + 0.5 * math.sin(997 * n * psnr) for n in range(images))}
    if identified is not None:
        single["identification"] = tuple(scores.tolist())
    return Cell("quasi_newton", Verdict.LEAKS if identified else Verdict.NO_LEAK_FOUND, measurements, 1.5, single)


def row(
    defence: str, accuracy: float | None, *identified: int | None, overhead: float = 1.0, unaware: int = 0
) -> TradeoffRow:
    """A defence with its accuracy and what the strongest and the realistic attacker identified; None = not measured."""
    found = [*identified, *identified[-1:]][:2]
    cells = {
        condition: cell(count, psnr=10.0 + 2 * (count or 0))
        for condition, count in zip((STRONG, REAL), found)
        if count is not None
    }
    utility = None if accuracy is None else trained(defence, accuracy, overhead)
    return TradeoffRow(defence, utility, cells | {UNAWARE: cell(unaware)})


def table_of(*rows: TradeoffRow, limit: Mapping[str, float] | None = None, complete: bool = True) -> Tradeoff:
    words = TradeoffPlan(defences=tuple(one.defence for one in rows)).words()
    limits = {"identification": 0.1} if limit is None else limit
    return Tradeoff(rows, (STRONG, REAL, UNAWARE), limits, words, complete)


def _measurement(metric: Metric, value: float) -> Measurement:
    seen = Summary(value, value + (3 if metric.higher_is_leakier else -0.1), value - 1, value + 1, 8, 1.25)
    return Measurement(metric, seen, Summary(9.5, 11.0, 9.0, 10.0, 8))


def _nothing() -> Summary:
    return Summary(math.nan, math.nan, math.nan, math.nan, 0)
