"""Labels that came back, in the headline, in the tables and on the page."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from test_report_audit_page import Page
from test_report_examples import PLAN, audit_of, labelled, null_of, record

from leakgauge.audit.record import Record
from leakgauge.audit.result import AuditResult
from leakgauge.audit.verdict import Verdict
from leakgauge.protocol.facts import Fact, Subject
from leakgauge.report.audit_page import render_audit
from leakgauge.report.audit_table import audit_table
from leakgauge.report.charts import MOST_CLASSES, chart, figures
from leakgauge.report.console import label_tables
from leakgauge.report.headline import headline

ALL, NONE = (4, 0, 3, 1), (0, 8, 0, 0)
GIVEN = (Fact(Subject.LABELS, True, "given"),)
# Of four classes with 4, 0, 3 and 1 of 8 examples: E min(4, X) + E min(3, X) + E min(1, X) for X ~ Bin(8, 1/4).
GUESS = "4.7"


def printed(what: Any, width: int = 100) -> str:
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    console.print(what)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= width
    return text


def image_leak(hits: int) -> list[Record]:
    case = record("none", hits)
    return [case, null_of(case)]


def control_of_labels() -> list[Record]:
    """Unrelated undefended updates whose own labels came back."""
    own = ((8, 0, 0, 0), (0, 5, 0, 3), (2, 2, 2, 2))
    return [replace(labelled(ALL, counts), null=1 + index, decoy_counts=counts) for index, counts in enumerate(own)]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([labelled(ALL, ALL)], f"The labels of 8 of 8 private examples were restored (guessing: {GUESS})."),
        (
            [labelled(ALL, NONE), *control_of_labels()],
            f"Labels were restored no more often than guessing or the null explains: 0 of 8 (guessing: {GUESS}).",
        ),
        (
            [labelled(ALL, ALL), labelled(ALL, ALL, "pruning"), labelled(ALL, NONE, "clipping"), *control_of_labels()],
            f"The labels of 8 of 8 private examples were restored (guessing: {GUESS}). "
            "Also restored: 8 of 8 with pruning. "
            "Restored no more often than guessing or the null explains: 0 of 8 with clipping.",
        ),
        (
            [labelled(ALL, NONE), labelled(ALL, ALL, "pruning"), *control_of_labels()],
            f"With pruning, the labels of 8 of 8 private examples were restored (guessing: {GUESS}). "
            "Restored no more often than guessing or the null explains: 0 of 8 with no defence.",
        ),
        (
            [labelled(ALL, NONE)],
            "Whether labels leak is inconclusive: whether the attack restores any labels without a defence is not "
            "known; declare the client's algorithm, so that it can be tried.",
        ),
        (
            [labelled(ALL, ALL, "as recorded")],
            f"The labels of 8 of 8 private examples were restored (guessing: {GUESS}).",
        ),
        (
            [labelled(None, ALL)],
            "Leakage was not measured. The private labels are not known here, so those that were restored cannot be "
            "compared with them.",
        ),
        (
            [*image_leak(0), labelled(ALL, ALL)],
            f"The labels of 8 of 8 private examples were restored (guessing: {GUESS}). "
            "No image leak was found in the undefended update. No defence was tried.",
        ),
        (
            [*image_leak(8), labelled(ALL, ALL)],
            "This update gave away 8 of 8 private images (p at most 8e-09). No defence was tried. "
            "The control worked: quasi_newton found 8 of 8 other images in undefended updates. "
            f"The labels of 8 of 8 private examples were restored (guessing: {GUESS}).",
        ),
        (
            [record(hits=None), labelled(ALL, ALL)],
            f"The labels of 8 of 8 private examples were restored (guessing: {GUESS}). Whether images leak was not "
            "measured. There was no crowd of other images to pick the private ones from.",
        ),
        ([*image_leak(0), labelled(ALL, ALL, ledger=GIVEN)], "No leak was found in the undefended update. No defence"),
    ],
    ids=[
        "labels leak",
        "none does",
        "defended",
        "only defended",
        "no control",
        "recorded",
        "blind",
        "labels but no image",
        "both",
        "images unjudged",
        "given",
    ],
)
def test_the_headline_names_the_labels_that_came_back(records: list[Record], expected: str) -> None:
    assert " ".join(headline(audit_of(records))).startswith(expected)


def test_a_guess_as_good_as_the_attack_and_a_null_as_good_as_the_attack_are_no_leak() -> None:
    (row,) = audit_of([labelled((8, 0), (8, 0))]).rows
    assert row.labels_leak is True  # a half to the eighth
    case = labelled((4, 4), (4, 4))
    assert audit_of([case]).rows[0].labels_leak is False  # eight even guesses restore seven of them on average
    null = replace(labelled((8, 0), (8, 0)), null=True)
    assert audit_of([labelled((8, 0), (8, 0)), null]).rows[0].labels_leak is False
    assert audit_of([labelled(None, (8, 0))]).rows[0].labels_leak is None
    assert audit_of([labelled((8, 0), (8, 0), ledger=GIVEN)]).rows[0].labels_leak is None


def test_the_terminal_table_shows_labels_beside_their_guess_and_no_image_columns_without_images() -> None:
    alone = printed(audit_table(audit_of([labelled(ALL, ALL)])))
    assert "8/8" in alone
    assert f"guess {GUESS}" in alone
    assert "labels" in alone
    assert "PSNR" not in alone
    both = printed(audit_table(audit_of([*image_leak(8), labelled(ALL, NONE, "pruning:keep=0.01")])))
    assert "PSNR" in both
    assert "0/8" in both
    assert "labels" not in printed(audit_table(audit_of(image_leak(8))))
    assert "given" in printed(audit_table(audit_of([record(ledger=GIVEN), labelled(ALL, ALL)])))


def test_the_tables_of_the_command_have_counts_totals_scores_and_assumptions() -> None:
    records = [labelled(ALL, ALL), labelled(ALL, NONE, attack="other"), replace(labelled(ALL, NONE), null=True)]
    lines = printed(label_tables(audit_of(records, {"files": ["folder/one.safetensors"]}))).splitlines()
    words = [line.split() for line in lines]
    assert ["one.safetensors"] in words
    assert ["class", "true", "label_attack", "other"] in words
    assert ["0", "4", "4", "0"] in words
    assert ["1", "0", "0", "8"] in words
    assert ["all", "8", "8", "8"] in words
    assert ["label_attack", "8", "of", "8", "100.0", "%", "100.0", "%"] in words
    assert any(line.split()[:4] == ["guess", GUESS, "of", "8"] for line in lines)
    assert any(line.split()[:4] == ["null", "0", "of", "8"] for line in lines)
    assert lines[-1] == "Assumed known: defence; hidden: labels."


def test_the_tables_without_the_truth_have_no_scores_and_leave_out_what_does_not_occur() -> None:
    text = printed(label_tables(audit_of([labelled(None, [2, *([0] * 98), 1])], {})))
    assert "true" not in text
    assert "guess" not in text
    assert "The other 98 of 100 classes do not occur." in text
    many = printed(label_tables(audit_of([labelled(None, [1] * 60)], {})))
    assert "20 further classes are left out; --json has them." in many


def drawn(*records: Record, **description: Any) -> Page:
    return Page(render_audit(audit_of(records, {**PLAN, **description})))


def bars(page: Page) -> list[tuple[str, str]]:
    return [(str(of["class"]), str(of["height"])) for tag, of in page.tags if tag == "rect"]


def test_the_page_draws_true_beside_restored_counts_in_proportion() -> None:
    page = drawn(labelled((4, 0, 2), (2, 1, 3)), class_names=["cat", "dog", "hen"])
    assert page.faults == []
    assert bars(page) == [
        ("true", "96.0"),
        ("restored", "48.0"),
        ("true", "0.0"),
        ("restored", "24.0"),
        ("true", "48.0"),
        ("restored", "72.0"),
    ]
    (words,) = (str(of["aria-label"]) for tag, of in page.tags if tag == "svg")
    assert words == (
        "Labels per class. class cat: 4 true, 2 restored; class dog: 0 true, 1 restored; class hen: 2 true, 3 restored."
    )
    assert "cat dog hen" not in page.text  # each below its own bars
    assert page.text.count("cat") == 2  # there, and in the list of classes


def test_the_page_has_each_score_beside_null_and_guess() -> None:
    case = labelled(ALL, ALL)
    page = drawn(case, replace(labelled(ALL, NONE), null=True)).text
    assert f"Labels restored 8 of 8 0 of 8 {GUESS} of 8" in page
    assert "Class presence right (LeAcc) 100.0 % 0.0 %" in page
    assert "Class counts right (LnAcc) 100.0 % 0.0 %" in page
    assert '<span class="pill leaks_partly">labels leak</span>' in render_audit(audit_of([case]))
    assert '<div class="headline leaks_partly">' in render_audit(audit_of([case]))


def test_labels_that_were_given_or_never_restored_are_not_drawn() -> None:
    assert "Labels per class" not in render_audit(audit_of([labelled(ALL, ALL, ledger=GIVEN)]))
    assert "<h2>Labels</h2>" not in render_audit(audit_of([record()]))


def test_without_the_truth_only_the_restored_labels_are_drawn() -> None:
    page = drawn(labelled(None, (1, 2)))
    assert bars(page) == [("restored", "48.0"), ("restored", "96.0")]
    assert "The true labels are not known here" in page.text


def test_other_rounds_are_folded_away_under_their_names() -> None:
    page = drawn(labelled(ALL, ALL), labelled(ALL, NONE, round=1), files=["a.safetensors", "b/c.safetensors"])
    assert "Show the other 1 rounds" not in page.text
    assert "Show the other round" in page.text
    assert page.text.index("a.safetensors") < page.text.index("Show the other") < page.text.index("c.safetensors")
    assert "Labels restored 8 of 16" in page.text


def test_of_many_classes_the_commonest_are_drawn_and_the_others_counted() -> None:
    true = [0] * 100
    true[7], true[50] = 5, 9
    few = chart("", labelled(true, [*true[:-1], 1]))
    assert [(bar.name, bar.true, bar.restored) for bar in few.bars] == [("50", 9, 9), ("7", 5, 5), ("99", 0, 1)]
    assert few.left_out == "Of 100 classes, 97 that do not occur are left out."
    many = chart("", labelled([1] * 60 + [0], [2] * 60 + [0]))
    assert len(many.bars) == MOST_CLASSES
    assert many.left_out == "Of 61 classes, 20 that occur less often and 1 that do not occur are left out."
    every = chart("", labelled([1] + [0] * 39, [1] + [0] * 39))
    assert (len(every.bars), every.left_out) == (40, "")
    assert every.width + every.left + 10 <= 1100  # as wide as the page


def test_names_of_classes_are_slanted_cut_and_escaped() -> None:
    long = "<b>" + "x" * 40
    page = render_audit(audit_of([labelled((1, 0), (1, 0))], {"class_names": [long, "b"]}))
    assert "&lt;b&gt;xxxxxxxx…" in page
    assert "<b>x" not in page
    assert "rotate(-40" in page


def test_a_figure_belongs_to_each_row_that_restored_labels() -> None:
    result: AuditResult = audit_of([labelled(ALL, ALL), labelled(ALL, NONE, "pruning"), record("clipping")])
    assert [(one.title, one.attack) for one in figures(result)] == [
        ("No defence", "label_attack"),
        ("Pruning", "label_attack"),
    ]
    assert result["none"].verdict is Verdict.NOT_JUDGED


def test_of_labels_alone_those_that_leaked_are_limited() -> None:
    result = audit_of([labelled(ALL, ALL)])
    assert result.exceeding({"leaked": 7}) == ["none: 8 of 8 labels leaked, the limit is 7 (attack label_attack)"]
    assert result.exceeding({"leaked": 8}) == []
    assert audit_of([labelled(ALL, NONE)]).exceeding({"leaked": 0}) == []
