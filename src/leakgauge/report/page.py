"""What all pages share: their templates, and a score in words."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from leakgauge.audit.verdict import Verdict

FIRST_COLUMNS = 8
"""So many images a line are shown at once; the others are folded away."""

MOST_COLUMNS = 5
"""Of numbers side by side on a desk; a table of more stands on end, as all do on a phone."""

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
        "most": MOST_COLUMNS,
        **values,
    }
    values = {"tone": tone, "caveat": tone is not Verdict.NOT_JUDGED, **values}
    return _templates().get_template(template).render(values)


@cache
def _templates() -> Environment:
    """Those of this package; kept, as reading them takes longer than filling them."""
    folder = resources.files(__package__)
    environment = Environment(
        loader=FunctionLoader(lambda wanted: folder.joinpath(wanted).read_text("utf-8")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = breakable
    return environment


def breakable(name: str) -> Markup:
    """A name that a line may end within: behind a colon, a comma or a plus, before it does anywhere else.

    >>> breakable("<best>:steps=250")
    Markup('&lt;best&gt;:<wbr>steps=250')
    """
    return Markup(re.sub("([:,+])", r"\1<wbr>", str(escape(name))))  # noqa: S704  escaped


def describe_environment(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """What a run ran on, by names that a reader knows."""
    return [(_SURROUNDINGS.get(name, name), value) for name, value in environment.items()]
