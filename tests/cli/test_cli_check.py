"""``leakgauge check``: in words of 80 columns, as JSON, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cli_support import *  # noqa: F403
from cli_support import Command

from leakgauge.catalogue import ATTACKS, DEFENCES

OWN = """
from torch import nn

def build(width=4):
    return nn.Sequential(nn.Conv2d(3, width, 3, stride=2), nn.Sigmoid(), nn.Flatten(), nn.Linear(width * 9, 5))
"""


def test_a_model_of_ones_own_is_told_in_80_columns(
    command: Command, module: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    name = f"{module(OWN)}:build:width=6"
    answer = command("check", name, "--input", "3,8,8", "--batch-size", "2", "--normalise", "half", "--steps", "500")
    assert (answer.code, answer.err) == (0, "")
    assert max(map(len, answer.out.splitlines())) <= 80
    said = " ".join(answer.out.split())
    for words in (
        f"{name}: 443 trained parameters; images of 3 x 8 x 8",
        "no layer's gradient spans whole examples of an update of 2 examples, that of 1 layer a part of them.",
        "Gradient matching by DoubleBackward",
        "500 steps take about 0:0",
        "normalised.3 1 x 2 5 4 a part",
        "linear_layer",
        "the update mixes several images",
    ):
        assert words in said, (words, said)
    for part in (*ATTACKS, *DEFENCES):
        assert part in said


def test_programs_get_everything_as_one_object(command: Command) -> None:
    found = command("check", "mlp:hidden=(8,)", "--input", "12", "--classes", "3", "--json").payload
    assert (found["command"], found["model"], found["batch_size"]) == ("check", "mlp:hidden=(8,)", 1)
    assert {one["name"] for one in found["attacks"]} == set(ATTACKS)
    assert {"linear_layer", "fully_connected"} <= set(found["closed"])
    assert [layer["largest_batch"] for layer in found["layers"]] == [7, 2]
    assert found["cost"]["training_steps"] > 0
    assert found["parameters"] == 12 * 8 + 8 + 8 * 3 + 3


def test_what_cannot_be_checked_is_refused(command: Command, module: Callable[[str], str]) -> None:
    own = f"{module(OWN)}:build"
    command("check", own, "--input", "1,8,8").refused("layer '0' (Conv2d)", "takes 3 channels and got 1")
    command("check", own, "--input", "3,8").refused("neither images", "3,224,224")
    command("check", own, "--input", "3,8,b").refused("whole numbers such as 3,224,224")
    command("check", own, "--input", "3,8,8", "--classes", "4").refused("leave out --classes")
    command("check", "resnet20_5").refused("did you mean 'resnet20_4'")
    command("check", "lenet", "--normalise", "half").refused("normalises inside")
    command("check", own, "--input", "3,8,8", "--loss", "bce").refused("bce")
