"""Every class of the package is abstract or final, and no public name means two things."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from abc import ABC
from collections import defaultdict
from pathlib import Path
from typing import Any, Protocol

import leakgauge

ROOT = Path(leakgauge.__file__).parent
LONGEST_FUNCTION, LONGEST_FILE = 60, 400

# Still to be mended; nothing may join them.
TWO_HOMES = {"Pictures", "Pixels"}
LONG_FUNCTIONS = {"audit/api.py: audit", "cli/audit.py: audit"}


def classes() -> dict[type[Any], None]:
    """Those defined in the package, in any of its modules."""
    names = (one.name for one in pkgutil.walk_packages(leakgauge.__path__, "leakgauge."))
    modules = [importlib.import_module(name) for name in names if not name.endswith("__main__")]
    return {
        one: None
        for module in modules
        for _, one in inspect.getmembers(module, inspect.isclass)
        if one.__module__ == module.__name__
    }


def is_abstract(one: type[Any]) -> bool:
    return inspect.isabstract(one) or ABC in one.__bases__ or Protocol in one.__bases__ or issubclass(one, Exception)


def test_a_class_that_others_build_on_is_abstract() -> None:
    tweaked = {
        base.__name__
        for one in classes()
        for base in one.__bases__
        if base.__module__.startswith("leakgauge") and not is_abstract(base)
    }
    assert tweaked == set()


def test_a_public_class_has_its_name_to_itself() -> None:
    homes = defaultdict(list)
    for one in classes():
        if not one.__name__.startswith("_"):
            homes[one.__name__].append(one.__module__)
    assert {name for name, where in homes.items() if len(where) > 1} <= TWO_HOMES


def test_files_and_functions_stay_short_enough_to_be_read_at_once() -> None:
    long = []
    for path in ROOT.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if len(text.splitlines()) > LONGEST_FILE:
            long.append(str(path.relative_to(ROOT)))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= LONGEST_FUNCTION:  # type: ignore[operator]
                long.append(f"{path.relative_to(ROOT)}: {node.name}")
    assert set(long) <= LONG_FUNCTIONS
