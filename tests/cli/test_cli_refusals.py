from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli_support import *  # noqa: F403
from cli_support import Command, Words

from leakgauge.audit import plan
from leakgauge.cli import main
from leakgauge.files import write_tensors


def changed(words: Words, **options: str) -> list[str]:
    """The words with some options given another value."""
    result = list(words)
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if flag in result:
            result[result.index(flag) + 1] = value
        else:
            result += [flag, value]
    return result


@pytest.fixture
def refuses(command: Command, small: Words, tmp_path: Path) -> Callable[..., None]:
    """The audit with these options ends with one sentence that holds these words, and leaves no folder behind."""

    def check(*words: str, **options: str) -> None:
        for json in ((), ("--json",)):
            command("audit", *changed(small, **options), "--out", tmp_path / "out", *json).refused(*words)
            assert not (tmp_path / "out").exists()

    return check


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dataset": "digit"}, ("no dataset 'digit'", "did you mean 'digits'")),
        ({"dataset": "xyzzy"}, ("no dataset 'xyzzy'", "choose from", "photos")),
        ({"dataset": "photos:sise=16"}, ("no option 'sise'", "did you mean 'size'")),
        ({"dataset": "photos:size=huge"}, ("'size'", "whole number", "'huge'")),
        ({"dataset": "photos:size=7"}, ("8 to 256",)),
        ({"dataset": "photos:size=16)+(1"}, ("options need names",)),
        ({"dataset": "photos:size=((("}, ("never closed", "name:option=value")),
        ({"dataset": "photos:16"}, ("options need names",)),
        ({"dataset": "npz"}, ("needs the option 'file'",)),
        ({"model": "mpl"}, ("no model 'mpl'", "did you mean 'mlp'")),
        ({"model": "mpl:hidden=(8,)"}, ("no model 'mpl'", "did you mean 'mlp'")),
        ({"model": "mlp:hidden=8"}, ("'hidden'", "list")),
        ({"model": "mlp:hidden=(8,'a')"}, ("'hidden'", "'a'")),
        ({"model": "lenet:initial_range=wide"}, ("'initial_range'", "a number", "'wide'")),
        ({"model": "mlp:hidden=(0,)"}, ("hidden", "0")),
        ({"defence": "prunning"}, ("no defence 'prunning'", "did you mean 'pruning'")),
        ({"defence": "clipping:max_norm=1+nois"}, ("no defence 'nois'",)),
        ({"defence": "pruning:keep=0.1,keep=0.2"}, ("given twice",)),
        ({"defence": "pruning:keep={[]}"}, ("a value must be",)),
        ({"defence": f"clipping:max_norm=1{'0' * 400}"}, ("'max_norm'", "a number")),
        ({"defence": "pruning:keep=2"}, ("keep", "(0, 1]")),
        ({"defence": ""}, ("no defence ''",)),
        ({"attack": "quasinewton"}, ("no attack 'quasinewton'", "did you mean 'quasi_newton'")),
        ({"attack": "quasi_newton:step=3"}, ("no option 'step'", "did you mean 'steps'")),
        ({"attack": "linear_layer:labels=idlg"}, ("'labels'", "from Python")),
        ({"threat_model": "strongst"}, ("no threat model 'strongst'", "did you mean 'strongest'")),
        ({"local_update": "fedavg:epochs=0"}, ("epochs >= 1",)),
        ({"local_update": "fedprox"}, ("no local update 'fedprox'",)),
        ({"mode": "sleep"}, ("no mode 'sleep'",)),
        ({"batch_size": "0"}, ("batch_size >= 1",)),
        ({"batch_size": "-3"}, ("batch_size >= 1",)),
        ({"batch_size": "many"}, ("--batch-size", "'many'")),
        ({"rounds": "0"}, ("rounds >= 1",)),
        ({"distractors": "-1"}, ("distractors >= 0",)),
        ({"distractors": "1000000000000000000000000000000"}, ("at most", "distractors")),
        ({"nulls": "1000000000"}, ("at most", "nulls")),
        ({"steps": "0"}, ("steps >= 1",)),
        ({"train_steps": "-1"}, ("train_steps >= 0",)),
        ({"rounds": "1000"}, ("1000 private images", "359", "lower batch_size or rounds")),
        ({"batch_size": "360"}, ("360 private images", "359", "lower batch_size or rounds")),
        ({"dataset": "cifar10"}, ("--data-root", "CIFAR-10")),
        ({"dataset": "cifar10", "data_root": "/nowhere/at/all"}, ("/nowhere/at/all", "--data-root")),
        ({"dataset": "npz:file='x.npz'", "data_root": "."}, ("Cannot find x.npz",)),
        ({"weights": "."}, ("LPIPS", "alexnet_features")),
        ({"state": "missing.safetensors"}, ("missing.safetensors", "No such file")),
        ({"seed": "x"}, ("--seed",)),
    ],
    ids=lambda value: "-".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else "",
)
def test_an_unknown_word_or_impossible_number_is_named(
    refuses: Callable[..., None], options: dict[str, str], words: Words
) -> None:
    refuses(*words, **options)


