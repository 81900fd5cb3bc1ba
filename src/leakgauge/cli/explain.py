"""``leakgauge explain``: which reading of a recorded round explains its update; the same at the end of ``invert``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leakgauge.cli.options import (
    ClientDefenceOption,
    ClientModeOption,
    ClientOption,
    JsonFlag,
    LossOption,
    NormaliseOption,
    OwnModelOption,
    ReadOption,
    SeedOption,
    SizeOption,
    TrustOption,
    options_for,
)
from leakgauge.cli.output import Said, print_json, stderr, stdout

if TYPE_CHECKING:
    from leakgauge.audit.explain import RoundExplanation
    from leakgauge.audit.recorded import RecordedPlan
    from leakgauge.audit.result import AuditResult

_SECONDS = 60.0


def explain(
    file: Annotated[Path, typer.Argument(help="A recorded round, as .safetensors.")],
    model: OwnModelOption,
    normalise: NormaliseOption = None,
    loss: LossOption = None,
    local_update: ClientOption = None,
    defence: ClientDefenceOption = None,
    mode: ClientModeOption = None,
    read: ReadOption = None,
    batch_size: SizeOption = None,
    truth: Annotated[
        Path | None, typer.Option(help=".npz with the private `images` (or `rows`) and `labels`, to try readings on.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="CPU seconds of all attacks together, about.")] = _SECONDS,
    seed: SeedOption = None,
    trust: TrustOption = False,
    as_json: JsonFlag = False,
) -> None:
    """Try other readings of a recorded round: sign, rate, mode, optimiser, normalisation, loss, labels and more; say
    which explains the update, and what to type."""
    options = locals()

    from leakgauge.audit.recorded import RecordedPlan
    from leakgauge.report.explanations import explanation_table

    paths = {"files": (str(file),), "truths": () if truth is None else (str(truth),), "read": tuple(read or ())}
    plan = RecordedPlan(**options_for(RecordedPlan, options | paths | {"seconds": None}))
    found = search_readings(plan, seconds)
    said = _say(found)
    if as_json:
        print_json("explain", plan.seed, found.to_json(), **said.values)
        return
    console = stdout()
    for part in (*said.shown, explanation_table(found)):
        console.print(part)


def explain_result(plan: RecordedPlan, result: AuditResult, *, search: bool) -> Said:
    """Whether the declared client explains the update and, where it does not, which other reading does."""
    from rich.text import Text

    from leakgauge.audit.explain import check_round
    from leakgauge.report.explanations import check_sentence

    check = check_round(plan, result)
    values = check.to_json()
    if check.explained is not False or not search:
        return Said(values, (Text(check_sentence(check)),))
    said = _say(found := search_readings(plan, _SECONDS))
    return Said(values | dict(said.values) | {"readings": found.to_json()}, (Text(check_sentence(check)), *said.shown))


def search_readings(plan: RecordedPlan, seconds: float) -> RoundExplanation:
    from leakgauge.audit.explain import explain as try_readings
    from leakgauge.audit.recorded import open_plan
    from leakgauge.report.progress import training_progress

    opened, model, truth = open_plan(plan)
    with training_progress(stderr(), "other readings", "explaining") as progress:
        return try_readings(opened.recorded, model, truth, seconds=seconds, seed=plan.seed, progress=progress)


def _say(found: RoundExplanation) -> Said:
    from rich.text import Text

    from leakgauge.report.explanations import explanation_sentences

    first, *rest = explanation_sentences(found)
    values = {"explanation": [first, *rest], "options": list(found.words_to_type)}
    return Said(values, (Text(first, "bold"), *(Text(sentence) for sentence in rest)))
