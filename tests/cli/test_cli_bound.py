"""``leakgauge bound``: the most that any attacker could find, without data."""

from __future__ import annotations

import json

import pytest

from leakgauge.cli import main


@pytest.fixture
def said(capfd):
    """``said(*words)``: exit code, stdout and stderr."""

    def run(*words):
        with pytest.raises(SystemExit) as ended:
            main(["bound", *words])
        seen = capfd.readouterr()
        return ended.value.code, seen.out, seen.err

    return run


def test_a_bound_of_sampled_rounds_is_one_sentence(said):
    code, out, err = said("--noise", "1", "--sampling", ".01", "--rounds", "1000", "--crowd", "99")
    assert (code, err) == (0, "")
    assert out.startswith("No attacker picks a private example out of 100 equally likely ones")
    assert "1000 rounds" in out
    assert "epsilon 1.83 at delta 1e-05" in out


def test_the_numbers_are_there_for_programs(said):
    code, out, _ = said("--noise", "0.5", "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["command"], found["crowd"], found["rounds"]) == ("bound", 99, 1)
    assert found["at_most"] == pytest.approx(0.372, abs=5e-4)
    assert found["over_rounds"]["10"] > found["at_most"]


def test_a_defence_is_asked_by_its_name(said):
    code, out, _ = said("--defence", "dpsgd:noise_multiplier=3", "--local-update", "fedavg:epochs=9", "--json")
    assert (code, json.loads(out)["noise_multiplier"]) == (0, pytest.approx(1.0))
    code, out, _ = said("--defence", "pruning")
    assert (code, out) == (0, "No bound exists: pruning only hides entries of the update.\n")


@pytest.mark.parametrize(
    "words", [[], ["--noise", "1", "--defence", "dpsgd"], ["--noise", "-1"], ["--noise", "1", "--crowd", "0"]]
)
def test_what_has_no_answer_is_refused_in_one_sentence(said, words):
    code, out, err = said(*words)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1


def test_noise_next_to_none_is_answered(capfd):
    for words in ((), ("--json",)):
        with pytest.raises(SystemExit) as ended:
            main(["bound", "--noise", "1e-308", *words])
        assert ended.value.code == 0, capfd.readouterr().err
