from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tradeoff_support import STRONG, cell, row, table_of

from browser_support import WIDTHS, needs_browser, opened
from leakgauge.audit.verdict import Verdict
from leakgauge.config import from_mapping
from leakgauge.plan_files import load_config
from leakgauge.report.scatter import scatter
from leakgauge.report.tradeoff_page import render_tradeoff, write_tradeoff
from leakgauge.report.tradeoff_table import tradeoff_table
from leakgauge.report.tradeoff_words import remarks
from leakgauge.tradeoff.plan import Condition, TradeoffPlan
from leakgauge.tradeoff.result import Cell, Tradeoff


def example() -> Tradeoff:
    mixed = replace(row("mixup:k=4", 0.8, None, 2), refused={STRONG: "MixUp(k=4) mixes 4 images of a batch of 1."})
    return table_of(
        row("none", 0.9, 8, 6),
        row("pruning:keep=0.1", 0.88, 5, unaware=1),
        row("clipping:max_norm=1+gaussian_noise:std=0.1", 0.7, 0, overhead=1.25),
        row(f"<{'Shield' * 20} object>", 0.6, 0),
        mixed,
        row("gaussian_noise:std=9", None, 0),
    )


def test_on_a_console_of_80_columns_nothing_of_the_default_plan_is_cut() -> None:
    conditions = [one for size in (1, 4, 16) for one in TradeoffPlan(batch_sizes=(size,)).conditions()]
    rows = [replace(one, cells={place: unsure(cell(3)) for place in conditions}) for one in example().rows]
    screen = Console(width=80, file=io.StringIO(), force_terminal=False)
    screen.print(tradeoff_table(replace(example(), rows=tuple(rows), conditions=tuple(conditions))))
    text: str = screen.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert text.count("batch 4") == text.count("batch 16") == 3
    assert text.count("? 3/8") == len(conditions) * len(rows)
    assert "Clipping (max_norm 1) + Gaussian noise (std 0.1)\n" in text


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_narrow_console_breaks_no_word_and_leaves_out_what_was_never_measured(width: int) -> None:
    table = example()
    never = Condition("strongest", 16)
    screen = Console(width=width, file=io.StringIO(), force_terminal=False)
    screen.print(tradeoff_table(replace(table, conditions=(*table.conditions, never))))
    text: str = screen.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= width
    assert {"accuracy", "undefended", "inconclusive;", "Clipping", "70.0"} <= set(text.split())
    assert "Not measured: strongest, batch 16." in " ".join(text.split())


def unsure(found: Cell) -> Cell:
    return replace(found, verdict=Verdict.INCONCLUSIVE)


@needs_browser
@pytest.mark.parametrize("width", WIDTHS)
def test_a_browser_shows_every_point_without_error_and_nothing_cut_off(
    width: int, browser: Any, tmp_path: Path
) -> None:
    with opened(browser, write_tradeoff(example(), tmp_path), width) as seen:
        assert seen.beyond() == []
        assert seen.count("svg.scatter circle") == 5


@needs_browser
def test_a_table_of_many_attackers_stands_on_end_and_is_not_cut_off_on_a_desk(browser: Any, tmp_path: Path) -> None:
    conditions = TradeoffPlan(batch_sizes=(1, 4)).conditions()
    found = replace(cell(3), attack="inverting_gradients_no_tv")
    rows = [replace(one, cells=dict.fromkeys(conditions, found)) for one in example().rows]
    table = replace(example(), rows=tuple(rows), conditions=tuple(conditions))
    with opened(browser, write_tradeoff(table, tmp_path)) as seen:
        for width in (1280, 1024):
            seen.page.set_viewport_size({"width": width, "height": 900})
            assert seen.beyond() == [], width


def test_the_page_says_the_sentence_and_what_was_not_measured_and_why() -> None:
    page = render_tradeoff(example())
    assert "<h1>The cheapest defence that keeps identification at 0.1 or less is Clipping" in page
    assert "MixUp(k=4) mixes 4 images of a batch of 1." in page
    assert "<strong>LPIPS (AlexNet)</strong>: not measured." in page
    assert "false comfort" in page
    assert "&lt;Shield" in page
    assert "<Shield" not in page
    assert render_tradeoff(example()) == page


def test_an_unfinished_page_says_so_and_one_without_numbers_has_no_plot() -> None:
    assert "Stopped early" in render_tradeoff(replace(example(), complete=False))
    nothing = table_of(row("none", None, 0), complete=False)
    assert scatter(nothing) is None
    assert "<svg" not in render_tradeoff(nothing)


def test_points_lie_where_their_numbers_say_and_the_front_leads_through_them() -> None:
    plot = scatter(example())
    assert plot is not None
    by_number = {mark.number: mark for mark in plot.marks}
    assert set(by_number) == {1, 2, 3, 4, 5}
    assert by_number[1].x == plot.width
    assert by_number[3].x == 0
    assert plot.limit == pytest.approx(0.1 * plot.width)
    # More accurate is higher, and higher is a smaller y.
    ordered = sorted(plot.marks, key=lambda mark: mark.y)
    assert [mark.number for mark in ordered] == [1, 2, 5, 3, 4]
    corners = {tuple(map(float, corner.split(","))) for corner in plot.front.split()}
    for mark in plot.marks:
        assert mark.on_front == ((mark.x, mark.y) in corners)
        assert mark.top <= mark.y <= mark.bottom
        assert mark.left <= mark.x <= mark.right
    assert {mark.number for mark in plot.marks if mark.on_front} == {1, 2, 3, 5}
    assert plot.left_out == ("Gaussian noise (std 9)",)


def test_for_distances_what_leaks_more_still_lies_to_the_right() -> None:
    plot = scatter(table_of(row("none", 0.9, 8), row("pruning:keep=0.1", 0.8, 0), limit={"lpips_vgg": 0.5}))
    assert plot is not None
    bare, pruned = plot.marks
    assert bare.x > pruned.x
    assert len(plot.x_ticks) >= 2


def test_beside_the_page_lies_what_reruns_it_and_all_numbers(tmp_path: Path) -> None:
    result = example()
    page = write_tradeoff(result, tmp_path / "out")
    assert page.read_text() == render_tradeoff(result)
    plan = from_mapping(TradeoffPlan, load_config(tmp_path / "out/plan.json"), source="plan")
    assert plan == TradeoffPlan(defences=tuple(one.defence for one in result.rows))
    numbers = json.loads((tmp_path / "out/tradeoff.json").read_text())
    assert numbers["cheapest"] == "clipping:max_norm=1+gaussian_noise:std=0.1"
    assert len(numbers["rows"]) == 6
    assert numbers["remarks"] == remarks(result)
    assert numbers["command_line"] == "leakgauge tradeoff plan.json --seed 0"
    embedded = replace(result, description=TradeoffPlan(seed=3).words())
    write_tradeoff(embedded, tmp_path / "out")
    assert json.loads((tmp_path / "out/tradeoff.json").read_text())["command_line"] == "leakgauge tradeoff --seed 3"
