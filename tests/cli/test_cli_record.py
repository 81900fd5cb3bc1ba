"""A round recorded from files is attacked as one that was recorded in Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from leakgauge.cli import main
from leakgauge.models import MLP, build
from leakgauge.protocol.recording import read_round
from leakgauge.protocol.state_dicts import rename

FACTORY = """
import torch
from torch import nn

def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 16), nn.ReLU(), nn.Linear(16, 4))
"""


def run_main(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return int(ended.value.code or 0)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model, its private batch and the weights around one step of it, as two frameworks save them."""
    (tmp_path / "recorded_net.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    namespace: dict[str, Any] = {}
    exec(FACTORY, namespace)
    model: nn.Module = namespace["net"]()
    image, label = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(1)), torch.tensor([2])
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    torch.save({f"module.{name}": tensor for name, tensor in before.items()}, tmp_path / "before.pt")
    cross_entropy(model(image), label).backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
    after = {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}
    np.savez(tmp_path / "after.npz", *after.values())
    np.savez(tmp_path / "change.npz", **{name: after[name] - before[name].numpy() for name in before})
    np.savez(tmp_path / "truth.npz", images=image.numpy(), labels=label.numpy())
    return tmp_path


SAID = ("--input", "3,8,8", "--model", "recorded_net:net", "--batch-size", 1)
CLIENT = ("--local-update", "fedavg:epochs=1,batch_size=1,learning_rate=0.1")


def test_weights_of_two_frameworks_make_one_round_that_explains_itself(files: Path, capsys: Any) -> None:
    words = (
        "record",
        "--before",
        "before.pt",
        "--after",
        "after.npz",
        *SAID,
        *CLIENT,
        "--truth",
        "truth.npz",
        "--json",
    )
    assert run_main(*words) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["explanation"][0].startswith("The update is explained as declared")
    assert not any("--read" in sentence for sentence in said["explanation"])
    made = read_round(files / "round.safetensors")
    assert (
        run_main("record", "--before", "before.pt", "--difference", "change.npz", *SAID, "--out", "b.safetensors") == 0
    )
    same = read_round(files / "b.safetensors")
    assert all(torch.allclose(made.update[name], same.update[name], atol=1e-7) for name in made.update)
    found = rename(made.update, ["1.weight", "1.bias"])
    rows = found["1.bias"].abs().argmax()
    image = found["1.weight"][rows] / found["1.bias"][rows]
    truth = torch.from_numpy(np.load(files / "truth.npz")["images"]).flatten()
    assert torch.allclose(image, truth, atol=1e-2)


def test_a_round_of_a_model_of_the_catalogue_has_its_classes_from_its_weights(tmp_path: Path, capsys: Any) -> None:
    model = build(MLP(hidden=(16,)), (3, 8, 8), 4, seed=0)
    image, label = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(1)), torch.tensor([2])
    before = {name: values.detach().clone() for name, values in model.state_dict().items()}
    cross_entropy(model(image), label).backward()
    change = {name: -0.1 * values.grad.numpy() for name, values in model.named_parameters()}
    np.savez(tmp_path / "before.npz", **{name: values.numpy() for name, values in before.items()})
    np.savez(tmp_path / "change.npz", **change)
    np.savez(tmp_path / "truth.npz", images=image.numpy(), labels=label.numpy())
    said = ["--model", "mlp:hidden=(16,)", "--truth", tmp_path / "truth.npz", "--json"]
    words = ["--before", tmp_path / "before.npz", "--difference", tmp_path / "change.npz", "--input", "3,8,8"]
    made = tmp_path / "round.safetensors"
    assert run_main("record", *words, *said, *CLIENT, "--batch-size", 1, "--out", made) == 0
    assert json.loads(capsys.readouterr().out)["explanation"][0].startswith("The update is explained as declared")
    out = ["--attack", "linear_layer", "--out", tmp_path / "inverted"]
    assert run_main("invert", made, *said, *out) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["outcome"], row["verdict"]) == ("solved", "leaks")
    assert run_main("invert", made, *said[2:], "--model", "mlpp", *out) == 2
    assert "did you mean 'mlp'" in capsys.readouterr().err


def test_files_that_were_exchanged_are_seen_by_their_sign(files: Path, capsys: Any) -> None:
    words = (
        "record",
        "--before",
        "after.npz",
        "--after",
        "before.pt",
        *SAID,
        *CLIENT,
        "--truth",
        "truth.npz",
        "--json",
    )
    assert run_main(*words) == 0
    told = " ".join(json.loads(capsys.readouterr().out)["explanation"])
    assert "--read swapped" in told or "--read reversed" in told


def test_adapters_alone_are_recorded_over_their_base(files: Path) -> None:
    before = torch.load(files / "before.pt", weights_only=True)
    head = {name: tensor for name, tensor in before.items() if "3." in name}
    torch.save(head, files / "head.pt")
    torch.save(
        {name: tensor + 0.5 * torch.arange(tensor.numel()).view(tensor.shape) for name, tensor in head.items()},
        files / "moved.pt",
    )
    words = ("record", "--before", "head.pt", "--after", "moved.pt", "--base", "before.pt", "--input", "3,8,8")
    assert run_main(*words, "--out", "head.safetensors") == 0
    made = read_round(files / "head.safetensors")
    assert len(made.state) == 4
    assert set(made.update) == set(head)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--before", "before.pt"), "give either --after or --difference"),
        (("--before", "before.pt", "--after", "nowhere.npz"), "there is no such file"),
        (("--before", "before.pt", "--after", "after.npz"), "without names; give --model"),
        (("--before", "before.pt", "--after", "before.pt"), "zero in every entry"),
        (("--before", "before.pt", "--difference", "change.npz", "--truth", "truth.npz"), "give --model as well"),
    ],
)
def test_what_cannot_be_recorded_is_refused_in_one_sentence(
    files: Path, capsys: Any, words: tuple[str, ...], said: str
) -> None:
    assert run_main("record", *words) == 2
    assert said in capsys.readouterr().err.replace("\n", " ")
    assert not (files / "round.safetensors").exists()
