"""CI-Net's claim, judged by its rows: do the weights of an untrained generator bring back what pixels do not?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from readings import Result, spread
from result_tables import table

MARGIN = 0.5
"""Decibels by which one search must be ahead of another, as in `cinet/comparison`, and beyond its null."""


@dataclass(frozen=True)
class Cell:
    """One victim and batch: the strongest search over a generator's weights beside the strongest over pixels."""

    generator: Result
    pixels: Result

    @property
    def lead(self) -> float:
        """Of the generator, in dB beyond its null: its smooth images are nearer to any image than noisy ones are."""
        return beyond_null(self.generator) - beyond_null(self.pixels)

    @property
    def decided(self) -> bool:
        """Whether the one that is ahead is so by more than the margin, and beyond its null by as much."""
        ahead = self.generator if self.lead > 0 else self.pixels
        return abs(self.lead) > MARGIN and beyond_null(ahead) > MARGIN


def beyond_null(row: Result) -> float:
    return float(row["ours"]["psnr"]["mean"] - row["null"]["psnr"]["mean"])


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


def claim(results: Sequence[Result]) -> str:
    """One sentence, and what it rests on."""
    cells = sorted((cell for result in results for cell in cells_of(result)), key=lambda one: one.pixels["batch_size"])
    won, lost = (
        [cell.pixels["batch_size"] for cell in cells if cell.decided and (cell.lead > 0) is ahead]
        for ahead in (True, False)
    )
    said = (
        f"{_verdict(len(cells), won, lost)}: at equal CPU seconds, in dB beyond the null, the weights of an untrained "
        f"generator are ahead of pixels by more than {MARGIN} in {len(won)} of {len(cells)} batches, and pixels of "
        f"them in {len(lost)}; the rest are within that margin or at their null. Each side has its strongest search; "
        "networks are untrained."
    )
    lines = []
    for cell in cells:
        shown = [
            f"{spread(row['ours']['psnr'])} (null {spread(row['null']['psnr'])})"
            for row in (cell.generator, cell.pixels)
        ]
        facts = [str(cell.pixels["batch_size"]), f"`{cell.pixels['model']}`"]
        lines.append([*facts, f"{cell.pixels['seconds_per_update']:.0f}", *shown, f"{cell.lead:+.2f}"])
    columns = ["batch", "network", "seconds", "generator: PSNR", "pixels: PSNR", "lead of the generator, beyond nulls"]
    return f"{said}\n\n{table(columns, lines)}"


def _verdict(cells: int, won: Sequence[int], lost: Sequence[int]) -> str:
    """By the sizes of the batches that the generator won, and lost: of all, or of all from some size on."""
    if cells and len(won) == cells:
        return "Confirmed on what was run"
    if cells and len(lost) == cells:
        return "Refuted on what was run"
    if won and lost and min(won) > max(lost):
        return f"Confirmed from batches of {min(won)} on, refuted up to {max(lost)}, on what was run"
    return "Not decided"


def _strongest(rows: Sequence[Result]) -> Result:
    return max(rows, key=beyond_null)
