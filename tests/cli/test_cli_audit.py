from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from cli_support import *  # noqa: F403
from cli_support import Command, Process, Words

from leakgauge import __version__
from leakgauge.catalogue import standard_metrics
from leakgauge.factories import import_factory
from leakgauge.files import write_tensors
from leakgauge.space import ImageSpace


def check_row(row: dict[str, Any]) -> None:
    """What a program that reads the JSON may rely on."""
    assert isinstance(row["defence"], str)
    assert isinstance(row["attack"], str)
    assert isinstance(row["batch_size"], int)
    assert row["verdict"] in ("leaks", "leaks partly", "inconclusive", "no leak found", "not judged")
    of_images = [name for name, one in standard_metrics().items() if one.serves.fits(ImageSpace(1, 8, 8))]
    assert list(row["metrics"]) == of_images
    for metric in row["metrics"].values():
        low, high = metric["interval"]
        null_low, null_high = metric["null"]["interval"]
        if not metric["measured"]:
            assert [metric["mean"], metric["worst"], low, high, metric["count"]] == [None, None, None, None, 0]
            continue
        assert metric["count"] > 0
        assert math.isfinite(metric["mean"])
        assert math.isfinite(metric["worst"])
        for lower, mean, higher in (
            (low, metric["mean"], high),
            (null_low, metric["null"]["mean"], null_high),
        ):
            assert lower is None or lower - 1e-12 <= mean <= higher + 1e-12
    assert {fact["name"] for fact in row["assumptions"]} >= {"model", "update", "labels", "batch size", "defence"}
    assert all(isinstance(fact["disclosed"], bool) and fact["detail"] for fact in row["assumptions"])


def test_json_is_one_object_with_a_row_for_each_defence_and_attack(
    command: Command, small: Words, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    more = ("--defence", "pruning:keep=0.1", "--attack", "quasi_newton", "--rounds", "2", "--seed", "5")
    answer = command("audit", *small, *more, "--out", out, "--json")
    assert (answer.code, answer.err) == (0, "")
    payload = answer.payload
    assert (payload["command"], payload["version"], payload["seed"]) == ("audit", __version__, 5)
    assert payload["complete"] is True
    assert payload["exceeded"] == []
    assert {(row["defence"], row["attack"]) for row in payload["rows"]} == {
        (defence, attack) for defence in ("none", "pruning:keep=0.1") for attack in ("linear_layer", "quasi_newton")
    }
    for row in payload["rows"]:
        check_row(row)
        assert (row["batch_size"], row["rounds"], row["victims"]) == (1, 2, 2)
        assert row["metrics"]["lpips_alex"]["measured"] is False
    left = ["audit.sqlite", "driver.sqlite", "index.html", "plan.json", "tensors"]
    assert sorted(path.name for path in out.iterdir()) == left


def test_without_json_the_table_is_on_stdout_and_the_messages_are_on_stderr(
    command: Command, small: Words, tmp_path: Path
) -> None:
    answer = command("audit", *small, "--out", tmp_path / "out", "--fail-above", "psnr=100")
    assert answer.code == 1
    for word in ("No defence", "1/1", "dB", "index.html"):
        assert word in answer.out
    assert "limit exceeded" in answer.err
    assert answer.err.count("\n") == 1
    assert "limit exceeded" not in answer.out


def test_an_mlp_gives_away_its_image_and_its_null_does_not(command: Command, small: Words, tmp_path: Path) -> None:
    answer = command("audit", *small, "--rounds", "3", "--out", tmp_path / "out", "--json")
    (row,) = answer.rows
    assert row["metrics"]["identification"]["mean"] == 1.0
    assert row["metrics"]["identification"]["null"]["mean"] == 0.0
    assert row["metrics"]["psnr"]["mean"] > 100
    assert row["metrics"]["psnr"]["null"]["mean"] < 30
    assert (row["verdict"], row["victims"]) == ("leaks", 3)


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ((), 0),
        (("identification=0.5",), 1),
        (("identification=1.0",), 0),  # more than the limit, not as much
        (("psnr=1000", "ssim=2"), 0),
        (("psnr=1000", "identification=0.5"), 1),
    ],
    ids=str,
)
def test_the_exit_code_says_whether_a_limit_was_exceeded(
    command: Command, small: Words, tmp_path: Path, limits: Words, code: int
) -> None:
    gates = [word for limit in limits for word in ("--fail-above", limit)]
    answer = command("audit", *small, "--out", tmp_path / "out", *gates, "--json")
    assert answer.code == code
    assert bool(answer.payload["exceeded"]) == (code == 1)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--fail-above", "leaked=0"), 3),
        (("--fail-above", "leaked=0", "--allow-inconclusive"), 0),
        (("--fail-above", "psnr=1", "--fail-above", "leaked=0"), 1),  # what is exceeded is known
        ((), 0),
    ],
    ids=str,
)
def test_what_cannot_be_told_has_an_exit_code_of_its_own(
    command: Command, small: Words, tmp_path: Path, words: Words, code: int
) -> None:
    changed = list(small)
    changed[changed.index("--attack") + 1] = "quasi_newton"
    hopeless = ("--steps", "1", "--batch-size", "4")  # which finds nothing anywhere
    answer = command("audit", *changed, *hopeless, "--out", tmp_path / "out", *words, "--json")
    assert answer.code == code, answer
    (sentence,) = answer.payload["inconclusive"]
    assert "the attack finds nothing in other updates even without a defence" in sentence
    assert "give it a larger budget" in sentence
    assert (sentence in answer.err) == (code == 3 or "psnr=1" in words)
    assert "control_failed" in answer.rows[0]["reasons"]


