"""Frameworks kept from calling home."""

from __future__ import annotations

import os
import sys
from types import ModuleType

import pytest

from leakgauge.errors import InvalidCase
from leakgauge.integrations.offline import SETTINGS, stay_offline


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch):
    for name in SETTINGS:
        monkeypatch.setenv(name, "1")


def test_it_sets_what_flower_and_ray_read(monkeypatch):
    monkeypatch.delitem(sys.modules, "flwr.supercore.telemetry", raising=False)
    stay_offline()
    assert {name: os.environ[name] for name in SETTINGS} == SETTINGS


def test_after_flower_has_decided_it_is_too_late_and_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "flwr.supercore.telemetry", ModuleType("telemetry"))
    with pytest.raises(InvalidCase, match="call stay_offline"):
        stay_offline()
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "0")
    stay_offline()
