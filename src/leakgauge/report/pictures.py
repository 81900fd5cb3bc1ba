"""From tensors to images that a browser draws by itself, as PNG data URIs."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from leakgauge.report.redaction import pixelate
from leakgauge.report.words import NOT_MEASURED, assumptions, humanise, of_encodings, unrelated

# A tile is at most this wide: more pixels would not be seen, but paid for in every line of the page.
_LARGEST_SIDE = 128

_MOST_ENCODINGS = 64
"""So many are in the page; all are in the file beside it."""

MOST_PICTURES = 200
"""So many private images are in the page, those that leaked before others; all are in the folder beside it."""

_MOST_CHARACTERS = 3_500_000
"""Of all pictures of a page together, so that it can be sent by mail."""

_SAMPLE = 24


class Coding(NamedTuple):
    """How pictures are put into the page: as they are, or smaller and as JPEG where they are many."""

    side: int = _LARGEST_SIDE
    exact: bool = True

    @classmethod
    def for_all(cls, images: Sequence[Tensor]) -> Coding:
        """The best by which all of them fit, judged by a few."""
        few = images[:: max(1, len(images) // _SAMPLE)]
        codings = [cls(), *(cls(side, exact=False) for side in (128, 96, 64, 48, 32, 16))]
        for coding in codings:
            sizes = [len(data_uri(image, coding) or "") for image in few]
            if sum(sizes) * len(images) <= _MOST_CHARACTERS * max(len(few), 1):
                return coding
        return codings[-1]

    @property
    def words(self) -> str:
        """What a reader should know of it; nothing where pictures are exact."""
        if self.exact:
            return ""
        return f"To keep this page small, pictures are shown with at most {self.side} pixels a side, as JPEG."


EXACT = Coding()


def data_uri(image: Tensor, coding: Coding = EXACT) -> str | None:
    """The pixels c h w in [0, 1] as a PNG in its native resolution (at most 128 a side); ``None`` if any is not finite.

    >>> data_uri(torch.zeros(1, 2, 2)).startswith("data:image/png;base64,")
    True
    >>> data_uri(torch.full((1, 2, 2), torch.nan)) is None
    True
    """
    if not bool(torch.isfinite(image).all()):
        return None
    picture = to_picture(image)
    picture.thumbnail((coding.side, coding.side), Image.Resampling.BOX)
    stream, kind = io.BytesIO(), "png" if coding.exact else "jpeg"
    picture.save(stream, kind.upper(), optimize=True, **({} if coding.exact else {"quality": 80}))
    return f"data:image/{kind};base64," + base64.b64encode(stream.getvalue()).decode("ascii")


class Tile(NamedTuple):
    """One image of the picture, of private image ``item``; where there is none, the words stand in its place.

    ``sure`` is how surely it leaked, ``rank`` its place among those of its line, the leakiest first. ``source`` is what
    the page shows, ``blocks`` the same redacted: of a page that is redacted as a whole, they are one.
    """

    item: int
    words: str
    caption: str = ""
    picture: Tensor | None = None
    leaked: bool = False
    sure: str = ""
    rank: int | None = None
    source: str | None = None
    blocks: str | None = None


class Line(NamedTuple):
    """One line of the picture: a label, a tile per private image, and what the attacker knew."""

    title: str
    detail: str
    verdict: Verdict | None
    tiles: tuple[Tile, ...]
    knew: str = ""


class Gallery(NamedTuple):
    """The lines, how many private images there are, and what is to be said of how they are shown."""

    lines: list[Line]
    images: int
    remarks: list[str]


class Position(NamedTuple):
    """Which private image: the round, and its place in the batch of that round."""

    round: int
    place: int


Places = Mapping[int, Position]
"""The private images that are shown, by their numbers from one."""


def gallery(result: AuditResult, *, redacted: bool = False) -> Gallery:
    """The private images, then what came back under each defence, then the null: the same image in each column."""
    every = positions(result)
    places = _chosen(result, every, _MOST_ENCODINGS if of_encodings(result) else MOST_PICTURES)
    lines = [line for line in _lines(result, places) if line.tiles]
    pictures = [tile.picture for line in lines for tile in line.tiles if tile.picture is not None]
    coding = Coding.for_all([] if redacted else pictures)
    remarks = [coding.words] if coding.words else []
    if len(places) < len(every):
        remarks.append(f"Shown are {len(places)} of {len(every)} images, those that leaked before others.")
    coded = [line._replace(tiles=tuple(_code(tile, coding, redacted) for tile in line.tiles)) for line in lines]
    return Gallery(coded, len(places) if lines else 0, remarks)


def _chosen(result: AuditResult, every: Sequence[Position], at_most: int) -> dict[int, Position]:
    """Which private images are shown, by their numbers from one."""
    leaked = {Position(*one) for row in result.rows for one in row.leaks}
    numbered = list(enumerate(every, start=1))
    numbered.sort(key=lambda one: one[1] not in leaked)
    return dict(sorted(numbered[:at_most]))


def _code(tile: Tile, coding: Coding, redacted: bool) -> Tile:
    if tile.picture is None:
        return tile
    blocks = data_uri(pixelate(tile.picture))
    return tile._replace(source=blocks if redacted else data_uri(tile.picture, coding), blocks=blocks)


def _lines(result: AuditResult, places: Places) -> list[Line]:
    shown = best_shown(result)
    lines = [_originals(result, places), *(line for row in shown for line in _published(row, places))]
    lines += [
        Line(
            humanise(row.defence),
            found(row),
            row.verdict,
            _tiles(row, row.records, places, humanise(row.defence)),
            assumptions(row.assumptions) if row.assumptions else "",
        )
        for row in shown
        if any(record.pictures.reconstructions is not None for record in row.records)
    ]
    if (control := null_of(shown)) is not None and len(lines) > 1:
        what = f"same attack on {unrelated(result)}: what it draws when there is nothing to find"
        lines.append(Line("Null", what, None, _tiles(None, control.nulls, places, "the null")))
    return lines


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


def _originals(result: AuditResult, places: Places) -> Line:
    truths = {
        record.round: record.pictures.originals for record in result.records if record.pictures.originals is not None
    }
    tiles = tuple(
        Tile(item, f"Private image {item}", f"image {item}", truths[number][index])
        for item, (number, index) in places.items()
        if number in truths and index < len(truths[number])
    )
    return Line("Private images", "what should have stayed on the device", None, tiles)


def _published(row: Finding, places: Places) -> list[Line]:
    """The encodings that what came back was read from, and the same without their mask; none for an update."""
    seen = {record.round: record.pictures for record in row.records if record.pictures.encodings is not None}
    if not seen:
        return []

    def tiles(images_of: Callable[[Pictures], Tensor | None], what: str) -> tuple[Tile, ...]:
        return tuple(
            Tile(item, f"{what} {item}", "", images[index])
            for item, (number, index) in places.items()
            if (images := images_of(seen[number])) is not None
        )

    believed = "with the signs that the attack believes in"
    return [
        Line("Encodings", "what was published", None, tiles(lambda pictures: pictures.encodings, "Encoding")),
        Line("Demasked", believed, None, tiles(lambda pictures: pictures.demasked, "Demasked encoding")),
    ]


def _tiles(row: Finding | None, records: Iterable[Record], places: Places, whose: str) -> tuple[Tile, ...]:
    """What came back in the place of each image; where they are those of a row, marked by what it leaked."""
    by_round: dict[int, Record] = {}
    for record in records:
        by_round.setdefault(record.round, record)  # the first of several nulls
    leaked = set() if row is None else {Position(*one) for one in row.leaks}
    p = {} if row is None else p_values(row)
    tiles = [
        _tile(item, by_round[place.round], place.place, whose, p.get(place) if place in leaked else None)
        if place.round in by_round
        else Tile(item, "not run")
        for item, place in places.items()
    ]
    if row is None:
        return tuple(tiles)
    return tuple(tile._replace(rank=rank) for tile, rank in zip(tiles, ranks(row, list(places.values())), strict=True))


def p_values(row: Finding) -> dict[Position, float]:
    """The corrected p of each private input that was judged."""
    judged = [Position(record.round, place) for record in row.records for place in range(len(record.evidence))]
    return dict(zip(judged, row.judgement.p))


def ranks(row: Finding, places: Sequence[Position]) -> list[int]:
    """The place of each private input when the leakiest comes first: by its verdict, its p, and how like it is."""
    leaked, p = {Position(*one) for one in row.leaks}, p_values(row)
    records = {record.round: record for record in row.records}

    def key(place: Position) -> tuple[bool, float, float]:
        likeness = _score(records[place.round], PSNR.name, place.place) if place.round in records else None
        return place not in leaked, p.get(place, 1.0), math.inf if likeness is None else -likeness

    order = sorted(range(len(places)), key=lambda index: key(places[index]))
    return [order.index(index) for index in range(len(places))]


def _tile(item: int, record: Record, index: int, whose: str, sure: float | None) -> Tile:
    images = record.pictures.reconstructions
    if images is None or index >= len(images) or not bool(torch.isfinite(images[index]).all()):
        return Tile(item, "nothing recovered")
    psnr = _score(record, PSNR.name, index)
    caption = "" if psnr is None else f"{psnr:.1f} dB"
    said = "" if sure is None else "exact" if is_exact(record, index) else show_p(sure)
    words = f"Reconstruction of image {item}, {whose}, PSNR {caption or NOT_MEASURED}"
    return Tile(item, words, caption, images[index], sure is not None, said)


def _score(record: Record, name: str, index: int) -> float | None:
    scores = record.scores.get(name, ())
    return scores[index] if index < len(scores) and not math.isnan(scores[index]) else None
