"""CI-Net's claim, judged by its rows: do the weights of an untrained generator bring back what pixels do not?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plots
from leakgauge.reproduce.standing import at_null
from readings import Result, spread
from result_tables import table

MARGIN = 0.5
"""Decibels by which one search must be ahead of another, as in `cinet/comparison`."""


@dataclass(frozen=True)
class Cell:
    """One victim and batch: the strongest search over a generator's weights beside the strongest over pixels."""

    generator: Result
    pixels: Result

    @property
    def lead(self) -> float:
        """Of the generator, in dB."""
        return float(self.generator["ours"]["psnr"]["mean"] - self.pixels["ours"]["psnr"]["mean"])

    @property
    def decided(self) -> bool:
        """Whether the one that is ahead is above its null, and ahead by more than the margin."""
        ahead = self.generator if self.lead > 0 else self.pixels
        return abs(self.lead) > MARGIN and not at_null(ahead, "psnr")


def cells_of(result: Result) -> list[Cell]:
    """Of a result file: rows of one model and batch, where both searches met the same updates."""
    victims: dict[tuple[str, int], list[Result]] = {}
    for row in result["rows"]:
        if row["ours"]["psnr"]["mean"] is not None and row["null"]["psnr"]["mean"] is not None:
            victims.setdefault((row["model"], row["batch_size"]), []).append(row)
    found = []
    for rows in victims.values():
        over_weights, over_pixels = (
            [row for row in rows if ("GeneratorWeights" in row["attack"]) is generator] for generator in (True, False)
        )
        if over_weights and over_pixels:
            found.append(Cell(_strongest(over_weights), _strongest(over_pixels)))
    return found


def claim(results: Sequence[Result]) -> tuple[str, str]:
    """One sentence, what it rests on, and a plot."""
    cells = sorted((cell for result in results for cell in cells_of(result)), key=lambda one: one.pixels["batch_size"])
    won, lost = (sum(cell.decided and (cell.lead > 0) is ahead for cell in cells) for ahead in (True, False))
    word = "Not decided"
    if cells and won == len(cells):
        word = "Confirmed on what was run"
    elif cells and lost == len(cells):
        word = "Refuted on what was run"
    said = (
        f"{word}: at equal CPU seconds the weights of an untrained generator are ahead of pixels in {won} of "
        f"{len(cells)} batches by more than {MARGIN} dB, and pixels ahead of them in {lost}. Each side has the "
        "strongest of its searches in a row of its own; networks are untrained, sigmoid or ReLU as the row says."
    )
    lines, drawn = [], []
    for cell in cells:
        seconds = f"{cell.pixels['seconds_per_update']:.0f}"
        batch = cell.pixels["batch_size"]
        shown = [
            f"{spread(row['ours']['psnr'])} (null {spread(row['null']['psnr'])})"
            for row in (cell.generator, cell.pixels)
        ]
        lines.append([str(batch), f"`{cell.pixels['model']}`", seconds, *shown, f"{cell.lead:+.2f}"])
        for name, row in (("generator", cell.generator), ("pixels", cell.pixels)):
            ours = row["ours"]["psnr"]
            drawn.append(
                plots.Bar(f"batch {batch}: {name}", ours["mean"], ours["deviation"], row["null"]["psnr"]["mean"])
            )
    columns = ["batch", "network", "seconds", "generator: PSNR", "pixels: PSNR", "lead of the generator"]
    return f"{said}\n\n{table(columns, lines)}", plots.bars(drawn, "PSNR in dB")


def _strongest(rows: Sequence[Result]) -> Result:
    return max(rows, key=lambda row: float(row["ours"]["psnr"]["mean"]))