def test_the_number_of_leaked_examples_gates_a_pipeline(command: Command, small: Words, tmp_path: Path) -> None:
    answer = command("audit", *small, "--out", tmp_path / "out", "--fail-above", "leaked=0")
    assert answer.code == 1
    assert answer.err == "limit exceeded none: 1 of 1 leaked, the limit is 0 (attack linear_layer)\n"
    assert command("report", tmp_path / "out", "--fail-above", "leaked=1").code == 0


def test_a_defended_update_that_leaks_fails_the_gate_too(command: Command, small: Words, tmp_path: Path) -> None:
    words = list(small)
    words[words.index("--defence") + 1] = "clipping:max_norm=1"
    answer = command("audit", *words, "--out", tmp_path / "out", "--fail-above", "identification=0.5", "--json")
    assert answer.code == 1
    (sentence,) = answer.payload["exceeded"]
    assert sentence == "clipping:max_norm=1: identification is 1, the limit is 0.5 (attack linear_layer)"


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("identifcation=0.5", ("no metric 'identifcation'", "identification")),
        ("lpips_alex=0.5", ("lpips_alex", "--weights")),
        ("cells_right=0.5", ("cells_right", "cannot be measured here")),
        ("identification", ("metric=number",)),
        ("identification=much", ("metric=number", "much")),
        ("identification=nan", ("finite",)),
        ("psnr=inf", ("finite",)),
        ("=1", ("no metric ''",)),
    ],
)
def test_a_limit_that_cannot_be_checked_is_refused_before_anything_runs(
    command: Command, small: Words, tmp_path: Path, count_runs: list[str], limit: str, words: Words
) -> None:
    command("audit", *small, "--out", tmp_path / "out", "--fail-above", limit).refused(*words)
    assert count_runs == []
    assert not (tmp_path / "out").exists()


def test_a_limit_on_what_turned_out_not_to_be_measured_does_not_pass(
    command: Command, small: Words, tmp_path: Path
) -> None:
    # With two images the linear layer mixes them, and the only attack does not apply.
    words = [*small, "--batch-size", "2", "--out", tmp_path / "out"]
    command("audit", *words, "--fail-above", "psnr=50", "--json").refused("'psnr' was not measured")
    answer = command("audit", *words, "--json")
    assert (answer.code, answer.rows[0]["verdict"]) == (0, "not judged")


@pytest.mark.slow
def test_the_same_seed_gives_the_same_numbers_in_another_process_and_folder(
    command: Command, process: Process, small: Words, tmp_path: Path
) -> None:
    words = ["audit", *small, "--attack", "quasi_newton", "--defence", "gaussian_noise:std=0.01", "--json"]
    elsewhere = process(*words, "--out", tmp_path / "there", PYTHONHASHSEED="123")
    here = command(*words, "--out", tmp_path / "here")
    other = command(*words, "--out", tmp_path / "other", "--seed", "1")
    out, err = elsewhere.communicate(timeout=120)
    assert (elsewhere.returncode, err) == (0, "")
    there = json.loads(out)
    for row in there["rows"]:
        del row["seconds"], row["cpu_seconds"]
    assert there["rows"] == here.rows
    assert other.rows != here.rows
    assert (tmp_path / "there" / "plan.json").read_bytes() == (tmp_path / "here" / "plan.json").read_bytes()


