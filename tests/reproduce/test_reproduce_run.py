"""Running an experiment: smoke scale, exact recoveries beside nulls, resumption, files, refusals, the command line."""

from __future__ import annotations

import io
import json
import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from leakgauge.attacks.analytic import LinearLayer
from leakgauge.attacks.budget import Budget
from leakgauge.attacks.recipes import inverting_gradients
from leakgauge.audit.executors import in_process
from leakgauge.data import Cifar10
from leakgauge.errors import InvalidCase, InvalidFile
from leakgauge.models import MLP
from leakgauge.reproduce import EXPERIMENTS, Experiment, Options, Published, Row, Setting, reproduce, victims
from leakgauge.reproduce.registry import STUDIES
from leakgauge.reproduce.result import Measured
from leakgauge.reproduce.run import prepare
from leakgauge.reproduce.show import brief, table, watching, write_sheet
from leakgauge.training import Training

with warnings.catch_warnings():
    # typer still imports names that click has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from leakgauge.cli import main

EXACT = Setting(MLP(hidden=(16,)), LinearLayer(), updates=3, nulls=2)
TRAINED = replace(EXACT, training=Training(steps=3), updates=2, nulls=1)
BLIND = replace(EXACT, attack=inverting_gradients(steps=2), updates=1, nulls=1)


def experiment(*settings: Setting, best: int = 0) -> Experiment:
    rows = tuple(
        Row(f"row {number}", Published(20.0, 1.0, "Table 0"), lambda scale, setting=setting: setting)
        for number, setting in enumerate(settings)
    )
    return Experiment("here2020/table0", "A table", Cifar10(), rows, assumptions=("None.",), best=best)


@pytest.fixture(autouse=True)
def _no_weights_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEAKGAUGE_WEIGHTS", raising=False)


@pytest.fixture
def options(tmp_path: Path) -> Options:
    return Options(out=tmp_path / "out")


@pytest.fixture
def no_attacks(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Callable[[], None]]:
    """``no_attacks(n)``: Ctrl-C after n more attacks; what it returns lets go."""
    original = in_process.run_case

    def limit(left: int) -> Callable[[], None]:
        def limited(*arguments: Any) -> Any:
            nonlocal left
            if left == 0:
                raise KeyboardInterrupt
            left -= 1
            return original(*arguments)

        monkeypatch.setattr(in_process, "run_case", limited)
        return lambda: monkeypatch.setattr(in_process, "run_case", original)

    return limit


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(part) for key, part in value.items() if "seconds" not in key}
    return [without_times(part) for part in value] if isinstance(value, list) else value


def write_cifar10(root: Path, *, train: bool, count: int = 30) -> None:
    generator = np.random.default_rng(0)
    for name in ("test_batch.bin", *(["data_batch_1.bin"] if train else [])):
        labels = (np.arange(count, dtype=np.uint8) % 10)[:, None]
        pixels = generator.integers(0, 256, (count, 3072), np.uint8)
        root.mkdir(exist_ok=True)
        (root / name).write_bytes(np.hstack([labels, pixels]).tobytes())


LONG = {
    "geiping2020/table1": [0, 6, 9, 11],
    "geiping2020/table2": [1, 3, 5, 9],
    "geiping2020/figure5": [0, 3, 6, 8],
    "geiping2020/figure4": [0, 4],
    "cinet/table5": [1, 4, 7],
    "cinet/figure8": [1, 2, 3, 4, 5],
    "ma2023/table4": [0, 15, 16],
    "ma2023/methods": range(0, 84, 15),
    "huang2021/table5": [0, 25, 49, 85],
    "huang2021/figure4": [0, 6],
    "huang2021/figure5": [0, 4],
    "huang2021/mnist": [0, 15, 27],
    "cinet/long": [0, 3],
    "cinet/gias": [0, 1, 2, 11],
    "cinet/comparison": range(0, 120, 16),
}
"""Of long tables some rows, so chosen that each kind of attack and of victim is among them."""


def a_few(experiment: Experiment) -> Experiment:
    chosen = LONG.get(experiment.name)
    return experiment if chosen is None else replace(experiment, rows=tuple(experiment.rows[row] for row in chosen))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_runs_at_smoke_scale_on_embedded_photographs(name: str, options: Options) -> None:
    chosen = a_few(EXPERIMENTS[name])
    result = reproduce(chosen, options)
    payload = json.loads((options.out / f"{name.replace('/', '-')}-smoke.json").read_text())
    assert payload == json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert payload["command"] == f"leakgauge reproduce {name} --scale smoke --seed 0"
    assert (payload["scale"], payload["seed"], payload["dataset"], payload["complete"]) == ("smoke", 0, "photos", True)
    assert "photographs" in payload["notes"][0]
    assert {"version", "environment", "title", "threat_model", "metric"} <= payload.keys()
    assert [row["label"] for row in payload["rows"]] == [row.label for row in chosen.rows]
    check = _of_images if "psnr" in chosen.metrics else _of_labels
    for row, planned in zip(payload["rows"], chosen.rows, strict=True):
        assert (row["published"] is None) == (planned.published is None)
        assert row["also_published"].keys() == planned.also.keys()
        assert row["seconds_per_update"] > 0
        assert (row["training"] is None) == (planned.at("smoke").training is None)
        assert {"labels", "BatchNorm statistics"} <= {fact["name"] for fact in row["assumptions"]}
        check(row)


