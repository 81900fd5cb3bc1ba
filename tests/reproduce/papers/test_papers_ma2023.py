"""Label restoration as published: the paper's numbers, its victims, and a table that shows both beside ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from leakgauge.attacks.analytic import LinearLayer
from leakgauge.attacks.labels import ILRG, LLG, ZLG, BestLabels
from leakgauge.data import Cifar100
from leakgauge.models import MLP, VGG, LeNet5, ResNet, build
from leakgauge.progress import silent
from leakgauge.protocol import THREAT_MODELS, Federation, learner_and_state, simulate_round
from leakgauge.randomness import seeded
from leakgauge.reproduce import TABLES, Options, Published, Row, Table, prepare, reproduce
from leakgauge.reproduce.draws import AtRandom, Skewed
from leakgauge.reproduce.measures.updates import Setting, train_head_only
from leakgauge.reproduce.papers.ma2023 import METHODS
from leakgauge.reproduce.run import embedded
from leakgauge.reproduce.show import grid
from leakgauge.space import ImageSpace
from leakgauge.training import kept_victim
from leakgauge.types import Outcome, Reconstruction

TABLE3_AS_PRINTED = """
LeNet-5, K=128, without BatchNorm/dropout  1.000 1.000
LeNet-5, K=128, with BatchNorm/dropout     1.000 1.000
VGG-16, K=64, without BatchNorm/dropout    1.000 1.000
VGG-16, K=64, with BatchNorm/dropout       1.000 1.000
"""
TABLE4_AS_PRINTED = """
NoC=1, MRoC=128   1.000 1.000
NoC=2, MRoC=64    1.000 1.000
NoC=4, MRoC=32    1.000 1.000
NoC=8, MRoC=16    1.000 1.000
NoC=16, MRoC=8    1.000 1.000
NoC=32, MRoC=4    1.000 1.000
NoC=64, MRoC=2    1.000 1.000
NoC=100, MRoC=1   0.998 0.911
"""
"""LeAcc, then LnAcc, as in the paper's appendices C and F."""


def printed(text: str) -> dict[str, tuple[str, str]]:
    lines = (line.rsplit(maxsplit=2) for line in text.strip().splitlines())
    return {label: (existence, counts) for label, existence, counts in lines}


def of(row: Row) -> tuple[str, str]:
    """LeAcc and LnAcc that a row holds as published."""
    numbers = [row.published_of(metric, "label_counts") for metric in ("label_existence", "label_counts")]
    return tuple(f"{one.mean:.3f}" for one in numbers if one is not None)  # type: ignore[union-attr,return-value]


# What was published


def test_table_3_holds_the_numbers_of_the_paper() -> None:
    rows = [row for row in TABLES["ma2023/table3"].rows if row.published is not None]
    assert {row.label: of(row) for row in rows} == printed(TABLE3_AS_PRINTED)


def test_table_4_holds_the_numbers_of_the_paper_once_beside_the_plain_net() -> None:
    rows = {row.label: of(row) for row in TABLES["ma2023/table4"].rows if row.published}
    plain = {f"{label}, without BatchNorm/dropout": one for label, one in printed(TABLE4_AS_PRINTED).items()}
    assert rows == plain


def test_a_published_number_names_its_source_and_our_own_rows_have_none() -> None:
    for name, experiment in TABLES.items():
        for row in experiment.rows if name.startswith("ma2023/") else ():
            numbers = [row.published, *row.also.values()]
            own = name == "ma2023/methods" or row.label.endswith(": ours")
            assert not any(numbers) if own else True
            assert all(one.source.startswith(("Table", "the authors' logs")) for one in numbers if one is not None)


@pytest.mark.parametrize(
    "row", [row for row in TABLES["ma2023/table4"].rows if row.published], ids=lambda row: row.label
)
def test_the_batches_of_table_4_are_those_of_their_label(row: Row) -> None:
    setting = row.at("full")
    assert isinstance(setting.draw, Skewed)
    assert row.label.startswith(f"NoC={setting.draw.present}, MRoC={setting.draw.repeats}, with")
    assert setting.batch_size == setting.draw.present * setting.draw.repeats == (100 if "NoC=100" in row.label else 128)
    assert setting.attack == ILRG(one_by_one=True)


def test_the_victims_of_full_scale_are_the_papers() -> None:
    settings = TABLES["ma2023/table3"].measures("full")
    assert [one.model for one in settings.values()] == [
        LeNet5(),
        LeNet5(batch_norm=True, dropout=0.5),
        VGG(16),
        VGG(16, batch_norm=True, dropout=0.5),
        LeNet5(batch_norm=True),
        LeNet5(dropout=0.5),
    ]
    models = [one.model for one in TABLES["ma2023/models"].measures("full").values()]
    assert {(type(model).__name__, getattr(model, "depth", None)) for model in models} == {
        ("MLP", None),
        ("LeNet5", None),
        *(("VGG", depth) for depth in (11, 13, 16)),
        *(("ResNet", depth) for depth in (18, 50)),
    }
    for experiment in ("table3", "table4", "models"):
        for setting in TABLES[f"ma2023/{experiment}"].measures("full").values():
            # Fifty tries in the authors' logs, each with other weights.
            assert (setting.updates, setting.models, setting.mode, setting.training) == (50, 50, "train", None)


