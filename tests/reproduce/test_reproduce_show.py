"""A table for people: published numbers beside ours and the null, pictures in pairs, a bar, and the command line."""

from __future__ import annotations

import io
import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from reproduce_support import Counting, table_of
from rich.console import Console

from leakgauge.attacks.analytic import LinearLayer
from leakgauge.attacks.recipes import inverting_gradients
from leakgauge.audit.executors import in_process
from leakgauge.models import MLP, Compact
from leakgauge.report.progress import work_progress
from leakgauge.reproduce import TABLES, Options, Table, prepare, reproduce, run
from leakgauge.reproduce.measures.updates import Setting, brief
from leakgauge.reproduce.show import grid, write_sheet
from leakgauge.training import Training

with warnings.catch_warnings():
    # typer still imports names that click has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from leakgauge.cli import main

EXACT = Setting(MLP(hidden=(16,)), LinearLayer(), updates=3, nulls=2)


def images_of(*settings: Setting, **more: Any) -> Table:
    return table_of(*settings, **{"metrics": ("psnr", "ssim"), "null": None} | more)


@pytest.fixture
def options(tmp_path: Path) -> Options:
    return Options(out=tmp_path / "out")


def text_of(result: Any) -> str:
    drawn = grid(result)
    return "\n".join(str(cell) for column in drawn.columns for cell in column.cells) + str(drawn.caption)


def test_the_table_shows_published_ours_null_and_what_was_trained(options: Options) -> None:
    trained = replace(EXACT, training=Training(steps=3), updates=2, nulls=1)
    text = text_of(reproduce(images_of(EXACT, trained), options))
    for words in ("20.00 ± 1.000", "row 0", "trained 3 steps, accuracy", "MLP(hidden=(16,))", "- None."):
        assert words in text


def test_a_row_at_its_null_says_so_where_people_and_machines_look(options: Options) -> None:
    blind = replace(EXACT, attack=inverting_gradients(steps=1), updates=2, nulls=2)
    result = reproduce(images_of(EXACT, blind), options)
    found, missed = result.to_dict()["rows"]
    assert [row["standing"]["psnr"] for row in (found, missed)] == ["reached", "not reached"]
    assert f"not reached\n({missed['ours']['psnr']['mean']:.2f} ±" in text_of(result)


def test_what_differs_from_the_paper_stands_in_the_row_or_once_below_if_it_is_the_same_in_all(options: Options) -> None:
    table = images_of(EXACT, replace(EXACT, mode="train"))
    first, second = (replace(row, at=_narrower(row.at)) for row in table.rows)
    alone = reproduce(replace(table, rows=(first,)), options)
    assert alone.to_dict()["rows"][0]["differs"] == ["model.hidden[0] 8 for 16"]
    assert "other than in the paper: model.hidden[0] 8 for 16" in text_of(alone)
    together = text_of(reproduce(replace(table, rows=(first, second)), options))
    assert together.count("model.hidden[0] 8 for 16") == 1
    assert "- In every row other than in the paper: model.hidden[0] 8 for 16." in together


def _narrower(at: Any) -> Any:
    return lambda scale: replace(at(scale), model=MLP(hidden=(16 if scale == "full" else 8,)))


def test_what_attacks_no_update_stands_in_the_same_table(options: Options) -> None:
    result = reproduce(table_of(Counting(3), metrics=("count", "time"), shown=2), options)
    (row,) = zip(*(column.cells for column in grid(result).columns), strict=True)
    assert [str(cell) for cell in row] == ["row 0", "3.00, 20.00 ± 1.000, 0.000", "3.00, -, -", "1", "0.001"]
    assert "Null: nothing." in text_of(result)


def test_a_configuration_is_shown_without_its_defaults() -> None:
    assert brief(MLP()) == "MLP()"