def test_an_unknown_option_or_command_is_named_in_one_sentence(command: Command) -> None:
    command("audit", "--datset", "digits").refused("--datset", "--dataset", "leakgauge audit --help")
    command("audot").refused("audot", "leakgauge --help")
    command("invert").refused("FILE")
    command("invert", "round.safetensors").refused("--model")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("plan.toml", "batchsize = 4", ("no option 'batchsize'", "did you mean 'batch_size'")),
        ("plan.toml", "batch_size = ", ("plan.toml", "cannot be parsed")),
        ("plan.toml", 'batch_size = "4"', ("'batch_size'", "whole number", "'4'")),
        ("plan.toml", "batch_size = 1.5", ("'batch_size'", "1.5")),
        ("plan.toml", "batch_size = true", ("'batch_size'", "True")),
        ("plan.toml", "steps = 2.5", ("'steps'", "whole number")),
        ("plan.toml", "dataset = 3", ("'dataset'", "text")),
        ("plan.toml", "data_root = 3", ("'data_root'", "text")),
        ("plan.toml", 'defences = "none"', ("'defences'", "list")),
        ("plan.toml", "defences = [1, 2]", ("'defences'", "text", "1")),
        ("plan.toml", "defences = []", ("at least one",)),
        ("plan.toml", "[audit]\nseed = 1", ("no option 'audit'",)),
        ("plan.toml", "rounds = 0", ("rounds >= 1",)),
        ("plan.json", "{", ("plan.json", "cannot be parsed")),
        ("plan.json", "[1]", ("table of keys",)),
        ("plan.json", '{"seed": null}', ("'seed'", "None")),
        ("plan.json", '{"dataset": ["digits"]}', ("'dataset'",)),
        ("plan.json", "[" * 100_000, ("cannot be parsed",)),
        ("plan.json", "", ("cannot be parsed",)),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "",
)
def test_a_wrong_configuration_is_refused(command: Command, tmp_path: Path, name: str, text: str, words: Words) -> None:
    config = tmp_path / name
    config.write_text(text)
    small = ("--train-steps", "0", "--dataset", "digits", "--model", "mlp:hidden=(8,)")
    if 'dataset"' in text or "dataset =" in text:
        small = small[:2]
    command("audit", config, *small, "--out", tmp_path / "out").refused(*words)
    assert not (tmp_path / "out").exists()


def test_a_configuration_that_cannot_be_read_is_refused(command: Command, tmp_path: Path) -> None:
    command("audit", tmp_path / "none.toml").refused("none.toml", "No such file", "check the path")
    command("audit", tmp_path).refused(str(tmp_path), "check the path")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    command("audit", tmp_path / "bytes.toml").refused("bytes.toml", "UTF-8")
    assert not Path("report").exists()


@pytest.mark.parametrize("size", [0, 1, 3072, 3073 + 100])
def test_a_truncated_cifar_file_is_refused(refuses: Callable[..., None], tmp_path: Path, size: int) -> None:
    (tmp_path / "test_batch.bin").write_bytes(bytes(size))
    refuses("test_batch.bin", dataset="cifar10", data_root=str(tmp_path), model="mlp:hidden=(8,)")


def test_a_cifar_folder_without_the_test_file_is_refused(refuses: Callable[..., None], tmp_path: Path) -> None:
    refuses("Cannot find test_batch.bin", dataset="cifar10", data_root=str(tmp_path))


