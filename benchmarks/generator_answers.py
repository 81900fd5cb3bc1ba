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
    metric: str = "psnr"

    @property
    def lead(self) -> float:
        """Of the generator, in dB beyond its null: its smooth images are nearer to any image than noisy ones are."""
        return beyond_null(self.generator, self.metric) - beyond_null(self.pixels, self.metric)

    @property
    def decided(self) -> bool:
        """Whether the one that is ahead is so by more than the margin, and beyond its null by as much."""
        ahead = self.generator if self.lead > 0 else self.pixels
        return abs(self.lead) > MARGIN and beyond_null(ahead, self.metric) > MARGIN


def beyond_null(row: Result, metric: str = "psnr") -> float:
    return float(row["ours"][metric]["mean"] - row["null"][metric]["mean"])


def cells_of(result: Result, metric: str = "psnr") -> list[Cell]:
    """Of a result file: rows of one model and batch, where both searches met the same updates."""
    victims: dict[tuple[str, int], list[Result]] = {}
    for row in result["rows"]:
        measured = [row[side].get(metric) for side in ("ours", "null")]
        if all(one is not None and one["mean"] is not None for one in measured):
            victims.setdefault((row["model"], row["batch_size"]), []).append(row)
    found = []
    for rows in victims.values():
        over_weights, over_pixels = (
            [row for row in rows if ("GeneratorWeights" in row["attack"]) is generator] for generator in (True, False)
        )
        if over_weights and over_pixels:
            strongest = (max(own, key=lambda row: beyond_null(row, metric)) for own in (over_weights, over_pixels))
            found.append(Cell(*strongest, metric))
    return found


def claim(results: Sequence[Result]) -> str:
    """One sentence, and what it rests on; then the same where contrast and brightness do not count."""
    cells = _by_batch(results, "psnr")
    won, lost = _sizes(cells)
    said = (
        f"{_verdict(len(cells), won, lost)}: at equal CPU seconds, in dB beyond the null, the weights of an untrained "
        f"generator are ahead of pixels by more than {MARGIN} in {len(won)} of {len(cells)} batches, and pixels of "
        f"them in {len(lost)}; the rest are within that margin or at their null. Each side has its strongest search; "
        "networks are untrained."
    )
    if corrected := _by_batch(results, "psnr_affine"):
        won, lost = _sizes(corrected)
        said += (
            " BatchNorm in train mode hides contrast and brightness: after the best gain and offset of each channel "
            f"the generator is ahead in {len(won)} of {len(corrected)}, pixels in {len(lost)}."
        )
    lines = [_line(cell) for cell in (*cells, *corrected)]
    columns = ["batch", "network", "seconds", "score", "generator", "pixels", "lead of the generator, beyond nulls"]
    return f"{said}\n\n{table(columns, lines)}"


def _by_batch(results: Sequence[Result], metric: str) -> list[Cell]:
    cells = [cell for result in results for cell in cells_of(result, metric)]
    return sorted(cells, key=lambda one: int(one.pixels["batch_size"]))


def _sizes(cells: Sequence[Cell]) -> tuple[list[int], list[int]]:
    """Of the batches that the generator won, and lost."""
    won, lost = (
        [cell.pixels["batch_size"] for cell in cells if cell.decided and (cell.lead > 0) is ahead]
        for ahead in (True, False)
    )
    return won, lost


def _line(cell: Cell) -> list[str]:
    row = cell.pixels
    shown = [
        f"{spread(one['ours'][cell.metric])} (null {spread(one['null'][cell.metric])})"
        for one in (cell.generator, cell.pixels)
    ]
    facts = [str(row["batch_size"]), f"`{row['model']}`", f"{row['seconds_per_update']:.0f}", f"`{cell.metric}`"]
    return [*facts, *shown, f"{cell.lead:+.2f}"]


def _verdict(cells: int, won: Sequence[int], lost: Sequence[int]) -> str:
    """By the sizes of the batches that the generator won, and lost: of all, or of all from some size on."""
    if cells and len(won) == cells:
        return "Confirmed on what was run"
    if cells and len(lost) == cells:
        return "Refuted on what was run"
    if won and lost and min(won) > max(lost):
        return f"Confirmed from batches of {min(won)} on, refuted up to {max(lost)}, on what was run"
    return "Not decided"
