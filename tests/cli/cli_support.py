"""Fixtures of the command line's tests; a second conftest.py would collide with the first, as both are doctested."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

import leakgauge
from leakgauge import Federation, FedSGD, RecordedRound, learner_and_state, simulate_round
from leakgauge.audit.executors import in_process
from leakgauge.defences import NoDefence
from leakgauge.randomness import seeded
from leakgauge.types import Batch

with warnings.catch_warnings():
    # typer still imports names that click has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from leakgauge.cli import main

__all__ = [
    "_clean_surroundings",
    "command",
    "count_runs",
    "mlp",
    "module",
    "process",
    "recorded",
    "small",
    "truth",
]

SMALL = (
    *("--dataset", "digits", "--model", "mlp:hidden=(8,)", "--train-steps", "2", "--steps", "3", "--batch-size", "1"),
    *("--attack", "linear_layer", "--defence", "none", "--distractors", "99", "--nulls", "1"),
)
"""An audit of a second: one image, one attack, no defence; later options override or add to these."""

_numbers = itertools.count()


@dataclass(frozen=True)
class Answer:
    """What a command left behind for whoever called it."""

    code: int
    out: str
    err: str

    @property
    def payload(self) -> dict[str, Any]:
        """The one JSON object on stdout, read by a parser that knows no NaN."""
        assert self.out.count("\n") == 1
        payload = json.loads(self.out, parse_constant=_no_constant)
        assert isinstance(payload, dict)
        return payload

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows without their seconds, which are all that two equal runs may differ in."""
        timed = ("seconds", "cpu_seconds")
        return [{name: value for name, value in row.items() if name not in timed} for row in self.payload["rows"]]

    def refused(self, *words: str) -> None:
        """Exit code 2, nothing on stdout, and one sentence on stderr that holds these words."""
        assert self.code == 2, self
        assert self.out == ""
        assert "Traceback" not in self.err
        assert self.err.startswith("leakgauge: ")
        assert self.err.count("\n") == 1, self.err
        assert self.err.rstrip()[-1] in ".?"
        for word in words:
            assert word in self.err, (word, self.err)


def _no_constant(name: str) -> NoReturn:
    raise AssertionError(f"{name} is not JSON")


Command = Callable[..., Answer]
Words = tuple[str, ...]
Process = Callable[..., subprocess.Popen[str]]


@pytest.fixture(autouse=True)
def _clean_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty working folder, and no trace of the folders that models were imported from."""
    monkeypatch.delenv("LEAKGAUGE_WEIGHTS", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Command:
    """``command("audit", ...)``: the command line, in this process."""

    def call(*words: str | Path) -> Answer:
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        captured = capfd.readouterr()
        return Answer(int(ended.value.code or 0), captured.out, captured.err)

    return call


@pytest.fixture
def small() -> Words:
    return SMALL


@pytest.fixture
def process() -> Iterator[Process]:
    """``process("audit", ...)``: the command line in a process of its own, ended with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str | Path, **environment: str) -> subprocess.Popen[str]:
        path = os.pathsep.join((str(Path(leakgauge.__file__).parents[1]), os.environ.get("PYTHONPATH", "")))
        one = subprocess.Popen(
            [sys.executable, "-m", "leakgauge", *map(str, words)],
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A shell starts background jobs deaf to Ctrl-C, and children inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        started.append(one)
        return one

    yield start
    for one in started:
        one.kill()
        one.communicate()


@pytest.fixture
def count_runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The cases that were attacked rather than read from the store, by defence, attack and whether they are nulls."""
    runs: list[str] = []
    original = in_process.run_safely

    def counted(case: Any, *rest: Any) -> Any:
        runs.append(f"{case.defence} {case.attack_name} {'null' if case.null else 'real'}")
        return original(case, *rest)

    monkeypatch.setattr(in_process, "run_safely", counted)
    return runs


@pytest.fixture
def module() -> Callable[[str], str]:
    """``module(source)``: the name of a new module with this source, in the working folder."""

    def write(source: str) -> str:
        name = f"victim_{os.getpid()}_{next(_numbers)}"
        Path(f"{name}.py").write_text(source)
        importlib.invalidate_caches()
        return name

    return write


MLP = """
from torch import nn


def build():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))
"""


@pytest.fixture
def mlp(module: Callable[[str], str]) -> str:
    """A factory of the model that `recorded` belongs to."""
    return f"{module(MLP)}:build"


@pytest.fixture
def truth() -> Batch:
    return Batch(torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(5)), torch.tensor([3]))


@pytest.fixture
def recorded(truth: Batch) -> RecordedRound:
    """One update of one image, as a server that knows the label would record it."""
    namespace: dict[str, Any] = {}
    exec(MLP, namespace)
    torch.manual_seed(0)
    learner, state = learner_and_state(namespace["build"]())
    observation = simulate_round(
        Federation(learner, state, FedSGD()),
        truth,
        threat_model=leakgauge.THREAT_MODELS["informed"],
        defence=NoDefence(),
        generator=seeded(0, "client"),
    )
    return RecordedRound.of(observation, local_update="fedsgd", defence="none")