def _of_images(row: dict[str, Any]) -> None:
    ours, null = row["ours"]["psnr"], row["null"]["psnr"]
    assert 5 < ours["mean"] < 20
    assert (ours["updates"], ours["images"], null["updates"]) == (1, row["batch_size"], 1)
    # Each leg of a relay makes one step at least, so that three legs make three.
    assert row["steps"] in ([2, 2], [3, 3])
    assert "steps=2" in row["attack"]
    assert len(row["updates"][0]["scores"]["psnr"]) == row["batch_size"]
    # Without its weights LPIPS is not measured, and nothing stands in for it.
    assert row["ours"].get("lpips_vgg", {"mean": None})["mean"] is None


def _of_labels(row: dict[str, Any]) -> None:
    scores = row["updates"][0]["scores"]
    assert scores.keys() == {"label_counts", "label_existence", "label_recall"}
    assert all(0 <= score <= 1 for score in scores.values())  # one number per batch, as its examples have no order
    assert row["ours"]["label_recall"]["images"] == row["batch_size"]
    assert "victims" not in row["updates"][0]
    assert row["ours"].keys() == row["null"].keys() == scores.keys()
    assert row["steps"] is None
    assert [fact["disclosed"] for fact in row["assumptions"] if fact["name"] == "labels"] == [False]


def test_an_exact_attack_recovers_the_first_test_images_and_its_null_does_not(options: Options) -> None:
    (row,) = reproduce(experiment(EXACT), options).rows
    images = victims.embedded().test.inputs
    assert row.victims == ((0,), (1,), (2,))
    for number, record in enumerate(row.records):
        torch.testing.assert_close(record.pictures.originals, images[number : number + 1])
        torch.testing.assert_close(record.pictures.reconstructions, record.pictures.originals, atol=1e-4, rtol=0)
    ours, null = row.measured("psnr"), row.null("psnr")
    assert ours.mean is not None
    assert null.mean is not None
    assert ours.mean > 60 > 25 > null.mean
    assert (ours.updates, null.updates) == (3, 2)
    # The nulls recover their own images, which come right after the victims.
    for number, record in enumerate(row.nulls, start=3):
        torch.testing.assert_close(record.pictures.reconstructions, images[number : number + 1], atol=1e-4, rtol=0)
    assert row.steps is None


def test_images_and_seconds_replace_those_of_the_scale(options: Options) -> None:
    plan = prepare(experiment(replace(BLIND, batch_size=2)), replace(options, images=5, seconds=0.5))
    (setting,) = plan.settings.values()
    assert (setting.updates, setting.attack.budget) == (3, Budget(seconds=0.5, clock="cpu"))  # type: ignore[attr-defined]
    assert len(plan.labels) == 3 + 1


