"""``leakgauge instahide estimate``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from leakgauge.cli.options import JsonFlag
from leakgauge.cli.output import print_json, print_rows

CAVEAT = (
    "This is what one attack on one encoding costs, not what every attack must: encodings of the same image give each "
    "other away, and attacks on many of them together guess neither public images nor masks."
)


def estimate(
    public: Annotated[float, typer.Option(help="Size of the public set, such as 1e7.")],
    k: Annotated[int, typer.Option(help="Images mixed into an encoding.")] = 6,
    private: Annotated[int, typer.Option(help="How many of them are private.")] = 2,
    pixels: Annotated[int, typer.Option(help="Channels x height x width.")] = 3 * 32 * 32,
    per_second: Annotated[float, typer.Option(help="Guesses an attacker makes a second.")] = 1e9,
    as_json: JsonFlag = False,
) -> None:
    """The hardness estimate of Huang et al. [2020, section 4.2], and what it does not say."""
    import math

    from leakgauge.encodings.estimate import Hardness
    from leakgauge.errors import InvalidCase

    if not 0 < per_second < math.inf:
        raise InvalidCase(f"An attacker cannot make {per_second:g} guesses a second; give a positive number.")
    costs = Hardness(public, k, private, pixels).costs
    if as_json:
        rows = [
            {"way": cost.way, "log10_work": cost.log10_work, "log10_years": cost.log10_years(per_second)}
            for cost in costs
        ]
        print_json("instahide estimate", None, rows, caveat=CAVEAT)
        return
    shown = [
        {"way": cost.way, "work": f"10^{cost.log10_work:.1f}", "years": f"10^{cost.log10_years(per_second):.1f}"}
        for cost in costs
    ]
    print_rows(shown, "instahide estimate", as_json=False)
    Console().print(CAVEAT)
