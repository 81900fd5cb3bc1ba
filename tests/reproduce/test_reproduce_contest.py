"""Who is ahead: a rule on paired scores, applied to the rows of a result file and to nothing else."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leakgauge.attacks.analytic import LinearLayer
from leakgauge.data import Cifar10
from leakgauge.models import MLP
from leakgauge.reproduce import TABLES, Options, Row, Setting, Table, reproduce
from leakgauge.reproduce.contest import Contest, Lead

CONTEST = Contest("new", "rival", ("new", "newer"), ("old", "older"), "old", {"psnr": 0.5, "ssim": 0.02})
ARMS = {f"{cell}: {arm}": (cell, arm) for cell in "ab" for arm in ("new", "newer", "old", "older")}
SCORES = st.lists(st.floats(-50, 50), min_size=3, max_size=3)


def rows(null: float = -100.0, **cells: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Rows as a result file has them: one update per score, of two images around it."""

    def scored(x: float) -> dict[str, Any]:
        return {"scores": {"psnr": [x - 1, x + 1], "ssim": [x - 1, x + 1]}}

    return [
        {"label": f"{cell}: {arm}", "updates": [scored(x) for x in scores], "nulls": [scored(null)]}
        for cell, arms in cells.items()
        for arm, scores in arms.items()
    ]


def verdict(**cells: dict[str, list[float]]) -> dict[str, Any]:
    found = CONTEST.verdict(rows(**cells), ARMS)
    assert found is not None
    return found


@given(SCORES, SCORES, st.floats(0, 5))
def test_of_two_at_most_one_is_ahead(one: list[float], other: list[float], least: float) -> None:
    ahead = [Lead.of(one, other).ahead(least), Lead.of(other, one).ahead(least)]
    assert sum(ahead) <= 1
    assert not Lead.of(one, one).ahead(least)


@pytest.mark.parametrize(
    ("one", "ahead"),
    [
        ([1.0, 1.0, 1.0], True),
        ([9.0, 9.0, -0.1], False),  # one update disagrees, however high the mean
        ([0.4, 0.5, 0.4], False),  # too little
        ([9.0, 9.0], False),  # too few
        ([9.0, 9.0, math.nan], False),
    ],
)
def test_ahead_means_every_update_and_more_than_the_least(one: list[float], ahead: bool) -> None:
    assert Lead.of(one, [0.0] * len(one)).ahead(0.5) is ahead


def test_the_leader_of_a_cell_comes_with_the_next_and_their_difference() -> None:
    won = {"new": [5.0, 6.0, 7.0], "newer": [1.0] * 3, "old": [4.0] * 3, "older": [2.0] * 3}
    close = won | {"old": [5.5, 5.5, 6.5]}
    first, second = verdict(a=won, b=close)["cells"]
    assert first["cell"] == "a"
    assert first["psnr"] == {"first": "new", "second": "old", "difference": 2.0, "deviation": 1.0, "ahead": True}
    assert (second["psnr"]["first"], second["psnr"]["ahead"]) == ("new", False)


def test_the_summary_counts_cells_won_against_the_usual_one_and_against_all() -> None:
    won = {"new": [5.0, 6.0, 7.0], "newer": [1.0] * 3, "old": [4.0] * 3, "older": [2.0] * 3}
    lost = {"new": [5.0] * 3, "newer": [5.0] * 3, "old": [4.0] * 3, "older": [9.0] * 3}
    assert verdict(a=won, b=lost)["summary"][0] == (
        "psnr: of 2 cells new, in one form or another, is ahead of the usual rival (old) in 2 (new: 2; newer: 1) and "
        "of every rival in 1 (new: 1; newer: 0); some rival is ahead of all forms of new in 1; 0 are undecided."
    )
    assert "above 0.5 dB of psnr, 0.02 of ssim; at least 3 updates" in CONTEST.rule


@pytest.mark.parametrize(("null", "ahead"), [(5.4, True), (5.6, False), (math.nan, False)])
def test_who_is_not_above_its_null_is_ahead_of_nobody(null: float, ahead: bool) -> None:
    won = {"new": [5.0, 6.0, 7.0], "newer": [1.0] * 3, "old": [4.0] * 3, "older": [2.0] * 3}
    found = CONTEST.verdict(rows(null, a=won), ARMS)
    assert found is not None
    assert found["cells"][0]["psnr"]["ahead"] is ahead


def test_incomplete_cells_and_few_updates_have_no_verdict() -> None:
    whole = {arm: [1.0, 2.0, 3.0] for arm in ("new", "newer", "old", "older")}
    assert len(verdict(a=whole, b={"new": [1.0] * 3})["cells"]) == 1
    assert CONTEST.verdict(rows(a={arm: [1.0, 2.0] for arm in whole}), ARMS) is None


def test_what_did_not_come_back_is_never_ahead_and_stays_json() -> None:
    nan = [math.nan] * 3
    found = verdict(a={"new": nan, "newer": nan, "old": nan, "older": [1.0] * 3})
    assert (found["cells"][0]["psnr"]["first"], found["cells"][0]["psnr"]["ahead"]) == ("older", False)
    json.dumps(found, allow_nan=False)


def test_a_result_file_holds_the_verdict_and_gives_it_again_without_an_attack(tmp_path: Path) -> None:
    # Both arms are exact, so that neither is ahead.
    setting = Setting(MLP(hidden=(8,)), LinearLayer(), updates=3, nulls=0)
    chosen = Table(
        "here2020/contest",
        "A contest",
        Cifar10(),
        tuple(Row(f"cell: {arm}", None, lambda scale: setting, group="cell", arm=arm) for arm in ("new", "old")),
        contest=replace(CONTEST, challengers=("new",), defenders=("old",)),
    )
    result = reproduce(chosen, Options(out=tmp_path))
    kept = json.loads((tmp_path / "here2020-contest-smoke.json").read_text())
    assert kept["verdict"]["cells"][0]["psnr"]["ahead"] is False
    assert set(kept["verdict"]["summary"]) < set(kept["notes"]) == set(result.notes)
    assert chosen.verdict(kept["rows"]) == kept["verdict"]


def test_the_arms_of_a_cell_meet_the_same_model_images_and_time() -> None:
    from leakgauge.reproduce.measures.updates import budget_of

    for name, count in {"cinet/comparison": 24, "cinet/long": 2, "cinet/distinct": 3}.items():
        cells: dict[str | None, list[tuple[str | None, Setting]]] = {}
        for row in TABLES[name].at("cpu").rows:
            cells.setdefault(row.group, []).append((row.arm, row.at("cpu")))
        assert len(cells) == count
        for arms in cells.values():
            assert len({arm for arm, _ in arms}) == len(arms)
            assert len({(budget_of(one.attack), replace(one, attack=LinearLayer())) for _, one in arms}) == 1


def test_the_comparison_names_arms_that_it_has() -> None:
    chosen = TABLES["cinet/comparison"]
    assert chosen.contest is not None
    named = {*chosen.contest.challengers, *chosen.contest.defenders}
    assert named == {row.arm for row in chosen.rows}
    assert chosen.contest.usual in chosen.contest.defenders
    assert chosen.contest.least.keys() == set(chosen.metrics)
