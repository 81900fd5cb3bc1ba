"""Options that several commands share, and ``--fail-above``: what may leak at most, checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from leakgauge.errors import InvalidCase

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")]
OutOption = Annotated[Path, typer.Option("--out", help="Folder for results and the report.")]
SeedOption = Annotated[int | None, typer.Option("--seed", help="Seed of data, client and attack.")]
SchemeOption = Annotated[str, typer.Option("--scheme", help="inside:k=4, cross:k=6,least_private=0.3, mixup:k=4, ...")]
BudgetOption = Annotated[str | None, typer.Option("--budget", help="Work of each attack: quick, standard or deep.")]
SecondsOption = Annotated[float | None, typer.Option("--seconds", help="CPU seconds of each attack.")]
ClockOption = Annotated[
    str | None, typer.Option("--clock", help="What counts seconds: cpu, or wall as one waits, busy machine or not.")
]
ModelOption = Annotated[
    str | None,
    typer.Option("--model", help="A catalogue model, or package.module:factory, then :depth=20 for arguments."),
]
OwnModelOption = Annotated[
    str,
    typer.Option(
        "--model", help="The updates' model: package.module:factory, then :depth=20 for arguments, or of the catalogue."
    ),
]
LossOption = Annotated[
    str | None,
    typer.Option("--loss", help="cross_entropy, bce, multi_label, mse:reduction=sum, ..., or package.module:function."),
]
NormaliseOption = Annotated[
    str | None,
    typer.Option(
        "--normalise", help="What the model expects of pixels: imagenet, cifar10, mnist, half, or mean=[..],std=[..]."
    ),
]
NullsOption = Annotated[
    int | None, typer.Option("--nulls", help="Unrelated updates that each attack also meets, over all rounds; 3.")
]
ClientOption = Annotated[
    str | None, typer.Option("--local-update", help="The client's algorithm, in place of what the file says.")
]
ClientDefenceOption = Annotated[
    str | None, typer.Option("--defence", help="The client's defence, in place of what the file says.")
]
ClientModeOption = Annotated[str | None, typer.Option("--mode", help="The client's mode, eval or train, likewise.")]
ReadOption = Annotated[
    list[str] | None,
    typer.Option("--read", help="Repeatable: how the file is to be read: reversed, swapped, after, without-labels."),
]
SizeOption = Annotated[int | None, typer.Option("--batch-size", help="Examples per update, where a file does not say.")]
RedactOption = Annotated[
    bool | None,
    typer.Option(
        "--redact/--no-redact", help="Keep private data and what came back out of the report; for recorded rounds so."
    ),
]
JobsOption = Annotated[
    int | None,
    typer.Option("--jobs", min=1, help="Attacks on a small model that run at once; else one per core when it pays."),
]
RayOption = Annotated[
    str | None,
    typer.Option(
        "--ray", help="Attack on the cores of a Ray cluster: auto, its ADDRESS, or local for one of this machine."
    ),
]
LimitOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-above",
        help="leaked=0 or metric=limit: exit with 1 when more leaks, with 3 when that cannot be told. Repeatable.",
    ),
]
AllowOption = Annotated[
    bool, typer.Option("--allow-inconclusive", help="Let --fail-above pass what it cannot tell, in place of exit 3.")
]
TrustOption = Annotated[
    bool, typer.Option("--trust", help="Let the file name code to import and run, as only one that you have read may.")
]


def options_for(plan: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Of the options of a command, those that were given and that a plan has by the same names; paths as words."""
    known = {name: given[name] for name in plan.__dataclass_fields__ if given.get(name) is not None}
    return {name: str(value) if isinstance(value, Path) else value for name, value in known.items()}


def limits_of(texts: list[str] | None) -> dict[str, float]:
    from leakgauge.audit.limits import check_limit

    limits = {}
    for text in texts or ():
        name, _, value = text.partition("=")
        try:
            limits[name.strip()] = float(value)
        except ValueError as error:
            raise InvalidCase(
                f"--fail-above takes leaked=number or metric=number, such as leaked=0, got {text!r}."
            ) from error
        check_limit(name.strip(), limits[name.strip()])
    return limits


def check_limits(limits: dict[str, float], prepared: Any) -> None:
    """Refuse, before any attack runs, a limit on what this run cannot measure."""
    from leakgauge.audit.limits import LEAKED
    from leakgauge.audit.result import labels_given
    from leakgauge.metrics import Kind

    if limits and any(case.truth is None for case in prepared.cases):
        first = next(iter(limits))
        raise InvalidCase(
            f"The limit on {first!r} needs what is private to compare with; give --truth, or of a challenge --secret."
        )
    for name in limits:
        if name == LEAKED:
            continue
        if name not in prepared.metrics:
            known = ", ".join((LEAKED, *prepared.metrics))
            raise InvalidCase(f"The limit on {name!r} cannot be measured here; choose from {known}.")
        metric = prepared.metrics[name]
        if metric.lacks:
            raise InvalidCase(f"The limit on {name!r} needs {metric.lacks}.")
        if metric.serves is Kind.LABELS and all(labels_given(case.ledger) for case in prepared.cases):
            raise InvalidCase(
                f"The limit on {name!r} needs labels that the attacker is not given; "
                "choose such a threat model, or add an attack on labels."
            )
