"""The check of a model as it is shown: sentences and tables of at most 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from leakgauge.attacks.budget import BUDGETS
from leakgauge.report.grids import FittedTable
from leakgauge.report.progress import time_left
from leakgauge.risk import ModelCheck
from leakgauge.risk.texts import TextRisk
from leakgauge.risk.trials import Applicability, PartKind

_INDENT = (0, 0, 0, 2)
_ROUTES: Mapping[str, str] = {
    "Tangent": "sweeps through the network, exact, without a graph",
    "FrozenDifference": "sweeps with every switch held, checked against exact ones",
    "DoubleBackward": "autograd, differentiated twice, exact",
    "FiniteDifference": "differences, so what is not found is inconclusive",
}


def show_check(found: ModelCheck, steps: int) -> Iterator[RenderableType]:
    """What can be attacked, at what cost, what applies, layer by layer what the rank rule says, and what ends it."""
    frozen = f", {found.frozen:,} frozen" if found.frozen else ""
    yield f"[bold]{escape(found.model)}[/]: {found.parameters:,} trained parameters{frozen}; {found.inputs}."
    for sentence in summary(found, steps):
        yield escape(sentence)
    for title, parts in (("Attacks", found.attacks), ("Defences", found.defences)):
        yield f"\n[bold]{title}[/]"
        yield from _applying(parts)
    yield "\n[bold]What each layer gives away[/]"
    yield from _layers(found)
    if found.changes:
        yield "\n[bold]What would end it, by the rank rule[/]"
        yield from (Padding(escape(change), _INDENT) for change in found.changes)


def summary(found: ModelCheck, steps: int) -> tuple[str, ...]:
    """In sentences, the gravest first."""
    said = []
    size = f"an update of {found.batch_size} example{'s' if found.batch_size > 1 else ''}"
    if found.closed:
        said.append(f"Exact, in closed form: {', '.join(found.closed)} on {size}.")
    elif found.closed_alone:
        said.append(f"Exact, in closed form, were it an update of one example: {', '.join(found.closed_alone)}.")
    if found.exposed:
        layers = f"{len(found.exposed)} layer{'s' if len(found.exposed) > 1 else ''}"
        said.append(
            f"By the rank rule the gradient of {layers} spans whole examples of {size}; up to {found.largest_batch} "
            "examples some layer's does."
        )
    elif found.unread is None:
        limit = f"; up to {found.largest_batch} it would" if found.largest_batch else ""
        parts = sum(layer.spans(found.batch_size) for layer in found.layers)
        some = f", that of {parts} layer{'s' if parts > 1 else ''} a part of them" if parts else ""
        said.append(f"By the rank rule no layer's gradient spans whole examples of {size}{some}{limit}.")
    if found.texts is not None:
        said.insert(0, _texts(found.texts))
    return (*said, _matching(found, steps))


def _texts(risk: TextRisk) -> str:
    if not risk.tokens:
        return "Texts: no layer's gradient can tell even one token."
    order = f"; up to {risk.ordered:,} tokens in all, the texts word for word" if risk.ordered else ", not their order"
    return (
        f"Texts: an update gives every token of its batch away, exactly, while the batch has at most {risk.tokens:,} "
        f"different ones (token_spans){order}."
    )


def _matching(found: ModelCheck, steps: int) -> str:
    cost = found.cost
    if cost is None:
        return f"Gradient matching has no way: {found.refusal}"
    budgets = ", ".join(f"{name} {cost.steps_in(one.seconds or 0):,}" for name, one in BUDGETS.items())
    measured = "" if cost.computed == found.batch_size else f", in proportion from {cost.computed}"
    why = f" ({cost.why.rstrip('.')})" if cost.why else ""
    return (
        f"Gradient matching by {cost.route}, {_ROUTES.get(cost.route, 'a route of its own')}{why}: "
        f"{_seconds(cost.seconds)} CPU a step, {cost.training_steps:.1f} training steps of "
        f"{_seconds(cost.training_step)}{measured}. {steps:,} steps take about "
        f"{time_left(steps * cost.seconds).removesuffix(' left')}; budgets in steps: {budgets}."
    )


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{1e3 * value:.3g} ms"


def _applying(parts: tuple[Applicability, ...]) -> Iterator[RenderableType]:
    """The names of those that apply, kind by kind; of the others each reason with those it holds for."""
    rows: list[tuple[Text, Text]] = []
    for kind in PartKind:
        if names := [one.name for one in parts if one.kind is kind and one.applies]:
            rows.append((Text(kind.value if kind is not PartKind.DEFENCE else "apply"), Text(", ".join(names))))
    for applies, title in ((False, "do not apply"), (None, "not tried")):
        reasons: dict[str, list[str]] = {}
        for one in parts:
            if one.applies is applies:
                reasons.setdefault(one.why, []).append(one.name)
        for reason, names in reasons.items():
            rows.append((Text(title), Text.assemble(", ".join(names), (f": {reason}", "dim"))))
            title = ""
    yield Padding(FittedTable(("", ""), rows), _INDENT)


def _layers(found: ModelCheck) -> Iterator[RenderableType]:
    if found.unread is not None:
        yield Padding(escape(f"Not told: {found.unread}"), _INDENT)
        return
    some = [layer for layer in found.layers if layer.largest_batch]
    rows = []
    for layer in some:
        now = layer.spans(found.batch_size)
        cells = (
            layer.name,
            f"{layer.positions} x {found.batch_size}",
            str(min(layer.outputs, layer.inputs)),
            str(layer.largest_batch),
            ("whole examples" if layer.whole else "a part") if now else "nothing",
        )
        rows.append([Text(cell) for cell in cells])
    numbers = ("positions x batch", "below", "up to batch")
    if some:
        yield Padding(FittedTable(("layer", *numbers, "gives away"), rows, frozenset(numbers)), _INDENT)
    rest = len(found.layers) - len(some)
    if rest:
        others = "other " if some else ""
        yield Padding(f"{rest} {others}layers have too many positions for their width, at any batch size.", _INDENT)
