"""``leakgauge tradeoff``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from leakgauge.cli.options import JobsOption, JsonFlag, OutOption, RayOption, SeedOption, TrustOption
from leakgauge.cli.output import answers, exit_early, print_path, stderr, stdout


def tradeoff(
    config: Annotated[
        Path | None, typer.Argument(help="A .toml or .json plan; without it, the embedded example.")
    ] = None,
    seed: SeedOption = None,
    jobs: JobsOption = None,
    ray: RayOption = None,
    out: OutOption = Path("tradeoff"),
    trust: TrustOption = False,
    as_json: JsonFlag = False,
) -> None:
    """Train and attack under every defence: the table of accuracy, time and leakage, and the cheapest that will do.

    Stopped, the same command goes on where it was.
    """
    from leakgauge.audit.executors import executor_for
    from leakgauge.audit.store import check_reachable
    from leakgauge.config import from_mapping
    from leakgauge.plan_files import load_config
    from leakgauge.report.progress import stages
    from leakgauge.report.tradeoff_page import write_tradeoff
    from leakgauge.report.tradeoff_table import tradeoff_table
    from leakgauge.report.tradeoff_words import remarks, sentence
    from leakgauge.tradeoff import TradeoffPlan
    from leakgauge.tradeoff import tradeoff as run

    plan = from_mapping(TradeoffPlan, {} if config is None else load_config(config, trust=trust), source="plan")
    if seed is not None:
        plan = replace(plan, seed=seed)
    check_reachable(out)
    result = run(plan, out, stages(stderr()), executor=executor_for(jobs, ray))
    page = write_tradeoff(result, out, config or Path("plan.json"))
    if as_json:
        answers().write(json.dumps(result.to_dict() | {"sentence": sentence(result)}, allow_nan=False) + "\n")
    else:
        console = stdout()
        console.print(f"[bold]{escape(sentence(result))}[/]")
        for remark in remarks(result):
            console.print(escape(remark))
        console.print(tradeoff_table(result))
        print_path("Report", page)
    if not result.complete:
        exit_early()
