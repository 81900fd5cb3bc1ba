"""Running a table: rows of both kinds, exact recoveries beside nulls, resumption, keys, files, refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest
import torch
from reproduce_support import Counting, table_of

from leakgauge.attacks.analytic import LinearLayer
from leakgauge.attacks.budget import Budget
from leakgauge.attacks.recipes import inverting_gradients
from leakgauge.audit.executors import in_process
from leakgauge.errors import InvalidCase, InvalidFile
from leakgauge.files import write_tensors
from leakgauge.models import MLP
from leakgauge.reproduce import TABLES, Options, Row, Table, prepare, reproduce, run
from leakgauge.reproduce import result as reproduce_result
from leakgauge.reproduce.measures.updates import Setting
from leakgauge.reproduce.run import embedded
from leakgauge.training import Pretrained, Training, model_for
from leakgauge.training import models as training_models

EXACT = Setting(MLP(hidden=(16,)), LinearLayer(), updates=3, nulls=2)
TRAINED = replace(EXACT, training=Training(steps=3), updates=2, nulls=1)
BLIND = replace(EXACT, attack=inverting_gradients(steps=2), updates=1, nulls=1)


def images_of(*settings: Setting, **more: Any) -> Table:
    return table_of(*settings, **{"metrics": ("psnr", "ssim"), "null": None} | more)


@pytest.fixture(autouse=True)
def _no_weights_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEAKGAUGE_WEIGHTS", raising=False)


@pytest.fixture
def options(tmp_path: Path) -> Options:
    return Options(out=tmp_path / "out")


@pytest.fixture
def no_attacks(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Callable[[], None]]:
    """``no_attacks(n)``: Ctrl-C after n more attacks; what it returns lets go."""
    original = in_process.run_safely

    def limit(left: int) -> Callable[[], None]:
        def limited(*arguments: Any) -> Any:
            nonlocal left
            if left == 0:
                raise KeyboardInterrupt
            left -= 1
            return original(*arguments)

        monkeypatch.setattr(in_process, "run_safely", limited)
        return lambda: monkeypatch.setattr(in_process, "run_safely", original)

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


KINDS = {
    "geiping2020/table1": [3],
    "geiping2020/table2": [1, 9],
    "geiping2020/figure6": [0],
    "cinet/table5": [1, 4],
    "cinet/comparison": [3],
    "ma2023/table4": [15],
    "ma2023/methods": [5, 30],
    "huang2021/table5": [0, 85],
    "huang2021/mnist": [27],
    "huang2020/table2": [0, 1, 3, 4, 7],
    "huang2020/figure7": [0, 12],
    "huang2020/figure8": [1, 9, 10],
    "huang2020/table4": [0, 6],
    "instahide/search": [3, 13, 24],
    "instahide/clustering": [0, 7],
}
"""A row of each kind of attack, victim and measure."""


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_a_row_of_each_kind_is_measured_at_smoke_scale_on_embedded_photographs(name: str, options: Options) -> None:
    chosen = replace(TABLES[name], rows=tuple(TABLES[name].rows[row] for row in KINDS[name]))
    result = reproduce(chosen, options)
    payload = json.loads((options.out / f"{name.replace('/', '-')}-smoke.json").read_text())
    assert payload == json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert payload["command"] == f"leakgauge reproduce {name} --scale smoke --seed 0"
    assert (payload["scale"], payload["seed"], payload["dataset"], payload["complete"]) == ("smoke", 0, "photos", True)
    assert "photographs" in payload["notes"][0]
    assert {"version", "environment", "fingerprint", "title", "threat_model"} <= payload.keys()
    assert [row["label"] for row in payload["rows"]] == [row.label for row in chosen.rows]
    for row, planned in zip(payload["rows"], chosen.rows, strict=True):
        assert (row["published"] is None) == (planned.published is None)
        assert row["also_published"].keys() == planned.also.keys()
        assert row["ours"].keys() == row["null"].keys()
        assert row["assumptions"] or "setting" in row
        check = _of_measure if "setting" in row else _of_images if "psnr" in chosen.metrics else _of_labels
        check(row, payload["metric"])


def _of_measure(row: dict[str, Any], metric: str) -> None:
    assert row["ours"][metric]["mean"] is not None
    assert row["null"][metric]["mean"] is not None
    assert row["ours"][metric]["images"] >= 1
    assert row["seconds"] >= 0


def _of_images(row: dict[str, Any], metric: str) -> None:
    ours, null = row["ours"]["psnr"], row["null"]["psnr"]
    assert 5 < ours["mean"] < 20
    assert (ours["updates"], ours["images"], null["updates"]) == (1, row["batch_size"], 1)
    # Each leg of a relay makes one step at least, so that three legs make three.
    assert row["steps"] in ([2, 2], [3, 3])
    assert "steps=2" in row["attack"]
    assert len(row["updates"][0]["scores"]["psnr"]) == row["batch_size"]
    # Without its weights LPIPS is not measured, and nothing stands in for it.
    assert row["ours"].get("lpips_vgg", {"mean": None})["mean"] is None


def _of_labels(row: dict[str, Any], metric: str) -> None:
    scores = row["updates"][0]["scores"]
    assert scores.keys() == {"label_counts", "label_existence", "label_recall"} == row["ours"].keys()
    assert all(0 <= score <= 1 for score in scores.values())  # one number per batch, as its examples have no order
    assert row["ours"]["label_recall"]["images"] == row["batch_size"]
    assert "victims" not in row["updates"][0]
    assert row["steps"] is None


def test_an_exact_attack_recovers_the_first_test_images_and_its_null_does_not(options: Options) -> None:
    (row,) = reproduce(images_of(EXACT), options).rows
    images, found = run.embedded().test.inputs, row.found
    assert [update["victims"] for update in found.facts["updates"]] == [[0], [1], [2]]
    torch.testing.assert_close(found.originals, images[:3])
    torch.testing.assert_close(found.estimates, images[:3], atol=1e-4, rtol=0)
    ours, null = found.ours["psnr"], found.null["psnr"]
    assert ours.mean is not None
    assert null.mean is not None
    assert ours.mean > 60 > 25 > null.mean
    assert (ours.updates, null.updates) == (3, 2)
    assert found.facts["steps"] is None


def test_images_and_seconds_replace_those_of_the_scale(options: Options) -> None:
    plan = prepare(images_of(replace(BLIND, batch_size=2)), replace(options, images=5, seconds=0.5))
    (setting,) = plan.measures.values()
    assert isinstance(setting, Setting)
    assert (setting.updates, setting.attack.budget) == (3, Budget(seconds=0.5, clock="cpu"))  # type: ignore[attr-defined]
    assert len(plan.pieces) == 3 + 1


def test_a_finished_table_is_read_not_run(
    options: Options, no_attacks: Callable[[int], Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = Counting(3)
    chosen = images_of(EXACT, TRAINED, counting, metrics=("psnr", "ssim"))
    chosen = replace(chosen, rows=chosen.rows[:2])
    first, counted = reproduce(chosen, options), reproduce(table_of(counting), options)
    no_attacks(0)
    monkeypatch.setattr(training_models, "train", None)  # a second training would be a TypeError
    assert reproduce(chosen, options).to_dict() == first.to_dict()
    assert reproduce(table_of(counting), options).to_dict() == counted.to_dict()
    assert len(counting.asked) == 1


def test_a_changed_measurement_is_measured_again(options: Options) -> None:
    one, other = Counting(3), Counting(4)
    first, second = (reproduce(table_of(measure), options).rows[0] for measure in (one, other))
    assert [len(one.asked), len(other.asked)] == [1, 1]
    assert [row.found.ours["count"].mean for row in (first, second)] == [3.0, 4.0]
    assert first.to_dict("count")["fingerprint"] != second.to_dict("count")["fingerprint"]


def test_changed_code_and_other_options_are_measured_again(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    counting = Counting(3)
    reproduce(table_of(counting), options)
    reproduce(table_of(counting), replace(options, seed=1))
    monkeypatch.setattr(run, "measuring_code", lambda: "another code")
    reproduce(table_of(counting), options)
    assert len(counting.asked) == 3


def test_chosen_rows_are_measured_and_stand_beside_those_that_the_file_has(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    def written(table: Table, *texts: str) -> dict[str, Any]:
        reproduce(table, replace(options, rows=texts))
        result: dict[str, Any] = json.loads((options.out / "here2020-table0-smoke.json").read_text())
        return result

    first, second, third = Counting(3), Counting(4), Counting(5)
    table = table_of(first, second, third)
    part = written(table, "row 2", "row 0")
    assert ([row["label"] for row in part["rows"]], part["complete"]) == (["row 0", "row 2"], False)
    assert (len(first.asked), len(second.asked), len(third.asked)) == (1, 0, 1)
    code = part["fingerprint"]
    for module in (run, reproduce_result):
        monkeypatch.setattr(module, "measuring_code", lambda: "later code")
    whole = written(table, "row 1")
    assert [row["ours"]["count"]["mean"] for row in whole["rows"]] == [3.0, 4.0, 5.0]
    assert [row["code"] for row in whole["rows"]] == [code, "later code", code]
    assert (whole["complete"], whole["command"]) == (True, "leakgauge reproduce here2020/table0 --scale smoke --seed 0")
    changed = written(table_of(Counting(7), second, third), "row 1")
    assert [row["label"] for row in changed["rows"]] == ["row 1", "row 2"]  # the recipe of the other is no more


def test_the_whole_name_of_a_row_chooses_it_alone_and_a_part_all_that_hold_it(options: Options) -> None:
    rows = tuple(Row(label, None, lambda scale: Counting(3)) for label in ("a", "a: ours", "b"))
    table = replace(table_of(), rows=rows)
    for texts, labels in (("a",), ["a"]), (("ours", "b"), ["a: ours", "b"]), ((": ",), ["a: ours"]):
        assert list(prepare(table, replace(options, rows=texts)).measures) == labels


def test_rows_that_are_none_are_refused_and_a_damaged_file_is_named(options: Options) -> None:
    table = table_of(Counting(3), Counting(4))
    with pytest.raises(InvalidCase, match=r"No row of here2020/table0 is called anything like 'col'.*row 0, row 1"):
        prepare(table, replace(options, rows=("col",)))
    reproduce(table, options)
    (options.out / "here2020-table0-smoke.json").write_text('{"rows": [1]}')
    with pytest.raises(InvalidFile, match="delete it, and measure all rows"):
        prepare(table, replace(options, rows=("row 0",)))


def test_rows_that_name_their_part_are_measured_in_one_go(options: Options) -> None:
    shared, alone = Counting(3), Counting(3)
    rows = (
        Row("a", None, lambda scale: shared, of="first"),
        Row("b", None, lambda scale: shared, of="second"),
        Row("c", None, lambda scale: alone),
    )
    prepared = prepare(replace(table_of(), rows=rows), options)
    assert len(prepared.pieces) == 2
    result = reproduce(prepared)
    assert (shared.asked, alone.asked) == ([["first", "second"]], [["c"]])
    assert [row["label"] for row in result.to_dict()["rows"]] == ["a", "b", "c"]


def test_an_interrupted_table_keeps_its_rows_and_resumes_to_the_same_result(
    options: Options, tmp_path: Path, no_attacks: Callable[[int], Callable[[], None]]
) -> None:
    chosen = images_of(EXACT, BLIND, TRAINED)
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


def test_an_table_stopped_before_its_first_row_says_so(
    options: Options, no_attacks: Callable[[int], Callable[[], None]]
) -> None:
    no_attacks(2)
    with pytest.raises(KeyboardInterrupt):
        reproduce(images_of(EXACT), options)


def test_rows_share_trained_weights_and_seeds_do_not(options: Options) -> None:
    reproduce(images_of(TRAINED, replace(TRAINED, updates=1)), options)
    assert len(list((options.out / "models").iterdir())) == 1
    result = reproduce(images_of(TRAINED), replace(options, seed=1))
    assert len(list((options.out / "models").iterdir())) == 2
    assert 0 <= (result.rows[0].found.facts["training"]["accuracy"] or 0) <= 1


def test_every_scale_and_option_has_a_file_of_its_own_and_a_command_that_reruns_it() -> None:
    chosen = TABLES["geiping2020/table1"]
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
    result = reproduce(images_of(EXACT, TRAINED), replace(options, data_root=tmp_path / "data"))
    (path,) = options.out.glob("*.json")
    assert str(tmp_path) not in path.read_text()
    assert result.bench.data.name == "cifar10"
    assert not any("photographs" in note for note in result.notes)


@pytest.mark.parametrize("scale", ["cpu", "long", "full"])
def test_beyond_smoke_scale_the_data_is_needed(scale: Any, options: Options) -> None:
    with pytest.raises(InvalidCase, match=r"table0 at scale '\w+' needs the data of Cifar10\(\); name its folder with"):
        reproduce(images_of(EXACT), replace(options, scale=scale))
    assert not options.out.exists()


def test_a_trained_row_needs_training_images(options: Options, tmp_path: Path) -> None:
    write_cifar10(tmp_path, train=False)
    assert reproduce(images_of(EXACT), replace(options, data_root=tmp_path)).complete
    with pytest.raises(InvalidCase, match="holds only the test images of 'cifar10'; add the training files"):
        reproduce(images_of(TRAINED), replace(options, data_root=tmp_path))


def test_a_row_of_a_file_of_weights_is_measured_anew_when_the_file_changes(options: Options, tmp_path: Path) -> None:
    loaded = replace(EXACT, training=Pretrained("victim.safetensors", "a command"))
    with pytest.raises(InvalidCase, match=r"victim.safetensors are not in the folder of weights; make them with"):
        reproduce(images_of(loaded), replace(options, weights=tmp_path))
    names = []
    for seed in range(2):
        module = model_for(embedded(), EXACT.model, seed=seed)
        write_tensors(tmp_path / "victim.safetensors", module.state_dict(), {})
        (row,) = reproduce(images_of(loaded), replace(options, weights=tmp_path)).to_dict()["rows"]
        assert row["training"] == {"file": "victim.safetensors", "made_by": "a command", "accuracy": ANY}
        assert 0 <= row["training"]["accuracy"] <= 1
        names.append({path.name for path in (options.out / "rows").iterdir()})
    assert len(names[0]) == 1
    assert len(names[1]) == 2


def test_too_many_images_are_refused_before_anything_runs(options: Options) -> None:
    with pytest.raises(InvalidCase, match="test images are too few"):
        reproduce(images_of(EXACT), replace(options, images=10_000))
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


def test_what_attacks_no_update_takes_neither_images_nor_seconds(options: Options) -> None:
    for wrong in ({"images": 3}, {"seconds": 3.0}):
        with pytest.raises(InvalidCase, match="neither --images nor --seconds"):
            prepare(table_of(Counting(1)), replace(options, **wrong))


def test_the_embedded_photographs_come_class_by_class_in_turn() -> None:
    dataset = run.embedded()
    assert dataset.test.labels[:14].tolist() == [*range(7)] * 2
    assert len(dataset.train)


def test_watching_is_told_of_every_piece_in_its_order(options: Options) -> None:
    plan = prepare(images_of(TRAINED, BLIND), options)
    told: list[tuple[int, str]] = []

    def watch(index: int, title: str, slot: int = 0) -> Any:
        told.append((index, title))
        return lambda tick: None

    reproduce(plan, watch=watch)
    assert told[0] == (0, "training the model of row 0")
    attacks = [index for index, title in told if not title.startswith("training")]
    assert attacks == list(range(len(plan.pieces))) == list(range(3 + 2))


def test_a_scale_goes_without_the_rows_that_it_leaves_out(tmp_path: Path) -> None:
    table = table_of(Counting(1), Counting(2))
    fewer = replace(table, rows=(table.rows[0], replace(table.rows[1], left_out=frozenset({"smoke"}))))
    assert [row.row.label for row in reproduce(fewer, Options(out=tmp_path)).rows] == [table.rows[0].label]
    assert [row.label for row in fewer.at("full").rows] == [row.label for row in table.rows]
