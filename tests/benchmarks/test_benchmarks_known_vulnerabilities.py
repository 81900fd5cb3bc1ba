"""What could not be asked about is never taken for sound."""

from __future__ import annotations

import json

import pytest

import known_vulnerabilities

SOUND = {"name": "one", "version": "1.0", "vulns": []}
FLAWED = {"name": "two", "version": "2.0", "vulns": [{"id": "CVE-1", "fix_versions": ["2.1"]}]}
UNASKED = {"name": "three", "skip_reason": "could not be found"}


@pytest.fixture
def said(tmp_path, capsys, monkeypatch):
    """``said(pins)``: exit code and output, of a world in which the newest version of every package is 3.0."""
    monkeypatch.setattr(known_vulnerabilities, "newest_of", lambda name: ("3.0", NEWEST.get(name, [])))
    (tmp_path / "pins.txt").write_text("three==2.9\nfour==3.0\nFive_Of==3.0  # newest, and flawed\n")

    def run(pins):
        (tmp_path / "found.json").write_text(json.dumps({"dependencies": pins}))
        code = known_vulnerabilities.main([str(tmp_path / "found.json"), str(tmp_path / "pins.txt")])
        return code, capsys.readouterr().out

    return run


NEWEST = {"five-of": [{"id": "CVE-5", "fixed_in": []}]}


@pytest.mark.parametrize(
    ("pins", "code"),
    [([SOUND], 0), ([SOUND, FLAWED], 1), ([SOUND, UNASKED], 3), ([FLAWED, UNASKED], 1), ([UNASKED], 3), ([], 3)],
)
def test_only_what_was_asked_about_and_is_sound_ends_with_0(said, pins, code):
    found, text = said(pins)
    assert found == code
    assert ("NOT CHECKED" in text) == (UNASKED in pins)
    assert ("two 2.0: CVE-1, mended in 2.1" in text) == (FLAWED in pins)
    assert f"{sum('vulns' in one for one in pins)} of {len(pins)} pinned versions were checked" in text


def test_what_is_known_of_the_newest_version_answers_for_pins_to_it_alone(said):
    assert said([{"name": "four", "skip_reason": "no answer"}]) == (0, "1 of 1 pinned versions were checked.\n")
    code, text = said([{"name": "five-of", "skip_reason": "no answer"}])
    assert (code, text.splitlines()[0]) == (1, "five-of 3.0: CVE-5, mended in no version yet")


def test_no_answer_at_all_is_not_checked(tmp_path, capsys):
    (tmp_path / "pins.txt").write_text("")
    assert known_vulnerabilities.main([str(tmp_path / "missing.json"), str(tmp_path / "pins.txt")]) == 3
    assert "NOT CHECKED" in capsys.readouterr().out
