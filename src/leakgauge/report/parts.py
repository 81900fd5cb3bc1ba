"""A part of the catalogue as a person reads it: what it does, its options, how it is asked for."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from leakgauge.attacks.base import LabelAttack
from leakgauge.catalogue import CATALOGUE
from leakgauge.errors import InvalidCase

_ASKED_FOR = {
    "attacks": "leakgauge audit --attack {}",
    "encoding_attacks": "leakgauge instahide attack ENCODINGS --attack {}",
    "defences": "leakgauge audit --defence none --defence {}",
    "schemes": "leakgauge instahide encrypt --scheme {}",
    "local_updates": "leakgauge audit --local-update {}",
    "client_parts": "leakgauge audit --local-update fedsgd+{}",
    "models": "leakgauge audit --model {}",
    "datasets": "leakgauge audit --dataset {}",
    "metrics": "leakgauge audit --fail-above {}=LIMIT",
    "threat_models": "leakgauge audit --threat-model {}",
}


@dataclass(frozen=True)
class PartOption:
    """One setting; ``default`` is None where it has to be given."""

    name: str
    kind: str
    default: str | None


@dataclass(frozen=True)
class CataloguePart:
    """One part: of what kind, its name, its options, the first sentence on it and all that is said, and how to type it.

    ``made_of`` is what a recipe puts together, as Python writes it; nothing for a part of its own.
    """

    kind: str
    name: str
    options: tuple[PartOption, ...]
    summary: str
    words: str
    commands: tuple[str, ...]
    made_of: str = ""

    @property
    def signature(self) -> str:
        return ", ".join(one.name if one.default is None else f"{one.name}={one.default}" for one in self.options)

    def matches(self, text: str) -> bool:
        """Whether all words of a search occur in the name or what is said."""
        said = f"{self.kind} {self.name} {self.words} {self.signature}".lower()
        return all(word in said for word in text.lower().split())


def catalogue_parts(kind: str | None = None) -> list[CataloguePart]:
    """The parts of one kind, or all, in the order of the catalogue."""
    if kind is not None and kind not in CATALOGUE:
        raise InvalidCase(f"There is no {kind!r} to list; choose from {', '.join((*CATALOGUE, 'runs'))}.")
    return [_part(one, name, part) for one in CATALOGUE if kind in (None, one) for name, part in CATALOGUE[one].items()]


def named_parts(name: str) -> list[CataloguePart]:
    """The parts of a name, of which there may be one of several kinds; options behind it are left aside."""
    wanted = name.partition(":")[0].strip()
    every = catalogue_parts()
    if found := [one for one in every if one.name == wanted]:
        return found
    names = list(dict.fromkeys(one.name for one in every))
    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5) or [one for one in names if wanted in one][:3]
    hint = f"did you mean {' or '.join(near)}?" if near else "`leakgauge list` has all names."
    raise InvalidCase(f"There is no {wanted!r} in the catalogue; {hint}")


def _part(kind: str, name: str, part: Callable[..., Any]) -> CataloguePart:
    if part.__name__ == "<lambda>":  # a threat model is a value, and says itself where it is from
        words = str(part().source)
        return CataloguePart(kind, name, (), first_sentence(words), words, (_ASKED_FOR[kind].format(name),))
    options, said = tuple(_options(part)), list(_paragraphs(part))
    made_of, built = "", part
    if not isinstance(part, type) and all(one.default is not None for one in options):
        made = part()
        built, made_of = type(made), repr(made)
        said += [one for one in _paragraphs(built) if built.__name__.lower() == name.replace("_", "")]
    words = "\n\n".join(said)
    commands = _commands(kind, name, built, options)
    return CataloguePart(kind, name, options, first_sentence(words), words, commands, made_of)


def _commands(kind: str, name: str, built: Callable[..., Any], options: tuple[PartOption, ...]) -> tuple[str, ...]:
    required = ",".join(f"{one.name}=..." for one in options if one.default is None)
    plain = _ASKED_FOR[kind].format(f"{name}:{required}" if required else name)
    if isinstance(built, type) and issubclass(built, LabelAttack):
        plain = f"leakgauge labels ROUND --model package.module:factory --method {name}"
    numbers = [one for one in options if one.default is not None and re.fullmatch(r"[\d.e-]+", one.default)]
    told = kind in ("attacks", "defences", "models") and numbers and not required
    return (plain, f"{plain}:{numbers[0].name}={numbers[0].default}") if told else (plain,)


def _paragraphs(part: Callable[..., Any]) -> Iterator[str]:
    """What its docstring says, without examples; that of its kind where it has none of its own."""
    said = part.__doc__ or ""
    if isinstance(part, type) and said.startswith(f"{part.__name__}("):  # what dataclass puts in the place of none
        said = next(one.__doc__ or "" for one in part.__mro__[1:])
    for paragraph in inspect.cleandoc(said).split("\n\n"):
        if not paragraph.lstrip().startswith((">>>", "===")) and "\n====" not in paragraph:
            yield " ".join(paragraph.replace("``", "`").split())


_SHORT = "".join(rf"(?<!\b{word})" for word in ("al", "App", "Eq", "Fig", "Prop", "Sec"))
_END = re.compile(rf"{_SHORT}\.(?=\s|$)")
"""A full stop that ends a sentence, and no number, "et al." or "Prop."."""


def first_sentence(words: str) -> str:
    """Up to the first full stop that ends one and is in no brackets; all of the paragraph where there is none.

    >>> first_sentence("Rows [Vero et al., 2023, Eq. 4]. More.")
    'Rows [Vero et al., 2023, Eq. 4].'
    >>> first_sentence("It is wide, and Prop. 3.1 reads it. More.")
    'It is wide, and Prop. 3.1 reads it.'
    """
    paragraph = words.split("\n\n", maxsplit=1)[0]
    outside = re.sub(r"\[[^]]*\]", lambda inside: "_" * len(inside[0]), paragraph)
    end = _END.search(outside)
    return paragraph if end is None else paragraph[: end.end()]


def _options(part: Callable[..., Any]) -> Iterator[PartOption]:
    for parameter in inspect.signature(part).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        hint = parameter.annotation
        kind = (
            "" if hint is parameter.empty else hint if isinstance(hint, str) else getattr(hint, "__name__", str(hint))
        )
        default = None if parameter.default is parameter.empty else repr(parameter.default)
        yield PartOption(parameter.name, kind, "its own" if default == "<factory>" else default)