def test_a_finished_experiment_is_read_not_run(
    options: Options, no_attacks: Callable[[int], Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = experiment(EXACT, TRAINED)
    first = reproduce(chosen, options)
    no_attacks(0)
    # A second training would be a TypeError.
    monkeypatch.setattr("leakgauge.training.models.train", None)
    again = reproduce(chosen, options)
    assert again.to_dict() == first.to_dict()


def test_an_interrupted_experiment_keeps_its_rows_and_resumes_to_the_same_result(
    options: Options, tmp_path: Path, no_attacks: Callable[[int], Callable[[], None]]
) -> None:
    chosen = experiment(EXACT, BLIND, TRAINED)
    release = no_attacks(6)  # the five cases of the first row, and one of the second
    stopped = reproduce(chosen, options)
    assert (stopped.complete, len(stopped.rows)) == (False, 1)
    assert not list(options.out.glob("*.json"))
    release()
    no_attacks(1 + 3)
    done = reproduce(chosen, options)
    fresh = reproduce(chosen, replace(options, out=tmp_path / "fresh")) if release() is None else None
    assert fresh is not None
    assert done.complete
    assert without_times(done.to_dict()) == without_times(fresh.to_dict())


def test_an_experiment_stopped_before_its_first_row_says_so(
    options: Options, no_attacks: Callable[[int], Callable[[], None]]
) -> None:
    no_attacks(2)
    with pytest.raises(KeyboardInterrupt):
        reproduce(experiment(EXACT), options)


def test_rows_share_trained_weights_and_seeds_do_not(options: Options) -> None:
    reproduce(experiment(TRAINED, replace(TRAINED, updates=1)), options)
    assert len(list((options.out / "models").iterdir())) == 1
    result = reproduce(experiment(TRAINED), replace(options, seed=1))
    assert len(list((options.out / "models").iterdir())) == 2
    assert 0 <= (result.rows[0].accuracy or 0) <= 1


def test_damaged_weights_are_refused_and_named(options: Options) -> None:
    reproduce(experiment(TRAINED), options)
    (path,) = (options.out / "models").iterdir()
    path.write_bytes(b"no weights")
    with pytest.raises(InvalidFile, match=f"{path.name} are damaged; delete the file"):
        reproduce(experiment(TRAINED), options)


def test_every_scale_and_option_has_a_file_of_its_own_and_a_command_that_reruns_it() -> None:
    chosen = EXPERIMENTS["geiping2020/table1"]
    root = Path("/secret/place")
    several = [
        Options(),
        Options("cpu", root),
        Options("cpu", root, images=2),
        Options("cpu", root, seconds=2),
        Options("cpu", root, images=2, seed=123456789),
        Options("full", root),
    ]
    files = [one.file(chosen).name for one in several]
    assert files[1] == "geiping2020-table1-cpu.json"
    assert files[4] == "geiping2020-table1-cpu-images2-seed123456789.json"
    assert len(set(files)) == len(files)
    command = several[4].command(chosen)
    assert command == ("leakgauge reproduce geiping2020/table1 --scale cpu --data-root DIR --images 2 --seed 123456789")


def test_no_path_of_the_machine_enters_the_file(options: Options, tmp_path: Path) -> None:
    write_cifar10(tmp_path / "data", train=True)
    result = reproduce(experiment(EXACT, TRAINED), replace(options, data_root=tmp_path / "data"))
    (path,) = options.out.glob("*.json")
    assert str(tmp_path) not in path.read_text()
    assert result.dataset == "cifar10"
    assert not any("photographs" in note for note in result.notes)


@pytest.mark.parametrize("scale", ["cpu", "full"])
def test_beyond_smoke_scale_the_data_is_needed(scale: Any, options: Options) -> None:
    with pytest.raises(InvalidCase, match=r"table0 at scale '\w+' needs the data of Cifar10\(\); name its folder with"):
        reproduce(experiment(EXACT), replace(options, scale=scale))
    assert not options.out.exists()


def test_a_trained_row_needs_training_images(options: Options, tmp_path: Path) -> None:
    write_cifar10(tmp_path, train=False)
    assert reproduce(experiment(EXACT), replace(options, data_root=tmp_path)).complete
    with pytest.raises(InvalidCase, match="holds only the test images of 'cifar10'; add the training files"):
        reproduce(experiment(TRAINED), replace(options, data_root=tmp_path))


def test_too_many_images_are_refused_before_anything_runs(options: Options) -> None:
    with pytest.raises(InvalidCase, match="test images are too few"):
        reproduce(experiment(EXACT), replace(options, images=10_000))
    assert not options.out.exists()


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"scale": "smok"}, "There is no scale 'smok'; did you mean 'smoke'?"),
        ({"images": 0}, "at least one image, got 0; raise --images"),
        ({"seconds": -1.0}, "seconds > 0"),
        ({"device": "tpu"}, "There is no device 'tpu'; choose cpu or cuda"),
    ],
)
def test_wrong_options_are_refused_in_one_sentence(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidCase) as refused:
        Options(**wrong)
    assert sentence in str(refused.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a CUDA device")
def test_a_missing_cuda_device_is_named() -> None:
    with pytest.raises(InvalidCase, match="no CUDA device; use --device cpu"):
        Options(device="cuda")


def test_the_mean_is_over_images_and_the_spread_over_updates() -> None:
    scores = [[10.0, 30.0], [20.0, 40.0]]
    measured = Measured.of(scores, best=3)
    assert (measured.mean, measured.updates, measured.images, measured.best) == (25.0, 2, 4, 30.0)
    assert measured.deviation == pytest.approx(math.sqrt(50))
    assert measured.standard_error == pytest.approx(5.0)


def test_what_was_not_measured_is_none_and_not_zero() -> None:
    assert Measured.of([[math.nan]], best=2) == Measured(None, None, None, 0, 0, None)
    assert Measured.of([[12.0]]) == Measured(12.0, None, None, 1, 1)


def test_the_best_images_are_given_beside_all_of_them_and_beside_the_nulls_best(options: Options) -> None:
    result = reproduce(experiment(replace(BLIND, batch_size=4), best=2), options)
    (row,) = result.to_dict()["rows"]
    for side in ("ours", "null"):
        records = row["updates"] if side == "ours" else row["nulls"]
        scores = sorted(records[0]["scores"]["psnr"], reverse=True)
        assert row[side]["psnr"]["best"] == pytest.approx(sum(scores[:2]) / 2)
        assert row[side]["psnr"]["mean"] == pytest.approx(sum(scores) / 4)
    assert write_sheet(result, options.out / "sheet.png") is not None
    with Image.open(options.out / "sheet.png") as sheet:
        assert sheet.size == (2 * 17, 2 * 16 + 2)


def test_the_sheet_shows_originals_above_what_came_back(options: Options) -> None:
    result = reproduce(experiment(EXACT), options)
    write_sheet(result, options.out / "sheet.png")
    with Image.open(options.out / "sheet.png") as sheet:
        pixels = np.asarray(sheet)
    assert pixels.shape == (2 * 16 + 2, 3 * 17, 3)
    expected = (victims.embedded().test.inputs[0] * 255).round().permute(1, 2, 0).numpy()
    assert np.array_equal(pixels[:16, :16], expected)
    assert np.abs(pixels[16:32, :16].astype(int) - expected).max() <= 1


def test_a_row_without_reconstructions_is_not_measured_and_not_drawn(options: Options) -> None:
    # The linear layer of a network that starts with a convolution gives no image.
    from leakgauge.models import Compact

    result = reproduce(experiment(replace(EXACT, model=Compact(width=2), updates=1)), options)
    assert result.rows[0].measured("psnr").mean is None
    assert result.to_dict()["rows"][0]["updates"][0]["scores"]["psnr"] == [None]
    assert write_sheet(result, options.out / "sheet.png") is None
    assert "not\nmeasured" in _text(result)


def _text(result: Any) -> str:
    grid = table(result)
    return "\n".join(str(cell) for column in grid.columns for cell in column.cells) + str(grid.caption)


def test_the_table_shows_published_ours_null_and_what_was_trained(options: Options) -> None:
    text = _text(reproduce(experiment(EXACT, TRAINED), options))
    for words in ("20.00 ± 1.00", "row 0", "trained 3 steps, accuracy", "MLP(hidden=(16,))", "- None."):
        assert words in text


def test_a_configuration_is_shown_without_its_defaults() -> None:
    assert brief(MLP()) == "MLP()"


def test_progress_counts_every_case_of_every_row(options: Options) -> None:
    from rich.console import Console

    plan = prepare(experiment(EXACT, BLIND), options)
    seen: list[int] = []
    with watching(Console(file=io.StringIO(), force_terminal=True), plan.labels) as watch:
        original = watch.attacking
        watch.attacking = lambda number, case: (seen.append(number), original(number, case))[1]  # type: ignore[method-assign]
        reproduce(plan, watch=watch)
    assert seen == list(range(len(plan.labels))) == list(range(5 + 2))


# The command line


def call(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    capfd.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    captured = capfd.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


def test_the_command_lists_experiments(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capfd, "reproduce", "--json")
    assert code == 0
    assert [row["experiment"] for row in json.loads(out)["rows"]] == [*EXPERIMENTS, *STUDIES]
    assert "geiping2020/figure6" in call(capfd, "reproduce")[1]


def test_the_command_prints_a_table_and_with_json_one_object(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    words = ("reproduce", "geiping2020/figure6", "--seed", 3, "--out", tmp_path)
    code, out, _ = call(capfd, *words)
    assert code == 0
    assert "not given" in out
    assert "best 5" in out
    assert (tmp_path / "geiping2020-figure6-smoke-seed3.png").is_file()
    code, out, err = call(capfd, *words, "--json")
    assert (code, err, out.count("\n")) == (0, "", 1)
    assert json.loads(out) == json.loads((tmp_path / "geiping2020-figure6-smoke-seed3.json").read_text())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("geiping2020/table9",), "There is no experiment 'geiping2020/table9'; did you mean"),
        (("geiping2020/table1", "--scale", "cpu"), "needs the data of Cifar10()"),
        (("geiping2020/table1", "--scale", "gpu"), "There is no scale 'gpu'"),
        (("geiping2020/table1", "--data-root", "nowhere"), "nowhere is not a folder"),
    ],
)
def test_the_command_refuses_in_one_sentence(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    code, out, err = call(capfd, "reproduce", *words, "--out", tmp_path / "out")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert sentence in err
    assert not (tmp_path / "out").exists()


def test_the_command_can_be_interrupted_and_resumed(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, no_attacks: Callable[[int], Callable[[], None]]
) -> None:
    release = no_attacks(3)
    code, _, err = call(capfd, "reproduce", "geiping2020/table3", "--out", tmp_path)
    assert code == 130
    assert "Run the same command to resume" in err
    release()
    no_attacks(5)
    assert call(capfd, "reproduce", "geiping2020/table3", "--out", tmp_path)[0] == 0
