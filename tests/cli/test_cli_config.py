from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from cli_support import *  # noqa: F403
from torch import nn

from leakgauge.audit.plan import AuditPlan
from leakgauge.catalogue import ATTACKS, CATALOGUE, DATASETS, DEFENCES, LOCAL_UPDATES, MODELS
from leakgauge.config import build, build_defence, from_mapping
from leakgauge.defences import Clipping, GaussianNoise, Pruning, chain
from leakgauge.errors import InvalidCase
from leakgauge.factories import import_factory
from leakgauge.models import MLP
from leakgauge.plan_files import load_config
from leakgauge.protocol import FedAvg

# What the catalogue cannot build without being told: see the parts themselves.
NEEDED = {"npz": "npz:file='x.npz'", "csv": "csv:file='x.csv',label=kind", "image_folder": "image_folder:folder=faces"}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, table in CATALOGUE.items() for name in table if kind != "metrics"]
)
def test_every_part_of_the_catalogue_is_built_by_its_name(kind: str, name: str) -> None:
    built = build(CATALOGUE[kind], NEEDED.get(name, name), kind=kind)
    again = build(CATALOGUE[kind], NEEDED.get(name, name), kind=kind)
    assert built == again
    assert repr(built) == repr(again)


@pytest.mark.parametrize(
    ("table", "text", "expected"),
    [
        (MODELS, "mlp:hidden=(8, 4),activation=sigmoid,bias=False", MLP((8, 4), "sigmoid", False)),
        (MODELS, "mlp:hidden=[8,4]", MLP((8, 4))),
        (MODELS, " mlp : hidden = () ".replace(" :", ":"), MLP(())),
        (MODELS, "mlp:activation='sigmoid'", MLP(activation="sigmoid")),
        (LOCAL_UPDATES, "fedavg:epochs=2,batch_size=3,learning_rate=1", FedAvg(2, 3, 1.0)),
        (LOCAL_UPDATES, "fedavg:learning_rate=1e-3", FedAvg(learning_rate=1e-3)),
        (DEFENCES, "clipping:max_norm=inf", Clipping(float("inf"))),
    ],
)
def test_options_read_as_in_python(table: Any, text: str, expected: object) -> None:
    assert build(table, text, kind="part") == expected


def test_defences_joined_by_a_plus_apply_from_left_to_right() -> None:
    assert build_defence("clipping:max_norm=2 + pruning:keep=0.5+gaussian_noise:std=0.1") == chain(
        Clipping(2.0), Pruning(0.5), GaussianNoise(0.1)
    )
    assert build_defence("pruning:keep=0.5") == Pruning(0.5)
    assert build_defence("clipping:max_norm=1.e+3+gaussian_noise:std=1E+2") == chain(Clipping(1e3), GaussianNoise(1e2))


@pytest.mark.parametrize(
    "options",
    [
        "size=__import__('os').mkdir('made')",
        "size=open('made','w')",
        "size=(lambda: 3)()",
        "size=16) or __import__('os').mkdir('made'",
        "size=16, **{}",
        "*[16]",
        "size=1 if True else 2",
        "size=\x00",
        "size=" + "(" * 1000,
        "size=" + "-" * 100_000 + "1",
    ],
    ids=range(10),
)
def test_nothing_in_an_option_is_ever_evaluated(options: str) -> None:
    with pytest.raises(InvalidCase):
        build(DATASETS, f"photos:{options}", kind="dataset")
    assert list(Path().iterdir()) == []


def test_a_name_that_is_near_is_suggested_and_otherwise_all_are_listed() -> None:
    with pytest.raises(InvalidCase, match="did you mean 'quasi_newton'"):
        build(ATTACKS, "quasi-newton", kind="attack")
    with pytest.raises(InvalidCase, match=f"choose from {', '.join(ATTACKS)}"):
        build(ATTACKS, "zzz", kind="attack")


def test_a_configuration_is_the_same_in_toml_and_json(tmp_path: Path) -> None:
    plan = AuditPlan(dataset="digits", batch_size=2, defences=("none", "pruning:keep=0.1"), seed=7)
    (tmp_path / "plan.json").write_text(json.dumps(asdict(plan)))
    (tmp_path / "plan.toml").write_text(
        'dataset = "digits"\nbatch_size = 2\nseed = 7\ndefences = ["none", "pruning:keep=0.1"] # a comment\n'
    )
    for name in ("plan.json", "plan.toml"):
        assert from_mapping(AuditPlan, load_config(tmp_path / name), source="plan") == plan


def test_a_factory_is_imported_from_the_working_folder_and_called(mlp: str) -> None:
    model = import_factory(mlp)
    assert isinstance(model, nn.Module)
    assert import_factory(mlp) is not model


def test_a_factory_may_be_a_class_or_live_in_a_package(module: Callable[[str], str]) -> None:
    source = (
        "from torch import nn\n\n\nclass Net(nn.Linear):\n    def __init__(self):\n        super().__init__(2, 2)\n"
    )
    assert type(import_factory(f"{module(source)}:Net")).__name__ == "Net"
    name = f"{module('')}_package"
    Path(name).mkdir()
    Path(name, "inner.py").write_text(source)
    assert type(import_factory(f"{name}.inner:Net")).__name__ == "Net"
