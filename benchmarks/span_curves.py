"""Draw how far feature maps and spans go, as `benchmarks/span.py` measured: dB against batch, width, noise, training.

    python benchmarks/span_curves.py      # reads benchmarks/results/span.json, writes docs/span-curves.svg

A point is an image; the line joins the medians, the dashed one those of the nulls.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from leakgauge.files import write_text

RESULTS, FIGURE = Path("benchmarks/results/span.json"), Path("docs/span-curves.svg")
WIDTH, HEIGHT, LEFT, TOP, GAP = 250, 170, 44, 34, 66
MOST = 100.0
"""dB at the top of each panel."""


@dataclass(frozen=True)
class Panel:
    """One curve: its title, where a point lies, and the words below it."""

    name: str
    title: str
    place: Callable[[float], float]
    words: Callable[[float], str]


PANELS = (
    Panel("batch", "ResNet-18: images in a batch", lambda x: math.log2(x), lambda x: f"{x:g}"),
    Panel("width", "ResNet-20: width of the first stage", lambda x: x, lambda x: f"{x:g}"),
    Panel(
        "noise", "ResNet20-4: noise, share of the gradient's RMS", lambda x: math.log10(x), lambda x: f"{100 * x:g} %"
    ),
    Panel("training", "ResNet-18 of width 32: epochs of training", lambda x: x, lambda x: f"{x:g}"),
)


def points(result: Mapping[str, Any], curve: str) -> dict[float, tuple[list[float], list[float]]]:
    """By the place on a curve: the PSNR of all images measured there, and their nulls."""
    cells = {row["cell"]: row["curve"][1] for row in result["rows"] if row.get("curve") and row["curve"][0] == curve}
    found: dict[float, tuple[list[float], list[float]]] = {}
    for victim in result["victims"]:
        if victim["cell"] in cells:
            scores, nulls = found.setdefault(cells[victim["cell"]], ([], []))
            scores += victim["psnr"]
            nulls += victim["null"]
    return dict(sorted(found.items()))


def draw(result: Mapping[str, Any]) -> str:
    shown = [(panel, found) for panel in PANELS if (found := points(result, panel.name))]
    height, width = TOP + HEIGHT + 44, LEFT + len(shown) * (WIDTH + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, (panel, found) in enumerate(shown):
        parts += [f'<g transform="translate({LEFT + number * (WIDTH + GAP)} {TOP})">', *_panel(panel, found), "</g>"]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(panel: Panel, found: Mapping[float, tuple[Sequence[float], Sequence[float]]]) -> list[str]:
    places = {x: panel.place(x) for x in found}
    low, high = min(places.values()), max(places.values())
    across = {x: WIDTH * (0.06 + 0.88 * ((at - low) / (high - low) if high > low else 0.5)) for x, at in places.items()}
    parts = [f'<text y="-14" font-weight="bold">{escape(panel.title)}</text>']
    for level in (0, 25, 50, 75, 100):
        y = _up(level)
        parts.append(f'<path d="M0 {y:.1f}H{WIDTH}" stroke="#ddd"/>')
        parts.append(f'<text x="-6" y="{y + 4:.1f}" text-anchor="end">{level}</text>')
    parts.append('<text x="-6" y="-4" text-anchor="end">dB</text>')
    for x, at in across.items():
        parts.append(f'<text x="{at:.1f}" y="{HEIGHT + 16}" text-anchor="middle">{escape(panel.words(x))}</text>')
        parts += [
            f'<circle cx="{at:.1f}" cy="{_up(score):.1f}" r="2.5" fill="#2471a3" opacity=".5"/>'
            for score in found[x][0]
        ]
    for which, style in ((0, 'stroke="#2471a3" stroke-width="2"'), (1, 'stroke="#c0392b" stroke-dasharray="4 3"')):
        line = " ".join(f"{at:.1f},{_up(statistics.median(found[x][which])):.1f}" for x, at in across.items())
        parts.append(f'<polyline points="{line}" fill="none" {style}/>')
    return parts


def _up(score: float) -> float:
    return HEIGHT * (1 - min(max(score, 0.0), MOST) / MOST)


def main() -> None:
    write_text(FIGURE, draw(json.loads(RESULTS.read_text(encoding="utf-8"))))
    print(f"wrote {FIGURE}")


if __name__ == "__main__":
    main()
