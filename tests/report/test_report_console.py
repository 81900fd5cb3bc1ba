from __future__ import annotations

import io

import pytest
from rich.console import Console
from test_report_examples import audit, audit_of, labelled, null_of, record

from leakgauge.audit.result import AuditResult
from leakgauge.audit.verdict import Verdict
from leakgauge.report.audit_table import audit_table, fold
from leakgauge.space import Continuous, TableSpace
from leakgauge.types import Outcome

NOISE = "clipping:max_norm=1+gaussian_noise:std=0.01"


def printed(result: AuditResult, width: int = 100) -> str:
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    console.print(audit_table(result))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def test_a_row_shows_verdict_counts_interval_and_null() -> None:
    words = printed(audit({"none": Verdict.LEAKS})).split()
    # Wilson's interval of 8 of 8 starts at 8 / (8 + 1.96^2) = 0.676.
    assert {"leaks", "8/8", "68–100", "13.5", "dB", "0.25", "null", "9.0", "17.0"} <= set(words)


def test_at_80_columns_no_line_is_longer_and_no_word_is_cut() -> None:
    verdicts = {"none": Verdict.LEAKS, "pruning:keep=0.01": Verdict.LEAKS_PARTLY, NOISE: Verdict.NO_LEAK_FOUND}
    text = printed(audit(verdicts), width=80)
    assert "Clipping (max_norm 1) + Gaussian noise (std 0.01)" in text.splitlines()
    for words in ("no leak found", "leaks partly", "identified", "worst 17.0", "12 s"):
        assert words in text


@pytest.mark.parametrize("name", ["quasi_newton_smooth", "epoch_copies:local_steps=20,learning_rate=0.01", "x" * 75])
def test_an_attack_with_every_number_there_is_fits_80_columns(name: str) -> None:
    scores = {**record().scores, "lpips_alex": (0.5,) * 8}
    everything = [record(attack=name, scores=scores), labelled((4, 4), (4, 4), attack=name)]
    text = printed(audit_of([*everything, null_of(everything[0])]), width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert {"identified", "PSNR", "SSIM", "alex", "labels", "time", "25"} <= set(text.split())
    for part in fold(name, 13).split("\n"):
        assert part in text


def test_the_name_of_an_attack_made_of_parts_stands_below_the_table_once() -> None:
    name = (
        "GradientMatching(objective=Cosine(), optimiser=SignedAdam(rate=0.1), max_steps=300, restarts=4, labels=IDLG())"
    )
    text = printed(audit_of([record(attack=name), record("pruning", attack=name)]), width=80)
    assert text.count("GradientMatching [1]") == 2
    assert " ".join(text.split()).endswith(f"[1] {name}")


def test_what_was_not_measured_is_said_and_is_no_number() -> None:
    blind = record(hits=None, scores={}, seconds=3.25)
    text = printed(audit_of([blind]))
    assert "Not measured: what leaked, Identified, PSNR, SSIM." in text
    assert text.split().count("measured:") == 1
    assert "nan" not in text
    assert [word for word in text.split() if word[0].isdigit()] == ["3.2"]


def test_where_no_attack_on_rows_scored_the_table_has_no_columns_for_images() -> None:
    space = TableSpace((Continuous("age", 0, 120),))
    empty = record(hits=None, scores={}, space=space)
    assert "Cells right" in printed(audit_of([empty]))
    assert "PSNR" not in printed(audit_of([empty]))


def test_attacks_that_could_not_run_are_below_the_table_and_not_in_it() -> None:
    case = record()
    refused = record(
        attack="linear_layer", hits=None, scores={}, outcome=Outcome.NOT_APPLICABLE, reason="too [bold]deep"
    )
    hidden = record(
        "pruning", attack="blind", hits=None, scores={}, outcome=Outcome.MISSING_KNOWLEDGE, reason="no labels"
    )
    text = printed(audit_of([case, null_of(case), refused, hidden]))
    assert "linear_layer: not applicable: too [bold]deep (with no defence)" in text
    assert "blind: missing knowledge: no labels (with pruning)" in text
    assert text.count("linear_layer") == text.count("blind") == 1


@pytest.mark.parametrize("verdict", Verdict)
def test_verdicts_are_coloured_on_a_terminal(verdict: Verdict) -> None:
    console = Console(width=100, file=io.StringIO(), force_terminal=True, color_system="standard", legacy_windows=False)
    console.print(audit_table(audit({"none": verdict})))
    colour = dict(zip(Verdict, ("31", "31", "33", "35", "32", "2")))
    first, *_ = verdict.value.split(",")  # a long one goes on in the next line
    assert f"{colour[verdict]}m{first}" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_wide_console_breaks_neither_names_nor_verdicts() -> None:
    scores = {**record().scores, "lpips_alex": (0.5,) * 8}
    case = record(attack="quasi_newton_smooth:steps=250", scores=scores)
    result = audit_of([case, null_of(case)])
    assert "quasi_newton_smooth:steps=250" in printed(result, width=120)
    assert "quasi_newton_smooth:steps=250" not in printed(result, width=80)
    assert max(map(len, printed(result, width=200).splitlines())) <= 120
