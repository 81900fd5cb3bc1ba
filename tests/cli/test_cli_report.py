from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cli_support import *  # noqa: F403
from cli_support import Command, Process, Words

from leakgauge import __version__
from leakgauge.catalogue import CATALOGUE


@pytest.fixture
def audited(command: Command, small: Words) -> Any:
    """An audit kept in the folder ``out``."""
    answer = command("audit", *small, "--attack", "quasi_newton", "--seed", "2", "--out", "out", "--json")
    assert answer.code == 0
    return answer


def test_a_report_is_written_again_from_the_store_without_attacking(
    command: Command, audited: Any, count_runs: list[str]
) -> None:
    page = Path("out/index.html").read_bytes()
    settings = Path("out/plan.json").read_bytes()
    Path("out/index.html").unlink()
    Path("out/plan.json").unlink()
    answer = command("report", "out", "--json")
    assert (answer.code, answer.err, count_runs) == (0, "", [])
    assert Path("out/index.html").read_bytes() == page
    assert Path("out/plan.json").read_bytes() == settings
    assert answer.payload["rows"] == audited.payload["rows"]
    assert (answer.payload["command"], answer.payload["seed"]) == ("report", 2)


def test_a_report_shows_the_last_run_of_a_folder(command: Command, audited: Any, small: Words) -> None:
    command("audit", *small, "--seed", "9", "--out", "out", "--json")
    answer = command("report", "out", "--json")
    assert (answer.payload["seed"], len(answer.rows)) == (9, 1)


def test_a_report_can_be_gated(command: Command, audited: Any) -> None:
    assert command("report", "out", "--fail-above", "psnr=100").code == 1
    assert command("report", "out", "--fail-above", "psnr=1000").code == 0
    page = Path("out/index.html").read_bytes()
    Path("out/index.html").unlink()
    command("report", "out", "--fail-above", "psnrr=1").refused("no metric 'psnrr'")
    command("report", "out", "--fail-above", "psnr=").refused("metric=number")
    assert not Path("out/index.html").exists()
    command("report", "out")
    assert Path("out/index.html").read_bytes() == page
    command("report", "out", "--fail-above", "lpips_vgg=0.1").refused("lpips_vgg", "not measured")


def test_a_moved_folder_is_still_a_report(command: Command, audited: Any) -> None:
    shutil.move("out", "elsewhere")
    assert command("report", "elsewhere", "--json").payload["rows"] == audited.payload["rows"]


def test_a_folder_without_an_audit_is_refused_and_left_alone(command: Command) -> None:
    Path("empty").mkdir()
    command("report", "empty").refused("empty", "holds no audit", "leakgauge audit --out empty")
    assert list(Path("empty").iterdir()) == []
    command("report", "missing").refused("missing", "holds no audit")
    command("report").refused("report", "holds no audit")
    assert not Path("missing").exists()
    command("list", "runs", "--out", "missing").refused("missing", "holds no audit")


def test_a_damaged_store_is_refused_in_one_sentence(command: Command, audited: Any, small: Words) -> None:
    database = Path("out/audit.sqlite")
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE records SET body = '{}'")
    command("report", "out").refused("damaged")
    database.write_bytes(b"no database" * 100)
    for words in (("report", "out"), ("list", "runs", "--out", "out"), ("audit", *small, "--out", "out")):
        command(*words).refused("audit.sqlite", "choose another --out folder")


def test_the_runs_of_a_folder_are_listed(command: Command, audited: Any, small: Words) -> None:
    command("audit", *small, "--seed", "9", "--out", "out")
    answer = command("list", "runs", "--out", "out", "--json")
    assert (answer.code, answer.err) == (0, "")
    runs = answer.payload["rows"]
    assert [(run["id"], run["seed"], run["finished"], run["cases"]) for run in runs] == [(1, 2, 4, 4), (2, 9, 2, 2)]
    assert all(run["model"] == "mlp:hidden=(8,)" for run in runs)
    assert "mlp" in command("list", "runs", "--out", "out").out


def test_the_catalogue_is_listed_in_full(command: Command) -> None:
    answer = command("list", "--json")
    assert (answer.code, answer.err) == (0, "")
    payload = answer.payload
    assert (payload["command"], payload["version"]) == ("list", __version__)
    assert {(row["kind"], row["name"]) for row in payload["rows"]} == {
        (kind, name) for kind, table in CATALOGUE.items() for name in table
    }
    assert all(row["what"] for row in payload["rows"])


@pytest.mark.parametrize("kind", CATALOGUE)
def test_one_kind_of_the_catalogue_is_listed(command: Command, kind: str) -> None:
    rows = command("list", kind, "--json").payload["rows"]
    assert [row["name"] for row in rows] == list(CATALOGUE[kind])
    text = command("list", kind)
    assert (text.code, text.err) == (0, "")
    assert all(name in text.out for name in CATALOGUE[kind])


def test_an_unknown_kind_is_refused(command: Command) -> None:
    command("list", "nonsense").refused("'nonsense'", "attacks", "runs")
    command("list", "nonsense", "--json").refused("'nonsense'")


@pytest.mark.slow
def test_the_package_runs_as_a_module(process: Process) -> None:
    listing = process("list", "threat_models", "--json")
    out, err = listing.communicate(timeout=300)
    assert (listing.returncode, err) == (0, "")
    assert [row["name"] for row in json.loads(out)["rows"]] == list(CATALOGUE["threat_models"])
