"""That an exit code never lies: 0 is an answer, 1 bad news, 2 a refusal, 70 a crash with a file, 130 a stop."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli_support import *  # noqa: F403
from cli_support import Command, Words

from leakgauge.audit import plan
from leakgauge.audit.executors import in_process
from leakgauge.audit.run import failed
from leakgauge.cli.exit_codes import ExitCode

PAGE = Path(__file__).parents[2] / "docs" / "exit-codes.md"


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where crashes are kept."""
    folder = tmp_path / "logs"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def test_the_page_of_exit_codes_has_all_of_them_and_no_other():
    said = re.findall(r"^\| (\d+) \|", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    assert [int(code) for code in said] == [code.value for code in ExitCode]


def test_a_crash_is_70_with_one_sentence_and_a_file_that_has_the_rest(
    command: Command, small: Words, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("nobody foresaw\nthis")

    monkeypatch.setattr(plan, "prepare", broken)
    answer = command("audit", *small)
    assert answer.code == ExitCode.CRASHED
    assert answer.out == ""
    assert answer.err.count("\n") == 1
    assert "ZeroDivisionError: nobody foresaw this" in answer.err
    (log,) = logs.iterdir()
    assert str(log) in answer.err
    assert log.stat().st_mode & 0o077 == 0
    text = log.read_text("utf-8")
    assert "Traceback" in text
    assert "'--dataset' 'digits'" in text


def test_a_crash_without_room_for_a_file_is_told_in_full(
    command: Command, small: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.mkstemp", full)
    monkeypatch.setattr(plan, "prepare", lambda *_: 1 // 0)
    answer = command("audit", *small)
    assert answer.code == ExitCode.CRASHED
    assert "Traceback" in answer.err


@pytest.mark.parametrize("leaving", ["SystemExit(0)", "SystemExit()", "SystemExit(1)", "SystemExit('fine')"])
def test_a_factory_that_leaves_is_refused_and_never_taken_for_an_answer(
    command: Command, small: Words, module, leaving: str
) -> None:
    in_call = module(f"def build():\n    raise {leaving}\n")
    in_import = module(f"raise {leaving}\n")
    command("audit", *small, "--model", f"{in_call}:build").refused("build", "failed")
    command("audit", *small, "--model", f"{in_import}:build").refused("cannot be imported")


def test_a_model_that_leaves_while_it_runs_is_a_crash_and_never_an_answer(
    command: Command, small: Words, module, logs: Path
) -> None:
    source = (
        "from torch import nn\nclass Leaving(nn.Linear):\n    def forward(self, x):\n        raise SystemExit(0)\n"
        "def build():\n    return nn.Sequential(nn.Flatten(), Leaving(64, 10))\n"
    )
    answer = command("audit", *small, "--model", f"{module(source)}:build")
    assert answer.code == ExitCode.CRASHED
    assert "ended the program" in answer.err


def test_a_case_that_failed_is_no_answer(
    command: Command, small: Words, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = in_process.run_safely
    monkeypatch.setattr(
        in_process, "run_safely", lambda case, *rest: real(case, *rest) if case.null else failed(case, "It broke.")
    )
    answer = command("audit", *small, "--out", tmp_path / "out")
    assert answer.code == ExitCode.INCONCLUSIVE
    assert "failed 1 of the cases: It broke." in answer.err


@pytest.mark.parametrize("redirected", [">&-", "> /dev/full"])
def test_a_closed_or_full_output_is_refused(redirected: str) -> None:
    ended = subprocess.run(
        ["/bin/sh", "-c", f"{sys.executable} -m leakgauge --help {redirected}"],
        capture_output=True,
        text=True,
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
    )
    assert ended.returncode == ExitCode.REFUSED, ended
    assert ended.stderr.startswith("leakgauge: ")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b"], ids=["too long", "with a NUL"])
def test_a_name_that_no_file_can_have_is_refused_by_every_command(command: Command, mlp: str, name: str) -> None:
    for words in (("report",), ("status",), ("results",), ("vet",), ("labels", "--model", mlp), ("sweep", "--dry-run")):
        command(*words, name).refused()


def test_a_nul_in_a_plan_is_refused(command: Command) -> None:
    Path("plan.toml").write_text('data_root = "a\\u0000b"\n')
    command("audit", "plan.toml").refused("NUL")
