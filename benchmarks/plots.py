"""Small plots of a page, as SVG: a bar for what we measured, a line for its spread, marks for null and published."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

LABEL, WIDTH, ROW, TOP, BOTTOM = 340, 420, 20, 30, 34


@dataclass(frozen=True)
class Bar:
    """One line of a plot; what was not measured or published is None."""

    label: str
    value: float
    deviation: float | None = None
    null: float | None = None
    published: float | None = None

    @property
    def ends(self) -> list[float]:
        reach = self.value + (self.deviation or 0.0)
        return [one for one in (reach, self.value, self.null, self.published) if one is not None]


def bars(lines: Sequence[Bar], axis: str, spread: str = "standard deviation") -> str:
    """Horizontal bars from zero, each beside its null; the axis ends where the largest does."""
    most = max((max(line.ends) for line in lines), default=1.0) or 1.0
    scale = WIDTH / most
    height = TOP + ROW * len(lines) + BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABEL + WIDTH + 60}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="8" y="16">{escape(axis)}: bar = ours, line = {escape(spread)}, '
        '<tspan fill="#c0392b">| null</tspan>, <tspan fill="#1f618d">◆ published</tspan></text>',
    ]
    for index, line in enumerate(lines):
        parts += _line(line, TOP + ROW * index, scale)
    parts += _axis(most, scale, TOP + ROW * len(lines))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _line(line: Bar, top: float, scale: float) -> list[str]:
    middle = top + ROW / 2
    end = LABEL + max(line.value, 0.0) * scale
    parts = [
        f'<text x="{LABEL - 8}" y="{middle + 4:.0f}" text-anchor="end">{escape(_short(line.label))}</text>',
        f'<rect x="{LABEL}" y="{top + 4:.0f}" width="{end - LABEL:.1f}" height="{ROW - 8}" fill="#95a5a6"/>',
    ]
    if line.deviation is not None:
        low, high = (LABEL + max(line.value + sign * line.deviation, 0.0) * scale for sign in (-1, 1))
        parts.append(f'<path d="M{low:.1f} {middle:.0f}H{high:.1f}" stroke="black"/>')
    if line.null is not None:
        at = LABEL + max(line.null, 0.0) * scale
        parts.append(f'<path d="M{at:.1f} {top + 2:.0f}V{top + ROW - 2:.0f}" stroke="#c0392b" stroke-width="2"/>')
    if line.published is not None:
        at = LABEL + max(line.published, 0.0) * scale
        parts.append(f'<path d="M{at:.1f} {middle - 5:.0f}l5 5-5 5-5-5z" fill="#1f618d"/>')
    return parts


def _axis(most: float, scale: float, top: float) -> list[str]:
    parts = [f'<path d="M{LABEL} {top}H{LABEL + WIDTH}" stroke="black"/>']
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        at = LABEL + share * most * scale
        parts.append(f'<text x="{at:.1f}" y="{top + 16:.0f}" text-anchor="middle">{share * most:.3g}</text>')
    return parts


def _short(label: str) -> str:
    return label if len(label) <= 56 else f"{label[:55]}…"


def against(
    groups: Sequence[tuple[str, str, Sequence[tuple[float, float, float, float]]]], across: str, up: str
) -> str:
    """Points (x, y, low, high) in the unit square, groups by name and colour, beside the line on which y is x."""
    size, left, top = 320, 60, 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + size + 40}" height="{top + size + 60}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<rect x="{left}" y="{top}" width="{size}" height="{size}" fill="none" stroke="#95a5a6"/>',
        f'<path d="M{left} {top + size}L{left + size} {top}" stroke="black" stroke-dasharray="5 4"/>',
        f'<text x="{left}" y="{top + size + 44}">{escape(across)}; dashed: as much as that</text>',
    ]
    names = "".join(f'<tspan fill="{colour}">● {escape(name)} </tspan>' for name, colour, _ in groups)
    parts.append(f'<text x="8" y="18">{escape(up)}: {names}</text>')
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x, y = left + size * share, top + size * (1 - share)
        parts.append(f'<text x="{x:.0f}" y="{top + size + 16}" text-anchor="middle">{share:g}</text>')
        parts.append(f'<text x="{left - 8}" y="{y + 4:.0f}" text-anchor="end">{share:g}</text>')
    for _, colour, points in groups:
        for x, y, low, high in points:
            at = left + size * x
            ends = [top + size * (1 - one) for one in (low, high)]
            parts.append(f'<path d="M{at:.1f} {ends[0]:.1f}V{ends[1]:.1f}" stroke="{colour}" opacity="0.6"/>')
            parts.append(f'<circle cx="{at:.1f}" cy="{top + size * (1 - y):.1f}" r="2.5" fill="{colour}"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"


@dataclass(frozen=True)
class Curve:
    """Points (x, y, low, high) that belong together; a null is dashed and has no spread to show."""

    name: str
    colour: str
    points: Sequence[tuple[float, float, float | None, float | None]]
    null: bool = False


def curves(lines: Sequence[Curve], across: str, up: str) -> str:
    """Shares between 0 and 1 over numbers that double, so that each step to the right is as wide."""
    size, left, top, height = 420, 60, 62, 240
    ticks = sorted({point[0] for line in lines for point in line.points})
    wide = size / max(1e-9, math.log2(ticks[-1] / ticks[0]))

    def place(x: float, y: float) -> str:
        return f"{left + wide * math.log2(x / ticks[0]):.1f} {top + height * (1 - y):.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + size + 40}" height="{top + height + 60}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<rect x="{left}" y="{top}" width="{size}" height="{height}" fill="none" stroke="#95a5a6"/>',
        f'<text x="{left}" y="{top + height + 44}">{escape(across)}</text>',
        f'<text x="8" y="18">{escape(up)}</text>',
    ]
    for index, line in enumerate(lines):
        mark = "- -" if line.null else "●"
        where = f'x="{8 + 220 * (index % 2)}" y="{34 + 15 * (index // 2)}"'
        parts.append(f'<text {where} fill="{line.colour}">{mark} {escape(line.name)}</text>')
        dashed = ' stroke-dasharray="5 4"' if line.null else ""
        path = "L".join(place(x, y) for x, y, *_ in line.points)
        parts.append(f'<path d="M{path}" fill="none" stroke="{line.colour}"{dashed}/>')
        for x, y, low, high in () if line.null else line.points:
            at, over = place(x, y).split()
            parts.append(f'<circle cx="{at}" cy="{over}" r="3" fill="{line.colour}"/>')
            if low is not None and high is not None:
                parts.append(f'<path d="M{place(x, low)}L{place(x, high)}" stroke="{line.colour}" opacity="0.6"/>')
    for x in ticks:
        at = place(x, 0).split()[0]
        parts.append(f'<text x="{at}" y="{top + height + 16}" text-anchor="middle">{x:g}</text>')
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = top + height * (1 - share) + 4
        parts.append(f'<text x="{left - 8}" y="{y:.0f}" text-anchor="end">{share:g}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
