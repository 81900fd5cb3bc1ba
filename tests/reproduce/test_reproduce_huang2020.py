"""The studies of the InstaHide paper: its numbers, and smoke runs of every study that give each row and its null."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from rich.console import Console

from leakgauge.encodings import SeededKeys
from leakgauge.errors import InvalidCase
from leakgauge.randomness import seeded
from leakgauge.reproduce import EXPERIMENTS, SCALES, STUDIES, Options, Study, StudyResult, prepare_study, run_study
from leakgauge.reproduce.measures.training import WORK, FixedShares
from leakgauge.reproduce.papers.huang2020.encodings import SIZES
from leakgauge.reproduce.registry import named, named_experiment
from leakgauge.reproduce.study import Bench, Found, Part
from leakgauge.reproduce.study_show import study_table, watching_study, write_study_sheet

PAPER = tuple(f"huang2020/{name}" for name in ("table2", "figure3", "figure4", "figure7", "figure8", "table4"))
OWN = ("instahide/search", "instahide/clustering", "instahide/cross")
NAMES = (*PAPER, *OWN)

TABLE2_AS_PRINTED = """
vanilla 94.8 99.5 77.9
DP-SGD 72.0 98.1
inside, k=4, in inference 91.4 98.2 73.2
inside, k=4 91.2 98.2 73.1
cross, k=4, in inference 90.3 98.1 72.8
cross, k=4 90.7 97.8 73.2
cross, k=6, in inference 89.6 97.4 72.1
cross, k=6 89.8 97.3 71.9
"""
"""CIFAR-10, MNIST and CIFAR-100, in percent."""

TABLE4_ALL_AS_PRINTED = """
0.49 0.54 0.54 0.61 0.58 0.61 0.59
0.53 0.49 0.49 0.65 0.56 0.61 0.74
0.54 0.55 0.55 0.61 0.68 0.69 0.58
0.49 0.49 0.49 0.48 0.40 0.70 0.70
0.51 0.50 0.50 0.60 0.72 0.66 0.50
0.44 0.52 0.52 0.66 0.69 0.52 0.60
0.45 0.48 0.48 0.62 0.52 0.64 0.67
0.46 0.50 0.50 0.75 0.69 0.63 0.73
0.53 0.53 0.53 0.60 0.67 0.54 0.59
0.44 0.37 0.38 0.66 0.65 0.67 0.65
"""
"""The columns `All`, one line for each of ten images."""


def study(name: str) -> Study:
    return STUDIES[name if "/" in name else f"huang2020/{name}"]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StudyResult]:
    """Every study at smoke scale, in one folder."""
    options = Options(out=tmp_path_factory.mktemp("reproduced"))
    return {name: run_study(prepare_study(study(name), options)) for name in NAMES}


def test_the_studies_stand_beside_the_experiments() -> None:
    assert set(NAMES) == set(STUDIES)
    assert not set(STUDIES) & set(EXPERIMENTS)
    assert named("huang2020/table2") is study("table2")
    with pytest.raises(InvalidCase, match="run_study"):
        named_experiment("huang2020/table2")
    with pytest.raises(InvalidCase, match="huang2020/figure7"):
        named("huang2020/figure77")


@pytest.mark.parametrize("name", NAMES)
def test_every_study_has_distinct_rows_a_null_and_words_on_what_was_shrunk(name: str) -> None:
    chosen = study(name)
    assert max(Counter(line.label for line in chosen.lines).values()) == 1
    assert max(Counter(part.name for part in chosen.parts).values()) == 1
    assert {"smoke", "cpu"} <= set(chosen.shrunk)
    assert chosen.assumptions
    assert chosen.null
    for line in chosen.lines:
        assert (line.published is None) == (name in OWN or line.label.endswith("(not in the paper)"))
        if line.published is not None:
            assert line.published.source.startswith(("Table", "Figure", "section"))


def test_table_2_is_as_printed() -> None:
    lines = [line for line in study("table2").lines if line.published]
    columns = ("accuracy on MNIST", "accuracy on CIFAR-100")
    printed = [
        " ".join(
            [
                line.label,
                *(
                    f"{100 * one.mean:.1f}"
                    for one in (line.published, *map(line.also.get, columns))
                    if one and one.mean
                ),
            ]
        )
        for line in lines
    ]
    assert sorted(printed) == sorted(TABLE2_AS_PRINTED.strip().splitlines())


def test_figure_4_has_what_the_text_says_of_noise() -> None:
    lines = {line.label: line.published for line in study("figure4").lines}
    assert lines["Laplace noise, alpha=0.1"].mean == 0.94  # type: ignore[union-attr]
    assert lines["Laplace noise, alpha=0.9"].mean == 0.10  # type: ignore[union-attr]
    assert "above 90 %" in lines["InstaHide, alpha=0.5"].source  # type: ignore[union-attr]


def test_figure_8_has_the_one_hit_rate_that_the_text_gives() -> None:
    (given,) = [line for line in study("figure8").lines if line.published and line.published.mean is not None]
    assert given.published is not None
    assert given.published.mean == 0.05
    assert given.label == "InstaHide, random crops: learned similarity"


def test_table_4_is_the_mean_over_its_ten_images() -> None:
    printed = torch.tensor([[float(x) for x in line.split()] for line in TABLE4_ALL_AS_PRINTED.strip().splitlines()])
    ours = [line.published for line in study("table4").lines]
    torch.testing.assert_close(torch.tensor([one.mean for one in ours if one]), printed.mean(dim=0), atol=1e-3, rtol=0)
    spreads = torch.tensor([one.deviation for one in ours if one])
    torch.testing.assert_close(spreads, printed.std(dim=0), atol=1e-3, rtol=0)


@pytest.mark.parametrize("name", NAMES)
def test_a_smoke_run_measures_every_row_and_says_what_it_is(name: str, results: dict[str, StudyResult]) -> None:
    result = results[name]
    payload = result.to_dict()
    assert [row["label"] for row in payload["rows"]] == [line.label for line in study(name).lines]
    assert payload["scale"] == "smoke"
    assert payload["complete"] is True
    assert any("this shows that the code runs" in note for note in payload["notes"])
    for row in payload["rows"]:
        ours, null = (row[kind][payload["metric"]] for kind in ("ours", "null"))
        assert set(ours) == {"mean", "deviation", "standard_error", "updates", "images", "best"}
        assert ours["mean"] is not None
        assert null["mean"] is not None
        assert ours["images"] >= 1
        assert set(row["ours"]) == set(row["null"])
        assert row["seconds"] >= 0
    json.dumps(payload, allow_nan=False)


@pytest.mark.parametrize("name", NAMES)
def test_the_table_prints_published_numbers_beside_ours(name: str, results: dict[str, StudyResult]) -> None:
    console = Console(width=200, record=True, file=StringIO())
    console.print(study_table(results[name]))
    text = console.export_text()
    assert "scale smoke" in text
    for line, found in results[name].rows:
        assert f"{found.ours[results[name].study.metrics[0]].mean:.3f}" in text
        if line.published is not None and line.published.mean is not None:
            assert f"{line.published.mean:.3f}" in text


def test_averages_come_with_a_sheet_and_trainings_do_not(results: dict[str, StudyResult], tmp_path: Path) -> None:
    path = write_study_sheet(results["huang2020/figure7"], tmp_path / "sheet.png")
    assert path is not None
    with Image.open(path) as sheet:
        assert sheet.width > 6 * 16
        assert sheet.height > 2 * 16 * len(results["huang2020/figure7"].rows)
    assert write_study_sheet(results["huang2020/table2"], tmp_path / "none.png") is None


def test_dp_sgd_says_its_epsilon(results: dict[str, StudyResult]) -> None:
    pytest.importorskip("opacus")
    (found,) = [found for line, found in results["huang2020/table2"].rows if line.label == "DP-SGD"]
    assert 0 < found.setting["epsilon"] < 100
    assert "DPSGD" in found.setting["defence"]


def _counted(chosen: Study) -> tuple[Study, list[str]]:
    """The study with its first two parts, and the names of those that are measured."""
    measured: list[str] = []

    def measuring(part: Part) -> Part:
        def measure(bench: Bench) -> Any:
            measured.append(part.name)
            return part.measure(bench)

        return replace(part, measure=measure)

    return replace(chosen, parts=tuple(map(measuring, chosen.parts[:2]))), measured


def test_a_finished_part_is_read_again_and_gives_the_same_rows(tmp_path: Path) -> None:
    chosen, measured = _counted(study("figure3"))
    prepared = prepare_study(chosen, Options(out=tmp_path))
    first = run_study(prepared)
    assert run_study(prepared).to_dict()["rows"] == first.to_dict()["rows"]
    assert measured == [part.name for part in chosen.parts]
    kept = json.loads((tmp_path / "huang2020-figure3-smoke.json").read_text())
    assert kept["rows"] == first.to_dict()["rows"]
    assert kept["command"] == "leakgauge reproduce huang2020/figure3 --scale smoke --seed 0"


def test_an_interrupted_study_keeps_the_rows_it_has(tmp_path: Path) -> None:
    def interrupted(bench: Bench) -> dict[str, Found]:
        raise KeyboardInterrupt

    chosen = study("figure3")
    stopped = replace(chosen, parts=(chosen.parts[0], replace(chosen.parts[1], measure=interrupted)))
    result = run_study(prepare_study(stopped, Options(out=tmp_path)))
    assert not result.complete
    assert [line.label for line, _ in result.rows] == ["vanilla"]
    assert not list(tmp_path.glob("*.json"))


def test_progress_goes_from_part_to_part(tmp_path: Path) -> None:
    chosen, _ = _counted(study("figure3"))
    console = Console(force_terminal=True, width=120, record=True, file=StringIO())
    with watching_study(console, chosen) as watch:
        run_study(prepare_study(chosen, Options(out=tmp_path)), watch)
        bars = {task.description: task for task in watch.bar.tasks}  # type: ignore[attr-defined]
    assert bars["reproducing"].completed == 1
    assert bars["this part"].completed == 1


def test_shares_of_figure_4_are_fixed() -> None:
    mixing = FixedShares(alpha=0.3).draw(9, 0, keys=SeededKeys(seeded(0, "keys")))
    torch.testing.assert_close(mixing.coefficients, torch.tensor([0.7, 0.3], dtype=torch.float64).expand(9, 2))
    assert bool((mixing.indices[:, 0] != mixing.indices[:, 1]).all())
    assert mixing.signed


def test_full_scale_has_the_papers_training_and_sizes() -> None:
    work, size = WORK["full"], SIZES["full"]
    training = work.recipe.training(50_000)
    assert (training.batch_size, training.learning_rate, training.steps) == (128, 0.1, 200 * 390)
    assert [work.recipe.schedule(epoch / 200) for epoch in (0, 99, 100, 149, 150)] == pytest.approx(
        [1, 1, 0.1, 0.1, 0.01]
    )
    assert work.runs == 5
    assert (size.private, size.copies, size.queries, size.public) == (50, 50, 50, 10_000)


def test_at_cpu_scale_networks_train_for_a_minute_of_the_processor() -> None:
    assert set(WORK) == set(SIZES) == set(SCALES)
    assert SIZES["cpu"].network.clock == "cpu"
    assert SIZES["cpu"].network.seconds == 60
    assert WORK["cpu"].recipe.training(5000).steps * WORK["cpu"].recipe.batch_size <= 40_000


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (Options(images=3), "neither --images nor --seconds"),
        (Options(seconds=3.0), "neither --images nor --seconds"),
        (Options(scale="cpu"), "--data-root"),
    ],
)
def test_what_a_study_cannot_do_is_refused_before_anything_runs(options: Options, words: str) -> None:
    with pytest.raises(InvalidCase, match=words):
        prepare_study(study("table2"), options)


def test_the_command_prints_one_object_and_writes_the_same_file(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with warnings.catch_warnings():
        # typer still imports names that click has deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        from leakgauge.cli import main
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "huang2020/table4", "--out", str(tmp_path), "--json"])
    assert not ended.value.code
    printed = json.loads(capfd.readouterr().out)
    assert printed == json.loads((tmp_path / "huang2020-table4-smoke.json").read_text())
    with pytest.raises(SystemExit):
        main(["reproduce"])
    listed = capfd.readouterr().out
    assert "geiping2020/table1" in listed
    assert "huang2020/table4" in listed
