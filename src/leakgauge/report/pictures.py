"""From tensors to what a browser draws by itself: PNG data URIs for images, SVG points for loss traces."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from PIL import Image
from torch import Tensor

from leakgauge.audit.record import Record
from leakgauge.audit.result import AuditResult, Finding
from leakgauge.audit.verdict import Verdict
from leakgauge.report.terminal import NOT_MEASURED, UNDEFENDED, humanise, leakiest, share

# A tile is at most this wide: more pixels would not be seen, but paid for in every line of the page.
_LARGEST_SIDE = 128
_MOST_POINTS = 160


def data_uri(image: Tensor) -> str | None:
    """The pixels c h w in [0, 1] as a PNG in its native resolution (at most 128 a side); ``None`` if any is not finite.

    >>> data_uri(torch.zeros(1, 2, 2)).startswith("data:image/png;base64,")
    True
    >>> data_uri(torch.full((1, 2, 2), torch.nan)) is None
    True
    """
    if not bool(torch.isfinite(image).all()):
        return None
    channels = image if image.shape[0] in (1, 3) else image.mean(dim=0, keepdim=True)
    values = (channels.detach().cpu().double().clamp(0, 1) * 255).round().to(torch.uint8)
    picture = Image.fromarray(values[0].numpy() if len(values) == 1 else values.permute(1, 2, 0).contiguous().numpy())
    picture.thumbnail((_LARGEST_SIDE, _LARGEST_SIDE), Image.Resampling.BOX)
    stream = io.BytesIO()
    picture.save(stream, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode("ascii")


class Tile(NamedTuple):
    """One image of the picture; without ``source`` the words stand in its place."""

    source: str | None
    words: str
    caption: str
    identified: bool = False


class Line(NamedTuple):
    """One line of the picture: a label and a tile per private image."""

    title: str
    detail: str
    verdict: Verdict | None
    tiles: tuple[Tile, ...]


class Position(NamedTuple):
    """Which private image: the round, and its place in the batch of that round."""

    round: int
    place: int


def gallery(result: AuditResult) -> list[Line]:
    """The private images, then what came back under each defence, then the null: the same image in each column."""
    positions = _positions(result)
    shown = [_shown(defence, result.rows) for defence in dict.fromkeys(row.defence for row in result.rows)]
    lines = [_originals(result, positions)]
    lines += [
        Line(humanise(row.defence), _found(row), row.verdict, _tiles(row.records, positions, humanise(row.defence)))
        for row in shown
        if any(record.pictures.reconstructions is not None for record in row.records)
    ]
    # The undefended row first: its null is the one that the leak stands out from.
    control = next((row for row in sorted(shown, key=lambda row: row.defence not in UNDEFENDED) if row.nulls), None)
    if control is not None and len(lines) > 1:
        lines.append(
            Line(
                "Null",
                "same attack on an unrelated update: what it draws when there is nothing to find",
                None,
                _tiles(control.nulls, positions, "the null"),
            )
        )
    return [line for line in lines if line.tiles]


def aspect_ratio(result: AuditResult) -> str:
    """Width to height of the images, as CSS writes it."""
    shapes: Iterable[Tensor | None] = (
        images
        for row in result.rows
        for record in row.records
        for images in (record.pictures.originals, record.pictures.reconstructions)
    )
    first = next((images for images in shapes if images is not None), None)
    return "1 / 1" if first is None else f"{first.shape[-1]} / {first.shape[-2]}"


class Tick(NamedTuple):
    """A labelled line across a chart."""

    y: float
    label: str


@dataclass(frozen=True)
class Axes:
    """Steps to the right, the loss upwards on a logarithmic scale, in a box of ``width`` by ``height``."""

    steps: int
    lowest: int
    highest: int
    width: int = 200
    height: int = 90

    @classmethod
    def around(cls, traces: Sequence[Tensor]) -> Axes:
        """The whole powers of ten that hold every positive loss of every trace, so that charts can be compared."""
        losses = [loss for trace in traces for loss in trace.tolist() if _drawable(loss)] or [1.0]
        lowest = math.floor(math.log10(min(losses)))
        return cls(max(map(len, traces), default=0), lowest, max(math.ceil(math.log10(max(losses))), lowest + 1))

    def points(self, trace: Tensor) -> str:
        """The trace as the ``points`` of an SVG polyline, thinned to what can be seen; undrawable losses are left out.

        >>> Axes(steps=3, lowest=-2, highest=0).points(torch.tensor([1.0, torch.nan, 0.01]))
        '0.0,0.0 200.0,90.0'
        """
        stride = max(1, -(-len(trace) // _MOST_POINTS))
        kept = sorted({*range(0, len(trace), stride), len(trace) - 1} - {-1})
        losses = trace.tolist()
        return " ".join(f"{self._x(i):.1f},{self._y(losses[i]):.1f}" for i in kept if _drawable(losses[i]))

    @property
    def ticks(self) -> list[Tick]:
        """The powers of ten, or as many of them as fit."""
        stride = max(1, -(-(self.highest - self.lowest) // 4))
        return [
            Tick(self._y(10.0**power), f"{10.0**power:g}") for power in range(self.lowest, self.highest + 1, stride)
        ]

    def _x(self, step: int) -> float:
        return self.width * step / max(self.steps - 1, 1)

    def _y(self, loss: float) -> float:
        return self.height * (self.highest - math.log10(loss)) / (self.highest - self.lowest)


def _drawable(loss: float) -> bool:
    return math.isfinite(loss) and loss > 0


def _found(row: Finding) -> str:
    measurement = row.measurements.get("identification")
    measured = measurement is not None and measurement.measured
    return f"{share(row)} identified by {row.attack}" if measured else f"by {row.attack}"


def _shown(defence: str, rows: Iterable[Finding]) -> Finding:
    own = [row for row in rows if row.defence == defence]
    return leakiest([row for row in own if any(map(_recovered, row.records))] or own)


def _recovered(record: Record) -> bool:
    images = record.pictures.reconstructions
    return images is not None and bool(torch.isfinite(images).flatten(1).all(dim=1).any())


def _positions(result: AuditResult) -> list[Position]:
    lengths: dict[int, int] = {}
    for row in result.rows:
        for record in row.records:
            pictures = record.pictures
            images = pictures.originals if pictures.originals is not None else pictures.reconstructions
            lengths[record.round] = max(lengths.get(record.round, 0), 0 if images is None else len(images))
    return [Position(number, place) for number in sorted(lengths) for place in range(lengths[number])]


def _originals(result: AuditResult, positions: Sequence[Position]) -> Line:
    truths = {
        record.round: record.pictures.originals
        for row in result.rows
        for record in row.records
        if record.pictures.originals is not None
    }
    tiles = tuple(
        Tile(data_uri(truths[number][index]), f"Private image {column}", f"image {column}")
        for column, (number, index) in enumerate(positions, start=1)
        if number in truths and index < len(truths[number])
    )
    return Line("Private images", "what should have stayed on the device", None, tiles)


def _tiles(records: Iterable[Record], positions: Sequence[Position], whose: str) -> tuple[Tile, ...]:
    by_round = {record.round: record for record in records}
    return tuple(
        _tile(by_round[number], index, f"Reconstruction of image {column}, {whose}")
        if number in by_round
        else Tile(None, "not run", "")
        for column, (number, index) in enumerate(positions, start=1)
    )


def _tile(record: Record, index: int, words: str) -> Tile:
    images = record.pictures.reconstructions
    source = data_uri(images[index]) if images is not None and index < len(images) else None
    if source is None:
        return Tile(None, "nothing recovered", "")
    psnr = _score(record, "psnr", index)
    caption = "" if psnr is None else f"{psnr:.1f} dB"
    return Tile(
        source, f"{words}, PSNR {caption or NOT_MEASURED}", caption, _score(record, "identification", index) == 1
    )


def _score(record: Record, name: str, index: int) -> float | None:
    scores = record.scores.get(name, ())
    return scores[index] if index < len(scores) and not math.isnan(scores[index]) else None
