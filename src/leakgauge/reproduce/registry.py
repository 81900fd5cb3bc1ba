"""Every table by name. A further paper is one file that lists its ``TABLES``, and its name in ``_PAPERS``."""

from __future__ import annotations

from collections.abc import Mapping

from leakgauge.config import choose
from leakgauge.reproduce.papers import cinet, geiping2020, huang2020, huang2021, instahide, ma2023
from leakgauge.reproduce.table import Table

_PAPERS = (geiping2020, huang2021, ma2023, cinet, huang2020, instahide)

TABLES: Mapping[str, Table] = {table.name: table for paper in _PAPERS for table in paper.TABLES}


def named_table(name: str) -> Table:
    """The table of this name, or a sentence that suggests another."""
    return choose(TABLES, name, kind="table")
