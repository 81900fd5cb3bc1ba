"""A table that trains the generator of its attacks: on public images, once, resumed, and without a path."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from leakgauge.attacks.budget import Budget
from leakgauge.attacks.matching import OnNoise, TrainedGenerator
from leakgauge.attacks.recipes import gias, gifd
from leakgauge.data import Dataset
from leakgauge.errors import InvalidCase
from leakgauge.files import read_tensors
from leakgauge.generative import GeneratorTraining, GeneratorTrainingPlan
from leakgauge.progress import silent
from leakgauge.reproduce import TABLES, Options, reproduce, run
from leakgauge.reproduce.generators import WithGenerator
from leakgauge.reproduce.measures.updates import budget_of
from leakgauge.types import Batch

ATTACK = WithGenerator(gias(steps=2), width=2, latent=4, training=GeneratorTrainingPlan(steps=3, batch_size=4))


@pytest.fixture(scope="module")
def data() -> Dataset:
    photos = run.embedded(16)
    return replace(photos, train=photos.train[:8])


def prepared(data: Dataset, folder: Path, attack: WithGenerator = ATTACK, seed: int = 0, steps: Any = None) -> Path:
    made = attack.prepare(data, seed=seed, folder=folder, progress=steps or silent)
    assert made.file is not None
    return made.file


def same(one: Path, other: Path) -> bool:
    (first, words), (second, others) = read_tensors(one), read_tensors(other)
    return words == others and all(torch.equal(tensor, second[name]) for name, tensor in first.items())


def test_the_published_numbers_are_those_of_table_4_and_stand_in_one_row() -> None:
    rows = [row for row in TABLES["cinet/gias"].rows if row.published is not None]
    assert [row.label for row in rows] == ["sigmoid, batch 8: GIAS"]
    printed = {metric: rows[0].published_of(metric, "psnr") for metric in ("ssim", "fsim", "psnr", "lpips_vgg")}
    assert [f"{one.mean:.2f} {one.deviation:.2f}" for one in printed.values() if one is not None] == [
        "0.87 0.01",
        "0.94 0.01",
        "16.06 0.38",
        "0.04 0.01",
    ]


@pytest.mark.parametrize("scale", ["cpu", "full"])
def test_every_attack_stands_beside_itself_on_noise_and_has_the_same_generator(scale: Any) -> None:
    settings = TABLES["cinet/gias"].measures(scale)
    assert len(settings) == 16
    for label, setting in settings.items():
        assert isinstance(setting.attack, WithGenerator)
        if not label.endswith(" on noise"):
            control = settings[f"{label} on noise"].attack
            assert control == replace(setting.attack, attack=OnNoise(setting.attack.attack))
            assert budget_of(control) == budget_of(setting.attack)


def test_the_generator_is_trained_once_and_is_a_function_of_plan_data_and_seed(data: Dataset, tmp_path: Path) -> None:
    done: list[int] = []
    first = prepared(data, tmp_path, steps=lambda tick: done.append(tick.step))
    assert done == [1, 2, 3]
    assert prepared(data, tmp_path, steps=lambda tick: done.append(tick.step)) == first
    assert done == [1, 2, 3]
    others = [
        prepared(data, tmp_path, seed=1),
        prepared(data, tmp_path, replace(ATTACK, latent=5)),
        prepared(replace(data, train=data.train[:6]), tmp_path),
    ]
    assert len({first, *others}) == 4


def test_only_training_images_are_used(data: Dataset, tmp_path: Path) -> None:
    changed = replace(data, test=Batch(1 - data.test.inputs, data.test.labels))
    assert same(prepared(data, tmp_path / "one"), prepared(changed, tmp_path / "other"))
    with pytest.raises(InvalidCase, match="only the test images of 'photos'; add the training files to --data-root"):
        prepared(replace(data, train=data.train[:0]), tmp_path)


def test_a_training_that_is_stopped_goes_on_and_ends_with_the_same_bits(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(tick: Any) -> None:
        if tick.step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepared(data, tmp_path / "stopped", steps=stop)
    steps: list[int] = []
    original = GeneratorTraining.step
    monkeypatch.setattr(GeneratorTraining, "step", lambda self: (steps.append(self.done), original(self))[1])
    resumed = prepared(data, tmp_path / "stopped")
    assert steps == [2]
    assert same(resumed, prepared(data, tmp_path / "whole"))


@pytest.mark.parametrize(
    "attack", [gias(steps=2), gifd(steps=2), OnNoise(gias(steps=2))], ids=["gias", "gifd", "noise"]
)
def test_every_part_of_the_attack_gets_the_file_and_nothing_else_changes(attack: Any, tmp_path: Path) -> None:
    own = repr(WithGenerator(attack, file=tmp_path / "made")._equipped())
    assert own.count(str(tmp_path)) == 1
    assert own.replace(repr(TrainedGenerator(str(tmp_path / "made"))), repr(TrainedGenerator())) == repr(attack)


def test_an_attack_without_its_generator_says_what_to_do() -> None:
    with pytest.raises(InvalidCase, match="has no generator before it is `prepare`d; train one with"):
        ATTACK(None, generator=torch.Generator())  # type: ignore[arg-type]


def test_the_result_names_the_training_and_no_path_and_is_read_again_elsewhere(tmp_path: Path) -> None:
    chosen = TABLES["cinet/gias"]
    chosen = replace(chosen, rows=chosen.rows[:1])
    here = Options(out=tmp_path / "here")
    first = reproduce(chosen, here)
    text = here.file(chosen).read_text()
    assert str(tmp_path) not in text
    (row,) = json.loads(text)["rows"]
    assert "training=GeneratorTrainingPlan(steps=2" in row["attack"]
    assert row["updates"][0]["facts"]["generator"].startswith("trained, ")
    assert budget_of(first.rows[0].measure.attack) == Budget(steps=2)
    # Records do not hang on where the generator lies.
    (tmp_path / "here").rename(tmp_path / "there")
    assert reproduce(chosen, Options(out=tmp_path / "there")).to_dict() == first.to_dict()
