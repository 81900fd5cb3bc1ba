"""Quality at equal CPU seconds: statistics, workers, runs that go on and results that are not mixed."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

import baseline
import quality
import quality_summary


def row(method: str, image: int, psnr: float | None, *, null: bool = False, other: float = 9.0) -> dict[str, Any]:
    return {
        "method": method,
        "image": image,
        "null": null,
        "psnr": psnr,
        "psnr_to_next_image": other,
        "cpu_seconds": 2.0,
        "steps": 7,
    }


def run(*arguments: object, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = quality.main(["--model", "lenet", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


# So short that the 2020 method makes its one obligatory step, whatever the machine.
INSTANT = ("--seconds", 1e-9, "--method", "baseline")


def test_the_paired_difference_is_over_images_both_methods_solved_with_students_interval():
    ours, theirs = [20.0, 26.0, 23.0, 30.0], [11.0, 15.0, 16.0, 31.0]
    rows = [row("best", i, x) for i, x in enumerate(ours)] + [row("baseline", i, x) for i, x in enumerate(theirs)]
    rows += [row("best", 8, 99.0), row("baseline", 9, 1.0), row("best", 9, None)]
    paired = quality_summary.summary_of(rows)["best - baseline"]
    expected = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert paired["interval_95"] == pytest.approx([expected.low, expected.high], abs=1e-4)
    assert (paired["mean"], paired["median"], paired["smallest"]) == (6.5, 8.0, -1.0)
    assert (paired["images"], paired["images_won"]) == (4, 3)


def test_a_method_is_summarised_by_mean_spread_median_and_its_worst_image_and_missing_results_are_counted():
    rows = [row("best", 4, 30.0), row("best", 5, 10.0, other=7.0), row("best", 6, None), row("best", 7, 14.0)]
    rows += [row("best", 4, 8.0, null=True), row("best", 5, 9.0, null=True)]
    summary = quality_summary.summary_of(rows)
    assert summary["best"] == {
        "images": 4,
        "without_result": 1,
        "cpu_seconds": 2.0,
        "steps": 7.0,
        "mean": 18.0,
        "std": pytest.approx(112**0.5, abs=1e-4),
        "median": 14.0,
        "worst": {"image": 5, "psnr": 10.0},
        "mean_to_next_image": pytest.approx(25 / 3, abs=1e-4),
    }
    assert summary["unrelated gradient"] == {"images": 2, "mean": 8.5}
    assert "best - baseline" not in summary


def test_one_image_has_no_interval_rather_than_an_interval_of_zero():
    summary = quality_summary.summary_of([row("best", 0, 20.0), row("baseline", 0, 10.0)])
    assert summary["best - baseline"]["interval_95"] == [None, None]
    assert summary["best"]["std"] is None


def test_neighbouring_photographs_and_the_gradients_of_nulls_are_of_other_pictures():
    victims = quality.load_victims(None)
    labels = victims.batch.labels.tolist()
    assert "not CIFAR-10" in victims.name
    # Later on only the photographs with the most crops are left.
    assert all(one != other for one, other in pairwise(labels[:200]))
    tasks = quality.plan(victims, ("baseline", "best"), model="lenet", seconds=1.0, first=100, images=4, nulls=3)
    assert [task.key for task in tasks if task.null] == [("best", 100, True), ("best", 101, True), ("best", 102, True)]
    assert len(tasks) == 2 * 4 + 3
    for task in tasks:
        assert (task.observed == task.victim).all() != task.null
        assert not (task.neighbour == task.victim).all()


def test_images_beyond_the_test_split_are_refused_in_one_sentence(capsys):
    code, _, err = run(*INSTANT, "--first", 440, "--images", 20, capsys=capsys)
    assert code == 2
    assert err == (
        "Images 440 to 459 were asked for, but the embedded photographs, not CIFAR-10 are numbered 0 to 447; "
        "choose --first and --images within them.\n"
    )


@pytest.fixture(scope="module")
def two_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result for two images, the second of which was attacked in a worker."""
    out = tmp_path_factory.mktemp("quality") / "result.json"
    for images in ("1", "2"):
        assert quality.main([*map(str, INSTANT), "--images", images, "--workers", images, "--out", str(out)]) == 0
    return out


