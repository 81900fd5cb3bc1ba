"""``leakgauge vet``: a model looked at by the client, before it trains."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from leakgauge.cli.check import input_shape
from leakgauge.cli.exit_codes import ExitCode
from leakgauge.cli.options import JsonFlag, NormaliseOption
from leakgauge.cli.output import print_json, stderr, stdout

if TYPE_CHECKING:
    from leakgauge.progress import Progress
    from leakgauge.risk import VettedModel
    from leakgauge.space import InputSpace
    from leakgauge.types import Batch

_WEIGHTS = (".safetensors", ".pt", ".pth", ".ckpt", ".bin", ".npz")


def vet(
    model: Annotated[
        str, typer.Argument(help="Weights that came (.safetensors, .pt, .npz), or package.module:factory.")
    ],
    code: Annotated[
        str | None, typer.Option("--model", help="package.module:factory of the weights' model, to see what flows.")
    ] = None,
    reference: Annotated[Path | None, typer.Option("--reference", help="The weights of the round before.")] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help=".npz with some `images` (or `rows`) and `labels` of your own.")
    ] = None,
    shape: Annotated[
        str, typer.Option("--input", help="Of one input: 3,224,224 for images, 30 for rows of values.")
    ] = "3,32,32",
    normalise: NormaliseOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Look for what makes a model give its clients' data away; exit with 1 where there is something.

    For clients, before they train. It needs neither data nor the server; with the model's code, the weights of the
    round before and some own data it sees more.
    """
    from leakgauge.protocol.weight_files import read_weights
    from leakgauge.report.progress import training_progress
    from leakgauge.risk.models import space_of

    space = space_of(input_shape(shape))
    before = None if reference is None else read_weights(reference)
    own = None if data is None else _own_data(data, space)
    with training_progress(stderr(), "the model", "vetting") as step:
        if model.endswith(_WEIGHTS):
            found = _vet_file(Path(model), code, space, before, own, normalise, step)
        else:
            found = _vet_module(model, None, space, before, own, normalise, step)
    if as_json:
        print_json("vet", None, [asdict(one) for one in found.suspicions], **found.to_dict())
    else:
        _show(found)
    if found.suspicious:
        raise typer.Exit(ExitCode.EXCEEDED)


def _vet_file(
    path: Path, code: str | None, space: InputSpace, before: Any, own: Any, normalise: Any, progress: Progress
) -> VettedModel:
    from leakgauge.protocol.weight_files import read_weights
    from leakgauge.risk.vetting import vet_weights

    weights = read_weights(path)
    if code is None:
        return vet_weights(weights, before, progress)
    return _vet_module(code, weights, space, before, own, normalise, progress)


def _vet_module(
    words: str,
    weights: Any,
    space: InputSpace,
    before: Any,
    own: Batch | None,
    normalise: str | None,
    progress: Progress,
) -> VettedModel:
    from leakgauge.protocol.state_dicts import rename
    from leakgauge.risk.models import model_by_name
    from leakgauge.risk.vetting import vet, vet_weights

    built = model_by_name(words, space, None, normalise)
    if weights is not None:
        try:
            built.load_state_dict(rename(weights, built.state_dict()))
        except RuntimeError:  # layers that the code does not have: a finding, and the weights can be looked at
            return vet_weights(weights, built.state_dict() if before is None else before, progress)
    return vet(built, space=space, reference=before, batch=own, progress=progress)


def _own_data(path: Path, space: InputSpace) -> Batch:
    from leakgauge.data.arrays import read_batch

    return read_batch(path, space)


def _show(found: VettedModel) -> None:
    console = stdout()
    if not found.suspicious:
        console.print("Nothing suspicious was found, which is no proof that there is nothing.", style="bold")
    for one in found.suspicions:
        console.print(Text.assemble((f"{one.kind}: ", "bold red"), one.sentence), soft_wrap=True)
    for sentence in found.unchecked:
        console.print(Text(sentence, "dim"), soft_wrap=True)
