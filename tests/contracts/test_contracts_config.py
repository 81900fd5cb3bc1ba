"""From words to parts: unknown words are refused with a suggestion, and nothing is ever evaluated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakgauge.attacks.recipes import quasi_newton
from leakgauge.catalogue import ATTACKS, CATALOGUE, DATASETS, DEFENCES, LOCAL_UPDATES, MODELS
from leakgauge.config import build, build_defence, call, from_mapping
from leakgauge.defences import Chain, Clipping, GaussianNoise, LaplaceNoise, NoDefence, Pruning
from leakgauge.errors import InvalidCase, InvalidFile
from leakgauge.factories import import_factory
from leakgauge.models import MLP, ConvNet, LeNet
from leakgauge.plan_files import load_config
from leakgauge.protocol import FedAvg, FedSGD


def refused(action, *, naming: str) -> str:
    with pytest.raises((InvalidCase, InvalidFile)) as refusal:
        action()
    message = str(refusal.value)
    assert naming in message
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("table", "text", "part"),
    [
        (DEFENCES, "pruning", Pruning()),
        (DEFENCES, "pruning:keep=0.25", Pruning(0.25)),
        (DEFENCES, " pruning:keep = 0.25 ", Pruning(0.25)),
        (DEFENCES, "pruning:keep=1", Pruning(1.0)),
        (DEFENCES, "clipping:max_norm=inf", Clipping(float("inf"))),
        (DEFENCES, "gaussian_noise:std=1e-3", GaussianNoise(1e-3)),
        (LOCAL_UPDATES, "fedsgd", FedSGD()),
        (LOCAL_UPDATES, "fedavg:epochs=2,batch_size=4,learning_rate=0.5", FedAvg(2, 4, 0.5)),
        (LOCAL_UPDATES, "fedavg:learning_rate=1,epochs=2", FedAvg(2, 8, 1.0)),
        (ATTACKS, "quasi_newton:steps=7,restarts=2", quasi_newton(steps=7, restarts=2)),
        (MODELS, "mlp:hidden=(8,4),bias=False", MLP((8, 4), bias=False)),
        (MODELS, "mlp:hidden=[8,4],activation=tanh", MLP((8, 4), "tanh")),
        (MODELS, "convnet:padding='circular'", ConvNet(padding="circular")),
        (MODELS, "lenet:initial_range=None", LeNet(initial_range=None)),
    ],
)
def test_a_specification_is_the_part_it_names(table, text, part):
    assert build(table, text, kind="part") == part


def test_a_number_keeps_the_type_its_option_has():
    assert isinstance(build(DEFENCES, "pruning:keep=1", kind="defence").keep, float)
    assert isinstance(build(LOCAL_UPDATES, "fedavg:epochs=1", kind="local update").epochs, int)


@settings(deadline=None, max_examples=60)
@given(
    parts=st.lists(
        st.one_of(
            st.builds(Pruning, st.floats(1e-6, 1)),
            st.builds(Clipping, st.floats(1e-6, 1e6)),
            st.builds(GaussianNoise, st.floats(0, 1e6)),
            st.builds(LaplaceNoise, st.floats(0, 1e6)),
        ),
        min_size=2,
        max_size=4,
    )
)
def test_a_chain_is_read_back_from_its_words(parts):
    words = {Pruning: "pruning:keep", Clipping: "clipping:max_norm", GaussianNoise: "gaussian_noise:std"}
    words[LaplaceNoise] = "laplace_noise:scale"
    text = "+".join(f"{words[type(part)]}={next(iter(vars(part).values()))!r}" for part in parts)
    assert build_defence(text) == Chain(tuple(parts))


def test_none_is_the_empty_chain():
    assert build_defence("none") == build_defence("none+none") == NoDefence()
    assert build_defence("none+pruning") == Pruning()


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("prunning", "did you mean 'pruning'?"),
        ("gausian_noise:std=1", "did you mean 'gaussian_noise'?"),
        ("Pruning", "did you mean 'pruning'?"),
        ("clipping:max_nrom=1", "did you mean 'max_norm'?"),
        ("pruning:kep=0.1", "did you mean 'keep'?"),
        (
            "encryption",
            "choose from none, pruning, gaussian_noise, laplace_noise, clipping, mixup, ",
        ),
        ("", "choose from none"),
        ("pruning:strength=3", "choose from keep."),
        ("none:std=3", "'std'"),
        ("pruning+", "There is no defence ''"),
    ],
)
def test_an_unknown_word_is_refused_with_a_suggestion(text, suggestion):
    refused(lambda: build_defence(text), naming=suggestion)


@pytest.mark.parametrize(("kind", "table"), CATALOGUE.items(), ids=list(CATALOGUE))
def test_every_table_refuses_what_it_does_not_hold(kind, table):
    nearly = next(iter(table)) + "x"
    refused(lambda: build(table, nearly, kind=kind), naming=f"did you mean {next(iter(table))!r}?")


@pytest.mark.parametrize(
    ("table", "text", "naming"),
    [
        (DEFENCES, "pruning:keep='0.5'", "'keep'"),
        (DEFENCES, "pruning:keep=half", "'half'"),
        (DEFENCES, "pruning:keep=True", "True"),
        (DEFENCES, "pruning:keep=None", "None"),
        (DEFENCES, "pruning:keep=(0.5,)", "(0.5,)"),
        (DEFENCES, "pruning:keep={'a': 1}", "{'a': 1}"),
        (DEFENCES, "pruning:keep=1j", "1j"),
        (LOCAL_UPDATES, "fedavg:epochs=2.0", "'epochs'"),
        (LOCAL_UPDATES, "fedavg:epochs=True", "'epochs'"),
        (MODELS, "mlp:bias=1", "'bias'"),
        (MODELS, "mlp:hidden=8", "'hidden'"),
        (MODELS, "mlp:activation=3", "'activation'"),
        (MODELS, "mlp:activation=rellu", "did you mean 'relu'?"),
        (MODELS, "resnet:depth=19", "19"),
    ],
)
def test_an_option_of_the_wrong_type_is_refused_by_name(table, text, naming):
    refused(lambda: build(table, text, kind="part"), naming=naming)


@pytest.mark.parametrize(
    "value",
    [
        "__import__('os').mkdir('sprung')",
        "open('sprung', 'w')",
        "(lambda: 1)()",
        "[x for x in (1,)]",
        "1 + 1 if True else 2",
        "().__class__",
        "f'{1}'",
        "-inf",
        "os.sep",
        "*[1]",
        "0.5 0.6",
        "(",
        "",
    ],
)
def test_nothing_is_evaluated(value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(lambda: build_defence(f"pruning:keep={value}"), naming="pruning")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", ["0.5", "0.5,keep=0.5", "**{'keep': 1}", "keep", "keep=1=2", "keep:0.5"])
def test_options_need_names(options):
    refused(lambda: build(DEFENCES, f"pruning:{options}", kind="defence"), naming="pruning")


@settings(deadline=None, max_examples=300)
@given(text=st.text(alphabet="keep=0.1,;:'\"()[]{}*-_ \t\\#@\x00é", max_size=25))
def test_any_words_are_a_part_or_are_refused_in_one_line(text):
    message = ""
    try:
        assert build(DEFENCES, f"pruning:{text}", kind="defence") is not None
    except InvalidCase as error:
        message = str(error)
    assert "\n" not in message


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (DEFENCES, "pruning:keep=0.1) or f("),
        (DEFENCES, "pruning:keep=0.1).f("),
        (DEFENCES, "pruning:keep=0.1)(keep=0.2"),
        (DEFENCES, "pruning:keep=" + "-" * 100_000 + "1"),
        (DEFENCES, "pruning:keep=0.1,keep=0.2"),
        (DEFENCES, "pruning:keep={[]}"),
        (MODELS, "lenet:initial_range=wide"),
    ],
    ids=range(7),
)
def test_crooked_options_are_refused(table, text):
    refused(lambda: build(table, text, kind="part"), naming=text.partition(":")[0])


def test_an_exponent_may_have_a_plus():
    assert build_defence("clipping:max_norm=1e+3") == Clipping(1e3)


def test_embedded_data_are_built_without_options():
    for name in ("photos", "digits"):
        assert build(DATASETS, name, kind="data") == DATASETS[name]()


def test_a_mapping_is_checked_like_words():
    assert from_mapping(FedAvg, {"epochs": 3, "learning_rate": 1}, source="table") == FedAvg(3, 8, 1.0)
    assert from_mapping(MLP, {"hidden": [5]}, source="table") == MLP((5,))
    refused(lambda: from_mapping(FedAvg, {"epoch": 3}, source="table"), naming="did you mean 'epochs'?")
    refused(lambda: from_mapping(FedAvg, {"epochs": "3"}, source="table"), naming="'epochs'")


def test_an_option_without_default_must_be_given():
    def factory(size: int, colour: str = "red") -> tuple[int, str]:
        return size, colour

    assert call(factory, {"size": 3}, owner="thing") == (3, "red")
    refused(lambda: call(factory, {"colour": "blue"}, owner="thing"), naming="'size'")


def test_a_configuration_file_is_read_or_refused(tmp_path):
    def written(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    assert load_config(written("a.toml", "epochs = 3\n[model]\nwidth = 2\n")) == {"epochs": 3, "model": {"width": 2}}
    assert load_config(written("a.json", json.dumps({"epochs": 3}))) == {"epochs": 3}
    refused(lambda: load_config(written("b.toml", "epochs = ")), naming="b.toml")
    refused(lambda: load_config(written("b.json", "{")), naming="b.json")
    refused(lambda: load_config(written("c.json", "[1]")), naming="list")
    refused(lambda: load_config(tmp_path / "none.toml"), naming="none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    refused(lambda: load_config(tmp_path / "bytes.toml"), naming="bytes.toml")


def test_a_users_factory_is_imported_or_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "their_models.py").write_text(
        "from torch import nn\ndef small():\n    return nn.Linear(2, 3)\n"
        "def sized(size):\n    return nn.Linear(size, 3)\ndef number():\n    return 7\n"
    )
    assert isinstance(import_factory("their_models:small"), torch.nn.Linear)
    assert import_factory("their_models:sized:size=4").in_features == 4
    for reference, naming in (
        ("small", "package.module:factory"),
        (":small", "package.module:factory"),
        ("no_such_module:small", "no_such_module"),
        ("their_models:tiny", "tiny"),
        ("their_models:sized", "without arguments"),
        ("their_models:number", "int"),
    ):
        refused(lambda reference=reference: import_factory(reference), naming=naming)
