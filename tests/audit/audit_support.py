"""Fixtures of the tests of the audit; a second conftest.py would collide with the first, as both are doctested."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from leakgauge.audit.record import Pictures, Record
from leakgauge.types import Outcome

__all__ = ["_no_weights_of_this_machine", "make_record"]

MakeRecord = Callable[..., Record]


@pytest.fixture(autouse=True)
def _no_weights_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEAKGAUGE_WEIGHTS", raising=False)


@pytest.fixture
def make_record() -> Callable[..., Record]:
    def make(**changes: Any) -> Record:
        values: dict[str, Any] = {
            "key": "0123",
            "round": 0,
            "defence": "none",
            "defence_repr": "FedSGD()",
            "attack": "linear_layer",
            "attack_repr": "LinearLayer()",
            "null": 0,
            "seed": 0,
            "batch_size": 1,
            "outcome": Outcome.SOLVED,
            "reason": "Solved in closed form.",
            "scores": {"psnr": (20.0,), "identification": (1.0,)},
            "chance": 0.01,
            "facts": {},
            "ledger": (),
            "seconds": 0.25,
            "environment": {"torch": "2"},
            "pictures": Pictures(),
        }
        return Record(**(values | changes))

    return make
