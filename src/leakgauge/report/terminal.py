"""An audit in words: the headline, who stopped what, and the table for the console."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from leakgauge.audit.result import AuditResult, Measurement, Row, Verdict
from leakgauge.types import Outcome

UNDEFENDED = ("none", "NoDefence()")
"""How the absence of a defence is written, as a word and as an object."""

NOT_MEASURED = "not measured"

_DID_NOT_RUN = {Outcome.NOT_APPLICABLE: "not applicable", Outcome.MISSING_KNOWLEDGE: "missing knowledge"}
_NAMES_OF_PEOPLE = {"gaussian": "Gaussian", "laplace": "Laplace"}
_LEAKS = (Verdict.LEAKS, Verdict.LEAKS_PARTLY)
_COLOURS = {
    Verdict.LEAKS: "bold red",
    Verdict.LEAKS_PARTLY: "bold yellow",
    Verdict.NO_LEAK_FOUND: "bold green",
    Verdict.NOT_JUDGED: "dim",
}
