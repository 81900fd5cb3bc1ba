"""Rows of tables, audited from end to end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import leakgauge
from leakgauge.attacks.budget import Budget
from leakgauge.audit.execute import load_result
from leakgauge.catalogue import ATTACKS, standard_metrics
from leakgauge.cli import main
from leakgauge.data import BreastCancer, Diabetes
from leakgauge.errors import InvalidCase
from leakgauge.models import MLP, Normalisation, build
from leakgauge.protocol.facts import Subject
from leakgauge.report.rows import row_tables
from leakgauge.space import TableSpace


def audit(data, count=1, **options):
    module = build(MLP(), data.space.shape, 2, seed=0, normalisation=Normalisation.of(data.train.inputs))
    private = data.test[slice(0, count)]
    options = {"defences": ["none"], "references": data.train.inputs, "budget": Budget(steps=100), "nulls": 1} | options
    return leakgauge.audit(module, batch=(private.inputs, private.labels), space=data.space, **options)


@pytest.fixture(scope="module", params=[BreastCancer, Diabetes], ids=lambda source: source.__name__)
def data(request):
    return request.param()()


def test_a_row_comes_back_exactly_in_closed_form_and_by_matching_and_its_null_does_not(data):
    result = audit(data, attacks=["linear_layer", "fully_connected", "quasi_newton:tv_weight=0"])
    assert len(result.rows) == 3
    for row in result.rows:
        exact = row.attack == "fully_connected"
        assert row.verdict is (leakgauge.Verdict.CERTIFIED if exact else leakgauge.Verdict.LEAKS)
        measured = {name: one for name, one in row.measurements.items() if one.measured}
        assert {"identification", "cells_right"} <= measured.keys()
        assert not {"psnr", "ssim", "lpips_alex"} & row.measurements.keys()
        assert measured["cells_right"].attack.mean == 1
        assert measured["cells_right"].null.mean < 0.7
        (record,) = row.records
        data.space.check(record.pictures.reconstructions)
    assert {fact.subject: fact.detail for fact in row.assumptions}[Subject.INPUT_SPACE] == "columns and their ranges"


def test_attacks_for_images_do_not_apply_and_say_why(data):
    named = ["quasi_newton", "gias", "grad_inversion", "front_layer", "identity_convolutions"]
    rows = audit(data, attacks=named).rows
    assert len(rows) == len(named)
    for row in rows:
        assert row.outcome is leakgauge.Outcome.NOT_APPLICABLE
        assert "serves images, and this model takes rows" in row.reason


def test_labels_are_restored_from_an_update_of_rows(data):
    (row,) = audit(data, count=3, attacks=["best_labels"]).rows
    assert row.measurements["label_recall"].attack.count == 3


@pytest.mark.slow
def test_without_references_resampled_rows_are_the_crowd_and_attacks_suit_the_rows(data):
    result = audit(data, references=None)
    assert "rows resampled column by column from the private rows" in result.description["crowd"]
    assert result.description["attacks"] == ["linear_layer", "exact", "quasi_newton:tv_weight=0,restarts=8"]
    assert result["none"].verdict is leakgauge.Verdict.CERTIFIED


def test_other_ranges_of_the_same_columns_make_another_case():
    data = Diabetes()()
    wider = (replace(data.space.columns[0], high=200.0), *data.space.columns[1:])
    spaces = (data.space, TableSpace(wider), data.space)
    results = [audit(replace(data, space=space), attacks=["linear_layer"]) for space in spaces]
    one, other, again = (result["none"].records[0].key for result in results)
    assert one == again != other


def test_a_batch_outside_the_space_is_refused(data):
    with pytest.raises(InvalidCase, match="' must lie in"):
        audit(replace(data, test=replace(data.test, inputs=data.test.inputs + 1e4)))


def test_a_report_shows_the_row_above_what_came_back_and_escapes_its_columns(data, tmp_path: Path):
    hostile = replace(data.space.columns[0], name="<script>alert(1)</script>")
    data = replace(data, space=TableSpace((hostile, *data.space.columns[1:])))
    audit(data, attacks=["linear_layer"], out=tmp_path)
    (table,) = row_tables(load_result(tmp_path, standard_metrics()))
    assert [line.title for line in table.lines] == ["Private row", "No defence", "Null"]
    private, back, null = table.lines
    assert [cell.text for cell in back.cells] == [cell.text for cell in private.cells]
    assert all(cell.right for cell in back.cells)
    assert not all(cell.right for cell in null.cells)
    page = (tmp_path / "index.html").read_text()
    assert "<script>alert" not in page
    assert f'<span class="private">{private.cells[1].text}</span></td>' in page
    assert "1 of 1 private row" in page
    assert "image" not in page.partition("<body")[2].partition("<script")[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_command_line_gives_a_row_away(tmp_path: Path, capsys):
    options = [
        "--dataset",
        "breast_cancer",
        "--model",
        "mlp",
        "--batch-size",
        "1",
        "--steps",
        "3",
        "--train-steps",
        "20",
        *(word for text in ("none", "clipping:max_norm=1", "pruning:keep=0.5") for word in ("--defence", text)),
    ]
    with pytest.raises(SystemExit) as ended:
        main(["audit", *options, "--out", str(tmp_path), "--json"])
    assert not ended.value.code
    rows = json.loads(capsys.readouterr().out)["rows"]
    exact = next(row for row in rows if row["attack"] == "linear_layer")
    assert exact["metrics"]["cells_right"]["mean"] == 1
    assert exact["verdict"] == "leaks"
    with pytest.raises(SystemExit):
        main(["audit", *options, "--out", str(tmp_path)])
    # However many defences there are, no name of a column is broken.
    assert "worst fractal dimension" in capsys.readouterr().out


def small_model():
    data = Diabetes()()
    return build(MLP((16,)), data.space.shape, 2, seed=0, normalisation=Normalisation.of(data.train.inputs))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("count", [1, 2])
def test_a_recorded_round_of_rows_is_read_back_and_inverted_by_what_suits_it(tmp_path: Path, capsys, count):
    data, module = Diabetes()(), small_model()
    private = data.test[slice(0, count)]
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    torch.nn.functional.cross_entropy(module(private.inputs), private.labels).backward()
    update = {name: parameter.grad for name, parameter in module.named_parameters()}
    round_file, truth = tmp_path / "round.safetensors", tmp_path / "truth.npz"
    leakgauge.write_round(round_file, leakgauge.RecordedRound(before, update, data.space, num_examples=count))
    np.savez(truth, rows=private.inputs.numpy(), labels=private.labels.numpy())
    assert leakgauge.read_round(round_file).space == data.space
    options = ["--truth", str(truth), "--out", str(tmp_path / "out"), "--nulls", "1", "--no-redact", "--json"]
    with pytest.raises(SystemExit) as ended:
        main(["invert", str(round_file), "--model", f"{__name__}:small_model", *options])
    assert not ended.value.code
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["attack"] == "best:steps=600"
    assert (row["verdict"] == leakgauge.Verdict.CERTIFIED.value) == (count == 1)
    assert row["metrics"]["cells_right"]["mean"] == 1
    header, *lines = (tmp_path / "out" / "recovered" / "rows.csv").read_text().splitlines()
    assert header.split(",") == [column.name for column in data.space.columns]
    assert len(lines) == count
    if count == 1:
        assert lines[0].split(",") == [text for _, text in data.space.render(private.inputs[0])]


@pytest.mark.slow
def test_every_attack_either_applies_to_rows_or_says_why_not():
    data = Diabetes()()
    private = data.test[slice(0, 2)]
    batch = (private.inputs, private.labels)
    options = {"defences": ["none"], "references": data.train.inputs, "budget": Budget(steps=1), "nulls": 1}
    result = leakgauge.audit(small_model(), batch=batch, space=data.space, attacks=list(ATTACKS), **options)
    assert {row.attack for row in result.rows} == set(ATTACKS)
    for row in result.rows:
        if row.outcome is leakgauge.Outcome.NOT_APPLICABLE:
            assert row.reason
        elif (found := row.records[0].pictures.reconstructions) is not None:
            came_back = found[~found.isnan().all(dim=1)]  # a server that fishes gets some of the batch
            assert len(came_back)
            data.space.check(came_back)


def test_a_mask_for_pixels_is_refused_and_mixing_is_not():
    data = Diabetes()()
    assert audit(data, count=4, defences=["mixup"], attacks=["dlg"], budget=Budget(steps=1)).rows
    with pytest.raises(InvalidCase, match="masks the pixels of images"):
        audit(data, count=4, defences=["instahide"], attacks=["dlg"])
