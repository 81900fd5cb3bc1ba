"""Frameworks that call home, told not to; before they are imported, which is when they decide."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from leakgauge.errors import InvalidCase

_NOWHERE = "http://127.0.0.1:9"
"""A port of this machine that discards."""

SETTINGS: Mapping[str, str] = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "UV_OFFLINE": "1",
    # Even then Ray asks for the metadata of clouds, by a name that has to be looked up outside.
    "http_proxy": _NOWHERE,
    "https_proxy": _NOWHERE,
    "no_proxy": "localhost,127.0.0.1",
}
"""What keeps Flower and Ray to themselves; a shell that starts `flwr run` exports the same."""


def stay_offline() -> None:
    """Set the environment so that neither Flower nor Ray reports anything or looks up a name outside.

    It holds for this process and those it starts, so that whatever else they fetch over HTTP fails as well.
    """
    if "flwr.supercore.telemetry" in sys.modules and os.environ.get("FLWR_TELEMETRY_ENABLED", "1") != "0":
        raise InvalidCase(
            "Flower decides when it is imported whether it reports, and it has been; call stay_offline() before."
        )
    os.environ.update(SETTINGS)
