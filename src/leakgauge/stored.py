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

_SIMPLE: Mapping[Any, frozenset[type]] = {
    None: frozenset({NoneType}),
    NoneType: frozenset({NoneType}),
    str: frozenset({str}),
    bool: frozenset({bool}),
    int: frozenset({int}),
    float: frozenset({int, float}),
}
"""What may stand for a simple type; by ``type``, as True is an instance of int."""


@cache
def _fields(kind: Any) -> tuple[tuple[str, _Check], ...]:
    """The fields of a dataclass and what each must pass; kept, as annotations take long to read."""
    return tuple((name, _check_of(hint)) for name, hint in get_type_hints(kind).items())


@cache
def _check_of(hint: Any) -> _Check:
    if hint is Any:
        return lambda value: True
    simple = _simple(hint)
    if simple is not None:
        return lambda value: type(value) in simple
    kind, inner = get_origin(hint), get_args(hint)
    if kind in (Union, UnionType):
        plain = frozenset().union(*(_simple(one) or () for one in inner))
        ways = tuple(_check_of(one) for one in inner if _simple(one) is None)
        return lambda value: type(value) in plain or any(fits(value) for fits in ways)
    if kind is Literal:
        return lambda value: value in inner
    if kind in (tuple, list):
        held = _check_of_all(inner[0])
        return lambda value: isinstance(value, kind) and held(value)
    if kind is not None and issubclass(kind, Mapping):
        keys, values = map(_check_of_all, inner)
        return lambda value: isinstance(value, Mapping) and keys(value) and values(value.values())
    if dataclasses.is_dataclass(hint):
        return _check_of_parts(cast(type, hint))
    return lambda value: isinstance(value, hint)


def _simple(hint: Any) -> frozenset[type] | None:
    """The types of a simple annotation or of a choice of such; none of a composed one."""
    if get_origin(hint) not in (Union, UnionType):
        return _SIMPLE.get(hint)
    ways = [_simple(one) for one in get_args(hint)]
    return frozenset().union(*cast(list[frozenset[type]], ways)) if None not in ways else None


def _check_of_all(hint: Any) -> _Check:
    """Of every element: long lists of numbers without a call for each."""
    simple = _simple(hint)
    if simple is not None:
        return lambda values: simple.issuperset(map(type, values))
    one = _check_of(hint)
    return lambda values: all(map(one, values))


def _check_of_parts(kind: type) -> _Check:
    parts = _fields(cast(Hashable, kind))
    return lambda value: isinstance(value, kind) and all(fits(getattr(value, name)) for name, fits in parts)
