"""Found x, at most y: in the table, in words, in JSON and as a curve over epsilon."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console
from tradeoff_support import REAL, STRONG, cell, row, table_of

from leakgauge.bounds import bound_of, gaussian_bound
from leakgauge.defences import Pruning
from leakgauge.protocol import FedSGD
from leakgauge.report.bound_curve import HEIGHT, WIDTH, bound_curve
from leakgauge.report.tradeoff_page import render_tradeoff
from leakgauge.report.tradeoff_table import tradeoff_table
from leakgauge.report.tradeoff_words import remarks


@pytest.fixture
def table():
    private = replace(
        row("dpsgd:noise_multiplier=1", 0.6, 1, 0),
        bounds={condition: gaussian_bound(1.0, crowd=99) for condition in (STRONG, REAL)},
        over_training=gaussian_bound(1.0, crowd=99, rounds=4),
    )
    pruned = replace(row("pruning:keep=0.1", 0.8, 4, 3), bounds={STRONG: bound_of(Pruning()(FedSGD()), crowd=99)})
    return table_of(row("none", 0.9, 8, 8), pruned, private)


def test_the_words_say_found_and_at_most_a_round_and_over_the_training(table):
    (said,) = [one for one in remarks(table) if "the most that any attacker could" in one]
    assert "found 1 of 8, at most 9.24 % in one round, 37.2 % over its training" in said
    assert "Pruning" not in said


def test_what_is_found_beyond_a_bound_accuses_the_declaration(table):
    assert not any("not what it declares" in one for one in remarks(table))
    wrong = replace(table.rows[2], cells=table.rows[0].cells)
    said = " ".join(remarks(replace(table, rows=(*table.rows[:2], wrong))))
    assert "More was found than the bound allows" in said


def test_one_hit_of_four_accuses_nobody_and_the_curve_says_how_probable_it_is_by_luck(table):
    # At 3.39 % one of four is found in 1 - (1 - 0.0339)^4 = 13 % of all audits, though Wilson's interval begins above.
    bound = gaussian_bound(2.0, crowd=99)
    lucky = replace(table.rows[2], cells={STRONG: cell(1, images=4)}, bounds={STRONG: bound})
    found = replace(table, rows=(*table.rows[:2], lucky))
    assert lucky.cells[STRONG].measurements["identification"].attack.low > bound.at_most
    assert not any("not what it declares" in one for one in remarks(found))
    assert bound_curve(found).above == ("3 (1 of 4): 0.13",)
    assert "may exceed by luck" in render_tradeoff(found)


def test_every_cell_of_the_page_and_the_terminal_shows_its_bound(table):
    page = render_tradeoff(table)
    assert page.count("9.24 %") >= 2
    assert "no bound" in page
    assert "at most over the training" in page
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(tradeoff_table(table))
    assert console.export_text().count("≤ 9.24 %") == 2


def test_the_numbers_of_a_bound_are_in_the_json(table):
    rows = json.loads(json.dumps(table.to_dict(), allow_nan=False))["rows"]
    assert rows[2]["leakage"][0]["bound"]["at_most"] == pytest.approx(0.0924, abs=1e-4)
    assert rows[2]["bound_over_training"]["rounds"] == 4
    assert rows[1]["leakage"][0]["bound"]["at_most"] is None
    assert rows[0]["leakage"][0]["bound"] is None


def test_the_curve_passes_through_the_bounds_of_the_rows_and_holds_what_was_found(table):
    curve = bound_curve(table)
    found = curve.marks[0]
    points = [tuple(map(float, pair.split(","))) for pair in curve.lines[0][1].split()]
    at = min(points, key=lambda point: abs(point[0] - found.x))
    assert 1 - at[1] / HEIGHT == pytest.approx(0.0924, abs=0.02)
    assert 1 - found.y / HEIGHT == pytest.approx(1 / 8, abs=1e-3)
    heights = [y for _, y in points]
    assert heights == sorted(heights, reverse=True)
    assert "at most 9.24 %" in found.words
    assert bound_curve(table_of(row("none", 0.9, 8, 8))) is None
    assert points[0][0] < 0.05 * WIDTH < 0.95 * WIDTH < points[-1][0]
    assert curve.lines[0][1] in render_tradeoff(table)
