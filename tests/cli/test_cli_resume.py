from __future__ import annotations

import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_support import *  # noqa: F403
from cli_support import Command, Process, Words

from leakgauge import write_round
from leakgauge.audit.executors import in_process
from leakgauge.training import models

ALL = ["none linear_layer", "none idlg_labels", "pruning:keep=0.1 linear_layer", "pruning:keep=0.1 idlg_labels"]
"""The rows of an audit of two defences and two attacks, in the order they run."""


@pytest.fixture
def words(small: Words) -> Words:
    return ("audit", *small, "--attack", "idlg_labels", "--defence", "pruning:keep=0.1", "--json", "--out", "out")


def interrupt_after(finished: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Ctrl-C in the middle of the next case; the function returned lets go."""
    original, left = in_process.run_safely, finished

    def interrupted(*arguments: Any) -> Any:
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= 1
        return original(*arguments)

    monkeypatch.setattr(in_process, "run_safely", interrupted)
    return lambda: monkeypatch.setattr(in_process, "run_safely", original)


@pytest.mark.parametrize("finished", [1, 3, 7])
def test_an_interrupted_audit_reports_what_it_has_and_is_resumed(
    command: Command, words: Words, monkeypatch: pytest.MonkeyPatch, count_runs: list[str], finished: int
) -> None:
    planned = [f"{row} {kind}" for row in ALL for kind in ("real", "null")]
    release = interrupt_after(finished, monkeypatch)
    stopped = command(*words)
    assert stopped.code == 130
    assert "Run the same command to resume" in stopped.err
    assert "Traceback" not in stopped.err
    assert stopped.payload["complete"] is False
    assert len(stopped.rows) == (finished + 1) // 2
    assert count_runs == planned[:finished]
    page = Path("out/index.html").read_text()
    assert f"Stopped early: {finished} attack runs" in page
    release()
    count_runs.clear()
    done = command(*words)
    assert done.code == 0
    assert done.payload["complete"] is True
    assert count_runs == planned[finished:]
    assert "Stopped early" not in Path("out/index.html").read_text()
    fresh = command(*words[:-1], "fresh")
    assert done.rows == fresh.rows


def test_an_audit_interrupted_before_its_first_result_says_so(
    command: Command, words: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = interrupt_after(0, monkeypatch)
    stopped = command(*words)
    assert (stopped.code, stopped.out) == (130, "")
    assert "Stopped before the first result" in stopped.err
    assert not Path("out/index.html").exists()
    command("report", "out").refused("stopped before its first result")
    release()
    assert command(*words).code == 0


def test_an_audit_interrupted_while_it_prepares_leaves_nothing(
    command: Command, words: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(models, "train", interrupted)
    stopped = command(*words)
    assert (stopped.code, stopped.out) == (130, "")
    assert "Stopped before the first result" in stopped.err
    assert not Path("out").exists()


def test_a_sweep_interrupted_before_its_first_cell_says_so_and_is_resumed(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    Path("grid.toml").write_text(
        'dataset = "digits"\nmodel = "mlp:hidden=(8,)"\ntrain_steps = 1\nattacks = ["linear_layer"]\nnulls = 1\n'
    )
    with monkeypatch.context() as patched:
        patched.setattr(models, "train", interrupted)
        stopped = command("sweep", "grid.toml", "--out", "out", "--json")
    assert (stopped.code, stopped.out) == (130, "")
    assert "Stopped before the first result" in stopped.err
    done = command("sweep", "grid.toml", "--out", "out", "--json")
    assert (done.code, done.payload["complete"]) == (0, True)


def test_a_part_of_an_audit_neither_passes_nor_fails_a_limit(
    command: Command, words: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = interrupt_after(1, monkeypatch)
    stopped = command(*words, "--fail-above", "identification=0.5")
    assert (stopped.code, stopped.payload["exceeded"]) == (130, [])
    release()
    assert command(*words, "--fail-above", "identification=0.5").code == 1


def test_an_interrupted_inversion_is_resumed(
    command: Command, recorded: Any, truth: Any, mlp: str, monkeypatch: pytest.MonkeyPatch, count_runs: list[str]
) -> None:
    write_round(Path("round.safetensors"), recorded)
    np.savez("truth.npz", images=truth.inputs.numpy(), labels=truth.labels.numpy())
    words = ("invert", "round.safetensors", "--model", mlp, "--attack", "linear_layer", "--truth", "truth.npz")
    release = interrupt_after(1, monkeypatch)
    stopped = command(*words, "--out", "out", "--json")
    assert stopped.code == 130
    assert stopped.rows[0]["metrics"]["psnr"]["null"]["count"] == 0
    release()
    done = command(*words, "--out", "out", "--json")
    assert done.code == 0
    assert done.rows[0]["metrics"]["psnr"]["null"]["count"] == 3
    assert count_runs == ["as recorded linear_layer real", *["as recorded linear_layer null"] * 3]


def stored(database: Path) -> int:
    """How many results a database holds while others may be writing to it."""
    if not database.exists():
        return 0
    try:
        with closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            return int(connection.execute("SELECT COUNT(*) FROM records").fetchone()[0])
    except sqlite3.OperationalError:
        return 0  # the tables are still being made


def wait_for_a_result(database: Path, running: subprocess.Popen[str], *, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while stored(database) < 1:
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < deadline, "no result in time"
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_process_that_is_stopped_loses_nothing_that_was_finished(
    command: Command, process: Process, small: Words, count_runs: list[str], how: signal.Signals
) -> None:
    # The first attack takes no time, the second about a second: that is when the signal arrives.
    words = ("audit", *small, "--attack", "inverting_gradients", "--steps", "150", "--json", "--out", "out")
    running = process(*words)
    wait_for_a_result(Path("out/audit.sqlite"), running)
    running.send_signal(how)
    out, err = running.communicate(timeout=60)
    finished = stored(Path("out/audit.sqlite"))
    assert 1 <= finished < 4
    if how is signal.SIGINT:
        assert running.returncode == 130, err
        assert "Run the same command to resume" in err
        assert "Traceback" not in err
        assert '"complete": false' in out
        assert f"Stopped early: {finished} attack runs" in Path("out/index.html").read_text()
        assert not list(Path("out").glob(".*"))
        assert not list(Path("out/tensors").glob(".*"))
    else:
        assert running.returncode == -signal.SIGKILL
        assert command("report", "out", "--json").payload["complete"] is False
    done = command(*words)
    assert (done.code, done.payload["complete"]) == (0, True)
    assert len(count_runs) == 4 - finished
    assert {row["attack"] for row in done.rows} == {"linear_layer", "inverting_gradients"}
    assert stored(Path("out/audit.sqlite")) == 4
