"""That files which one was sent run no code, whichever command reads them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from cli_support import *  # noqa: F403
from cli_support import Command, Words

from leakgauge import RecordedRound, write_round

MARKING = """
import pathlib
from torch import nn
pathlib.Path("marked").touch()


def build():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def loss(output, labels):
    return nn.functional.cross_entropy(output, labels)
"""


@pytest.fixture
def marking(module) -> str:
    """A module that leaves a mark when it is imported."""
    return module(MARKING)


@pytest.mark.parametrize("command_name", ["audit", "sweep", "tradeoff"])
@pytest.mark.parametrize("key", ["model", "loss", "attacks"])
def test_a_plan_file_runs_no_code_unless_it_is_trusted(
    command: Command, marking: str, command_name: str, key: str
) -> None:
    if (command_name, key) == ("tradeoff", "loss"):
        return  # which has no such key
    named = {
        "model": f'"{marking}:build"',
        "loss": f'"{marking}:loss"',
        "attacks": f"[\"gias:generator='g.safetensors',factory='{marking}:build',latent=2\"]",
    }
    Path("plan.toml").write_text(f'dataset = "digits"\n{key} = {named[key]}\n')
    command(command_name, "plan.toml").refused("names code to run", "--trust")
    assert not Path("marked").exists()


def test_the_same_code_runs_where_the_file_is_trusted_or_the_command_line_names_it(
    command: Command, small: Words, marking: str
) -> None:
    Path("plan.toml").write_text(f'model = "{marking}:build"\n')
    without = [word for word in small if word not in ("--model", "mlp:hidden=(8,)")]
    assert command("audit", "plan.toml", *without, "--trust").code == 0
    assert Path("marked").exists()
    # What the command line says stands in the place of what the file says, which nobody then reads.
    assert command("audit", "plan.toml", *without, "--model", f"{marking}:build").code == 0


def test_a_recorded_round_runs_no_loss_unless_it_is_trusted(
    command: Command, marking: str, mlp: str, recorded: RecordedRound
) -> None:
    write_round(Path("round.safetensors"), replace(recorded, loss=f"{marking}:loss"))
    words = ("round.safetensors", "--model", mlp)
    for name in ("invert", "labels", "explain"):
        command(name, *words).refused("names code to run", "--trust", "--loss")
    assert not Path("marked").exists()
    assert command("labels", *words, "--loss", "cross_entropy").code == 0
    assert not Path("marked").exists()
    assert command("labels", *words, "--trust").code == 0
    assert Path("marked").exists()
