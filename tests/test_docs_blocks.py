"""Every piece of code on every page is run, every plan is read, and every command is one that there is."""

from __future__ import annotations

import contextlib
import importlib.util
import shlex
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest
import typer

import leakgauge
from docs_support import Block, blocks, commands, surroundings
from leakgauge.audit.plan import AuditPlan
from leakgauge.config import from_mapping
from leakgauge.errors import Inconclusive, LeakFound

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OF_FLOWER = ("flower.md",)


SLOW = ("opacus.md", "ci.md")
"""Whose audits choose a budget of their own."""


def everything(language: str) -> list[Any]:
    """The blocks of all pages but the README, which test_examples.py runs and looks at."""
    return [
        pytest.param(place, block, marks=pytest.mark.slow if page.name in SLOW else (), id=f"{page.name}:{block.line}")
        for page in PAGES[1:]
        for place, block in enumerate(blocks(page, language))
    ]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("place", "block"), everything("python"))
def test_a_block_of_python_runs(
    place: int, block: Block, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if block.page.name in OF_FLOWER:
        if importlib.util.find_spec("flwr") is None:
            pytest.skip("needs Flower, which is no part of the dev extra")
        # Of clients there are none here; the example of the page is run, with clients, by the slow tests.
        monkeypatch.setattr("flwr.serverapp.strategy.Strategy.start", lambda *_, **__: None)
    names = surroundings(monkeypatch, tmp_path) | SETTINGS.get((block.page.name, place), dict)()
    exec(compile(block.code, f"{block.page.name}:{block.line}", "exec"), names)
    for name, made in list(names.items()):
        if name.startswith("test_"):
            with contextlib.suppress(LeakFound, Inconclusive, AssertionError):  # which of them, one step does not tell
                made(*([request.getfixturevalue("leak_audit")] if "leak_audit" in block.code else []))


def _of_opacus() -> dict[str, object]:
    import torch

    from docs_support import DIGITS, small_model

    model = small_model()
    data = torch.utils.data.TensorDataset(DIGITS.train.inputs[:32], DIGITS.train.labels[:32])
    loader = torch.utils.data.DataLoader(data, batch_size=8)
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "loader": loader}


def _of_encrypted_training() -> dict[str, object]:
    import torch

    from docs_support import small_model

    return {"torch": torch, "model": small_model(), "range": lambda _: range(1)}


def _of_disguises() -> dict[str, object]:
    from docs_support import DIGITS, small_model
    from leakgauge.defences import NoDefence
    from leakgauge.encodings import InsideDataset
    from leakgauge.protocol import learner_and_state
    from leakgauge.randomness import seeded
    from leakgauge.training import DefendedTraining, Training

    learner, state = learner_and_state(small_model())
    return {
        "InsideDataset": InsideDataset,
        "DefendedTraining": DefendedTraining,
        "NoDefence": NoDefence,
        "learner": learner,
        "state": state,
        "settings": Training(2, batch_size=8),
        "test": DIGITS.test[slice(0, 16)],
        "generator": seeded(0, "test"),
    }


def _of_flower() -> dict[str, object]:
    from flwr.clientapp import ClientApp
    from flwr.serverapp.strategy import FedAvg

    from leakgauge.integrations.flower import DeclaredClient, DefenceMod

    return {
        "ClientApp": ClientApp,
        "DefenceMod": DefenceMod,
        "FedAvg": FedAvg,
        "known": DeclaredClient((1, 8, 8)),
        "grid": None,
        "arrays": None,
        "my_batch": lambda context: context,
    }


def _of_a_new_attack() -> dict[str, object]:
    names: dict[str, object] = {}
    exec(blocks(ROOT / "docs" / "add-an-attack.md", "python")[0].code, names)
    return {"MeanGrey": names["MeanGrey"]}


SETTINGS = {
    ("add-an-attack.md", 1): _of_a_new_attack,
    ("opacus.md", 0): _of_opacus,
    ("instahide.md", 0): _of_encrypted_training,
    ("instahide.md", 1): _of_disguises,
    **{("flower.md", place): _of_flower for place in range(3)},
}


@pytest.mark.parametrize(("place", "block"), everything("toml"))
def test_a_plan_on_a_page_is_a_plan(place: int, block: Block) -> None:
    from leakgauge.sweep.grid import read_grid
    from leakgauge.tradeoff.plan import TradeoffPlan

    values = tomllib.loads(block.code)
    if block.page.name == "tradeoff.md":
        assert from_mapping(TradeoffPlan, values, source="plan")
    elif block.page.name == "sweeps.md":
        assert read_grid(values)
    else:
        assert from_mapping(AuditPlan, values, source="plan")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_command_that_a_page_tells_to_type_is_one(page: Path) -> None:
    from leakgauge.cli import app

    top = typer.main.get_command(app)
    for line in commands(page):
        if "-completion" in line:  # which would be installed
            continue
        words = shlex.split(line.replace("[", "").replace("]", "").split(" | ")[0], comments=True)[1:]
        try:
            _parse(top, words)
        except click.exceptions.Exit:
            pass
        except click.UsageError as error:
            raise AssertionError(f"{page.name}: {line}: {error.format_message()}") from error


def _parse(command: click.Command, words: list[str]) -> None:
    """Parse and do not run: what is wrong with the words shows before anything is done."""
    with command.make_context("leakgauge", list(words), resilient_parsing=False) as context:
        if isinstance(command, click.Group):
            rest = [*context._protected_args, *context.args]
            name, below, further = command.resolve_command(context, rest)
            assert below is not None, name
            with below.make_context(name, list(further), parent=context) as inner:
                if isinstance(below, click.Group):
                    second = [*inner._protected_args, *inner.args]
                    other, last, end = below.resolve_command(inner, second)
                    assert last is not None, other
                    last.make_context(other, list(end), parent=inner)


def test_an_audit_on_a_page_is_the_real_one_cut_short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = leakgauge.audit
    names = surroundings(monkeypatch, tmp_path)
    assert names["leakgauge"].audit is not real
    assert not isinstance(real, partial)