def test_every_method_meets_every_victim() -> None:
    rows = TABLES["ma2023/methods"].rows
    victims = {(setting.model, setting.training, setting.batch_size) for setting in (row.at("cpu") for row in rows)}
    assert len(rows) == len(victims) * len(METHODS) == 6 * len(METHODS)
    assert {LLG("auxiliary"), ZLG("auxiliary"), ILRG()} <= set(METHODS.values())
    assert TABLES["ma2023/methods"].threat_model == "auxiliary"
    others = {TABLES[f"ma2023/{name}"].threat_model for name in ("table3", "table4", "models")}
    assert others == {"honest_but_curious"}


def test_without_training_files_the_test_file_is_split(tmp_path: Path) -> None:
    labels = torch.arange(60, dtype=torch.uint8)
    record = torch.cat((labels[:, None] % 20, labels[:, None], torch.zeros(60, 3072, dtype=torch.uint8)), dim=1)
    (tmp_path / "test.bin").write_bytes(record.numpy().tobytes())
    source = TABLES["ma2023/table3"].dataset
    data = replace(source, training_images=40)(tmp_path)  # type: ignore[type-var]
    assert (len(data.train), len(data.test)) == (40, 20)
    assert "split at 40" in data.name
    assert data.test.labels.tolist() == list(range(40, 60))
    assert len(Cifar100()(tmp_path).train) == 0


# How a row is run


@pytest.mark.parametrize(
    "factory",
    [LeNet5(), LeNet5(batch_norm=True, dropout=0.5), VGG(11, 4, batch_norm=True, dropout=0.5), ResNet(18, 4)],
    ids=repr,
)
def test_a_client_that_trains_the_head_alone_sends_the_same_update_of_it(
    factory: Any, examples: Callable[..., Any]
) -> None:
    batch = examples(6, (3, 32, 32), classes=10)
    updates = []
    for head_only in (False, True):
        module = build(factory, (3, 32, 32), 10, seed=0)
        if head_only:
            train_head_only(module, ImageSpace(3, 32, 32))
        learner, state = learner_and_state(module, mode="train")
        seen = simulate_round(
            Federation(learner, state),
            batch,
            threat_model=THREAT_MODELS["honest_but_curious"],
            defence=lambda client: client,
            generator=seeded(0, "client"),
        )
        updates.append(seen.update.params)
    whole, head = updates
    assert len(head) == 2 < len(whole)
    for name, tensor in head.items():
        assert float(tensor.abs().max()) > 1e-3
        assert torch.allclose(tensor, whole[name], rtol=0, atol=1e-6)


@dataclass(frozen=True)
class Weighing:
    """No attack at all: it notes how heavy the model is, and gives back the images that it holds anyway."""

    def __call__(self, observation: Any, *, generator: Any, progress: Any = silent) -> Reconstruction:
        weight = sum(float(tensor.double().abs().sum()) for tensor in observation.state.params.values())
        held = None if observation.auxiliary is None else observation.auxiliary.inputs
        return Reconstruction(held, None, Outcome.SOLVED, facts={"weight": weight})


WEIGHED = Setting(MLP(hidden=(16,)), Weighing(), updates=5, nulls=4, models=3, draw=AtRandom())


def experiment(*settings: Setting, **more: Any) -> Table:
    rows = tuple(
        Row(f"row {number}", Published(0.25, None, "Table 0"), lambda scale, setting=setting: setting)
        for number, setting in enumerate(settings)
    )
    return Table("here2023/table0", "A table", Cifar100(), rows, assumptions=("None.",), **more)


@pytest.fixture
def options(tmp_path: Path) -> Options:
    return Options(out=tmp_path / "out")


def test_updates_are_shared_out_among_models_that_differ(options: Options) -> None:
    (row,) = reproduce(experiment(WEIGHED), options).rows
    weights = [update["facts"]["weight"] for update in row.found.facts["updates"]]
    modules = [
        kept_victim(WEIGHED.model, embedded(), WEIGHED.training, options.out, seed=seed).module for seed in range(3)
    ]
    expected = [sum(float(p.detach().double().abs().sum()) for p in module.parameters()) for module in modules]
    assert len(set(expected)) == 3
    assert weights == pytest.approx([expected[update % 3] for update in range(5)])
    assert sorted(null["facts"]["weight"] for null in row.found.facts["nulls"]) == pytest.approx(
        sorted(expected[null % 3] for null in range(4))
    )


