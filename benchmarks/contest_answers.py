"""What the contests say: `best` against the attacks of the catalogue, and against other people's programs."""

from __future__ import annotations

import plots
from readings import Result, number
from result_tables import table


def contest(result: Result) -> tuple[str, str]:
    """Where another attack is ahead of `best` beyond the margin, in every cell that was measured."""
    rows = result["rows"]
    beaten = [f"{row['cell']} at {row['cpu_seconds']:g} s ({row['strongest_rival']})" for row in rows if row["beaten"]]
    margin = f"{result['margin']:g} dB"
    verdict = f"in {len(beaten)} by more than {margin}: {'; '.join(beaten)}" if beaten else f"in none by over {margin}"
    least, most = min(row["victims"] for row in rows), max(row["victims"] for row in rows)
    victims = f"{least} fresh victim{'s' * (least != 1)}" if least == most else f"{least} to {most} fresh victims"
    empty = [f"{row['cell']} at {row['cpu_seconds']:g} s" for row in rows if row["lead"] < -result["margin"]]
    empty = [cell for cell in empty if not any(one.startswith(cell) for one in beaten)]
    said = (
        f"{len(rows)} cells of network, weights, batch and CPU seconds, {victims} each, against an attack that could "
        f"win it: `best` is behind {verdict}. An attack that brings back no more than its null has beaten nobody, as "
        f"in {len(empty)} cell{'s' * (len(empty) != 1)}{': ' * bool(empty)}{'; '.join(empty)}."
    )
    columns = ["cell", "CPU seconds", "victims", "`best`", "null", "strongest other", "its PSNR", "its null", "lead"]
    keys = ("victims", "best", "null", "strongest_rival", "its_psnr", "its_null")
    lines = [
        [_called(row), f"{row['cpu_seconds']:g}", *(number(row[key]) for key in keys), f"{row['lead']:+.2f}"]
        for row in rows
    ]
    drawn = []
    for row in rows:
        cell = f"{row['cell']}, {row['cpu_seconds']:g} s"
        drawn += [
            plots.Bar(f"{cell}: best", row["best"], None, row["null"]),
            plots.Bar(f"{cell}: {row['strongest_rival']}", row["its_psnr"], None, row["its_null"]),
        ]
    return f"{said}\n\n{table(columns, lines)}", plots.bars(drawn, "PSNR in dB")


def _called(row: Result) -> str:
    """The cell, and how well its network does what it was trained for."""
    accuracy = row.get("accuracy")
    return str(row["cell"]) + ("" if accuracy is None else f" ({100 * accuracy:.0f} %)")


def peers(result: Result) -> tuple[str, str]:
    """Each program's mean beside that of `best`; what did not run says so."""
    rows = result["rows"]
    names = list(dict.fromkeys(one["by"] for one in result["attacks"]))
    columns = ["network", "batch", "CPU seconds", "victims", *names, "null", "lead over the strongest", "did not run"]
    lines, drawn = [], []
    for row in rows:
        found = ["–" if row.get(name) is None else number(row[name]) for name in names]
        lead = "–" if row["lead"] is None else f"{row['lead']:+.2f} ({row['strongest_peer']})"
        shown = [row["model"], str(row["batch"]), f"{row['cpu_seconds']:g}", str(row["victims"]), *found]
        lines.append([*shown, number(row["null"]), lead, "; ".join(row["failed"]) or "–"])
        cell = f"{row['model']}, batch {row['batch']}"
        drawn += [
            plots.Bar(f"{cell}: {name}", row[name], None, row["null"]) for name in names if row.get(name) is not None
        ]
    ahead = sum(row["lead"] is not None and row["lead"] >= 10 for row in rows)
    both = [row for row in rows if row.get("best") is not None and row["null"] is not None]
    empty = [f"{row['model']} at batch {row['batch']}" for row in both if row["best"] <= row["null"] + 1]
    said = (
        f"{len(rows)} networks and batches, the same updates, seconds and scoring, programs with the settings they are "
        f"shipped with: `best` leads the strongest of them by 10 dB or more in {ahead}."
    )
    if empty:
        said += f" It is within 1 dB of its null, so that a lead says nothing, on {', '.join(empty)}."
    return f"{said}\n\n{table(columns, lines)}", plots.bars(drawn, "PSNR in dB")
