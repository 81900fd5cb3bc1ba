"""How many inputs an attack may be asked to search for: a file may say any number."""

from __future__ import annotations

import math

import pytest

from leakgauge.audit.executors import memory
from leakgauge.audit.executors.memory import MOST_INPUTS
from leakgauge.errors import InvalidCase
from leakgauge.space import ImageSpace


@pytest.mark.parametrize("count", [MOST_INPUTS + 1, 2**20, 10**9, 2**62])
def test_more_inputs_than_an_attack_can_search_for_are_refused_whatever_memory_there_is(monkeypatch, count):
    monkeypatch.setattr(memory, "available", lambda: math.inf)
    memory.check_inputs(MOST_INPUTS, ImageSpace(1, 8, 8))
    with pytest.raises(InvalidCase, match=f"search for {count} images of 1x8x8 .* for {MOST_INPUTS} at most"):
        memory.check_inputs(count, ImageSpace(1, 8, 8))


def test_fewer_inputs_than_that_are_refused_where_memory_does_not_hold_them(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 1e9)
    memory.check_inputs(32, ImageSpace(3, 224, 224))
    with pytest.raises(InvalidCase, match="check how many the update says it covers"):
        memory.check_inputs(64, ImageSpace(3, 224, 224))
