"""``leakgauge invert`` and ``leakgauge labels``: attacks on recorded rounds that nobody simulated here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leakgauge.cli.options import (
    AllowOption,
    BudgetOption,
    ClientDefenceOption,
    ClientModeOption,
    ClientOption,
    ClockOption,
    JsonFlag,
    LimitOption,
    LossOption,
    NormaliseOption,
    NullsOption,
    OutOption,
    OwnModelOption,
    ReadOption,
    RedactOption,
    SecondsOption,
    SeedOption,
    SizeOption,
    TrustOption,
    check_limits,
    limits_of,
    options_for,
)
from leakgauge.cli.output import Gate, Said, finish, stderr

if TYPE_CHECKING:
    from leakgauge.audit.recorded import RecordedPlan
    from leakgauge.audit.result import AuditResult


def invert(
    file: Annotated[Path, typer.Argument(help="A recorded round, as .safetensors.")],
    model: OwnModelOption,
    normalise: NormaliseOption = None,
    loss: LossOption = None,
    local_update: ClientOption = None,
    defence: ClientDefenceOption = None,
    mode: ClientModeOption = None,
    read: ReadOption = None,
    batch_size: SizeOption = None,
    attack: Annotated[str | None, typer.Option(help="The attack to run; else one that suits the inputs.")] = None,
    budget: BudgetOption = None,
    steps: Annotated[int | None, typer.Option(help="Optimiser steps.")] = None,
    seconds: SecondsOption = None,
    clock: ClockOption = None,
    truth: Annotated[
        Path | None, typer.Option(help=".npz with the private `images` (or `rows`) and `labels`, to score it.")
    ] = None,
    references: Annotated[
        str | None,
        typer.Option(help="Others of their kind, to tell the private ones from: a folder of images, .npz or dataset."),
    ] = None,
    data_root: Annotated[str | None, typer.Option(help="Folder that holds the files of such a dataset.")] = None,
    nulls: NullsOption = None,
    weights: Annotated[str | None, typer.Option(help="Folder with LPIPS weights (or LEAKGAUGE_WEIGHTS).")] = None,
    seed: SeedOption = None,
    out: OutOption = Path("inverted"),
    fail_above: LimitOption = None,
    allow_inconclusive: AllowOption = False,
    explain: Annotated[
        bool, typer.Option(help="Try other readings of a round that its declaration does not explain.")
    ] = True,
    trust: TrustOption = False,
    redact: RedactOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Attack a recorded update that nobody simulated here; write what came back and a report."""
    options = locals()
    from leakgauge.cli.explain import explain_result

    limits = limits_of(fail_above)
    plan = _plan(options, [file], [attack] if attack else None, [] if truth is None else [truth])
    result = _attack(plan, out, limits, redact)
    kept = recovered_files(result, out)
    said = explain_result(plan, result, search=explain).and_(kept) if result.complete else kept
    finish(result, out, Gate(limits, allow_inconclusive), as_json, "invert", more=said)


def recovered_files(result: AuditResult, out: Path, redact: bool | None = None) -> Said:
    """Write what came back beside the page, unless that is redacted, and say which of both it is."""
    from rich.text import Text

    from leakgauge.report.recovered import came_back, redaction_sentence, write_recovered

    folder = write_recovered(result, out, redact=redact)
    shown = (Text(redaction_sentence(out, folder), "dim"),) if came_back(result) else ()
    return Said({"recovered": None if folder is None else str(folder)}, shown)


def labels(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Recorded rounds, as .safetensors.")],
    model: OwnModelOption,
    normalise: NormaliseOption = None,
    loss: LossOption = None,
    local_update: ClientOption = None,
    defence: ClientDefenceOption = None,
    mode: ClientModeOption = None,
    read: ReadOption = None,
    method: Annotated[list[str] | None, typer.Option(help="Repeatable; a label attack of `leakgauge list`.")] = None,
    batch_size: SizeOption = None,
    truth: Annotated[
        list[Path] | None, typer.Option(help=".npz with private `images` and `labels`; once per FILE, in order.")
    ] = None,
    nulls: NullsOption = None,
    seed: SeedOption = None,
    out: Annotated[Path | None, typer.Option(help="Folder for results and a report; without it, none.")] = None,
    fail_above: LimitOption = None,
    allow_inconclusive: AllowOption = False,
    trust: TrustOption = False,
    redact: RedactOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Restore the labels of recorded updates: which classes a client trained on, and how often."""
    options = locals()
    from rich.text import Text

    from leakgauge.report.console import label_tables
    from leakgauge.report.redaction import is_redacted

    limits = limits_of(fail_above)
    options |= {"labels_only": True}
    result = _attack(_plan(options, files, method, truth or []), out, limits, redact)
    hidden = out is not None and is_redacted(result, redact)
    said = "The page tells how many labels came back and not which, and may be handed on; --no-redact tells both."
    more = Said({}, (Text(said, "dim"),)) if hidden else None
    finish(result, out, Gate(limits, allow_inconclusive), as_json, "labels", label_tables, more)


def _plan(
    options: dict[str, Any], files: Sequence[Path], attacks: Sequence[str] | None, truths: Sequence[Path]
) -> RecordedPlan:
    """By the options of a command, and what it may take several of."""
    from leakgauge.audit.recorded import RecordedPlan

    several = {"files": tuple(map(str, files)), "truths": tuple(map(str, truths)), "read": tuple(options["read"] or ())}
    several |= {"attacks": tuple(attacks)} if attacks else {}
    return RecordedPlan(**options_for(RecordedPlan, options | several))


def _attack(plan: RecordedPlan, out: Path | None, limits: dict[str, float], redact: bool | None = None) -> AuditResult:
    from leakgauge.audit.execute import execute
    from leakgauge.audit.recorded import prepare_recorded
    from leakgauge.audit.store import check_reachable
    from leakgauge.report.progress import case_progress, training_progress

    if out is not None:
        check_reachable(out)
    with training_progress(stderr(), "round and model", "preparing") as step:
        prepared = prepare_recorded(plan).with_report(redact=redact)
        check_limits(limits, prepared)
        prepared.keys(step)
    with case_progress(stderr(), prepared.cases) as watch:
        return execute(prepared, out, watch)