def test_records_stand_in_the_order_of_the_updates(options: Options) -> None:
    setting = replace(WEIGHED, attack=LinearLayer())
    (row,) = reproduce(experiment(setting), options).rows
    images = embedded().test.inputs
    victims = [update["victims"] for update in row.found.facts["updates"]]
    assert len(victims) == 5
    expected = torch.cat([images[own] for own in victims])
    torch.testing.assert_close(row.found.originals, expected, atol=0, rtol=0)
    torch.testing.assert_close(row.found.estimates, expected, atol=1e-4, rtol=0)


def test_fewer_images_than_models_need_fewer_models(options: Options) -> None:
    few = replace(options, images=2)
    (setting,) = prepare(experiment(WEIGHED), few).measures.values()
    assert isinstance(setting, Setting)
    assert (setting.updates, setting.models) == (2, 2)
    assert len(reproduce(experiment(WEIGHED), few).rows[0].found.facts["updates"]) == 2


@pytest.mark.parametrize("asked", [5, 500])
def test_what_the_attacker_holds_is_never_attacked(asked: int, options: Options) -> None:
    # There are 448 embedded photographs, of which it may hold half at most.
    setting = replace(WEIGHED, updates=30, models=1, nulls=1)
    (row,) = reproduce(experiment(setting, threat_model="auxiliary", auxiliary=asked), options).rows
    first_held = 448 - min(asked, 224)
    assert max(index for update in row.found.facts["updates"] for index in update["victims"]) < first_held
    assert row.found.originals is not None
    assert row.found.estimates is not None
    assert bool((row.found.originals != row.found.estimates).flatten(1).any(dim=1).all())


def test_a_defence_and_other_classes_reach_the_client(options: Options) -> None:
    from leakgauge.defences import Pruning

    setting = replace(WEIGHED, attack=ILRG(), batch_size=4, classes=30, defence=Pruning(0.5), updates=2, models=2)
    labels = ("label_recall", "label_counts")
    (row,) = reproduce(experiment(setting, metrics=labels, threat_model="honest_but_curious"), options).rows
    payload = row.to_dict(labels[0])
    assert (payload["defence"], payload["classes"], payload["models"]) == (repr(Pruning(0.5)), 30, 2)
    assert payload["draw"] == "AtRandom(relabelled=False)"
    assert payload["parameters"] == 16 * 3 * 256 + 16 + 16 * 30 + 30


# What is shown


def test_the_table_prints_published_numbers_beside_ours_and_the_null(options: Options) -> None:
    chosen = TABLES["ma2023/table3"]
    lenet = replace(chosen, rows=chosen.rows[:1])
    result = reproduce(lenet, options)
    drawn = grid(result)
    assert [str(column.header) for column in drawn.columns] == [
        "setting",
        "label_counts\nours, published, null",
        "label_existence\nours, published, null",
        "label_recall\nours, published, null",
        "images",
        "steps",
        "seconds",
    ]
    cells = [next(iter(column.cells)) for column in drawn.columns[1:5]]
    (row,) = result.rows
    for metric, cell, published in zip(chosen.metrics, cells, ("1.000", "1.000", "-")):
        ours, null = row.found.ours[metric].mean, row.found.null[metric].mean
        at = row.standings(chosen.metrics[0])[metric]
        said = f"{at}\n({ours:.3f})" if ours == null else f"{ours:.3f}"
        assert cell == f"{said}, {published}, {null:.3f}"
    assert cells[3] == "128"
    assert "count absent classes as right" in str(drawn.caption)


def test_what_was_not_measured_is_said_to_be_so(options: Options) -> None:
    setting = replace(WEIGHED, updates=1, models=1)
    result = reproduce(experiment(setting, metrics=("label_recall", "label_counts"), shown=2), options)
    cells = [next(iter(column.cells)) for column in grid(result).columns[1:3]]
    assert cells == ["not measured, 0.250, -", "not measured, -, -"]


def test_labels_of_the_untrained_lenet_come_back_and_the_null_does_not(options: Options) -> None:
    chosen = replace(
        TABLES["ma2023/methods"],
        rows=tuple(row for row in TABLES["ma2023/methods"].rows if row.label == "untrained, K=24: iLRG"),
    )
    (row,) = reproduce(chosen, options).rows
    ours, null = row.found.ours["label_recall"].mean, row.found.null["label_recall"].mean
    assert ours == 1.0
    assert null is not None
    assert null < 1
    assert isinstance(row.measure, Setting)
    assert isinstance(row.measure.model, LeNet5)
    assert not any(isinstance(module, nn.Dropout) for module in build(row.measure.model, (3, 16, 16), 100, seed=0))


def test_our_rows_of_table_4_use_the_default_rule() -> None:
    own = [row.at("cpu") for row in TABLES["ma2023/table4"].rows if row.label.endswith(": ours")]
    assert len(own) == 16
    assert {setting.attack for setting in own} == {BestLabels()}
