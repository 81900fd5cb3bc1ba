"""Every class of the package is abstract or final, and no public name means two things."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
from abc import ABC
from collections import defaultdict
from typing import Any, Protocol

import leakgauge

OPTIONAL = {"leakgauge.integrations.flower": "flwr"}
"""What needs a framework that is no part of the dev extra; `.ci/run` installs it."""


def classes() -> dict[type[Any], None]:
    """Those defined in the package, in any of its modules."""
    names = (one.name for one in pkgutil.walk_packages(leakgauge.__path__, "leakgauge."))
    absent = tuple(name for name, needs in OPTIONAL.items() if importlib.util.find_spec(needs) is None)
    modules = [
        importlib.import_module(name)
        for name in names
        if not name.endswith("__main__") and not (absent and name.startswith(absent))
    ]
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
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}
