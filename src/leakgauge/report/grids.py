"""Tables that fit the console they are printed on, however narrow it is, and never break a word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

_GAP = 2
Justify = Literal["left", "right"]


@dataclass(frozen=True)
class FittedTable:
    """Side by side where there is room, with words in several lines where that helps; else in pieces.

    The first ``heads`` columns say what a row is about: where they have no room beside the others, they stand above
    them. ``in_parts`` says into what it is cut: further tables that repeat the first column, for numbers to be
    compared, or else a block of lines for each row, for words to be read. Columns of ``numbers`` stand at the right.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[Text]]
    numbers: frozenset[str] = field(default_factory=frozenset)
    in_parts: bool = False
    heads: int = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        columns = [[Text(head, "bold"), *cells] for head, cells in zip(self.headings, zip(*self.rows), strict=False)]
        columns = columns or [[Text(head, "bold")] for head in self.headings]
        if not any(self.headings):
            columns = [cells for _, *cells in columns]
        if (widths := _widths(columns, options.max_width)) is not None:
            yield self._grid(columns, list(self.headings), widths)
        elif self.heads and (widths := _widths(columns[self.heads :], options.max_width - _GAP)) is not None:
            yield from self._below_heads(columns[self.heads :], widths)
        elif self.in_parts:
            yield from self._parts(columns, options)
        else:
            yield from self._blocks()

    def _grid(self, columns: Sequence[Sequence[Text]], names: Sequence[str], widths: Sequence[int]) -> Table:
        grid = Table(box=None, show_header=False, padding=(0, _GAP, 0, 0), pad_edge=False)
        for name, width in zip(names, widths, strict=True):
            grid.add_column(width=width, justify="right" if name in self.numbers else "left")
        for cells in zip(*columns, strict=True):
            grid.add_row(*cells)
        return grid

    def _below_heads(self, columns: Sequence[Sequence[Text]], widths: Sequence[int]) -> Iterator[RenderableType]:
        """The headings, then the rows that have the same heads below these."""
        names = self.headings[self.heads :]

        def indented(first: int, last: int) -> Padding:
            grid = self._grid([column[first:last] for column in columns], names, widths)
            return Padding(grid, (0, 0, 0, _GAP), expand=False)

        yield indented(0, 1)
        heads = [" · ".join(cell.plain for cell in row[: self.heads] if cell.plain) for row in self.rows]
        start = 0
        for stop in range(1, len(heads) + 1):
            if stop == len(heads) or heads[stop] != heads[start]:
                yield Text(f"\n{heads[start]}", "bold")
                yield indented(start + 1, stop + 1)
                start = stop

    def _parts(self, columns: Sequence[Sequence[Text]], options: ConsoleOptions) -> Iterator[RenderableType]:
        """As many columns as fit beside the first, then the others."""
        widths, start = [_natural(column) for column in columns], 1
        while start < len(columns):
            stop, total = start + 1, widths[0] + widths[start] + _GAP
            while stop < len(columns) and (total := total + widths[stop] + _GAP) <= options.max_width:
                stop += 1
            chosen = [0, *range(start, stop)]
            names = [self.headings[place] for place in chosen]
            yield self._grid([columns[place] for place in chosen], names, [widths[place] for place in chosen])
            if stop < len(columns):
                yield ""
            start = stop

    def _blocks(self) -> Iterator[RenderableType]:
        for number, row in enumerate(self.rows):
            if number:
                yield ""
            cells = [(head, cell) for head, cell in zip(self.headings, row, strict=True) if cell.plain]
            for place, (head, cell) in enumerate(cells):
                line = Text.assemble((f"{head} " if head else "", "bold"), _on_one_line(cell))
                yield line if place == 0 else Padding(line, (0, 0, 0, _GAP))


def fit(natural: Sequence[int], least: Sequence[int], room: int) -> list[int] | None:
    """Widths that add up to what there is, none below its least; None where there are no such widths.

    >>> fit([10, 30], [4, 8], 20), fit([10, 30], [10, 9], 20)
    ([9, 9], None)
    """
    widths, room = list(natural), room - _GAP * (len(natural) - 1)
    while sum(widths) > room:
        shrinking = [place for place, width in enumerate(widths) if width > least[place]]
        if not shrinking:
            return None
        widths[max(shrinking, key=lambda place: widths[place])] -= 1
    return widths


def lines(name: str, words: str, room: int) -> RenderableType:
    """A name and what it is: beside it where there is room, or else below."""
    if len(name) <= room:
        grid = Table(box=None, show_header=False, padding=(0, _GAP, 0, 0), pad_edge=False)
        grid.add_column(width=room)
        grid.add_column(ratio=1)
        grid.add_row(Text(name, "bold"), Text(words))
        return grid
    return Group(Text(name, "bold"), Padding(Text(words), (0, 0, 0, _GAP)))


def _widths(columns: Sequence[Sequence[Text]], room: int) -> list[int] | None:
    return fit([_natural(column) for column in columns], [_longest(column) for column in columns], room)


def _natural(column: Sequence[Text]) -> int:
    return max((len(line) for cell in column for line in cell.plain.split("\n")), default=0)


def _longest(column: Sequence[Text]) -> int:
    return max((len(word) for cell in column for word in cell.plain.split()), default=0)


def _on_one_line(cell: Text) -> Text:
    return Text(" ").join(cell.split("\n"))
