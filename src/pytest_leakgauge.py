"""LeakGauge in pytest: the fixture ``leak_audit``.

A module of its own beside the package, because pytest imports it at every start: torch is imported when a test asks.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from leakgauge.integrations.leak_audit import LeakAudit

_FOLDER = "leak_audit_folder"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(_FOLDER, "where leak_audit leaves pictures and reports of what failed, relative to the root folder")


@pytest.fixture
def leak_audit(request: pytest.FixtureRequest) -> LeakAudit:
    """``leak_audit(model, batch, defence=...)`` attacks an update of a model on a batch; assert on what it returns."""
    from leakgauge.integrations.leak_audit import LeakAudit

    return LeakAudit(lambda: _folder(request))


def _folder(request: pytest.FixtureRequest) -> Path:
    """Where a failing test leaves what it has to show; a folder for each test."""
    if not (kept := request.config.getini(_FOLDER)):
        return Path(request.getfixturevalue("tmp_path"))
    return request.config.rootpath / str(kept) / re.sub(r"[^\w.-]+", "_", request.node.nodeid)
