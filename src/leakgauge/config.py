"""From words to parts: ``pruning:keep=0.01`` or ``clipping:max_norm=1+gaussian_noise:std=0.01``; unknown words fail."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from torch import nn

from leakgauge.attacks.base import Attack
from leakgauge.attacks.budget import BUDGETS, Budget, Budgeted, Clock, with_budget
from leakgauge.catalogue import ATTACKS, CLIENT_PARTS, DATASETS, DEFENCES, LANGUAGE_MODELS, LOCAL_UPDATES, Shelf
from leakgauge.data import Dataset
from leakgauge.defences import Defence, chain
from leakgauge.defences.base import parts
from leakgauge.errors import InvalidCase
from leakgauge.factories import import_named, names_code, read_options
from leakgauge.models import NORMALISATIONS, Normalisation, Normalised
from leakgauge.protocol.local_update import LocalUpdate
from leakgauge.protocol.losses import LOSSES, LossFunction, NextToken, as_loss
from leakgauge.protocol.threat_model import THREAT_MODELS, ThreatModel

T = TypeVar("T")

_KINDS = {float: "a number", int: "a whole number", str: "text", bool: "true or false"}

MOST_PARTS = 32
"""Of one client or defence; each is a layer around the one before."""

# A plus, unless it belongs to an exponent such as 1e+3.
_JOINT = re.compile(r"\+(?!(?<=[\d.][eE]\+)\d)")


def build(shelf: Shelf, text: str, *, kind: str) -> Any:
    """The part that a specification ``name`` or ``name:option=value,option=value`` names.

    >>> build(DEFENCES, "pruning:keep=0.25", kind="defence")
    Pruning(keep=0.25)
    """
    name, _, rest = text.strip().partition(":")
    return call(choose(shelf, name, kind=kind), read_options(rest, text), owner=f"{kind} {name!r}")


def choose(shelf: Mapping[str, T], name: str, *, kind: str) -> T:
    """What a shelf holds under a name."""
    if name not in shelf:
        if kind == "model" and os.path.isfile(f"{(stem := name.removesuffix('.py'))}.py"):
            raise InvalidCase(f"{name!r} is a file; name the function in it that builds the model, as in {stem}:build.")
        own = " Your own is package.module:factory." if kind == "model" else ""
        raise InvalidCase(f"There is no {kind} {name!r}; {_suggest(name, shelf)}{own}")
    return shelf[name]


def build_dataset(text: str, root: str | Path | None) -> Dataset:
    """The dataset that a specification names, read below ``root``."""
    if text.partition(":")[0].strip() not in DATASETS and (meant := _dataset_of_file(text, root)):
        raise InvalidCase(f"{text!r} is no name of a dataset but of data; write --dataset {meant}.")
    dataset: Dataset = build(DATASETS, text, kind="dataset")(None if root is None else Path(root))
    return dataset


def _dataset_of_file(text: str, root: str | Path | None) -> str:
    """How to ask for a folder or file that was named without saying what it is; empty where there is none."""
    path = os.path.join(root or "", text)
    if os.path.isdir(path):
        return f"image_folder:folder={text}"
    words = f"file={text}"
    kinds = {".csv": f"csv:{words},label=COLUMN", ".txt": f"text:{words}", ".npz": f"npz:{words}"}
    return kinds.get(os.path.splitext(text)[1], "") if os.path.isfile(path) else ""


def build_loss(text: str, model: str = "") -> LossFunction:
    """A loss of ours, or the user's own function ``package.module:function``.

    The cross-entropy of a ``model`` that predicts tokens is that of the next one.

    >>> build_loss("cross_entropy:label_smoothing=0.1")
    CrossEntropy(reduction='mean', output=None, label_smoothing=0.1)
    """
    name, _, rest = text.strip().partition(":")
    if text == "cross_entropy" and model.partition(":")[0] in LANGUAGE_MODELS:
        return NextToken()
    if name in LOSSES or not rest or not names_code(text):
        loss: LossFunction = build(LOSSES, text, kind="loss")
        return loss
    found = import_named(text, "loss")
    if not callable(found):
        raise InvalidCase(f"The loss {text!r} is a {type(found).__name__}; name a function of output and labels.")
    return as_loss(found)


def build_client(text: str) -> LocalUpdate:
    """A local update and, joined by ``+``, what else the client does.

    >>> build_client("fedsgd+transport:dtype=float16")
    Transformed(inner=FedSGD(), transform=Transport(dtype='float16'))
    """
    first, *rest = split_chain(text)
    client: LocalUpdate = build(LOCAL_UPDATES, first, kind="local update")
    for part in rest:
        client = build(CLIENT_PARTS, part, kind="part of a client")(client)
    return client


def build_normalised(model: nn.Module, text: str | None) -> nn.Module:
    """The model behind a normalisation: of a name, or ``mean=[0.5,0.5,0.5],std=[0.25,0.25,0.25]``; None = as it is."""
    if text is None:
        return model
    if "=" not in text:
        chosen = choose(NORMALISATIONS, text.strip(), kind="normalisation")
    else:
        chosen = call(Normalisation, read_options(text, text), owner="normalisation")
    return Normalised(model, chosen.mean, chosen.std)


def build_threat_model(name: str) -> ThreatModel:
    return choose(THREAT_MODELS, name, kind="threat model")


def name_attack(text: str, attack: Attack, budget: Budget | None) -> str:
    """What an attack is called: as it was asked for, without the steps and seconds that a budget replaced.

    >>> name_attack("best:steps=250", build_attack("best:steps=250"), Budget(steps=20))
    'best'
    """
    name, _, options = text.partition(":")
    if budget is None or not options or not isinstance(attack, Budgeted) or set(options) & set("()[]{}"):
        return text
    kept = [one for one in options.split(",") if one.partition("=")[0].strip() not in ("steps", "seconds")]
    return ":".join([name, *([",".join(kept)] if kept else [])])


def build_budget(
    budget: str | Budget | None,
    steps: int | None = None,
    seconds: float | None = None,
    clock: Clock | None = None,
) -> Budget | None:
    """The budget that a name, steps, seconds and a clock ask for; the latter replace those of the name.

    >>> build_budget("deep", seconds=90.0)
    Budget(steps=None, seconds=90.0, clock='cpu', least=30)
    """
    if budget is None:
        if clock is not None and seconds is None:
            raise InvalidCase(f"The clock {clock!r} counts seconds, and none are given; add --seconds or --budget.")
        return None if steps is None and seconds is None else Budget(steps, seconds, clock or "cpu")
    if not isinstance(budget, str | Budget):
        raise InvalidCase(f"A budget is {', '.join(BUDGETS)} or a Budget, got {budget!r}; write Budget(seconds=...).")
    named = budget if isinstance(budget, Budget) else choose(BUDGETS, budget, kind="budget")
    return dataclasses.replace(
        named,
        steps=named.steps if steps is None else steps,
        seconds=named.seconds if seconds is None else seconds,
        clock=clock or named.clock,
    )


def build_attack(attack: str | Attack, budget: Budget | None = None) -> Attack:
    """An attack, or the one that a specification names, with its budget replaced where it has one."""
    made: Attack = build(ATTACKS, attack, kind="attack") if isinstance(attack, str) else attack
    return made if budget is None else with_budget(made, budget)


def build_defence(text: str) -> Defence:
    """Defences joined by ``+``, the first applied first.

    >>> build_defence("clipping:max_norm=2+pruning:keep=0.5")
    Chain(defences=(Clipping(max_norm=2.0), Pruning(keep=0.5)))
    """
    return chain(*(build(DEFENCES, part, kind="defence") for part in split_chain(text)))


def spell_defence(defence: Defence) -> str:
    """The words that build a defence; of one that is not in the catalogue, its class and settings in the same form.

    >>> spell_defence(build_defence("clipping:max_norm=2+pruning:keep=0.5"))
    'clipping:max_norm=2.0+pruning:keep=0.5'
    """
    return "+".join(map(_spell, parts(defence))) or "none"


def _spell(part: Defence) -> str:
    name = next((name for name, made in DEFENCES.items() if made is type(part)), type(part).__name__)
    known: list[str] = [field.name for field in dataclasses.fields(part)] if dataclasses.is_dataclass(part) else []
    settings = ",".join(f"{option}={getattr(part, option)!r}" for option in known)
    return f"{name}:{settings}" if settings else name


def split_chain(text: str) -> list[str]:
    """The specifications that ``+`` joins.

    >>> split_chain("clipping:max_norm=1e+3+pruning")
    ['clipping:max_norm=1e+3', 'pruning']
    """
    joined = _JOINT.split(text)
    if len(joined) > MOST_PARTS:
        raise InvalidCase(f"{text[:40]!r}... joins {len(joined)} parts; a client has at most {MOST_PARTS}.")
    return joined


def call(factory: Callable[..., T], options: Mapping[str, Any], *, owner: str) -> T:
    """Call a dataclass or factory with options whose names and types were checked against its signature."""
    parameters = inspect.signature(factory).parameters
    hints = get_type_hints(factory if not inspect.isclass(factory) else factory.__init__)
    checked = {}
    for name, value in options.items():
        if name not in parameters:
            raise InvalidCase(f"The {owner} has no option {name!r}; {_suggest(name, parameters)}")
        checked[name] = _coerce(value, hints.get(name, Any), f"{name!r} of the {owner}")
    if missing := [
        name
        for name, p in parameters.items()
        if p.default is p.empty and name not in checked and p.kind is not p.VAR_KEYWORD
    ]:
        raise InvalidCase(f"The {owner} needs the option {missing[0]!r}; write it as :{missing[0]}=value.")
    return factory(**checked)


def from_mapping(cls: type[T], values: Mapping[str, Any], *, source: str) -> T:
    """A dataclass from a configuration's keys; unknown keys are errors."""
    assert dataclasses.is_dataclass(cls)
    return call(cls, values, owner=source)


def _coerce(value: Any, hint: Any, what: str) -> Any:
    """The value as the annotated type; only lossless changes (int to float, list to tuple)."""
    if get_origin(hint) in (Union, UnionType):  # in our signatures "or None", or one of two plain kinds
        return value if value is None or type(value) in get_args(hint) else _coerce(value, get_args(hint)[0], what)
    if hint is float and type(value) is int and abs(value) <= sys.float_info.max:
        return float(value)
    if hint in _KINDS and type(value) is not hint:
        raise InvalidCase(f"The option {what} must be {_KINDS[hint]}, got {value!r}; correct it.")
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise InvalidCase(f"The option {what} must be a list, got {value!r}; write it in brackets.")
        return tuple(_coerce(item, get_args(hint)[0], what) for item in value)
    if hint is not Any and hint not in _KINDS and get_origin(hint) is not Literal:
        raise InvalidCase(f"The option {what} is an object, got {value!r}; set it from Python.")
    return value


def _suggest(name: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"choose from {', '.join(known)}."
