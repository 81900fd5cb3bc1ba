"""Modules of the user's own, named in words."""

from __future__ import annotations

import ast
import importlib
import os
import re
import sys
from contextlib import suppress
from typing import Any

from torch import nn

from leakgauge.errors import InvalidCase

MOST_OPTIONS = 10_000
"""Characters: a model of a hundred thousand layers is no model."""

_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
_BARE = re.compile(r"(?<![^,\s])([A-Za-z_]\w*)\s*=\s*([\w./\\~@-][\w ./\\~@-]*)(?=,\s*[A-Za-z_]\w*\s*=|$)")
"""An option whose value holds nothing but what names of files do; found in time that grows as the words do."""


def import_factory(reference: str) -> nn.Module:
    """The module built by ``package.module:factory`` or, with arguments, ``package.module:factory:depth=20,width=2``.

    It is imported from the working folder or the environment.
    """
    name, rest = _split(reference)
    factory = import_named(name, "model factory")
    if isinstance(factory, nn.Module):
        raise InvalidCase(f"{reference!r} is a model; name a function that builds it, so that it can be built anew.")
    options = read_options(rest, reference)
    # The user's own code may fail in any way; what it says is the cause.
    try:
        model = factory(**options)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit among them
        needs = "take these arguments" if options else "be callable without arguments"
        raise InvalidCase(
            f"The model factory {reference!r} must {needs}, but failed ({cause(error)}); give what it needs, as in "
            "package.module:factory:depth=20, or wrap it in a function that needs nothing."
        ) from error
    if not isinstance(model, nn.Module):
        raise InvalidCase(
            f"The model factory {reference!r} returned {type(model).__name__}; let it return a torch.nn.Module."
        )
    return model


def import_named(reference: str, what: str) -> Any:
    """What ``package.module:name`` names, imported from the working folder or the environment."""
    module_name, _, attribute = reference.partition(":")
    module_name = (
        module_name.removesuffix(".py").removeprefix("./").replace("/", ".")
    )  # mymodel.py:build is meant as well
    if not module_name or not attribute:
        kind = what.split()[-1]
        raise InvalidCase(f"The {what} {reference!r} names no {kind}; write package.module:{kind}.")
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit among them
        raise InvalidCase(
            f"The {what} {reference!r} cannot be imported ({cause(error)}); check its name and run from its folder."
        ) from error


def names_code(text: str) -> bool:
    """Whether a specification may name something to import, as no name of a part with its options does.

    >>> [names_code(text) for text in ("pruning", "pruning:keep=0.1", "their.models:resnet", "their:resnet:depth=20")]
    [False, False, True, True]
    """
    _, colon, rest = text.partition(":")
    return bool(colon) and "=" not in rest.partition(":")[0]


def _split(reference: str) -> tuple[str, str]:
    """The name of a factory, and its arguments, which a second colon begins.

    >>> _split("their.models:resnet:depth=20")
    ('their.models:resnet', 'depth=20')
    """
    module_name, _, rest = reference.partition(":")
    attribute, _, options = rest.partition(":")
    return f"{module_name}:{attribute}" if attribute else module_name, options


def read_options(rest: str, text: str) -> dict[str, Any]:
    """The options ``option=value,option=value`` of a specification, read as Python literals; nothing is evaluated.

    What is none is text if it may be the name of a file.

    >>> read_options("file=data/visits-2024.csv,label=went home,size=3", "csv")
    {'file': 'data/visits-2024.csv', 'label': 'went home', 'size': 3}
    """
    if not rest:
        return {}
    if len(rest) > MOST_OPTIONS:
        raise InvalidCase(f"The options of {text[:40]!r}... have {len(rest)} characters; say at most {MOST_OPTIONS}.")
    try:
        return _parsed(rest)
    except _UNREADABLE as error:
        with suppress(*_UNREADABLE):
            return _parsed(_BARE.sub(_quoted, rest))
        reason = error.msg if isinstance(error, SyntaxError) else cause(error)
        raise InvalidCase(f"Cannot read the options of {text[:200]!r} ({reason}); use name:option=value.") from error


def _parsed(rest: str) -> dict[str, Any]:
    # Parsed as the arguments of a call, so that values read as in Python; nothing is evaluated.
    parsed = ast.parse(f"f({rest})", mode="eval").body
    if not isinstance(parsed, ast.Call) or not isinstance(parsed.func, ast.Name) or parsed.args:
        raise ValueError("options need names")
    names = [str(word.arg) for word in parsed.keywords]
    if len(set(names)) < len(names):
        raise ValueError("an option is given twice")
    return {name: _literal(word.value) for name, word in zip(names, parsed.keywords)}


def _quoted(option: re.Match[str]) -> str:
    """An option whose value is quoted, unless it can be read as it is."""
    name, value = option.groups()
    try:
        _parsed(f"{name}={value}")
    except _UNREADABLE:
        return f"{name}={value.strip()!r}"
    return option.group()


def _literal(node: ast.expr) -> Any:
    """A Python literal; a bare word is text, except inf, and so is one with dots, such as the name of a file."""
    if isinstance(node, ast.Name):
        return float("inf") if node.id == "inf" else node.id
    if isinstance(node, ast.Attribute) and isinstance(stem := _literal(node.value), str):
        return f"{stem}.{node.attr}"
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError) as error:
        raise ValueError("a value must be a number, a text or a list") from error


def cause(error: BaseException) -> str:
    """What went wrong, in one line."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__
