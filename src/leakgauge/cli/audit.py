"""``leakgauge audit``, and ``leakgauge report`` of an earlier one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from leakgauge.cli.options import (
    AllowOption,
    BudgetOption,
    ClockOption,
    JobsOption,
    JsonFlag,
    LimitOption,
    LossOption,
    ModelOption,
    NormaliseOption,
    NullsOption,
    OutOption,
    RayOption,
    RedactOption,
    SecondsOption,
    SeedOption,
    TrustOption,
    check_limits,
    limits_of,
    options_for,
)
from leakgauge.cli.output import Gate, finish, stderr
from leakgauge.cli.recorded import recovered_files


def audit(
    config: Annotated[Path | None, typer.Argument(help="A .toml or .json plan; options override it.")] = None,
    dataset: Annotated[str | None, typer.Option(help="photos, digits, cifar10, npz:file='x.npz', ...")] = None,
    data_root: Annotated[str | None, typer.Option(help="Folder that holds the dataset's files.")] = None,
    model: ModelOption = None,
    normalise: NormaliseOption = None,
    loss: LossOption = None,
    state: Annotated[str | None, typer.Option(help="Weights of the model, as .safetensors.")] = None,
    train_steps: Annotated[int | None, typer.Option(help="Train the model this much first.")] = None,
    mode: Annotated[str | None, typer.Option(help="The client's mode: eval or train (BatchNorm, dropout).")] = None,
    local_update: Annotated[str | None, typer.Option(help="fedsgd, or fedavg:epochs=1,batch_size=2,...")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Private images per update.")] = None,
    rounds: Annotated[int | None, typer.Option(help="How many updates, each of other images.")] = None,
    defence: Annotated[list[str] | None, typer.Option(help="Repeatable; join with + to combine.")] = None,
    attack: Annotated[list[str] | None, typer.Option(help="Repeatable.")] = None,
    threat_model: Annotated[str | None, typer.Option(help="What the attacker knows; see `leakgauge list`.")] = None,
    budget: BudgetOption = None,
    steps: Annotated[int | None, typer.Option(help="Optimiser steps of each attack.")] = None,
    seconds: SecondsOption = None,
    clock: ClockOption = None,
    distractors: Annotated[int | None, typer.Option(help="Size of the crowd an original is picked from.")] = None,
    nulls: NullsOption = None,
    weights: Annotated[str | None, typer.Option(help="Folder with LPIPS weights (or LEAKGAUGE_WEIGHTS).")] = None,
    seed: SeedOption = None,
    out: OutOption = Path("report"),
    jobs: JobsOption = None,
    ray: RayOption = None,
    fail_above: LimitOption = None,
    allow_inconclusive: AllowOption = False,
    trust: TrustOption = False,
    redact: RedactOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Audit one client: attack its update undefended and defended, and report what came back.

    Without arguments it audits the embedded example.
    """
    options = locals() | {"defences": tuple(defence or ()) or None, "attacks": tuple(attack or ()) or None}
    from leakgauge.audit.execute import execute
    from leakgauge.audit.executors import executor_for
    from leakgauge.audit.plan import AuditPlan, prepare
    from leakgauge.audit.store import check_reachable
    from leakgauge.config import from_mapping
    from leakgauge.plan_files import load_config
    from leakgauge.report.progress import case_progress, training_progress

    limits = limits_of(fail_above)
    given = options_for(AuditPlan, options)
    values = {} if config is None else load_config(config, trust=trust, replaced=given)
    plan = from_mapping(AuditPlan, values, source="plan")
    if budget is not None:
        # Asked for here, it is not to be cut short by what the file says.
        plan = replace(plan, steps=None, seconds=None)
    plan = replace(plan, **given)
    check_reachable(out)
    console = stderr()
    with training_progress(console) as train_step:
        prepared = prepare(plan, train_step).with_report(redact=redact)
    check_limits(limits, prepared)
    with training_progress(console, "clients", "preparing") as step:
        prepared.keys(step)
    with case_progress(console, prepared.cases) as watch:
        result = execute(prepared, out, watch, executor=executor_for(jobs, ray))
    finish(result, out, Gate(limits, allow_inconclusive), as_json, "audit")


def report(
    folder: Annotated[Path, typer.Argument(help="Folder of an earlier audit.")] = Path("report"),
    fail_above: LimitOption = None,
    allow_inconclusive: AllowOption = False,
    weights: Annotated[str | None, typer.Option(help="Folder with LPIPS weights (or LEAKGAUGE_WEIGHTS).")] = None,
    redact: RedactOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Write the report of an earlier audit again, from its stored results."""
    from leakgauge.audit.execute import load_result
    from leakgauge.catalogue import standard_metrics
    from leakgauge.report.progress import training_progress
    from leakgauge.report.redaction import is_recorded

    limits = limits_of(fail_above)
    with training_progress(stderr(), "the page", "reading") as step:
        result = load_result(folder, standard_metrics(weights), step)
        result.write_report(folder, redact=redact)
    said = recovered_files(result, folder, redact) if is_recorded(result) else None
    finish(result, folder, Gate(limits, allow_inconclusive), as_json, "report", more=said)
