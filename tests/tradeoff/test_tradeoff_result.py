from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tradeoff_support import REAL, STRONG, UNAWARE, cell, row, table_of, trained

from leakgauge.audit.verdict import Verdict
from leakgauge.report.tradeoff_words import remarks, sentence
from leakgauge.tradeoff.result import Cell, cheapest, pareto

PAIRS = st.lists(st.tuples(st.integers(0, 5).map(float), st.integers(0, 5).map(float)), max_size=12)


def beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] >= other[0] and one[1] <= other[1] and one != other


@given(PAIRS)
def test_nothing_on_the_front_is_beaten_and_everything_off_it_is_beaten_by_something_on_it(
    points: list[tuple[float, float]],
) -> None:
    front = pareto(points)
    assert bool(front) == bool(points)
    for index, point in enumerate(points):
        beaten = any(beats(points[other], point) for other in front)
        assert beaten == (index not in front)


@given(PAIRS, st.randoms())
def test_the_front_depends_neither_on_the_order_nor_on_what_it_leaves_out(
    points: list[tuple[float, float]], random: object
) -> None:
    front = sorted(points[index] for index in pareto(points))
    shuffled = list(points)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert sorted(shuffled[index] for index in pareto(shuffled)) == front
    alone = [points[index] for index in pareto(points)]
    assert pareto(alone) == list(range(len(alone)))


@given(PAIRS)
def test_along_the_front_more_accuracy_costs_more_leakage(points: list[tuple[float, float]]) -> None:
    front = sorted({points[index] for index in pareto(points)})
    assert all(one[1] < other[1] for one, other in pairwise(front))


ROWS = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=6)


@settings(max_examples=20, deadline=None)
@given(ROWS, st.sampled_from([0.0, 0.1, 0.5, 1.0]))
def test_the_cheapest_is_feasible_and_no_feasible_row_has_more_accuracy(
    numbers: list[tuple[int, int, int]], limit: float
) -> None:
    rows = [row(f"pruning:keep=0.{n + 1}", a / 100, s, r) for n, (a, s, r) in enumerate(numbers)]
    result = table_of(*rows, limit={"identification": limit})
    feasible = [a / 100 for a, s, r in numbers if max(s, r) / 8 <= limit]
    best = cheapest(result)
    assert (best is None) == (not feasible)
    if best is not None:
        assert best.accuracy is not None
        assert best.accuracy.mean == pytest.approx(max(feasible))
        worst = result.worst(best, "identification")
        assert worst is not None
        assert worst[1].attack.mean <= limit


def test_of_two_that_are_equally_accurate_the_faster_is_cheaper() -> None:
    slow, fast = row("pruning:keep=0.1", 0.8, 0, overhead=2.0), row("pruning:keep=0.2", 0.8, 0, overhead=1.1)
    assert cheapest(table_of(slow, fast)) is fast
    assert cheapest(table_of(fast, slow)) is fast


def test_the_sentence_names_the_cheapest_and_its_cost() -> None:
    result = table_of(
        row("none", 0.9, 8, 6),
        row("pruning:keep=0.1", 0.88, 5),
        row("pruning:keep=0.01", 0.85, 0, overhead=1.25),
        row("gaussian_noise:std=1", 0.4, 0),
    )
    assert sentence(result) == (
        "The cheapest defence that keeps identification at 0.1 or less is Pruning (keep 0.01): "
        "85.0 % accuracy (−5.0 points) and 1.25 times the time per step."
    )
    assert "0 of 8 examples were identified, 95 % interval 0–32 %" in remarks(result)[0]


def test_the_sentence_says_that_none_will_do_and_which_comes_nearest() -> None:
    result = table_of(row("none", 0.9, 8), row("pruning:keep=0.1", 0.8, 3))
    assert sentence(result) == (
        "No defence that was tried keeps identification at 0.1 or less; Pruning (keep 0.1) comes nearest with 0.375."
    )
    assert cheapest(result) is None


def test_no_defence_is_called_for_where_none_is_needed() -> None:
    lucky = table_of(row("pruning:keep=0.1", 0.91, 0, overhead=0.98), row("none", 0.9, 0))
    assert cheapest(lucky) is lucky["none"]
    assert sentence(table_of(row("none", 0.9, 0), row("pruning:keep=0.1", 0.8, 0))).startswith("No defence is needed")


def test_an_unfinished_table_names_no_cheapest() -> None:
    result = table_of(row("none", 0.9, 8), row("pruning:keep=0.1", 0.8, 0), complete=False)
    assert sentence(result).startswith("Stopped early")
    assert not [one for one in remarks(result) if "worst" in one]


def test_without_a_limit_the_front_is_named() -> None:
    result = table_of(row("none", 0.9, 8), row("pruning:keep=0.1", 0.8, 1), row("clipping", 0.7, 2), limit={})
    assert sentence(result) == "No limit was given; no other row beats Pruning (keep 0.1) and No defence."


