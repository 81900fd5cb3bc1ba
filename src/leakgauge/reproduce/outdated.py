"""Which rows of a result file were made by a recipe that has changed since."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from itertools import pairwise
from typing import Any

from leakgauge.attacks.budget import Budget
from leakgauge.errors import InvalidCase
from leakgauge.reproduce.registry import named_table
from leakgauge.reproduce.result import recipe_fingerprint
from leakgauge.reproduce.run import Options
from leakgauge.reproduce.table import Measure, Row

_RENAMED = {"Constant": "ConstantRate", "Cosine": "CosineDecay"}
"""Classes by the names they had when results were made that are kept: another name is no other recipe."""


def outdated_rows(result: Mapping[str, Any]) -> dict[str, str]:
    """Why a row of a result file would come out differently today, by its label; rows that would not are left out.

    The recipe of a row is compared with what measures it now at the same scale: by its fingerprint, or, in a file from
    before there were any, by what it says of its attack, model, client and budget. ``outdated`` in the file itself
    names rows that are known to be older than their recipe says. What cannot be seen is code that changed under an
    unchanged recipe: the ``fingerprint`` of the file says by which code it was made.
    """
    known: Mapping[str, str] = result.get("outdated", {})
    try:
        rows = {row.label: row for row in named_table(result["experiment"]).rows}
    except InvalidCase:
        return {row["label"]: "its table is no more" for row in result["rows"]}
    options = _options(result)
    found = {}
    for one in result["rows"]:
        label = one["label"]
        why = known.get(label) or (_changed(one, rows[label], options) if label in rows else "no longer in the table")
        if why is not None:
            found[label] = why
    return found


def _options(result: Mapping[str, Any]) -> Options:
    words = result["command"].split()
    given = dict(pairwise(words))
    images, seconds = given.get("--images"), given.get("--seconds")
    return Options(
        result["scale"],
        images=None if images is None else int(images),
        seconds=None if seconds is None else float(seconds),
    )


def _changed(one: Mapping[str, Any], row: Row, options: Options) -> str | None:
    measure = row.at(options.scale).adapt(options)
    if "fingerprint" in one and one["fingerprint"] == recipe_fingerprint(row, measure):
        return None
    said = one.get("setting", one)
    for name, value in measure.planned().items():
        if said.get(name) is not None and not _same(said[name], value):
            return f"its {name.replace('_', ' ')} was {said[name]}"
    return "its recipe has changed" if "fingerprint" in one else _counts(one, measure)


def _counts(one: Mapping[str, Any], measure: Measure) -> str | None:
    """Of updates and their nulls, of which a file has as many as there were."""
    updates, nulls, now = len(one.get("updates", ())), len(one.get("nulls", ())), len(measure.pieces())
    if not updates or updates + nulls == now:
        return None
    return f"{updates} updates and {nulls} nulls were attacked, {now} in all today"


def _same(said: Any, value: Any) -> bool:
    """Whether what a file says of a part is this part; one that did not exist yet may have its default."""
    if not isinstance(said, str) or isinstance(value, str):
        return bool(said == value)
    if said == repr(value):
        return True
    try:
        return _matches(ast.parse(said, mode="eval").body, value)
    except SyntaxError:
        return False


def _matches(node: ast.expr, value: Any) -> bool:
    if isinstance(value, tuple):
        parts = getattr(node, "elts", ())
        return len(parts) == len(value) and all(map(_matches, parts, value))
    if not is_dataclass(value):
        return ast.unparse(node) == repr(value)
    if not isinstance(node, ast.Call):
        return False
    name = ast.unparse(node.func)
    if type(value).__name__ not in (name, _RENAMED.get(name)):
        return False
    said = {word.arg: word.value for word in node.keywords}
    own = {one.name: one for one in fields(value) if one.repr}
    if isinstance(value, Budget) and value.seconds is None:
        said.pop("clock", None)  # it counts no seconds
    return said.keys() <= own.keys() and all(
        _matches(said[name], getattr(value, name)) if name in said else getattr(value, name) == _default(one)
        for name, one in own.items()
    )


def _default(field: Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default
