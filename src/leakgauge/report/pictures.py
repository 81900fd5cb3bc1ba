"""From tensors to images that a browser draws by itself, as PNG data URIs."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from PIL import Image
from torch import Tensor

from leakgauge.audit.record import Pictures, Record
from leakgauge.audit.result import UNDEFENDED, AuditResult, Finding, decisive
from leakgauge.audit.verdict import Verdict
from leakgauge.metrics import PSNR
from leakgauge.report.images import to_picture
from leakgauge.report.judgements import is_exact, show_leaked, show_p
from leakgauge.report.words import NOT_MEASURED, humanise, of_encodings, unrelated

# A tile is at most this wide: more pixels would not be seen, but paid for in every line of the page.
_LARGEST_SIDE = 128

_MOST_ENCODINGS = 64
"""So many are in the page; all are in the file beside it."""


def data_uri(image: Tensor) -> str | None:
    """The pixels c h w in [0, 1] as a PNG in its native resolution (at most 128 a side); ``None`` if any is not finite.

    >>> data_uri(torch.zeros(1, 2, 2)).startswith("data:image/png;base64,")
    True
    >>> data_uri(torch.full((1, 2, 2), torch.nan)) is None
    True
    """
    if not bool(torch.isfinite(image).all()):
        return None
    picture = to_picture(image)
    picture.thumbnail((_LARGEST_SIDE, _LARGEST_SIDE), Image.Resampling.BOX)
    stream = io.BytesIO()
    picture.save(stream, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode("ascii")


class Tile(NamedTuple):
    """One image of the picture; without ``source`` the words stand in its place. ``sure`` is how surely it leaked."""

    source: str | None
    words: str
    caption: str
    leaked: bool = False
    sure: str = ""


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
    places = positions(result)
    if of_encodings(result):
        places = places[:_MOST_ENCODINGS]
    shown = best_shown(result)
    lines = [_originals(result, places), *(line for row in shown for line in _published(row, places))]
    lines += [
        Line(humanise(row.defence), found(row), row.verdict, _tiles(row, row.records, places, humanise(row.defence)))
        for row in shown
        if any(record.pictures.reconstructions is not None for record in row.records)
    ]
    if (control := null_of(shown)) is not None and len(lines) > 1:
        lines.append(
            Line(
                "Null",
                f"same attack on {unrelated(result)}: what it draws when there is nothing to find",
                None,
                _tiles(None, control.nulls, places, "the null"),
            )
        )
    return [line for line in lines if line.tiles]


def aspect_ratio(result: AuditResult) -> str:
    """Width to height of the images, as CSS writes it."""
    shapes: Iterable[Tensor | None] = (
        images for record in result.records for images in (record.pictures.originals, record.pictures.reconstructions)
    )
    first = next((images for images in shapes if images is not None), None)
    return "1 / 1" if first is None else f"{first.shape[-1]} / {first.shape[-2]}"


def best_shown(result: AuditResult) -> list[Finding]:
    """For each defence the row whose attack brought back most."""
    groups: dict[str, list[Finding]] = {}
    for row in result.rows:
        groups.setdefault(row.defence, []).append(row)
    return [decisive([row for row in own if any(map(_recovered, row.records))] or own) for own in groups.values()]


def null_of(shown: Sequence[Finding]) -> Finding | None:
    """The row whose null is shown: the undefended one first, as the leak stands out from it."""
    return next((row for row in sorted(shown, key=lambda row: row.defence != UNDEFENDED) if row.nulls), None)


def found(row: Finding) -> str:
    """How many leaked, and by what."""
    return f"{show_leaked(row)} leaked by {row.attack}" if row.judgement.p else f"by {row.attack}"


def _recovered(record: Record) -> bool:
    images = record.pictures.reconstructions
    return images is not None and bool(torch.isfinite(images).flatten(1).all(dim=1).any())


def positions(result: AuditResult) -> list[Position]:
    """The private inputs of all rounds, in order."""
    lengths: dict[int, int] = {}
    for record in result.records:
        pictures = record.pictures
        images = pictures.originals if pictures.originals is not None else pictures.reconstructions
        lengths[record.round] = max(lengths.get(record.round, 0), 0 if images is None else len(images))
    return [Position(number, place) for number in sorted(lengths) for place in range(lengths[number])]


def _originals(result: AuditResult, positions: Sequence[Position]) -> Line:
    truths = {
        record.round: record.pictures.originals for record in result.records if record.pictures.originals is not None
    }
    tiles = tuple(
        Tile(data_uri(truths[number][index]), f"Private image {column}", f"image {column}")
        for column, (number, index) in enumerate(positions, start=1)
        if number in truths and index < len(truths[number])
    )
    return Line("Private images", "what should have stayed on the device", None, tiles)


def _published(row: Finding, positions: Sequence[Position]) -> list[Line]:
    """The encodings that what came back was read from, and the same without their mask; none for an update."""
    seen = {record.round: record.pictures for record in row.records if record.pictures.encodings is not None}
    if not seen:
        return []

    def tiles(images_of: Callable[[Pictures], Tensor | None], what: str) -> tuple[Tile, ...]:
        return tuple(
            Tile(data_uri(images[index]), f"{what} {column}", "")
            for column, (number, index) in enumerate(positions, start=1)
            if (images := images_of(seen[number])) is not None
        )

    believed = "with the signs that the attack believes in"
    return [
        Line("Encodings", "what was published", None, tiles(lambda pictures: pictures.encodings, "Encoding")),
        Line("Demasked", believed, None, tiles(lambda pictures: pictures.demasked, "Demasked encoding")),
    ]


def _tiles(
    row: Finding | None, records: Iterable[Record], positions: Sequence[Position], whose: str
) -> tuple[Tile, ...]:
    """What came back in the place of each image; where they are those of a row, marked by what it leaked."""
    by_round: dict[int, Record] = {}
    for record in records:
        by_round.setdefault(record.round, record)  # the first of several nulls
    sure = {} if row is None else _certainty(row)
    return tuple(
        _tile(by_round[place.round], place.place, f"Reconstruction of image {column}, {whose}", sure.get(place))
        if place.round in by_round
        else Tile(None, "not run", "")
        for column, place in enumerate(positions, start=1)
    )


def _certainty(row: Finding) -> dict[Position, float]:
    """The corrected p of each private input that leaked."""
    p = (p for p, leaked in zip(row.judgement.p, row.judgement.leaked) if leaked)
    return {Position(*place): one for place, one in zip(row.leaks, p)}


def _tile(record: Record, index: int, words: str, sure: float | None) -> Tile:
    images = record.pictures.reconstructions
    source = data_uri(images[index]) if images is not None and index < len(images) else None
    if source is None:
        return Tile(None, "nothing recovered", "")
    psnr = _score(record, PSNR.name, index)
    caption = "" if psnr is None else f"{psnr:.1f} dB"
    leaked = sure is not None
    said = "" if sure is None else "exact" if is_exact(record, index) else show_p(sure)
    return Tile(source, f"{words}, PSNR {caption or NOT_MEASURED}", caption, leaked, said)


def _score(record: Record, name: str, index: int) -> float | None:
    scores = record.scores.get(name, ())
    return scores[index] if index < len(scores) and not math.isnan(scores[index]) else None
