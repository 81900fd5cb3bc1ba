"""What all pages share: their templates, and a score in words."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from leakgauge.audit.verdict import Verdict

FIRST_COLUMNS = 8
"""So many images a line are shown at once; the others are folded away."""

_SURROUNDINGS = {
    "leakgauge": "LeakGauge version",
    "torch": "PyTorch",
    "python": "Python",
    "machine": "Machine",
    "threads": "Threads",
}


class Entry(NamedTuple):
    """One number in words, and the smaller print below; without print it is a word that stands for a number."""

    value: str
    details: tuple[tuple[str, str], ...] = ()
    verdict: Verdict | None = None
    note: str | None = None


def render_page(template: str, *, tone: Verdict, **values: Any) -> str:
    """A self-contained page: a template of this package, filled."""
    script = resources.files(__package__).joinpath("page.js").read_text("utf-8")
    # The page's own script runs and no other: its hash is in the policy, so that not even injected markup could.
    known = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    values = {
        "script": Markup(script),  # noqa: S704  a file of this package
        "script_hash": known,
        "redaction": None,
        **values,
    }
    values = {"tone": tone, "caveat": tone is not Verdict.NOT_JUDGED, **values}
    return _templates().get_template(template).render(values)


@cache
def _templates() -> Environment:
    """Those of this package; kept, as reading them takes longer than filling them."""
    folder = resources.files(__package__)
    return Environment(
        loader=FunctionLoader(lambda wanted: folder.joinpath(wanted).read_text("utf-8")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def describe_environment(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """What a run ran on, by names that a reader knows."""
    return [(_SURROUNDINGS.get(name, name), value) for name, value in environment.items()]