def test_what_was_not_measured_meets_no_limit_and_is_said_to_be_missing() -> None:
    result = table_of(row("none", 0.9, 8), row("pruning:keep=0.1", 0.8, 0, None), row("clipping", None, 0))
    assert result.within(result["pruning:keep=0.1"]) is None
    assert cheapest(result) is None
    assert any("Pruning (keep 0.1) and Clipping" in remark for remark in remarks(result))
    assert [point.row.defence for point in result.points()] == ["none"]


def test_a_measured_violation_outweighs_what_was_not_measured() -> None:
    result = table_of(row("pruning:keep=0.1", 0.8, 3), limit={"lpips_alex": 0.5, "identification": 0.1})
    assert result.within(result.rows[0]) is False


def test_what_is_inconclusive_meets_no_limit_and_says_under_which_attacker() -> None:
    doubtful = row("pruning", 0.8, 0, 0)
    unsure = replace(doubtful.cells[REAL], verdict=Verdict.INCONCLUSIVE)
    doubtful = replace(doubtful, cells={**doubtful.cells, REAL: unsure})
    result = table_of(row("none", 0.9, 8, 8), doubtful)
    assert result.within(doubtful) is None
    assert cheapest(result) is None
    assert sentence(result).startswith("Inconclusive: no defence is known to keep identification at 0.1 or less")
    (said,) = [one for one in remarks(result) if "inconclusive" in one]
    assert "(honest but curious, batch 1): Pruning; give the attacks a larger budget." in said
    loud = replace(doubtful, cells={**doubtful.cells, STRONG: cell(8)})
    assert result.within(loud) is False  # what was found is found


def test_for_distances_the_limit_is_a_lower_bound() -> None:
    near, far = row("none", 0.9, 8), row("pruning:keep=0.1", 0.8, 0)  # LPIPS 0.35 and 0.75
    result = table_of(near, far, limit={"lpips_vgg": 0.5})
    assert (result.within(near), result.within(far)) == (False, True)
    assert [point.row.defence for point in result.front()] == ["pruning:keep=0.1", "none"]
    assert "LPIPS (VGG) at 0.5 or more" in sentence(result)


def test_a_condition_that_no_client_can_run_is_not_held_against_a_defence() -> None:
    mixed = replace(row("mixup:k=4", 0.8, 5, 0), refused={STRONG: "mixes 4 images"})
    mixed = replace(mixed, cells={one: found for one, found in mixed.cells.items() if one != STRONG})
    result = table_of(row("none", 0.9, 8), mixed)
    assert cheapest(result) is mixed
    assert result.to_dict()["rows"][1]["leakage"][0]["refused"] == "mixes 4 images"
    impossible = replace(mixed, cells={}, refused={STRONG: "no", REAL: "no"})
    assert table_of(impossible).within(impossible) is None


def test_the_unaware_attacker_shows_the_false_comfort() -> None:
    result = table_of(row("none", 0.9, 8, unaware=8), row("pruning:keep=0.1", 0.8, 4, 6, unaware=2))
    pruned = result["pruning:keep=0.1"]
    assert result.false_comfort(pruned, UNAWARE) == pytest.approx(0.5)
    assert result.false_comfort(pruned, REAL) is None
    assert any("false comfort: Pruning (keep 0.1) (50 % of the examples)" in remark for remark in remarks(result))
    assert not [remark for remark in remarks(result) if "stronger attacks" in remark]


def test_what_ignorance_finds_counts_because_knowledge_could_have_found_it() -> None:
    result = table_of(row("pruning:keep=0.1", 0.8, 0, unaware=2))
    worst = result.worst(result.rows[0], "identification")
    assert worst is not None
    assert worst[0] == UNAWARE
    assert result.within(result.rows[0]) is False
    assert any("stronger attacks than theirs" in one and "(25 % of the examples)" in one for one in remarks(result))
    assert not [remark for remark in remarks(result) if "comfort" in remark]


def test_every_cell_carries_its_null_and_missing_numbers_are_null_in_json() -> None:
    diverged = trained("gaussian_noise", 0.5)
    diverged = replace(diverged, diverged=True, accuracy=replace(diverged.accuracy, count=0, mean=math.nan))
    lost = replace(row("gaussian_noise", 0.5, 0), utility=diverged)
    result = table_of(row("none", 0.9, 8), row("pruning:keep=0.1", None, None), lost)
    payload = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    none, pruned, noisy = payload["rows"]
    found = none["leakage"][0]["metrics"]
    null = found["identification"]["null"]
    assert (null["mean"], null["count"]) == (0.0, 8)
    assert (found["psnr"]["mean"], found["psnr"]["worst"], found["psnr"]["std"]) == (26.0, 29.0, 1.25)
    assert found["lpips_alex"] == found["lpips_alex"] | {"measured": False, "mean": None, "worst": None, "std": None}
    assert (pruned["utility"], pruned["leakage"][0]["measured"], pruned["within_limit"]) == (None, False, None)
    assert (noisy["utility"]["diverged"], noisy["utility"]["accuracy"]["mean"]) == (True, None)
    assert payload["cheapest"] is None


def test_a_cell_keeps_what_it_measured_apart_from_what_it_did_not() -> None:
    one: Cell = cell(None)
    assert one.measured("identification") is None
    assert one.measured("lpips_alex") is None
    assert one.measured("psnr") is not None
    assert one.measured("nonsense") is None
