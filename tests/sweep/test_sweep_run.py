"""A sweep gives what its audits give, refuses a cell without stopping, resumes, and is told about from elsewhere."""

from __future__ import annotations

import gc
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from sweep_support import GRID

from leakgauge.audit.execute import execute
from leakgauge.audit.plan import prepare
from leakgauge.audit.record import Record
from leakgauge.audit.store import FolderStore
from leakgauge.cli import main
from leakgauge.cli.sweep import write_parquet
from leakgauge.errors import InvalidCase
from leakgauge.sweep import SweepProgress, compare_stores, dry_run, read_grid, result_rows, run_sweep, status_of


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("sweep") / "out"
    ended = run_sweep(read_grid(GRID), folder)
    assert (ended.complete, ended.cells, ended.refused, ended.failed) == (True, 8, 4, 0)
    return folder


def test_a_cell_has_the_scores_of_its_audit_and_an_impossible_one_its_reason(swept: Path) -> None:
    rows = list(result_rows(FolderStore.open(swept)))
    refused = [row for row in rows if row["outcome"] == "refused"]
    assert len(refused) == 4
    assert all("100000" in row["reason"] and row["batch_size"] == 100_000 for row in refused)
    (cell,) = (one for one in read_grid(GRID).cells() if tuple(one.place.values()) == (3, 1, 1))
    alone = {(row.defence, row.attack): row for row in execute(prepare(cell.plan()), None).rows}
    own = [row for row in rows if (row["train_steps"], row["batch_size"], row["seed"]) == (3, 1, 1)]
    assert len(own) == len(alone) == 4
    for row in own:
        expected = alone[row["defence"], row["attack"]]
        assert row["psnr"] == expected.measurements["psnr"].attack.mean
        assert row["psnr_null"] == expected.measurements["psnr"].null.mean
        assert (row["verdict"], row["lpips_alex"]) == (expected.verdict.value, None)
        assert "known to the attacker" in row["attacker_knows"]


def test_a_second_run_computes_nothing_and_begins_nothing(swept: Path) -> None:
    begun = len(FolderStore.open(swept).runs())
    news: list[SweepProgress] = []
    ended = run_sweep(read_grid(GRID), swept, told=news.append)
    assert ended.done == ended.cases == 32
    assert not any(one.doing.startswith(("none", "pruning", "training")) for one in news)
    assert len(FolderStore.open(swept).runs()) == begun
    assert len(list((swept / "models").iterdir())) == 2


@pytest.mark.slow
def test_a_driver_holds_few_records_however_many_cases_it_ran(tmp_path: Path) -> None:
    alive: list[int] = []

    def told(news: SweepProgress) -> None:
        if news.done in (20, 60):
            alive.append(sum(type(one) is Record for one in gc.get_objects()))

    gc.collect()
    words = {
        "dataset": "digits",
        "model": "mlp:hidden=[4]",
        "train_steps": 0,
        "rounds": 10,
        "nulls": 1,
        "seeds": [0, 1, 2],
    }
    words |= {"distractors": 5, "attacks": ["linear_layer"], "defences": ["none"], "batch_size": 1}
    assert run_sweep(read_grid(words), tmp_path / "out", told=told).done == 60
    assert max(alive) - min(alive) <= 2


def test_status_counts_what_is_done_and_sees_the_driver(swept: Path) -> None:
    store = FolderStore.open(swept)
    found = status_of(store)
    assert (found.complete, found.alive, found.cells, found.begun, found.refused) == (True, False, 8, 4, 4)
    assert (found.cases, found.done, found.failed, found.running) == (32, 32, 0, ())
    with store.driven():
        store.tell({"process": os.getpid(), "machine": "here", "running": [{"since": 0.0, "case": 1}]})
        seen = status_of(FolderStore.open(swept))
    assert (seen.alive, seen.process, seen.running[0]["case"]) == (True, os.getpid(), 1)


def test_a_dry_run_names_what_is_impossible_and_runs_nothing(tmp_path: Path) -> None:
    grid = read_grid({**GRID, "attacks": ["linear_layer", "patch_embedding"], "train_steps": 3, "seeds": 0})
    found = dry_run(grid)
    assert (found.cells, found.cases, found.trainings) == (2, 8, 1)
    whole, *attacks = sorted(found.impossible, key=lambda one: one.attack or "")
    assert (whole.attack, whole.cases) == (None, 0)
    assert {(one.attack, one.defence, one.cases) for one in attacks} == {
        ("patch_embedding", "none", 2),
        ("patch_embedding", "pruning:keep=0.5", 2),
    }
    assert found.seconds > 0


