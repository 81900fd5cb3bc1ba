"""``leakgauge instahide attack``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leakgauge.cli.options import (
    AllowOption,
    JsonFlag,
    LimitOption,
    NullsOption,
    SchemeOption,
    SeedOption,
    check_limits,
    limits_of,
    options_for,
)
from leakgauge.cli.output import Gate, finish, stderr

if TYPE_CHECKING:
    from leakgauge.audit.record import Pictures
    from leakgauge.audit.result import AuditResult

FILE, FACTS, SHEET = "recovered.safetensors", "attack.json", "recovered.png"
_SHEET_IMAGES = 24


def attack(
    source: Annotated[Path, typer.Argument(help="Folder of a challenge, or a file of `instahide encrypt`.")],
    by: Annotated[
        str | None,
        typer.Option("--attack", help="clustering, published, public or aligned; public where --public is given."),
    ] = None,
    scheme: SchemeOption = "inside:k=4",
    public: Annotated[Path | None, typer.Option(help="The public images, as .npz or .safetensors.")] = None,
    auxiliary: Annotated[
        Path | None, typer.Option(help="Other images of the same kind, which the attacker is to have.")
    ] = None,
    private: Annotated[int | None, typer.Option(help="Tell the attacker how many private images there are.")] = None,
    class_counts: Annotated[str | None, typer.Option(help="Tell it how many of each class, such as 3,0,2.")] = None,
    labels_only: Annotated[
        bool, typer.Option("--labels-only", help="Do not tell it the number that a challenge's manifest gives.")
    ] = False,
    secret: Annotated[Path | None, typer.Option(help="The challenge's secret, to score what came back.")] = None,
    decoys: Annotated[
        Path | None, typer.Option(help="Images to tell recovered ones from; by default the auxiliary or public ones.")
    ] = None,
    nulls: NullsOption = None,
    seed: SeedOption = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for images, facts and the report.")] = Path("recovered"),
    fail_above: LimitOption = None,
    allow_inconclusive: AllowOption = False,
    as_json: JsonFlag = False,
) -> None:
    """Audit published encodings: recover private images from them, and show them beside what was published."""
    options = locals() | {"attack": by}
    from leakgauge.audit.encodings import EncodingPlan, prepare_encodings
    from leakgauge.audit.execute import execute
    from leakgauge.audit.store import check_reachable
    from leakgauge.report.progress import case_progress, training_progress

    limits = limits_of(fail_above)
    check_reachable(out)
    with training_progress(stderr(), "encodings", "preparing") as step:
        prepared = prepare_encodings(EncodingPlan(**options_for(EncodingPlan, options)))
        check_limits(limits, prepared)
        prepared.keys(step)
    with case_progress(stderr(), prepared.cases) as progress_of:
        result = execute(prepared, out, progress_of)
    _write_files(result, out)
    finish(result, out, Gate(limits, allow_inconclusive), as_json, "instahide attack")


def _write_files(result: AuditResult, out: Path) -> None:
    """Beside the page: what was recovered as tensors and as a sheet, and the facts."""
    from leakgauge.files import write_tensors, write_text

    facts = {**result.to_json("instahide attack"), "command": result.description["command"]}
    write_text(out / FACTS, json.dumps(facts, indent=1, allow_nan=False) + "\n")
    for row in result.rows:
        for record in row.records:
            pictures = record.pictures
            found = {"images": pictures.reconstructions, "demasked": pictures.demasked, "labels": pictures.labels}
            found |= {"coefficients": pictures.coefficients, "named": pictures.named}
            write_tensors(out / FILE, {name: tensor for name, tensor in found.items() if tensor is not None})
            _write_sheet(pictures, out / SHEET)


def _write_sheet(pictures: Pictures, path: Path) -> None:
    """Published, demasked, recovered and original, one line each."""
    from leakgauge.report.images import strip, write_strips

    lines = (pictures.encodings, pictures.demasked, pictures.reconstructions, pictures.originals)
    shown = [images[:_SHEET_IMAGES].float().nan_to_num(1.0) for images in lines if images is not None]
    if shown:
        write_strips([strip(*shown)], path)