def test_an_unwritable_folder_is_refused_before_the_model_is_trained(
    command: Command, small: Words, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("prepared in vain")

    monkeypatch.setattr(plan, "prepare", never)
    (tmp_path / "file").write_text("precious")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        command("audit", *small, "--out", out).refused("Cannot write to", "--out")
    assert (tmp_path / "file").read_text() == "precious"


MODELS = {
    "no such module": (None, "nowhere_to_be_found:build", ("nowhere_to_be_found", "cannot be imported")),
    "no such name": ("x = 1", "{}:build", ("build", "cannot be imported")),
    "no name": ("x = 1", "{}:", ("names no factory", "package.module:factory")),
    "does not parse": ("def build(:\n", "{}:build", ("cannot be imported",)),
    "fails on import": ("raise RuntimeError('one\\ntwo')", "{}:build", ("cannot be imported (one)",)),
    "fails without a word": ("raise KeyError", "{}:build", ("cannot be imported (KeyError)",)),
    "needs arguments": ("def build(classes):\n    return None", "{}:build", ("without arguments", "classes")),
    "fails when called": ("def build():\n    return 1 / 0", "{}:build", ("division by zero",)),
    "is no function": ("build = 3", "{}:build", ("without arguments", "not callable")),
    "is a model already": ("from torch import nn\nbuild = nn.Linear(64, 10)", "{}:build", ("is a model",)),
    "returns no module": ("def build():\n    return 3", "{}:build", ("returned int", "torch.nn.Module")),
    "has too few outputs": (
        "from torch import nn\ndef build():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 9))",
        "{}:build",
        ("9 outputs", "10 classes"),
    ),
    "cannot take the images": (
        "from torch import nn\ndef build():\n    return nn.Sequential(nn.Flatten(), nn.Linear(63, 10))",
        "{}:build",
        ("cannot take images of 1 x 8 x 8",),
    ),
    "takes colour only": (
        "from torch import nn\ndef build():\n    return nn.Sequential(nn.Conv2d(3, 10, 8), nn.Flatten())",
        "{}:build",
        ("cannot take images of 1 x 8 x 8",),
    ),
    "returns a tuple": (
        "from torch import nn\nclass build(nn.Linear):\n    def __init__(self):\n        super().__init__(64, 10)\n"
        "    def forward(self, x):\n        return (super().forward(x.flatten(1)),)",
        "{}:build",
        ("one row of class scores per input",),
    ),
    "returns a score per pixel": (
        "from torch import nn\ndef build():\n    return nn.Conv2d(1, 10, (8, 1), padding=(0, 1))",
        "{}:build",
        ("one row of class scores per input",),
    ),
    "computes in double precision": (
        "from torch import nn\ndef build():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).double()",
        "{}:build",
        ("fails on the private batch", "float64", "float32", "model.float()"),
    ),
    "has diverged": (
        "from torch import nn\ndef build():\n    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
        "    nn.init.constant_(model[1].bias, float('nan'))\n    return model",
        "{}:build",
        ("not a finite number", "weights"),
    ),
    "has nothing to train": (
        "from torch import nn\ndef build():\n    return nn.Flatten()",
        "{}:build",
        ("no trainable parameter",),
    ),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("train_steps", ["0", "2"])
def test_a_factory_that_gives_no_fitting_model_is_refused(
    refuses: Callable[..., None], module: Callable[[str], str], name: str, train_steps: str
) -> None:
    source, reference, words = MODELS[name]
    model = reference if source is None else reference.format(module(source))
    refuses(*words, model=model, train_steps=train_steps)


class Bomb:
    """Unpickled, it leaves a mark."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("exploded"),)


def test_weights_that_are_no_fitting_safetensors_are_refused(
    refuses: Callable[..., None], mlp: str, tmp_path: Path
) -> None:
    weights = tmp_path / "weights"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        weights.write_bytes(pickle.dumps(Bomb(), protocol))
        refuses("weights", model=mlp, state=str(weights))
    torch.save({"x": torch.zeros(1)}, weights)
    refuses("pickled", "safetensors", model=mlp, state=str(weights))
    assert not Path("exploded").exists()
    weights.write_bytes(b"\x08")
    refuses("not a readable safetensors file", model=mlp, state=str(weights))
    write_tensors(weights, {"other": torch.zeros(3)})
    refuses("do not fit the model", model=mlp, state=str(weights))
    write_tensors(weights, {"1.weight": torch.zeros(8, 63), "1.bias": torch.zeros(8)})
    refuses("do not fit the model", model=mlp, state=str(weights))


def test_a_damaged_npz_is_refused(refuses: Callable[..., None], tmp_path: Path) -> None:
    for name, content in (("a.npz", b""), ("b.npz", b"PK\x03\x04 and nothing"), ("c.npz", pickle.dumps(Bomb()))):
        (tmp_path / name).write_bytes(content)
        refuses(name, dataset=f"npz:file={name!r}", data_root=str(tmp_path))
    np.savez(tmp_path / "d.npz", images=np.array([Bomb()], dtype=object))
    refuses("d.npz", dataset="npz:file='d.npz'", data_root=str(tmp_path))
    assert not Path("exploded").exists()


def test_a_message_stays_one_line_whatever_the_name(command: Command, tmp_path: Path) -> None:
    command("audit", tmp_path / "two\nlines.toml").refused("two lines.toml")
    command("audit", "--dataset", "[red]x").refused("'[red]x'")


@pytest.mark.parametrize("command", ["audit", "train", "check", "invert"])
def test_no_help_turns_a_colon_and_a_word_into_a_picture(command, capfd):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert all(ord(letter) < 0x1F000 for letter in capfd.readouterr().out)
