"""The pages of results are what the result files say."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest

import answers
import page
import plots
import readings
from result_tables import section


def test_the_pages_and_plots_are_what_the_result_files_say_and_no_other_lies_beside_them():
    assert page.stale(page.pages(readings.load())) == [], "run `python benchmarks/page.py`"


def test_every_result_names_the_command_that_made_it_and_no_folder_of_a_machine():
    for name, result in readings.load().items():
        commands = result.get("commands") or [result.get("command_line") or result["command"]]
        assert all("reproduce" in one or "benchmarks/" in one or "tradeoff" in one for one in commands), name
        text = json.dumps(result)
        assert not any(place in text for place in ("/home/", "/tmp/", "/root/", "/Users/", "unknown")), name


def a_result(**more):
    """A reproduction of one row in which nothing was measured."""
    nothing = {"mean": None, "deviation": None, "best": None}
    row = {
        "label": "a row",
        "published": None,
        "also_published": {},
        "ours": {"psnr": nothing},
        "null": {"psnr": nothing},
        "training": None,
        "steps": None,
        "updates": [],
        "seconds_per_update": 1.0,
    }
    command = "leakgauge reproduce x/y"
    return {"experiment": "x/y", "title": "T", "command": command, "notes": [], "rows": [row], **more}


def test_the_page_shows_a_missing_number_as_a_dash_never_as_zero():
    assert "| a row | – | – | 0 | – | 1 |" in section("x.json", a_result())


def test_the_page_shows_what_a_row_has_other_than_the_paper():
    (row,) = a_result()["rows"]
    shown = section("x.json", a_result(rows=[{**row, "differs": ["model.base_width 16 for 64", "updates 5 for 100"]}]))
    assert "| 1 | model.base_width 16 for 64; updates 5 for 100 |" in shown
    assert "other than in the paper" not in section("x.json", a_result())


def test_the_page_says_once_what_all_rows_have_other_than_the_paper():
    (row,) = a_result()["rows"]
    width, steps = "model.base_width 16 for 64", "steps 5 for 100"
    rows = [{**row, "label": name, "differs": differs} for name, differs in (("a", [width]), ("b", [width, steps]))]
    shown = section("x.json", a_result(rows=rows))
    assert shown.count(width) == 1
    assert f"- In every row other than in the paper: {width}." in shown
    assert f"| 1 | {steps} |" in shown
    assert "| other than in the paper |" not in section("x.json", a_result(rows=[{**rows[0]}] * 2))


def test_the_page_names_the_rows_of_a_table_that_its_file_has_not():
    result = readings.load()["ma2023-models-cpu.json"]
    assert "Not measured at this scale" not in section("x.json", result)
    left = result["rows"].pop()["label"]
    assert f"- Not measured at this scale: {left}." in section("x.json", result)


def test_the_page_shows_who_leads_each_cell_in_bold_where_ahead_of_all():
    won = {"first": "a", "second": "b", "difference": 1.25, "deviation": 0.5, "ahead": True}
    close = {"first": "b", "second": "a", "difference": 0.1, "deviation": None, "ahead": False}
    verdict = {"cells": [{"cell": "one", "psnr": won, "ssim": close}]}
    assert "| one | **a** +1.2 ± 0.5 (b) | b +0.1 (a) |" in section("x.json", a_result(verdict=verdict))
    assert "Who leads" not in section("x.json", a_result())


def test_the_page_shows_the_pictures_that_lie_beside_a_result(tmp_path, monkeypatch):
    monkeypatch.setattr(readings, "RESULTS", tmp_path)
    assert "![" not in section("x.json", a_result())
    (tmp_path / "x.png").write_bytes(b"")
    assert "](../../benchmarks/results/x.png)" in section("x.json", a_result())


def scored(mean, error=None):
    return {"mean": mean, "deviation": error, "standard_error": error}


@pytest.mark.parametrize(
    ("told", "words"), [(19.83, "not reached (11.00)"), (9.0, "at its null, as published (11.00)")]
)
def test_no_bare_number_stands_beside_a_published_one_where_the_row_is_at_its_null(told, words):
    (row,) = a_result()["rows"]
    row |= {"published": {"mean": told, "deviation": 2.96, "spread": "standard deviation"}}
    row |= {"ours": {"psnr": scored(11.0)}, "null": {"psnr": scored(11.5)}}
    shown = section("x.json", a_result(rows=[row]))
    assert f"| {words} |" in shown
    assert f"**({readings.AT_NULL})**" in shown


def test_rows_of_an_older_recipe_say_so_on_their_page_and_in_the_answers():
    name, results = "ma2023-models-cpu.json", readings.load()
    labels = [row["label"] for row in results[name]["rows"][:2]]
    results[name]["outdated"] = dict.fromkeys(labels, "its model was another")
    written = page.pages(results)
    lines = written[page.DOCS / "results" / "ma2023.md"].splitlines()
    older = [line for line in lines if line.startswith("| ") and f"**({readings.OLDER})**" in line]
    assert [line.removeprefix("| ").partition(" **")[0] for line in older] == labels
    assert f"2 are {readings.OLDER}" in written[page.DOCS / "results.md"]


def test_every_file_is_asked_something_and_every_link_of_the_answers_leads_somewhere():
    written = page.pages(readings.load())
    answers = written[page.DOCS / "results.md"]
    assert all(f"[{name}](" in answers for name in readings.load())
    for target, anchor in re.findall(r"\]\(([\w./-]*)#([\w-]+)\)", answers):
        text = answers if not target else written[page.DOCS / target]
        assert f'<a id="{anchor}"></a>' in text
    for file in re.findall(r"\]\((results/[\w.-]+)\)", answers):
        assert page.DOCS / file in written


def test_a_plot_is_an_image_with_a_bar_for_every_row_and_marks_for_null_and_published():
    lines = [plots.Bar("one & two", 2.0, 0.5, 1.0, 3.0), plots.Bar("alone", 1.0)]
    drawn = ElementTree.fromstring(plots.bars(lines, "psnr"))
    bars = [one for one in drawn.findall(".//{*}rect") if one.get("fill") == "#95a5a6"]
    assert [float(bar.get("width")) / plots.WIDTH for bar in bars] == pytest.approx([2 / 3, 1 / 3], abs=1e-3)
    assert len([one for one in drawn.findall(".//{*}path") if one.get("stroke") == "#c0392b"]) == 1
    assert len([one for one in drawn.findall(".//{*}path") if one.get("fill") == "#1f618d"]) == 1


def test_what_needs_a_machine_of_its_own_is_answered_once_it_was_measured():
    pool = {"part": "pool", "of": "one beside two", "overhead": 0.031, "speed_up_of_two": 1.8, "load_before": 0.1}
    told = answers._executors({"executors.json": {"rows": [pool]}})
    assert "| overhead of a pool of one worker | 3.1 % | 0.100 |" in told.said
    assert "1.80x" in told.said
    rows = [{"situation": "Adam", "passes": True}, {"situation": "noise", "passes": False, "verdict": "leaks"}]
    told = answers._recorded({"recorded-rounds.json": {"rows": rows}})
    assert "1 are refused" in told.said
    assert "Not so: noise (leaks)." in told.said