def test_the_record_of_a_run_repeats_it(command: Command, small: Words, tmp_path: Path) -> None:
    words = ("--attack", "quasi_newton:tv_weight=0.01", "--seed", "3", "--threat-model", "honest_but_curious")
    first = command("audit", *small, *words, "--out", tmp_path / "first", "--json")
    again = command("audit", tmp_path / "first" / "plan.json", "--out", tmp_path / "again", "--json")
    assert again.rows == first.rows
    assert again.payload["seed"] == 3
    assert (tmp_path / "again" / "plan.json").read_text() == (tmp_path / "first" / "plan.json").read_text()


def test_options_override_the_configuration(command: Command, tmp_path: Path) -> None:
    config = tmp_path / "plan.toml"
    config.write_text(
        'dataset = "digits"\nmodel = "mlp:hidden=(8,)"\ntrain_steps = 0\nbatch_size = 1\nseed = 4\n'
        'attacks = ["linear_layer"]\ndefences = ["none", "clipping:max_norm=1"]\n'
    )
    plain = command("audit", config, "--out", tmp_path / "plain", "--json")
    assert plain.payload["seed"] == 4
    assert len(plain.rows) == 2
    changed = command("audit", config, "--defence", "none", "--seed", "6", "--out", tmp_path / "changed", "--json")
    assert changed.payload["seed"] == 6
    assert [row["defence"] for row in changed.rows] == ["none"]


def own(words: Words, model: str) -> list[str]:
    changed = list(words)
    changed[changed.index("--model") + 1] = model
    return changed


def test_a_model_of_ones_own_is_audited_with_its_weights(
    command: Command, mlp: str, small: Words, tmp_path: Path
) -> None:
    write_tensors(tmp_path / "weights.safetensors", import_factory(mlp).state_dict())
    words = [*own(small, mlp), "--state", tmp_path / "weights.safetensors", "--json"]
    one, two = (command("audit", *words, "--seed", "1", "--out", tmp_path / name) for name in ("one", "two"))
    assert (one.code, one.rows[0]["verdict"]) == (0, "leaks")
    assert one.rows == two.rows


def test_a_model_of_ones_own_without_weights_is_drawn_by_the_seed(
    command: Command, mlp: str, small: Words, tmp_path: Path, count_runs: list[str]
) -> None:
    words = [*own(small, mlp), "--attack", "quasi_newton", "--out", tmp_path / "out", "--json"]
    first, again = command("audit", *words), command("audit", *words)
    assert first.rows == again.rows
    assert len(count_runs) == 4  # the second time nothing was left to do
    assert command("audit", *words, "--seed", "1").rows != first.rows


def test_another_model_with_the_same_weights_is_not_taken_for_the_first(
    command: Command, small: Words, tmp_path: Path
) -> None:
    more = ("--train-steps", "0", "--attack", "quasi_newton", "--out", tmp_path / "out", "--json")
    answers = {}
    for activation in ("relu", "sigmoid"):
        words = own(small, f"mlp:hidden=(8,),activation={activation}")
        answers[activation] = command("audit", *words, *more)
    assert answers["relu"].rows != answers["sigmoid"].rows


def test_the_default_output_folder_is_report(command: Command, small: Words) -> None:
    assert command("audit", *small, "--json").code == 0
    assert Path("report", "index.html").is_file()


def test_without_arguments_the_commands_are_explained(command: Command) -> None:
    answer = command()
    assert answer.code == 0
    for name in ("audit", "invert", "report", "list"):
        assert name in answer.out


@pytest.mark.parametrize("name", ["audit", "invert", "report", "list"])
def test_every_command_explains_itself_and_has_json(command: Command, name: str) -> None:
    answer = command(name, "--help")
    assert (answer.code, answer.err) == (0, "")
    assert "--json" in answer.out
