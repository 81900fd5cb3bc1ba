"""Adding a part takes its class and one line of the catalogue: proven by adding parts from outside the package.

docs/adding.md says which files an addition touches; here a dictionary entry stands for the catalogue's line.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from pathlib import Path

import pytest
import torch
from torch import Generator, nn

from leakgauge import audit
from leakgauge import params as tree
from leakgauge.attacks.base import Attack
from leakgauge.attacks.budget import Budget
from leakgauge.attacks.matching import GradientMatching
from leakgauge.attacks.matching.priors import Prior
from leakgauge.catalogue import ATTACKS, DATASETS, DEFENCES, MODELS
from leakgauge.cli import main
from leakgauge.data import Dataset
from leakgauge.models.base import assemble, build
from leakgauge.protocol.local_update import UpdateTransform
from leakgauge.types import Batch, Outcome, Reconstruction


@dataclass(frozen=True)
class Stripes:
    """Images of 8 x 8 pixels, each a stripe whose row is its class, under a little noise."""

    classes: int = 4

    def __call__(self, root: Path | None = None) -> Dataset:
        labels = torch.arange(160) % self.classes
        inputs = 0.2 * torch.rand(160, 1, 8, 8, generator=Generator().manual_seed(0))
        inputs[torch.arange(160), 0, labels] = 0.9
        names = tuple(f"row {index}" for index in range(self.classes))
        return Dataset("stripes", Batch(inputs[:40], labels[:40]), Batch(inputs[40:], labels[40:]), names)


@dataclass(frozen=True)
class Perceptron:
    """One hidden layer of tanh."""

    hidden: int = 6

    def __call__(self, shape, num_classes, *, normalisation=None) -> nn.Module:
        layers = {"flatten": nn.Flatten(), "linear1": nn.Linear(prod(shape), self.hidden), "act1": nn.Tanh()}
        return assemble(shape, num_classes, normalisation, layers, features=self.hidden)


@dataclass(frozen=True)
class Rounding(UpdateTransform):
    """Every entry to the nearest multiple of ``unit``; an attacker cannot undo it and expects the entry itself."""

    unit: float = 1e-3

    def transform(self, params, *, generator):
        return tree.map_tensors(lambda tensor: (tensor / self.unit).round() * self.unit, params)

    def anticipate(self, params, *, observed):
        return params


@dataclass(frozen=True)
class FirstRow(Attack):
    """Of one example, the first layer's gradient is a multiple of the input in every row; this takes the longest."""

    def __call__(self, observation, *, generator, progress=lambda tick: None):
        weight = next(one for one in observation.update.params.values() if one.ndim == 2)
        row = weight[weight.norm(dim=1).argmax()]
        row = row * row.sum().sign()
        shape = observation.space.shape
        inputs = ((row - row.min()) / (row.max() - row.min())).reshape(1, *shape)
        return Reconstruction(inputs=inputs, labels=None, outcome=Outcome.SOLVED)


@pytest.fixture
def audited(tmp_path, monkeypatch, capfd):
    """``audited(attack=..., ...)``: the findings of an audit by the command line, of parts by name."""
    monkeypatch.delenv("LEAKGAUGE_WEIGHTS", raising=False)

    def run(*, dataset="digits", model="mlp:hidden=(6,)", attack="linear_layer", defence="none"):
        words = ["--dataset", dataset, "--model", model, "--attack", attack, "--defence", defence]
        small = ["--batch-size", "1", "--train-steps", "1", "--steps", "2", "--distractors", "50", "--jobs", "1"]
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(["audit", *words, *small, "--json", "--out", str(tmp_path / "out")])
        assert not ended.value.code
        (row,) = json.loads(capfd.readouterr().out)["rows"]
        assert (tmp_path / "out" / "index.html").is_file()
        return row

    return run


def listed(capfd) -> str:
    capfd.readouterr()
    with pytest.raises(SystemExit):
        main(["list"])
    return capfd.readouterr().out


def test_an_attack_on_updates_is_its_class_and_one_line(audited, monkeypatch, capfd):
    monkeypatch.setitem(ATTACKS, "first_row", FirstRow)
    row = audited(attack="first_row")
    assert (row["attack"], row["outcome"]) == ("first_row", "solved")
    assert row["metrics"]["identification"]["mean"] == 1.0
    assert row["metrics"]["identification"]["null"]["mean"] == 0.0
    assert "first_row" in listed(capfd)


def test_a_defence_is_its_class_and_one_line(audited, monkeypatch, capfd):
    monkeypatch.setitem(DEFENCES, "rounding", Rounding)
    fine, coarse = (audited(defence=f"rounding:unit={unit}") for unit in ("1e-6", "1e3"))
    assert fine["verdict"] == "leaks"
    assert coarse["verdict"] != "leaks"
    assert "rounding" in listed(capfd)


def test_a_dataset_and_a_model_are_a_class_and_a_line_each(audited, monkeypatch, capfd):
    monkeypatch.setitem(DATASETS, "stripes", Stripes)
    monkeypatch.setitem(MODELS, "perceptron", Perceptron)
    row = audited(dataset="stripes:classes=5", model="perceptron:hidden=7")
    assert row["metrics"]["psnr"]["mean"] > 60
    assert {"stripes", "perceptron"} <= set(listed(capfd).split())


@dataclass(frozen=True)
class Dark(Prior):
    """Weight times the mean of the inputs."""

    weight: float = 1.0

    def __call__(self, images):
        return self.weight * images.flatten(1).mean(dim=1)


def test_a_prior_is_its_class_and_its_place_in_a_recipe():
    dataset = Stripes()(None)
    module = build(Perceptron(), dataset.space.shape, dataset.num_classes, seed=0)
    attacks = [GradientMatching(priors=(Dark(weight),), budget=Budget(steps=2)) for weight in (0.0, 1e3)]
    private = dataset.test[slice(0, 1)]
    result = audit(module, batch=private, attacks=attacks, defences=["none"], references=dataset.test.inputs[20:])
    scores = {row["metrics"]["psnr"]["mean"] for row in result.to_json()["rows"]}
    assert len(scores) == len(attacks)
