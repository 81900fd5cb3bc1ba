"""``leakgauge record``: a round from the files that a framework left."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from leakgauge.cli.check import input_shape
from leakgauge.cli.options import (
    JsonFlag,
    LossOption,
    ModelOption,
    NormaliseOption,
)
from leakgauge.cli.output import print_json, print_path, stderr, stdout
from leakgauge.errors import InvalidCase
from leakgauge.progress import Tick


def record(
    before: Annotated[Path, typer.Option("--before", help="Weights sent to the client: .safetensors, .pt or .npz.")],
    after: Annotated[Path | None, typer.Option("--after", help="Weights that came back.")] = None,
    difference: Annotated[
        Path | None, typer.Option("--difference", help="In place of --after: after minus before, as NVFlare sends.")
    ] = None,
    base: Annotated[
        Path | None, typer.Option("--base", help="Weights that did not travel, where adapters or a head alone did.")
    ] = None,
    shape: Annotated[
        str, typer.Option("--input", help="Of one input: 3,224,224 for images, 30 for rows of values.")
    ] = "3,32,32",
    model: ModelOption = None,
    batch_size: Annotated[int | None, typer.Option("--batch-size", help="Examples the client trained on.")] = None,
    local_update: Annotated[str, typer.Option("--local-update", help="fedsgd, fedavg:epochs=1,..., or unknown.")] = (
        "fedsgd"
    ),
    defence: Annotated[str, typer.Option("--defence", help="What the client did to its update; none or unknown.")] = (
        "none"
    ),
    mode: Annotated[str | None, typer.Option("--mode", help="The client's: eval or train; else by BatchNorm.")] = None,
    loss: LossOption = None,
    normalise: NormaliseOption = None,
    truth: Annotated[
        Path | None, typer.Option("--truth", help="With --model: .npz of the private batch, to check the round on.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="The round that is written.")] = Path("round.safetensors"),
    as_json: JsonFlag = False,
) -> None:
    """Make a recorded round of the weights before and after a client's training, whichever framework ran it.

    With --model and --truth its sign, scale and client are checked as `leakgauge explain` does.
    """
    from leakgauge.protocol.recording import RecordedRound, write_round
    from leakgauge.protocol.state_dicts import plus
    from leakgauge.protocol.weight_files import read_weights
    from leakgauge.report.progress import training_progress
    from leakgauge.risk.models import model_by_name, space_of

    returned = after if difference is None else difference
    if returned is None or (after is None) == (difference is None):
        raise InvalidCase("A round needs what came back; give either --after or --difference.")
    if truth is not None and model is None:
        raise InvalidCase("The round is checked on --truth through the model; give --model as well.")
    space = space_of(input_shape(shape))
    known: dict[str, Any] = {"num_examples": batch_size, "loss": loss, "normalise": normalise}
    known |= {"local_update": None if local_update == "unknown" else local_update}
    known |= {"defence": None if defence == "unknown" else defence} | ({} if mode is None else {"mode": mode})
    with training_progress(stderr(), "weights", "reading") as step:
        names = None if model is None else list(model_by_name(model, space, None, None).state_dict())
        sent = read_weights(before, names)
        step(Tick(1, 0.25))
        came = read_weights(returned, names)
        back = came if difference is None else plus(sent, came)
        step(Tick(2, 0.5))
        made = RecordedRound.between(sent, back, space, **known)
        if base is not None:
            made = made.over(read_weights(base, names))
        step(Tick(3, 0.75))
        write_round(out, made)
    said = _checked(out, model, truth) if truth is not None and model is not None else []
    if as_json:
        facts = {"mode": made.mode, "tensors": len(made.state), "sent": len(made.update), "explanation": said}
        print_json("record", None, [], file=str(out), **facts)
        return
    for sentence in said:
        stdout().print(sentence, markup=False)
    print_path("Round", out)


def _checked(file: Path, model: str, truth: Path) -> list[str]:
    from leakgauge.audit.recorded import RecordedPlan
    from leakgauge.cli.explain import search_readings
    from leakgauge.report.explanations import explanation_sentences

    found = search_readings(RecordedPlan(files=(str(file),), truths=(str(truth),), model=model, trust=True), 20.0)
    return list(explanation_sentences(found))
