"""The utility-leakage table as published: its numbers, its attackers, and a result that shows both beside ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from leakgauge.attacks.adaptive import Adaptive
from leakgauge.attacks.matching import BatchNormStatistics
from leakgauge.attacks.recipes import Best
from leakgauge.config import build_defence
from leakgauge.data import Cifar10
from leakgauge.defences import InstaHide, MixUp, Pruning, chain
from leakgauge.models import MLP, Plain, ResNet
from leakgauge.protocol import THREAT_MODELS
from leakgauge.protocol.threat_model import BatchNormAccess
from leakgauge.reproduce import TABLES, Measured, Options, Published, Row, Table, reproduce
from leakgauge.reproduce.measures.updates import Setting, budget_of
from leakgauge.reproduce.papers.huang2021 import DEFENCES, MNIST
from leakgauge.reproduce.show import grid
from leakgauge.training.run import TrainingPlan

TABLE5 = TABLES["huang2021/table5"]
STRONG, REAL = "strongest (BN_exact)", "labels known, statistics not (BN_infer)"

ACCURACY_AS_PRINTED = "93.37 93.19 93.01 90.57 89.92 88.61 83.58 92.31 90.41 90.04 88.20 91.37 86.10"
AS_PRINTED = {
    f"batch 16, {STRONG}": """
        0.41 0.41 0.42 0.46 0.48 0.50 0.55 0.50 0.49 0.69 0.69 0.62 0.73
        0.21 0.22 0.27 0.29 0.30 0.29 0.48 0.31 0.28 0.56 0.56 0.37 0.65
        0.09 0.08 0.07 0.06 0.06 0.06 0.04 0.10 0.10 0.06 0.07 0.10 0.05""",
    f"batch 16, {REAL}": """
        0.49 0.51 0.48 0.51 0.52 0.56 0.60 0.71 0.71 0.75 0.75 0.74 0.74
        0.30 0.33 0.31 0.33 0.34 0.39 0.44 0.48 0.53 0.65 0.63 0.61 0.63
        0.08 0.09 0.08 0.08 0.07 0.07 0.05 0.08 0.07 0.04 0.05 0.08 0.05""",
    f"batch 32, {STRONG}": """
        0.45 0.46 0.48 0.52 0.54 0.58 0.63 0.50 0.49 0.69 0.69 0.62 0.73
        0.18 0.18 0.22 0.31 0.43 0.48 0.54 0.31 0.28 0.56 0.56 0.37 0.65
        0.11 0.11 0.09 0.07 0.05 0.04 0.04 0.10 0.10 0.06 0.07 0.10 0.05""",
    f"batch 32, {REAL}": """
        0.48 0.50 0.53 0.53 0.55 0.60 0.63 0.73 0.72 0.76 0.76 0.76 0.77
        0.29 0.32 0.32 0.31 0.40 0.41 0.55 0.63 0.60 0.68 0.63 0.66 0.65
        0.08 0.07 0.07 0.08 0.08 0.06 0.04 0.06 0.06 0.04 0.05 0.06 0.05""",
}
"""Average, best and standard deviation of LPIPS, the columns in the order of the paper."""


@pytest.fixture(autouse=True)
def _no_weights_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEAKGAUGE_WEIGHTS", raising=False)


@pytest.mark.parametrize("group", AS_PRINTED)
def test_table_5_holds_the_numbers_of_the_paper(group: str) -> None:
    rows = [row.published for row in TABLE5.rows if row.group == group]
    for line, field in zip(AS_PRINTED[group].strip().splitlines(), ("mean", "best", "deviation"), strict=True):
        assert " ".join(f"{getattr(one, field):.2f}" for one in rows) == line.strip()


def test_accuracy_and_time_stand_beside_every_row_and_batch_1_has_no_number_in_the_text_read() -> None:
    first = [row for row in TABLE5.rows if row.group == f"batch 1, {STRONG}"]
    assert " ".join(f"{100 * row.also['accuracy'].mean:.2f}" for row in first) == ACCURACY_AS_PRINTED  # type: ignore[operator]
    assert [row.also["time"].mean for row in first] == [1.0] + [1.04] * 6 + [1.06] * 4 + [1.1] * 2
    assert {row.published.mean for row in first if row.published} == {None}
    # Our own lines have no published number, but that of the paper's attack beside them, whose order is compared with.
    own = [row for row in TABLE5.rows if "not in the paper" in row.label]
    assert all(row.published is None and row.group and "not in the paper" in row.group for row in own)
    assert [
        row.beside.mean for row in own if row.beside and row.group == f"batch 16, {STRONG}: ours (not in the paper)"
    ] == [row.published.mean for row in TABLE5.rows if row.published and row.group == f"batch 16, {STRONG}"]
    assert all("Table 2" in row.published.source for row in first if row.published)


def test_the_defences_are_those_of_the_columns_in_their_order() -> None:
    defences = [build_defence(text) for text in DEFENCES.values()]
    keeps = [one.keep for one in defences if isinstance(one, Pruning)]
    assert keeps == pytest.approx([0.5, 0.3, 0.1, 0.05, 0.01, 0.001])
    assert defences[7:11] == [MixUp(4), MixUp(6), InstaHide(4), InstaHide(6)]
    assert defences[11:] == [chain(MixUp(4), Pruning(0.1)), chain(InstaHide(4), Pruning(0.1))]
    assert all(one.largest == 0.65 for one in defences[7:11])  # type: ignore[attr-defined]


def test_the_strongest_attacker_has_exact_statistics_and_the_other_knows_labels_alone() -> None:
    for row in TABLE5.rows:
        setting = row.at("full")
        threat_model = THREAT_MODELS[setting.threat_model or ""]
        strong = STRONG in row.label
        assert threat_model.labels
        assert threat_model.mixing is strong
        assert threat_model.batch_norm is (BatchNormAccess.EXACT if strong else BatchNormAccess.INFERRED)
        attack = setting.attack
        assert isinstance(attack, Adaptive)
        assert isinstance(attack.attack, Best) is ("not in the paper" in row.label)
        if row.published:
            assert BatchNormStatistics(5e-3 if strong else 1e-3) in attack.attack.priors


@pytest.mark.parametrize("name", ["table5", "figure4", "figure5"])
def test_full_scale_is_the_papers_and_cpu_scale_is_smaller_and_says_so(name: str) -> None:
    experiment = TABLES[f"huang2021/{name}"]
    full, small = experiment.measures("full"), experiment.measures("cpu")
    assert {one.model for one in full.values()} == {ResNet(18)}
    assert {budget_of(one.attack).steps for one in full.values()} == {10_000}
    assert all(isinstance(one.model, Plain) and one.model.batch_norm for one in small.values())
    assert max(budget_of(one.attack).steps for one in small.values()) <= 100
    assert any("instead of ResNet-18" in line for line in experiment.assumptions)
    for setting in (*full.values(), *small.values()):
        assert setting.mode == "train"
        assert setting.updates * setting.batch_size >= 1
    # Some spread on a CPU too: several images in every row.
    assert min(one.updates * one.batch_size for one in small.values()) >= 3


def test_at_full_scale_the_utility_is_trained_by_the_papers_recipe_with_its_two_exceptions() -> None:
    plans = {row.label: row.at("full").utility for row in TABLE5.rows}
    for label, plan in plans.items():
        assert plan is not None
        slow = label.startswith(("GradPrune p=0.99,", "GradPrune p=0.999,"))
        assert plan.recipe == "huang2021"
        assert plan.chosen_recipe().learning_rate == (0.02 if slow else 0.1)


def test_the_figures_sweep_one_weight_each() -> None:
    def weights(name: str, index: int) -> list[float]:
        settings = TABLES[f"huang2021/{name}"].measures("full").values()
        found = [{type(p).__name__: p for p in one.attack.priors} for one in settings]  # type: ignore[attr-defined]
        kind = ("AnisotropicTotalVariation", "BatchNormStatistics")[index]
        return [priors[kind].weight if kind in priors else 0.0 for priors in found]

    assert weights("figure4", 0) == pytest.approx([4 * w for w in (0, 1e-3, 5e-3, 1e-2, 5e-2, 1e-1, 5e-1)])
    assert len(set(weights("figure4", 1))) == 1
    assert weights("figure5", 1) == [0, 5e-4, 1e-3, 5e-3, 1e-2]
    assert len(set(weights("figure5", 0))) == 1
    for name, size, threat_model in (("figure4", 1, "strongest"), ("figure5", 16, "informed")):
        for setting in TABLES[f"huang2021/{name}"].measures("full").values():
            assert (setting.batch_size, setting.threat_model) == (size, threat_model)


def test_mnist_has_a_six_layer_network_without_batch_norm_and_pruning_to_four_nines() -> None:
    settings = TABLES["huang2021/mnist"].measures("full")
    assert {one.model for one in settings.values()} == {Plain(convolutions=5)}
    assert not Plain().batch_norm
    assert {one.batch_size for one in settings.values()} == {1}
    keeps = [one.keep for one in map(build_defence, MNIST.values()) if isinstance(one, Pruning)]
    assert keeps == pytest.approx([0.5, 0.3, 0.1, 0.05, 0.01, 0.001, 0.0001])
    assert len(settings) == 2 * 14


# What the result shows


def test_spread_and_best_are_over_images_and_the_best_of_a_distance_is_the_lowest() -> None:
    measured = Measured.of([[0.1, 0.5], [0.3, float("nan")]], best=1, per_image=True, lower=True)
    assert (measured.mean, measured.best, measured.images) == (pytest.approx(0.3), 0.1, 3)
    assert measured.deviation == pytest.approx(0.2)
    assert measured.standard_error == pytest.approx(0.2 / 3**0.5)


def tiny(**changes: Any) -> Table:
    setting = Setting(
        MLP((4,)),
        TABLE5.rows[0].at("smoke").attack,
        updates=1,
        batch_size=2,
        mode="train",
        defence=Pruning(0.5),
        utility=TrainingPlan(model="mlp:hidden=(4,)", defence="pruning:keep=0.5", steps=3, batch_size=4),
    )
    costs = {"accuracy": Published(0.9, None, "Table 5"), "time": Published(1.04, None, "Table 5")}
    rows = tuple(Row(f"row {n}", Published(0.4, 0.1, "Table 5", best=0.2), lambda scale: setting, costs) for n in "ab")
    options = {"metrics": ("lpips_vgg", "psnr"), "shown": 2, "best": 1, "per_image": True} | changes
    return Table("here2021/table5", "A table", Cifar10(), rows, assumptions=("None.",), **options)


def test_the_cost_of_a_defence_is_trained_once_and_stands_in_every_row_of_it(tmp_path: Path) -> None:
    result = reproduce(tiny(), Options(out=tmp_path))
    payload = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert len(list((tmp_path / "trainings").iterdir())) == 1
    for row in payload["rows"]:
        assert (row["utility"]["defence"], row["utility"]["steps"], row["utility"]["dataset"]) == (
            "pruning:keep=0.5",
            3,
            "photos",
        )
        assert row["utility"]["accuracy"]["measured"]
        assert row["ours"]["lpips_vgg"]["mean"] is None
        assert row["ours"]["psnr"]["deviation"] is not None
    assert str(tmp_path) not in json.dumps(payload)
    drawn = grid(result)
    text = "\n".join(str(cell) for column in drawn.columns for cell in column.cells)
    assert "0.900, 1.040" in text
    assert "0.400 (0.200, 0.100)" in text
    assert str(drawn.title) == "A table (scale smoke)"
