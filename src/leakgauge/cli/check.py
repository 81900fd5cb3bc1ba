"""``leakgauge check``."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated

import typer

from leakgauge.cli.options import JsonFlag, LossOption, NormaliseOption
from leakgauge.cli.output import answers, stderr, stdout
from leakgauge.errors import InvalidCase
from leakgauge.version import VERSION


def check(
    model: Annotated[
        str,
        typer.Argument(help="package.module:factory, then :depth=20 for arguments, or a catalogue model."),
    ],
    shape: Annotated[
        str, typer.Option("--input", help="Of one input: 3,224,224 for images, 30 for rows of values, 32 for texts.")
    ] = "3,32,32",
    vocabulary: Annotated[int | None, typer.Option("--vocabulary", help="Tokens there are; for texts.")] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", help="Examples per update.")] = 1,
    loss: LossOption = None,
    normalise: NormaliseOption = None,
    mode: Annotated[str, typer.Option("--mode", help="The client's mode: eval or train.")] = "eval",
    classes: Annotated[int | None, typer.Option("--classes", help="Of a catalogue model; 10.")] = None,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Steps whose duration is told.")] = 1000,
    seconds: Annotated[float, typer.Option("--seconds", help="CPU seconds to try attacks, quick ones first.")] = 20.0,
    as_json: JsonFlag = False,
) -> None:
    """Say without data what can be attacked in a model, by which route, at what cost, and what would end it."""
    from leakgauge.config import build_loss
    from leakgauge.report.model_check import show_check
    from leakgauge.report.progress import training_progress
    from leakgauge.risk import check as check_model
    from leakgauge.risk.models import model_by_name, space_of

    space = space_of(input_shape(shape), vocabulary)
    with training_progress(stderr(), "model", "checking") as progress:
        built = model_by_name(model, space, classes, normalise)
        found = check_model(
            built,
            build_loss("cross_entropy" if loss is None else loss, model),
            space=space,
            batch_size=batch_size,
            mode=mode,  # type: ignore[arg-type]
            seconds=seconds,
            progress=progress,
        )
    found = replace(found, model=model)
    if as_json:
        payload = {"command": "check", "version": VERSION} | found.to_dict()
        answers().write(json.dumps(payload, allow_nan=False) + "\n")
        return
    console = stdout()
    for part in show_check(found, steps):
        console.print(part)


def input_shape(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.replace("x", ",").split(","))
    except ValueError as error:
        raise InvalidCase(f"--input takes whole numbers such as 3,224,224, got {text!r}; correct it.") from error