def test_a_dry_run_times_each_training_once_and_adds_it_to_the_cases_that_run_side_by_side() -> None:
    words = {"dataset": "digits", "model": "mlp:hidden=[8]", "attacks": ["linear_layer"], "defences": ["none"]}
    few, many = (dry_run(read_grid({**words, "train_steps": steps, "seeds": [0, 1]})) for steps in (10, 10_000))
    assert (few.trainings, many.trainings) == (2, 2)
    # A step is timed anew each time, on a machine that may be busy: a hundred times as many count ten times at least.
    assert many.training_seconds > 10 * few.training_seconds > 0
    assert many.wall(4) == many.training_seconds + many.seconds / 4
    assert many.seconds < many.training_seconds
    # A model of one's own is attacked as it comes.
    assert dry_run(read_grid({**words, "model": "sweep_support:own_model"})).trainings == 0


def run_main(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(words)
    return int(ended.value.code or 0)


def test_results_are_the_same_rows_in_every_format(swept: Path, tmp_path: Path, capsys: Any) -> None:
    import csv

    rows = list(result_rows(FolderStore.open(swept)))
    assert run_main("results", str(swept), "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["rows"] == rows
    assert run_main("results", str(swept), "--format", "csv", "--to", str(tmp_path / "rows.csv")) == 0
    with (tmp_path / "rows.csv").open(newline="") as stream:
        read = list(csv.DictReader(stream))
    assert [row["psnr"] for row in read] == ["" if row.get("psnr") is None else str(row["psnr"]) for row in rows]
    assert run_main("results", str(swept)) == 0
    shown = capsys.readouterr().out
    assert "refused: " in shown
    # Labels were given to the attacker: that none was restored is no score.
    assert "label_recall" not in shown
    assert all(row["label_recall"] is None for row in rows if "label_recall" in row)
    assert run_main("results", str(swept), "--format", "parquet") == 2
    assert "--to results.parquet" in capsys.readouterr().err
    assert run_main("results", str(swept), "--format", "xml") == 2


def test_a_parquet_file_gives_every_row_back_with_its_types(swept: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="comes with the extra [parquet]")
    rows = list(result_rows(FolderStore.open(swept)))
    assert run_main("results", str(swept), "--format", "parquet", "--to", str(tmp_path / "rows.parquet")) == 0
    read = parquet.read_table(tmp_path / "rows.parquet").to_pylist()
    columns = dict.fromkeys(name for row in rows for name in row)
    assert read == [{name: row.get(name) for name in columns} for row in rows]
    assert [type(row["psnr"]) for row in read] == [type(row.get("psnr")) for row in rows]
    assert not list(tmp_path.glob(".*"))


def test_an_axis_of_words_and_numbers_is_a_column_of_parquet_too(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="comes with the extra [parquet]")
    write_parquet([{"axis": 1, "psnr": None}, {"axis": "a", "psnr": None}, {"axis": [1], "more": 2}], tmp_path / "x")
    read = parquet.read_table(tmp_path / "x").to_pylist()
    assert [row["axis"] for row in read] == ["1", '"a"', "[1]"]
    assert [(row["psnr"], row["more"]) for row in read] == [(None, None), (None, None), (None, 2)]


@pytest.mark.slow
def test_a_store_compared_with_itself_changed_nothing_and_one_that_leaks_more_fails(
    swept: Path, tmp_path: Path, capsys: Any
) -> None:
    store = FolderStore.open(swept)
    same = compare_stores(store, store)
    assert not any(one.worse for one in same)
    assert all(one.change == 0 for one in same if one.pairs)
    assert run_main("compare", str(swept), str(swept)) == 0
    plan = {"dataset": "digits", "model": "mlp:hidden=[8]", "train_steps": 0, "batch_size": 1, "rounds": 6}
    weak, strong = (
        {**plan, "attacks": ["quasi_newton"], "defences": ["none"], "steps": one, "distractors": 30} for one in (1, 40)
    )
    for name, values in (("weak", weak), ("strong", strong)):
        run_sweep(read_grid(values), tmp_path / name)
    capsys.readouterr()
    assert run_main("compare", str(tmp_path / "weak"), str(tmp_path / "strong"), "--json") == 1
    found = json.loads(capsys.readouterr().out)
    psnr = next(row for row in found["rows"] if row["metric"] == "psnr")
    assert psnr["worse"] is True
    assert 0 < psnr["low"] < psnr["change"] < psnr["high"]
    assert run_main("compare", str(tmp_path / "strong"), str(tmp_path / "weak")) == 0
    with pytest.raises(InvalidCase, match="no cell, defence and attack in common"):
        compare_stores(store, FolderStore.open(tmp_path / "weak"))
