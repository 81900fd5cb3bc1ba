from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from test_report_examples import PLAN, audit, audit_of, null_of, record

from leakgauge.audit.plan import AuditPlan
from leakgauge.audit.record import Pictures
from leakgauge.audit.result import AuditResult
from leakgauge.audit.verdict import Verdict
from leakgauge.bounds import gaussian_bound
from leakgauge.config import from_mapping
from leakgauge.protocol.facts import Fact, Subject
from leakgauge.report.audit_page import render_audit, write_report
from leakgauge.report.pictures import data_uri
from leakgauge.space import Categorical, Continuous, TableSpace
from leakgauge.types import Outcome

NOISE = "clipping:max_norm=1+gaussian_noise:std=0.01"
ATTACK = "<script>alert('owned')</script>"
VOID = {"meta", "img", "br", "line", "polyline", "link", "input", "hr"}


class Page(HTMLParser):
    """Tags that do not balance, and what a reader sees."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.faults: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        self.faults += self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.faults.append(tag)

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.words += data.split()

    @property
    def text(self) -> str:
        return " ".join(self.words)


def blind() -> AuditResult:
    pictures = Pictures(None, torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(0)))
    return audit_of([record(scores={}, chance=math.nan, batch_size=None, pictures=pictures)], {"model": "LeNet"})


def holed() -> AuditResult:
    case = record(hits=None, scores=dict.fromkeys(record().scores, (math.nan,) * 8))
    nothing = replace(case.pictures, reconstructions=torch.full((8, 3, 8, 8), math.nan))
    return audit_of([replace(case, pictures=nothing, outcome=Outcome.NON_FINITE, reason=Outcome.NON_FINITE.value)])


def refused() -> AuditResult:
    return audit_of([record(hits=None, scores={}, pictures=Pictures(), outcome=Outcome.NOT_APPLICABLE, reason="deep")])


def rows() -> AuditResult:
    """More rows than are shown at once, one of which did not come back, under columns that would be markup."""
    space = TableSpace((Continuous("<b>age</b>", 0, 1), Categorical("a & b", ("<i>", "no"))))
    truth = space.decode(torch.rand(10, *space.shape, generator=torch.Generator().manual_seed(0)))
    back = truth.clone()
    back[3] = torch.nan
    scores = {"identification": (1.0,) * 10, "cells_right": (1.0,) * 3 + (math.nan,) + (1.0,) * 6}
    return audit_of([record(hits=10, size=10, scores=scores, pictures=Pictures(truth, back), space=space)])


RESULTS = {
    "rows": rows(),
    "usual": audit({"none": Verdict.LEAKS, "pruning:keep=0.01": Verdict.LEAKS_PARTLY, NOISE: Verdict.NO_LEAK_FOUND}),
    "unjudged": audit({"none": Verdict.NOT_JUDGED}),
    "blind": blind(),
    "holed": holed(),
    "refused": refused(),
    "rounds": audit_of([record(defence, round=number) for defence in ("none", NOISE) for number in range(3)]),
    "no description": audit_of([record()], {}),
    "single": audit_of([record(hits=1, size=1)]),
    "interrupted": audit_of([record()], complete=False),
    "empty": audit_of([], complete=False),
}
EVERY = pytest.mark.parametrize("result", list(RESULTS.values()), ids=list(RESULTS))


@EVERY
def test_the_page_is_html_with_balanced_tags(result: AuditResult) -> None:
    text = render_audit(result)
    assert text.lstrip().startswith("<!DOCTYPE html>")
    assert Page(text).faults == []


@EVERY
def test_the_page_asks_for_nothing_from_outside(result: AuditResult) -> None:
    text = render_audit(result)
    for tag, attributes in Page(text).tags:
        assert tag not in {"link", "iframe", "object", "embed", "base", "form"}
        for name in ("src", "href", "srcset", "xlink:href", "data", "poster"):
            assert (attributes.get(name) or "data:").startswith(("data:", "#"))
    assert not re.search(r"@import|url\(|https?:", text)
    assert [attributes for tag, attributes in Page(text).tags if tag == "script"] == [{}]


@EVERY
def test_rendering_twice_gives_the_same_page(result: AuditResult) -> None:
    assert render_audit(result) == render_audit(result)


@EVERY
def test_no_nan_and_no_python_leaks_into_the_page(result: AuditResult) -> None:
    assert not {"nan", "NaN", "None", "inf"} & set(Page(render_audit(result)).words)
    assert "<built-in" not in render_audit(result)
    assert not re.search(r"Verdict\.|Outcome\.|tensor\(", render_audit(result))


@EVERY
def test_every_image_has_a_text_in_its_place(result: AuditResult) -> None:
    assert all(attributes.get("alt") for tag, attributes in Page(render_audit(result)).tags if tag == "img")


@pytest.mark.parametrize("name", ["usual", "rounds", "single", "holed"])
def test_every_private_image_is_on_the_page(name: str) -> None:
    page = render_audit(RESULTS[name])
    for row in RESULTS[name].rows:
        for case in row.records:
            assert case.pictures.originals is not None
            assert all(str(data_uri(image)) in page for image in case.pictures.originals)


def test_every_private_image_has_its_place_in_every_line() -> None:
    page = Page(render_audit(RESULTS["rounds"]))
    assert [of["data-item"] for tag, of in page.tags if tag == "figure" and "data-rank" in of][:24] == [
        str(item) for item in range(1, 25)
    ]
    assert sum(tag == "img" and "Private image" in str(of["alt"]) for tag, of in page.tags) == 24


def test_the_first_heading_is_the_finding() -> None:
    page = render_audit(RESULTS["usual"])
    first, second = "Found 8 of 8 private images in the undefended update", "the control worked"
    assert f"<h1>{first}; {second}; nothing limits what a stronger attacker could find.</h1>" in page
    assert page.index("This update gave away 8 of 8 private images (p at most 8e-09).") < page.index("What stopped it")
    assert page.index("What stopped it: clipping + Gaussian noise.") < page.index("<img")


def test_the_first_heading_says_of_what_the_bound_is_a_chance() -> None:
    strong = "dpsgd:noise_multiplier=2"
    bound = gaussian_bound(2.0, crowd=99)
    result = audit(
        {"none": Verdict.LEAKS, strong: Verdict.NO_LEAK_FOUND}, {**PLAN, "bounds": {strong: bound.to_dict()}}
    )
    chance = (
        "the chance that any attacker picks one out of 100 is at most 3.39 % with DP-SGD, and not limited otherwise"
    )
    assert f"; the control worked; {chance}.</h1>" in render_audit(result)


def test_a_crowd_is_told_once_beside_the_number_of_distractors() -> None:
    page = Page(render_audit(audit({"none": Verdict.LEAKS}, {**PLAN, "distractors": 99, "crowd": "239 others"}))).text
    assert "Distractors 99 Compared with 239 others" in page


def test_what_was_not_measured_is_said_and_never_zero() -> None:
    page = Page(render_audit(holed())).text
    numbers = page[page.index("All numbers") : page.index("What the attacker was assumed")]
    names = "Identified, PSNR, SSIM, LPIPS (AlexNet), LPIPS (VGG) and Labels restored"
    assert numbers.strip() == f"All numbers Not measured: {names}."
    assert page.count("nothing recovered") == 8


def test_metrics_without_weights_are_not_measured_beside_metrics_that_are() -> None:
    page = Page(render_audit(audit({"none": Verdict.LEAKS}))).text
    assert "Not measured: LPIPS (AlexNet), LPIPS (VGG) and Labels restored." in page
    # The mean of 10, 11, ..., 17 and, with the quantile 2.365 of Student's t for 7 degrees, its interval.
    assert "13.5 dB worst 17.0 95 % interval 11.5 to 15.5 null 9.0" in page
    assert "8 of 8 95 % interval 68–100 % null 0 of 8" in page


def test_labels_that_were_given_are_not_shown_as_recovered() -> None:
    case = record(scores={"label_recall": (1.0,) * 8}, ledger=(Fact(Subject.LABELS, True, "given"),))
    page = Page(render_audit(audit_of([case]))).text
    assert "Labels were given to the attacker" in page
    assert "8 of 8" not in page


@pytest.mark.parametrize("verdict", Verdict)
def test_a_verdict_is_written_and_not_only_coloured(verdict: Verdict) -> None:
    assert f'<span class="pill {verdict.name.lower()}">{verdict.value}</span>' in render_audit(audit({"none": verdict}))


def test_what_a_user_wrote_is_escaped_wherever_it_appears() -> None:
    case = record(
        ATTACK,
        attack=ATTACK,
        attack_repr=ATTACK,
        reason=ATTACK,
        facts={ATTACK: ATTACK},
        ledger=(Fact(Subject.DEFENCE, True, ATTACK, ATTACK),),
        environment={ATTACK: ATTACK},
        scores={ATTACK: (1.0,) * 8},
    )
    unable = replace(record(attack=ATTACK, hits=None, scores={}, reason=ATTACK), outcome=Outcome.NOT_APPLICABLE)
    words = dict.fromkeys(("dataset", "model", "threat_model", "mode", "distractors"), ATTACK)
    description = {**PLAN, **words, "class_names": [ATTACK], "defences": [ATTACK, ATTACK + "2"]}
    page = render_audit(audit_of([case, unable], description, complete=False))
    assert page.count("<script") == 1
    assert page.count("&lt;script&gt;") > 20
    assert Page(page).faults == []


def test_an_interrupted_audit_says_how_far_it_came_and_what_it_missed() -> None:
    case = record()
    page = Page(render_audit(audit_of([case, null_of(case)], complete=False))).text
    assert "Stopped early: 2 attack runs had finished" in page
    assert "Not reached: Clipping (max_norm 1)." in page
    assert "Stopped early" not in render_audit(RESULTS["usual"])


def test_without_the_truth_the_page_says_that_leakage_was_not_measured() -> None:
    page = Page(render_audit(blind()))
    assert "leakage was not measured" in page.text
    assert "Private images" not in page.text
    assert sum(tag == "img" and "src" in of for tag, of in page.tags) == 3


def test_assumptions_that_differ_only_by_the_name_of_the_defence_are_one_list() -> None:
    page = render_audit(RESULTS["usual"])
    assert page.count('<ul class="ledger">') == 1
    assert "<span>known to the attacker</span>" in page


def test_assumptions_that_differ_are_listed_for_each_defence() -> None:
    other = (Fact(Subject.LABELS, True, "given"),)
    page = render_audit(audit_of([record(), record("pruning", ledger=other)]))
    assert page.count('<ul class="ledger">') == 2
    assert "<strong>Pruning</strong>" in page


def test_each_row_with_a_loss_trace_has_a_curve() -> None:
    tags = [tag for tag, _ in Page(render_audit(RESULTS["usual"])).tags]
    assert (tags.count("svg"), tags.count("polyline")) == (3, 3)
    assert "svg" not in [tag for tag, _ in Page(render_audit(blind())).tags]


def test_the_page_says_what_to_run_it_again_with() -> None:
    page = Page(render_audit(RESULTS["usual"])).text
    for expected in (
        "leakgauge audit plan.json",
        "75.0 %",
        "DoubleBackward",
        "steps 400",
        "12.5 s",
        "2.13.0",
        "cat, dog",
    ):
        assert expected in page
    assert "plan.json" not in render_audit(RESULTS["no description"])


def test_five_lines_of_eight_images_stay_below_a_megabyte() -> None:
    generator = torch.Generator().manual_seed(0)
    noise = Pictures(*(torch.rand(8, 3, 64, 64, generator=generator) for _ in range(2)))
    cases = [replace(record(defence), pictures=noise) for defence in ("none", "a", "b", "c")]
    assert len(render_audit(audit_of([*cases, *map(null_of, cases)]))) < 2**20


def test_the_report_is_written_with_the_plan_that_reruns_it(tmp_path: Path) -> None:
    path = write_report(RESULTS["usual"], tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / "index.html"
    assert path.read_text(encoding="utf-8") == render_audit(RESULTS["usual"])
    plan = from_mapping(AuditPlan, json.loads((path.parent / "plan.json").read_text()), source="plan")
    assert plan.seed == 3
    assert plan.defences == ("none", "clipping:max_norm=1")


def test_an_audit_without_a_plan_leaves_no_plan_behind(tmp_path: Path) -> None:
    blind().write_report(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]


def test_a_row_of_a_table_is_read_column_by_column_and_no_name_of_a_column_is_markup() -> None:
    text = render_audit(RESULTS["rows"])
    assert "&lt;b&gt;age&lt;/b&gt;" in text
    assert "<b>age" not in text
    assert text.count("nothing recovered") == 1
    assert text.count("<div data-item=") == 10
    assert "<img" not in text
