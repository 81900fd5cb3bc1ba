"""Plans as files: what they say, and that a file which one was sent runs no code."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from leakgauge.config import split_chain
from leakgauge.errors import InvalidCase, InvalidFile
from leakgauge.factories import names_code, read_options

MOST_BYTES = 1 << 20
"""A plan is a page; what is larger is something else."""

_PATHS = ("data_root", "state", "weights")
"""Keys whose texts are names of files and nothing else."""


def load_config(path: Path, *, trust: bool = False, replaced: Collection[str] = ()) -> dict[str, Any]:
    """The keys of a .toml or .json file; unless one trusts it, it may name parts of LeakGauge and no code.

    Keys that are ``replaced`` by what the user says otherwise may hold anything, as nobody reads them.
    """
    values = _parse(path)
    if any("\0" in text for text in _texts(values)):
        raise InvalidFile(f"The configuration {path} holds a NUL in a text, which no name has; correct it.")
    code = next(_code_in({key: value for key, value in values.items() if key not in replaced}), None)
    if code is not None and not trust:
        raise InvalidCase(
            f"The file {path} names code to run, {code!r}, which a file from somebody else must not; read it and add "
            "--trust, or name the code on the command line."
        )
    return values


def _parse(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
        text = content.decode("utf-8")
    except OSError as error:
        raise InvalidFile(f"Cannot read the configuration {path}: {error.strerror}; check the path.") from error
    except UnicodeDecodeError as error:
        raise InvalidFile(f"The configuration {path} is not text in UTF-8; give a .toml or .json file.") from error
    if len(content) > MOST_BYTES:
        raise InvalidFile(f"The configuration {path} has more than {MOST_BYTES} bytes; give a .toml or .json plan.")
    try:
        values = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidFile(f"The configuration {path} cannot be parsed ({error}); correct it.") from error
    if not isinstance(values, dict):
        raise InvalidFile(f"The configuration {path} holds a {type(values).__name__}; write a table of keys.")
    return values


def _code_in(values: Mapping[str, Any]) -> Iterator[str]:
    """What a configuration names that would have to be imported."""
    for text in _texts({key: value for key, value in values.items() if key not in _PATHS}):
        if names_code(text):
            yield text
        # As a whole and part by part: which of both is meant depends on who reads it.
        for part in {text, *split_chain(text)}:
            yield from (option for option in _texts(_options(part)) if ":" in option)


def _options(text: str) -> dict[str, Any]:
    try:
        return read_options(text.partition(":")[2], text)
    except InvalidCase:  # which whoever builds the part says as well
        return {}


def _texts(value: Any) -> Iterator[str]:
    """Every text in a value, the keys of tables among them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (text for pair in value.items() for one in pair for text in _texts(one))
    elif isinstance(value, list | tuple | set):
        yield from (text for one in value for text in _texts(one))
