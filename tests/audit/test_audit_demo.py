"""The embedded example scores what it scored before, as far as processors agree; `make demo-check` runs all of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import demo
from leakgauge.audit.plan import AuditPlan
from leakgauge.cli import main
from leakgauge.config import from_mapping
from leakgauge.plan_files import load_config


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_demo_cut_short_prints_the_scores_it_always_printed(tmp_path, monkeypatch, capfd):
    monkeypatch.delenv("LEAKGAUGE_WEIGHTS", raising=False)
    with pytest.raises(SystemExit) as ended:
        main([*demo.OPTIONS["short"], "--out", str(tmp_path)])
    assert not ended.value.code
    found = demo.scores(json.loads(capfd.readouterr().out))
    kept = demo.kept_scores("short")
    for row in (*kept.values(), *found.values()):
        del row["verdict"]  # after eight steps some stand on the edge, and the last digit of a score decides
    assert list(demo.differences(kept, found)) == []


def test_the_scores_that_are_kept_are_those_of_a_demo_that_leaks_until_noise_is_added():
    plan = from_mapping(AuditPlan, load_config(Path(demo.ROOT, "examples", "demo.toml")), source="plan")
    assert {row.partition(" / ")[0] for row in demo.kept_scores("short")} == set(plan.defences)
    kept = demo.kept_scores("demo")
    assert len(kept) == len(demo.kept_scores("short"))  # whose attack is not called by the steps that it did not get
    verdicts = {row.partition(" / ")[0]: one["verdict"] for row, one in kept.items()}
    noisy = ("clipping:max_norm=1+gaussian_noise:std=0.1", "dpsgd:noise_multiplier=2")
    assert verdicts == {"none": "leaks", "pruning:keep=0.1": "leaks"} | dict.fromkeys(noisy, "no leak found")


def test_a_score_that_moves_is_named_and_the_last_digit_of_another_processor_is_not():
    kept = {"none / best": {"psnr": {"mean": "22.84"}, "verdict": "leaks"}}
    assert list(demo.differences(kept, kept)) == []
    assert list(demo.differences(kept, {"none / best": {"psnr": {"mean": "22.85"}, "verdict": "leaks"}})) == []
    assert (
        len(list(demo.differences(kept, {"none / best": {"psnr": {"mean": "22.84"}, "verdict": "leaks partly"}}))) == 1
    )
    (sentence,) = demo.differences(kept, {"none / best": {"psnr": {"mean": "23.2"}, "verdict": "leaks"}})
    assert sentence.startswith("none / best: psnr was")
    assert len(list(demo.differences(kept, {}))) == 2
