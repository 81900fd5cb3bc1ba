"""That what is read back has the types it is declared with: a file may hold anything."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


def check_fields(value: Any) -> None:
    """``TypeError`` where a field of a dataclass does not hold what its annotation says."""
    for name, hint in get_type_hints(type(value)).items():
        if not conforms(getattr(value, name), hint):
            raise TypeError(f"{name} {str(getattr(value, name))[:80]!r}")


def check_keys(values: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """The same of those keys of a table of which the kind is known."""
    for name, hint in kinds.items():
        if name in values and not conforms(values[name], hint):
            raise TypeError(f"{name} {str(values[name])[:80]!r}")


def conforms(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type, whole numbers being numbers.

    >>> [conforms(value, tuple[float, ...]) for value in ((1, 2.5), (True,), ("1",), [1.0])]
    [True, False, False, False]
    """
    if hint is Any:
        return True
    kind, inner = get_origin(hint), get_args(hint)
    if kind in (Union, UnionType):
        return any(conforms(value, one) for one in inner)
    if kind is Literal:
        return value in inner
    if kind is tuple:
        return isinstance(value, tuple) and all(conforms(one, inner[0]) for one in value)
    if kind is list:
        return isinstance(value, list) and all(conforms(one, inner[0]) for one in value)
    if kind is not None and issubclass(kind, Mapping):
        held = isinstance(value, Mapping)
        return held and all(conforms(key, inner[0]) and conforms(one, inner[1]) for key, one in value.items())
    if hint in (None, NoneType):
        return value is None
    if hint in (int, float):
        return type(value) is int or (hint is float and type(value) is float)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint) and isinstance(value, hint):
        return all(conforms(getattr(value, name), one) for name, one in get_type_hints(hint).items())
    return isinstance(value, hint)
