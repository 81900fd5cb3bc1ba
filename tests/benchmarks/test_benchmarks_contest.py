"""The contest of attacks: who is ahead is read off the same victims, and a run that was stopped goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import contest
import contest_answers


def fought(attack: str, victim: int, psnr: float, *, seconds: float = 5.0, null: float = 9.0) -> contest.Row:
    own = {"cell": "LeNet", "seconds": seconds, "victim": victim, "attack": attack, "first": 5000}
    return {**own, "psnr": [psnr], "null": [null], "code": contest.answering_code()}


def test_the_strongest_rival_is_the_one_with_the_least_lead_over_the_victims_that_both_met():
    rows = [fought("best", 0, 30.0), fought("best", 1, 20.0), fought("best", 2, 99.0)]
    rows += [fought("idlg", 0, 31.0), fought("idlg", 1, 22.0), fought("quasi_newton", 0, 29.0)]
    (row,) = contest.standings(rows)
    assert (row["strongest_rival"], row["victims"], row["lead"], row["least_lead"]) == ("idlg", 2, -1.5, -2.0)
    assert (row["best"], row["its_psnr"], row["beaten"]) == (25.0, 26.5, True)


@pytest.mark.parametrize(("rival", "null", "beaten"), [(20.5, 9.0, False), (21.5, 9.0, True), (21.5, 21.0, False)])
def test_best_is_beaten_by_more_than_the_margin_and_by_nobody_at_its_null(rival, null, beaten):
    (row,) = contest.standings([fought("best", 0, 20.0), fought("idlg", 0, rival, null=null)])
    assert row["beaten"] is beaten
    said, _ = contest_answers.contest({"rows": [row], "margin": contest.MARGIN})
    assert ("LeNet at 5 s (idlg)" in said) is beaten


def test_a_cell_without_a_rival_has_no_row_and_a_result_that_is_missing_is_no_zero():
    assert contest.standings([fought("best", 0, 20.0)]) == []
    empty = {**fought("idlg", 0, 1.0), "psnr": [], "null": []}
    assert contest.standings([fought("best", 0, 20.0), empty]) == []


def test_every_cell_and_budget_gets_one_victim_before_any_gets_two():
    order = [(bout.victim, bout.seconds) for bout in contest.bouts(["LeNet", "ViT"], [20.0, 5.0], 2, 1)]
    assert order == sorted(order)
    assert len(order) == 2 * 2 * 2 * 2


def test_rows_of_other_code_or_other_images_are_fought_again_in_the_cells_that_are_asked_for(tmp_path):
    file, kept = tmp_path / "contest.json", fought("best", 0, 20.0)
    older = {**kept, "code": "other"}
    elsewhere = {**older, "cell": "ViT"}
    file.write_text(json.dumps({"attacks": [kept, older, elsewhere, {**kept, "first": 1}]}))
    assert contest.kept_in(file, 5000, ["LeNet", "ViT"], [5.0]) == [kept]
    assert contest.kept_in(file, 5000, ["LeNet"], [5.0]) == [kept, elsewhere]
    assert contest.kept_in(file, 5000, ["LeNet", "ViT"], [300.0]) == [kept, older, elsewhere]
    assert contest.kept_in(tmp_path / "none.json", 5000, ["LeNet"], [5.0]) == []


def test_a_contest_is_fought_kept_and_told_and_too_many_victims_are_refused(tmp_path, capsys):
    words = ["--dataset", "photos", "--cells", "LeNet", "--seconds", "1e-3", "--rivals", "1", "--first", "0"]
    words += ["--out", str(tmp_path / "contest.json")]
    for already in (0, 2):
        assert contest.main([*words, "--victims", "1"]) == 0
        out, err = capsys.readouterr()
        assert err.count(" CPU s\n") == 2 - already
        assert "LeNet" in out
    kept = json.loads((tmp_path / "contest.json").read_text())
    assert [one["attack"] for one in kept["attacks"]] == ["best", "idlg"]
    assert str(tmp_path) not in json.dumps(kept)
    assert contest.main([*words, "--victims", "1", "--first", "100000"]) == 2
    assert "lower --first or the number of victims" in capsys.readouterr().err


def test_the_committed_rows_are_those_of_the_attacks_beside_them():
    kept = json.loads((Path(contest.__file__).parent / "results" / "contest.json").read_text("utf-8"))
    assert contest.standings(kept["attacks"]) == kept["rows"]
