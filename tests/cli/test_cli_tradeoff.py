from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_support import *  # noqa: F403
from cli_support import Command

from leakgauge.audit.executors import in_process

PLAN = """
dataset = "digits"
model = "mlp:hidden=(6,)"
train_steps = 2
defences = ["none", "clipping:max_norm=1+gaussian_noise:std=5"]
attacks = ["linear_layer"]
batch_sizes = [1]
images = 2
threat_models = ["strongest"]
training_steps = 6
distractors = 20
limit = {identification = 0.4}
"""


@pytest.fixture
def config() -> Path:
    path = Path("plan.toml")
    path.write_text(PLAN)
    return path


def test_one_command_gives_the_table_the_sentence_and_the_page(command: Command, config: Path) -> None:
    shown = command("tradeoff", config, "--out", "out")
    assert shown.code == 0, shown.err
    said = " ".join(shown.out.split())
    assert "The cheapest defence that keeps identification at 0.4 or less is Clipping (max_norm 1) + Gaussian" in said
    assert "2/2" in shown.out
    assert "not measured" not in shown.out
    page = Path("out/index.html").read_text()
    assert "<svg" in page
    answer = command("tradeoff", "out/plan.json", "--out", "out", "--json")
    assert answer.code == 0, answer.err
    payload = answer.payload
    assert (payload["command"], payload["complete"], payload["seed"]) == ("tradeoff", True, 0)
    assert payload["cheapest"] == "clipping:max_norm=1+gaussian_noise:std=5"
    assert payload["sentence"].startswith("The cheapest defence")
    assert [cell["adaptive"] for cell in payload["rows"][0]["leakage"]] == [True, False]
    kept = json.loads(Path("out/tradeoff.json").read_text())
    assert kept["rows"] == payload["rows"]
    assert kept["command_line"] == "leakgauge tradeoff out/plan.json --seed 0"
    # The control: what the attack finds of others without a defence, beside every cell.
    assert {str(cell["control"]) for row in kept["rows"] for cell in row["leakage"]} == {"{'found': 4, 'of': 4}"}


def test_ctrl_c_shows_what_there_is_and_the_same_command_resumes(
    command: Command, config: Path, count_runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = in_process.run_safely

    def interrupted(*arguments: Any) -> Any:
        if len(count_runs) == 7:  # in the second cell: each has two rounds, and each round two nulls
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(in_process, "run_safely", interrupted)
    stopped = command("tradeoff", config, "--out", "out", "--json")
    assert stopped.code == 130
    assert "Run the same command to resume" in stopped.err
    assert stopped.payload["complete"] is False
    assert [cell["measured"] for cell in stopped.payload["rows"][0]["leakage"]] == [True, False]
    assert stopped.payload["sentence"].startswith("Stopped early")
    assert "Stopped early" in Path("out/index.html").read_text()
    monkeypatch.setattr(in_process, "run_safely", original)
    done = command("tradeoff", config, "--out", "out", "--json")
    assert (done.code, done.payload["complete"]) == (0, True)
    assert len(count_runs) == 4 * 6


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('defences = ["none", "prunning"]', "did you mean 'pruning'"),
        ("limits = {identification = 0.1}", "did you mean 'limit'"),
        ("limit = {identity = 0.1}", "no metric 'identity'"),
        ('dataset = "digitz"', "did you mean 'digits'"),
    ],
)
def test_a_mistake_in_the_plan_is_one_sentence_and_leaves_no_folder(command: Command, line: str, words: str) -> None:
    Path("wrong.toml").write_text(line + "\n")
    command("tradeoff", "wrong.toml", "--out", "out").refused(words)
    assert not Path("out").exists()