@pytest.mark.slow
def test_a_worker_gives_the_row_of_this_process(two_images, capsys):
    code, out, _ = run(*INSTANT, "--images", 2, "--json", capsys=capsys)
    assert code == 0
    here, there = json.loads(out), json.loads(two_images.read_text())
    assert here["setting"] == there["setting"]
    assert [one["image"] for one in here["rows"]] == [100, 101]
    for one, other in zip(here["rows"], there["rows"], strict=True):
        assert one["steps"] == other["steps"] == 1
        assert (one["psnr"], one["psnr_to_next_image"]) == (other["psnr"], other["psnr_to_next_image"])


@pytest.mark.slow
def test_a_stopped_run_continues_and_names_every_command_but_no_folder(two_images, tmp_path, capsys):
    stored = json.loads(two_images.read_text())
    path = tmp_path / "result.json"
    path.write_text(json.dumps(stored | {"rows": stored["rows"][1:]}))
    code, out, err = run(*INSTANT, "--images", 3, "--out", path, capsys=capsys)
    assert code == 0
    assert err.startswith("1 of 3 attacks were done before\n1/2 baseline, image 100: ")
    continued = json.loads(path.read_text())
    assert [one["image"] for one in continued["rows"]] == [100, 101, 102]
    assert continued["rows"][1] == stored["rows"][1]
    assert continued["rows"][0]["psnr"] == stored["rows"][0]["psnr"]
    assert continued["summary"]["baseline"]["images"] == 3
    assert continued["commands"][:2] == stored["commands"]
    assert len(continued["commands"]) == 3
    assert str(tmp_path) not in path.read_text()
    assert out.startswith("lenet, embedded photographs, not CIFAR-10, 1e-09 CPU seconds per image, PSNR in dB\n")


def test_results_of_another_setting_or_another_attack_or_another_file_are_not_mixed_in(two_images, tmp_path, capsys):
    path = tmp_path / "result.json"
    path.write_text(two_images.read_text())
    code, _, err = run("--seconds", 1, "--method", "baseline", "--out", path, capsys=capsys)
    assert (code, err) == (2, f"{path} holds results with cpu_seconds 1e-09, not 1.0; choose another --out.\n")
    path.write_text(two_images.read_text().replace("tv=0.01", "tv=0.5"))
    code, _, err = run(*INSTANT, "--out", path, capsys=capsys)
    assert code == 2
    assert "tv=0.5, but baseline is now Inverting Gradients (2020), tv=0.01; choose another --out." in err
    path.write_text("[]")
    code, _, err = run(*INSTANT, "--out", path, capsys=capsys)
    assert (code, err) == (2, f"{path} is not a result of this benchmark; choose another --out.\n")


def test_a_baseline_that_was_given_too_few_steps_for_its_seconds_runs_again_with_more(monkeypatch):
    def careless(seconds: float, step: Any) -> int:
        for _ in range(3):
            step()
        return 1

    monkeypatch.setattr(baseline, "steps_within", careless)
    victims = quality.load_victims(None)
    (task,) = quality.plan(victims, ("baseline",), model="lenet", seconds=0.3, first=100, images=1, nulls=0)
    result = quality.solve(task)
    assert result["facts"]["attempts"] > 1
    assert result["steps"] > 5
    assert result["cpu_seconds"] > 0.15


@pytest.mark.slow
def test_our_best_recipe_is_compared_with_the_baseline_and_its_null(tmp_path, capsys):
    code, out, _ = run("--seconds", 0.3, "--images", 2, "--nulls", 1, "--json", capsys=capsys)
    assert code == 0
    result = json.loads(out)
    assert [(one["method"], one["image"], one["null"]) for one in result["rows"]] == [
        ("baseline", 100, False),
        ("best", 100, False),
        ("baseline", 101, False),
        ("best", 101, False),
        ("best", 100, True),
    ]
    assert result["summary"]["best - baseline"]["images"] == 2
    assert all(one["steps"] > 1 and 0 < one["cpu_seconds"] < 3 for one in result["rows"])
