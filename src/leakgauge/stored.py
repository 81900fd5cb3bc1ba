"""That what is read back has the types it is declared with: a file may hold anything."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints


def check_fields(value: Any) -> None:
    """``TypeError`` where a field of a dataclass does not hold what its annotation says."""
    for name, fits in _fields(cast(Hashable, type(value))):
        if not fits(getattr(value, name)):
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
    return _check_of(hint)(value)


_Check = Callable[[Any], bool]


@cache
def _fields(kind: Any) -> tuple[tuple[str, _Check], ...]:
    """The fields of a dataclass and what each must pass; kept, as annotations take long to read."""
    return tuple((name, _check_of(hint)) for name, hint in get_type_hints(kind).items())


@cache
def _check_of(hint: Any) -> _Check:
    if hint is Any:
        return lambda value: True
    kind, inner = get_origin(hint), get_args(hint)
    if kind in (Union, UnionType):
        plain = tuple(one for one in inner if one in (NoneType, str, bool))
        others = tuple(_check_of(one) for one in inner if one not in plain)
        return lambda value: isinstance(value, plain) or any(fits(value) for fits in others)
    if kind is Literal:
        return lambda value: value in inner
    if kind in (tuple, list):
        one = _check_of(inner[0])
        return lambda value: isinstance(value, kind) and all(map(one, value))
    if kind is not None and issubclass(kind, Mapping):
        key, held = _check_of(inner[0]), _check_of(inner[1])
        return lambda value: isinstance(value, Mapping) and all(map(key, value)) and all(map(held, value.values()))
    if hint in (None, NoneType):
        return lambda value: value is None
    if hint is int:
        return lambda value: type(value) is int
    if hint is float:
        return lambda value: type(value) in (int, float)
    held_by_dataclass = dataclasses.is_dataclass(hint)
    if held_by_dataclass:
        parts = _fields(hint)
        return lambda value: isinstance(value, hint) and all(fits(getattr(value, name)) for name, fits in parts)
    return lambda value: isinstance(value, hint)
