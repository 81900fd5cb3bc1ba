"""What of a paper counts as reached, short, at the null, or refuted."""

from __future__ import annotations

import pytest

import readings
import reproduced


def a_row(ours, told, *, deviation=1.0, **more):
    """A row of PSNR at a null of 10 dB, both with a standard error of half a dB."""
    scored = {"mean": ours, "deviation": 1.0, "standard_error": 0.5, "updates": 5}
    published = None if told is None else {"mean": told, "deviation": deviation, "spread": "standard deviation"}
    null = {"psnr": {**scored, "mean": 10.0}}
    return {"published": published, "also_published": {}, "ours": {"psnr": scored}, "null": null, **more}


AS_IN_THE_PAPER = {"differs": ["updates 5 for 100", "draw.first 2000 for 0"], "updates": [{"outcome": "overdue"}]}
SETTLED = {"differs": ["attack.budget.steps 9 for 99"], "updates": [{"outcome": "converged"}]}
CUT_OFF = {"differs": ["attack.budget.steps 9 for 99"], "updates": [{"outcome": "steps_exhausted"}]}
NARROW = {"differs": ["model.base_width 16 for 64"], "updates": [{"outcome": "converged"}]}


@pytest.mark.parametrize(
    ("row", "judged"),
    [
        (a_row(19.5, 20.0), "reached"),
        (a_row(60.0, 20.0), "reached"),
        (a_row(15.0, 20.0), "short"),
        (a_row(10.2, 20.0), "not reached"),
        (a_row(9.0, 7.0), "reached"),
        (a_row(15.0, None), None),
        (a_row(15.0, 20.0, **AS_IN_THE_PAPER), "refuted"),
        (a_row(10.2, 20.0, **SETTLED), "refuted"),
        (a_row(15.0, 20.0, **CUT_OFF), "short"),
        (a_row(15.0, 20.0, **NARROW), "short"),
        (a_row(15.0, 20.0, **{**SETTLED, "differs": ["work.steps 9 for 99"]}), "short"),
        ({**a_row(15.0, 20.0, **SETTLED), "ours": {"psnr": {**a_row(15.0, 1)["ours"]["psnr"], "updates": 4}}}, "short"),
        (a_row(16.0, 9.0, **CUT_OFF), "refuted"),
        (a_row(16.0, 9.0, deviation=8.0, **CUT_OFF), "reached"),
        (a_row(16.0, 9.0, **NARROW), "reached elsewhere"),
        (a_row(19.5, 20.0, **NARROW), "reached elsewhere"),
        (a_row(16.0, 9.0), "reached"),
        (a_row(None, 20.0), "not compared"),
    ],
)
def test_a_published_number_is_judged_by_the_rule_of_the_page(row, judged):
    assert reproduced.judge(row, "psnr") == judged


def test_of_every_row_the_larger_scale_counts_and_a_row_that_only_the_smaller_has_is_not_lost():
    def result(scale, **rows):
        labelled = [{"label": label, **row} for label, row in rows.items()]
        return {"experiment": "paper/table1", "scale": scale, "rows": labelled}

    results = {
        "paper-table1-long.json": result("long", a=a_row(20.0, 20.0), b=a_row(10.2, 20.0)),
        "paper-table1-cpu.json": result("cpu", a=a_row(10.0, 20.0), b=a_row(10.0, None), c=a_row(15.0, 20.0)),
        "speed.json": {"rows": []},
    }
    text = reproduced.section(results, {"paper": "A paper", "other": "Another"})
    assert "| **A paper** |  | 3 | 1 | 0 | 1 | 1 | 0 | 0 |" in text
    assert "| [paper/table1](results/paper.md#paper-table1-long) | cpu, long | 3 | 1 | 0 | 1 | 1 | 0 | 0 |" in text
    assert "Another" not in text


@pytest.mark.parametrize(
    ("experiment", "scale", "label", "judged"),
    [
        ("geiping2020/table1", "long", "ResNet20-4, trained: proposed", "reached elsewhere"),
        ("ma2023/table3", "cpu", "LeNet-5, K=128, without BatchNorm/dropout", "reached"),
        ("ma2023/table3", "cpu", "of no table", "reached"),
    ],
)
def test_a_file_from_before_differences_were_noted_has_the_network_of_its_table_today(experiment, scale, label, judged):
    row = {"label": label, **a_row(19.5, 20.0)}
    found = reproduced.with_network(row, {"experiment": experiment, "scale": scale})
    assert reproduced.judge(found, "psnr") == judged


def test_a_row_is_not_refuted_by_a_table_that_is_younger_than_it():
    row = {"label": "LeNet-5, K=128, without BatchNorm/dropout", **a_row(15.0, 20.0, updates=[{"outcome": "solved"}])}
    found = reproduced.with_network(row, {"experiment": "ma2023/table3", "scale": "cpu"})
    assert reproduced.judge(found, "psnr") == "short"


def test_every_published_number_of_the_committed_files_is_in_one_column():
    for result in reproduced.by_experiment(readings.load()).values():
        told = [row for row in result["rows"] if row["published"] and row["published"]["mean"] is not None]
        assert reproduced.counted(result).total() == len(told)
