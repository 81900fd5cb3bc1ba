from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType
from rich.text import Text
from test_report_examples import audit, audit_of, labelled, null_of, record

from leakgauge.audit.verdict import Verdict
from leakgauge.report.audit_table import audit_table
from leakgauge.report.console import label_tables
from leakgauge.report.grids import FittedTable

METHODS = ("best_labels", "head_matching", "alternating", "ilrg", "idlg_labels", "min_row", "llg", "rlg", "zlg")
NOISE = "clipping:max_norm=1+gaussian_noise:std=0.01"


def printed(part: RenderableType, width: int) -> str:
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    console.print(part)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


TABLES: dict[str, tuple[Callable[[], RenderableType], tuple[str, ...]]] = {
    "an audit": (
        lambda: audit_table(audit({"none": Verdict.LEAKS, NOISE: Verdict.NO_LEAK_FOUND})),
        ("quasi_newton", "leaked", "identified", "PSNR", "SSIM", "time"),
    ),
    "labels by nine methods": (
        lambda: label_tables(audit_of([labelled((4, 4), (4, 4), attack=name) for name in METHODS])),
        METHODS,
    ),
    "rows of words": (
        lambda: FittedTable(
            ("experiment", "what"),
            [[Text("geiping2020/figure5"), Text("how many images of a batch come back " * 4)]],
        ),
        ("geiping2020/figure5", "experiment", "how", "many"),
    ),
    "many numbers": (
        lambda: FittedTable(
            ("defence", *(f"property_{number}" for number in range(12))),
            [[Text(NOISE), *(Text("not measured") for _ in range(12))]],
        ),
        (NOISE, "property_0", "property_11"),
    ),
}


@pytest.mark.parametrize("width", [80, 60, 120])
@pytest.mark.parametrize("name", TABLES)
def test_no_table_is_wider_than_the_console_and_no_word_of_it_is_broken(name: str, width: int) -> None:
    make, words = TABLES[name]
    text = printed(make(), width)
    assert max(map(len, text.splitlines())) <= width
    assert [word for word in words if word not in text] == []
    assert "…" not in text


@given(
    cells=st.lists(st.lists(st.text("abc ", min_size=0, max_size=30), min_size=3, max_size=3), min_size=1, max_size=4),
    width=st.integers(40, 120),
    in_parts=st.booleans(),
    heads=st.integers(0, 2),
)
def test_every_word_of_every_cell_is_printed_whole_at_any_width(
    cells: list[list[str]], width: int, in_parts: bool, heads: int
) -> None:
    table = FittedTable(
        ("first", "second", "third"), [[Text(cell) for cell in row] for row in cells], in_parts=in_parts, heads=heads
    )
    text = printed(table, width)
    printed_words = text.split()
    assert all(word in printed_words for row in cells for cell in row for word in cell.split() if len(word) <= 30)
    assert max(map(len, text.splitlines()), default=0) <= width


def test_what_fits_side_by_side_is_a_table_and_else_a_block_or_further_tables() -> None:
    rows = [[Text("a" * 20), Text("b" * 20), Text("c" * 20)]]
    heads = ("one", "two", "three")
    assert len(printed(FittedTable(heads, rows), 64).splitlines()) == 2
    assert printed(FittedTable(heads, rows), 40).split() == ["one", "a" * 20, "two", "b" * 20, "three", "c" * 20]
    parts = printed(FittedTable(heads, rows, in_parts=True), 45).split()
    assert parts == ["one", "two", "a" * 20, "b" * 20, "one", "three", "a" * 20, "c" * 20]


def test_what_rows_are_about_stands_above_them_where_it_has_no_room_beside() -> None:
    rows = [[Text("a" * 20), Text("b" * 20), Text(str(number))] for number in range(3)] + [
        [Text("z"), Text("y"), Text("9")]
    ]
    table = FittedTable(("one", "two", "three"), rows, frozenset({"three"}), heads=2)
    assert len(printed(table, 60).splitlines()) == 5
    lines = [line.strip() for line in printed(table, 45).splitlines()]
    assert lines == ["three", "", f"{'a' * 20} · {'b' * 20}", "0", "1", "2", "", "z · y", "9"]


def test_a_table_without_headings_has_no_empty_line_for_them() -> None:
    table = FittedTable(("", ""), [[Text("kind"), Text("names of it")]])
    assert printed(table, 40).rstrip() == "kind  names of it"
    assert printed(table, 8).split() == ["kind", "names", "of", "it"]


def test_on_a_console_too_narrow_for_columns_the_numbers_of_an_audit_follow_one_another() -> None:
    case = record()
    words = " ".join(printed(audit_table(audit_of([case, null_of(case)])), 36).split())
    assert "quasi_newton: leaks; leaked 8/8" in words
    assert "PSNR 13.5 dB null 9.0 worst 17.0" in words