def test_the_best_images_are_given_as_printed_of_them_and_beside_the_nulls_best(options: Options) -> None:
    blind = replace(EXACT, attack=inverting_gradients(steps=2), updates=1, nulls=1, batch_size=4)
    result = reproduce(images_of(blind, best=2), options)
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
    result = reproduce(images_of(EXACT), options)
    write_sheet(result, options.out / "sheet.png")
    with Image.open(options.out / "sheet.png") as sheet:
        pixels = np.asarray(sheet)
    assert pixels.shape == (2 * 16 + 2, 3 * 17, 3)
    expected = (run.embedded().test.inputs[0] * 255).round().permute(1, 2, 0).numpy()
    assert np.array_equal(pixels[:16, :16], expected)
    assert np.abs(pixels[16:32, :16].astype(int) - expected).max() <= 1


def test_rows_that_were_not_measured_again_keep_their_pictures(options: Options) -> None:
    sheet, table = options.out / "sheet.png", images_of(EXACT, replace(EXACT, updates=1))
    write_sheet(reproduce(table, options), sheet)
    whole = np.asarray(Image.open(sheet))
    for row in table.rows:
        write_sheet(reproduce(table, replace(options, rows=(row.label,))), sheet)
        assert np.array_equal(np.asarray(Image.open(sheet)), whole)
    good = sheet.read_bytes()
    for damaged in (b"no picture", good[: len(good) // 2], good.replace(b"IDAT", b"IDAt", 1)):
        sheet.write_bytes(damaged)  # then there is nothing to keep
        write_sheet(reproduce(table, replace(options, rows=(table.rows[1].label,))), sheet)
        assert len(np.asarray(Image.open(sheet))) == len(whole) / 2


def test_ten_pairs_at_most_are_kept_of_a_row(options: Options) -> None:
    for _ in range(2):  # measured, then read again
        result = reproduce(table_of(Counting(1)), options)
        write_sheet(result, options.out / "sheet.png")
        with Image.open(options.out / "sheet.png") as sheet:
            assert sheet.size == (10 * 9, 2 * 8 + 2)


def test_a_row_without_reconstructions_is_not_measured_and_not_drawn(options: Options) -> None:
    # The linear layer of a network that starts with a convolution gives no image.
    result = reproduce(images_of(replace(EXACT, model=Compact(width=2), updates=1)), options)
    assert result.rows[0].found.ours["psnr"].mean is None
    assert result.to_dict()["rows"][0]["updates"][0]["scores"]["psnr"] == [None]
    assert write_sheet(result, options.out / "sheet.png") is None
    assert "not measured" in text_of(result)


def test_the_bar_goes_from_piece_to_piece(options: Options) -> None:
    plan = prepare(table_of(Counting(1), Counting(2)), options)
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with work_progress(console, plan.pieces) as watch:
        reproduce(plan, watch=watch)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "done" in shown
    assert "100%" in shown


# The command line


def call(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    capfd.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    captured = capfd.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


def test_the_command_lists_tables(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capfd, "reproduce", "--json")
    assert code == 0
    assert [row["experiment"] for row in json.loads(out)["rows"]] == [*TABLES]
    assert "geiping2020/figure6" in call(capfd, "reproduce")[1]


@pytest.mark.slow
def test_the_command_prints_a_table_and_with_json_one_object(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    words = ("reproduce", "geiping2020/figure6", "--seed", 3, "--out", tmp_path)
    code, out, _ = call(capfd, *words)
    assert code == 0
    assert "not as text" in out
    assert "best 5" in out
    assert (tmp_path / "geiping2020-figure6-smoke-seed3.png").is_file()
    code, out, err = call(capfd, *words, "--json")
    assert (code, err, out.count("\n")) == (0, "", 1)
    assert json.loads(out) == json.loads((tmp_path / "geiping2020-figure6-smoke-seed3.json").read_text())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("geiping2020/table9",), "There is no table 'geiping2020/table9'; did you mean"),
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
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, done = in_process.run_safely, 0

    def stop_at_the_third(*arguments: Any) -> Any:
        nonlocal done
        if done == 3:
            raise KeyboardInterrupt
        done += 1
        return original(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(in_process, "run_safely", stop_at_the_third)
        code, _, err = call(capfd, "reproduce", "geiping2020/table3", "--out", tmp_path)
    assert code == 130
    assert "Run the same command to resume" in err
    assert call(capfd, "reproduce", "geiping2020/table3", "--out", tmp_path)[0] == 0
