"""``leakgauge bound``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from leakgauge.cli.options import JsonFlag
from leakgauge.cli.output import answers
from leakgauge.errors import InvalidCase


def bound(
    noise: Annotated[
        float | None,
        typer.Option("--noise", help="Noise multiplier of DP-SGD, or of any clip under Gaussian noise."),
    ] = None,
    defence: Annotated[
        str | None, typer.Option("--defence", help="A defence instead, e.g. clipping:max_norm=1+gaussian_noise:std=1.")
    ] = None,
    local_update: Annotated[
        str, typer.Option("--local-update", help="What the client computes under the defence.")
    ] = "fedsgd",
    sampling: Annotated[
        float, typer.Option("--sampling", help="Probability with which an example takes part in a round.")
    ] = 1.0,
    rounds: Annotated[int, typer.Option("--rounds", help="Rounds that an example may take part in.")] = 1,
    crowd: Annotated[int, typer.Option("--crowd", help="How many others an example is to be picked from.")] = 99,
    guesses: Annotated[int, typer.Option("--guesses", help="Guesses that an attacker has for one example.")] = 1,
    as_json: JsonFlag = False,
) -> None:
    """Say the most that any attacker could find, from the noise alone: no data, no model, no attack."""
    from leakgauge.bounds import bound_of, gaussian_bound
    from leakgauge.config import build_client, build_defence
    from leakgauge.defences import DELTA

    if (noise is None) == (defence is None):
        raise InvalidCase("A bound is of a noise or of a defence; give either --noise 1 or --defence dpsgd.")
    asked = {"crowd": crowd, "rounds": rounds, "guesses": guesses}
    if noise is not None:
        found = gaussian_bound(noise, **asked, sampling=sampling)
    else:
        client = build_defence(defence or "none")(build_client(local_update))
        found = bound_of(client, **asked, sampling=sampling)
    if as_json:
        answers().write(json.dumps({"command": "bound", **found.to_dict()}, allow_nan=False) + "\n")
        return
    said = "" if found.epsilon is None else f" This is epsilon {found.epsilon:.3g} at delta {DELTA:g}."
    answers().write(f"{found.words}{said}\n")
