"""Drawings of portraits, as SVG: private inputs above, what came back below, and below that what came back of an
unrelated update."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

import torch
from torch import Tensor
from torch.nn.functional import pad

from leakgauge.report.images import to_picture

SIDE, GAP, LEFT, TOP = 112, 14, 78, 44
AT_MOST = 4
"""Images of a batch that are shown, two by two."""

STRANGER, OWN, TRUE = "#c0392b", "#1f618d", "#95a5a6"


@dataclass(frozen=True)
class PictureColumn:
    """What came back under a defence, and of an unrelated update; of encodings also what was published."""

    title: str
    recovered: Tensor | None
    null: Tensor | None
    encodings: Tensor | None = None
    has_null: bool = True


def draw_pictures(originals: Tensor, columns: Sequence[PictureColumn]) -> str:
    """The private images in the first line of each column, and below each line what its words say."""
    chosen = _shown(originals, [column.recovered for column in columns])
    lines = [("private", [originals] * len(columns))]
    if any(column.encodings is not None for column in columns):
        lines.append(("published", [column.encodings for column in columns]))
    lines += [("came back", [column.recovered for column in columns]), ("null", [column.null for column in columns])]
    width, height = LEFT + len(columns) * (SIDE + GAP), TOP + len(lines) * (SIDE + GAP)
    parts = [_head(width, height)]
    for place, column in enumerate(columns):
        parts += _title(column.title, LEFT + place * (SIDE + GAP))
    for line, (words, cells) in enumerate(lines):
        top = TOP + line * (SIDE + GAP)
        parts.append(f'<text x="{LEFT - 10}" y="{top + SIDE / 2:.0f}" text-anchor="end">{words}</text>')
        for place, images in enumerate(cells):
            if words == "null" and not columns[place].has_null:
                continue
            left = LEFT + place * (SIDE + GAP)
            if line == 0 and place:  # drawn once
                parts.append(f'<use href="#private" x="{left - LEFT}"/>')
            else:
                parts.append(_cell(images, chosen, left, top, "" if line else ' id="private"'))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _shown(originals: Tensor, recovered: Sequence[Tensor | None]) -> list[int]:
    """The places of the images that are shown: those of which something came back first, then the others in order."""
    back = [images for images in recovered if images is not None and len(images) == len(originals)]
    came = [any(bool(images[place].isfinite().all()) for images in back) for place in range(len(originals))]
    return sorted(sorted(range(len(came)), key=lambda place: not came[place])[:AT_MOST])


def _cell(images: Tensor | None, chosen: Sequence[int], left: float, top: float, name: str) -> str:
    shown = [] if images is None else [images[place] for place in chosen if place < len(images)]
    if not any(bool(image.isfinite().all()) for image in shown):
        frame = f'<rect x="{left}" y="{top}" width="{SIDE}" height="{SIDE}" fill="none" stroke="#bbb"/>'
        words = f'<text x="{left + SIDE / 2}" y="{top + SIDE / 2}" text-anchor="middle" fill="#777">nothing</text>'
        return frame + words
    png = io.BytesIO()
    to_picture(_grid(shown)).save(png, "PNG", optimize=True)
    data = base64.b64encode(png.getvalue()).decode("ascii")
    return (
        f'<image{name} x="{left}" y="{top}" width="{SIDE}" height="{SIDE}" style="image-rendering:pixelated" '
        f'href="data:image/png;base64,{data}"/>'
    )


def _grid(images: Sequence[Tensor]) -> Tensor:
    """One image as it is, more of them two by two on white; what is not there is white."""
    clean = [image.nan_to_num(1.0).clamp(0, 1) for image in images]
    if len(clean) == 1:
        return clean[0]
    clean = [pad(image, (0, 1, 0, 1), value=1.0) for image in clean]
    clean += [torch.ones_like(clean[0])] * (AT_MOST - len(clean))
    return torch.cat([torch.cat(clean[:2], 2), torch.cat(clean[2:AT_MOST], 2)], 1)


@dataclass(frozen=True)
class LabelPanel:
    """How many examples each class has, was said to have, and was said to have by an unrelated update."""

    title: str
    true: Sequence[int]
    restored: Sequence[int] | None
    null: Sequence[int] | None


def draw_labels(panels: Sequence[LabelPanel]) -> str:
    """For each defence a panel: grey bars for the true counts, marks for what was restored and for the null."""
    width, height = LEFT + len(panels) * (2 * SIDE + GAP), TOP + SIDE + 44
    most = max(max(one, default=0) for panel in panels for one in (panel.true, panel.restored or (), panel.null or ()))
    parts = [_head(width, height)]
    key = f'<tspan fill="{OWN}">● came back</tspan> <tspan fill="{STRANGER}">– null</tspan>'
    parts.append(f'<text x="{LEFT}" y="{height - 8}">grey: true number of each class, {key}</text>')
    for place, panel in enumerate(panels):
        left = LEFT + place * (2 * SIDE + GAP)
        parts += _title(panel.title, left)
        parts += _panel(panel, left, max(most, 1))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(panel: LabelPanel, left: float, most: int) -> Iterator[str]:
    bottom, step, unit = TOP + SIDE, 2 * SIDE / max(len(panel.true), 1), (SIDE - 10) / most
    yield f'<path d="M{left} {bottom}h{2 * SIDE}" stroke="black"/>'
    for index, count in enumerate(panel.true):
        at = left + index * step
        tall = count * unit
        size = f'width="{step - 6:.1f}" height="{tall:.1f}"'
        yield f'<rect x="{at + 3:.1f}" y="{bottom - tall:.1f}" {size} fill="{TRUE}"/>'
        yield f'<text x="{at + step / 2:.1f}" y="{bottom + 13}" text-anchor="middle" font-size="9">{index}</text>'
        if panel.null is not None:
            high = bottom - panel.null[index] * unit
            yield f'<path d="M{at + 2:.1f} {high:.1f}h{step - 4:.1f}" stroke="{STRANGER}" stroke-width="2"/>'
        if panel.restored is not None:
            high = bottom - panel.restored[index] * unit
            yield f'<circle cx="{at + step / 2:.1f}" cy="{high:.1f}" r="4" fill="{OWN}"/>'


def _head(width: float, height: float) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>'
    )


def _title(words: str, left: float) -> Iterator[str]:
    """In at most two lines, broken at a plus sign where there is one."""
    lines = words.replace(" + ", " +\n").split("\n")[:2] if " + " in words else [words]
    for number, line in enumerate(lines):
        yield f'<text x="{left}" y="{TOP - 8 - 13 * (len(lines) - 1 - number)}" font-size="10">{escape(line)}</text>'
