from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from test_report_examples import audit, audit_of, labelled, null_of, record

from browser_support import WIDTHS, needs_browser, opened
from leakgauge.audit.record import Pictures
from leakgauge.audit.result import RECORDED, AuditResult
from leakgauge.audit.verdict import Verdict
from leakgauge.report.audit_page import render_audit, write_report
from leakgauge.space import Continuous, TableSpace, TokenSpace

pytestmark = [needs_browser, pytest.mark.slow]
LONG = f"<{'Shield' * 30} object>"
PAPER = 718
"""The pixels of an A4 page between its margins."""


def crowded() -> AuditResult:
    """Long names, two rounds of eight images, and charts of eighty classes."""
    cases = [record(defence, round=number) for defence in ("none", LONG) for number in range(2)]
    cases = [replace(case, reason="x" * 200, facts={"loss": torch.pi, "note": "y" * 200}) for case in cases]
    counts = [1 + number % 120 for number in range(80)]
    of_labels = [
        labelled(counts, counts[::-1], defence, round=number) for defence in ("none", LONG) for number in range(2)
    ]
    return audit_of([*cases, *map(null_of, cases), *of_labels])


def rows(columns: int = 30) -> AuditResult:
    space = TableSpace(tuple(Continuous(f"a measured property {number}", 0, 1) for number in range(columns)))
    truth = torch.rand(10, columns, generator=torch.Generator().manual_seed(0))
    scores = {"identification": (1.0,) * 10, "cells_right": (1.0,) * 10}
    return audit_of([record(hits=10, size=10, scores=scores, pictures=Pictures(truth, truth), space=space)])


def texts() -> AuditResult:
    space = TokenSpace(12, tuple(f" word{number}" for number in range(30)))
    truth = torch.randint(1, 30, (3, 12), generator=torch.Generator().manual_seed(0))
    scores = {"identification": (1.0,) * 3, "token_recall": (1.0,) * 3}
    return audit_of([record(hits=3, size=3, scores=scores, pictures=Pictures(truth, truth.flip(1)), space=space)])


def measured() -> AuditResult:
    """Every metric of images and labels, under names as attacks have."""
    names = (
        "identification",
        "identification_shifted",
        "psnr",
        "psnr_affine",
        "ssim",
        "fsim",
        "lpips_alex",
        "lpips_vgg",
    )
    scores = {name: tuple(0.125 + number / 8 for number in range(8)) for name in names}
    of_labels = labelled((4, 4), (4, 4), attack="inverting_gradients_no_tv:steps=250")
    cases = [record(attack="inverting_gradients_no_tv:steps=250", scores={**of_labels.scores, **scores})]
    return audit_of([*cases, *map(null_of, cases), of_labels])


def leaking() -> AuditResult:
    return audit({"none": Verdict.LEAKS})


PAGES = {
    "crowded": crowded,
    "images": leaking,
    "measured": measured,
    "rows": rows,
    "few columns": lambda: rows(3),
    "texts": texts,
}


@pytest.fixture(scope="module")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The file of one of these pages, written once for all tests that only look at it."""
    return cache(lambda name: write_report(PAGES[name](), tmp_path_factory.mktemp("page")))


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_cut_off_at_the_right_and_nothing_is_asked_for(
    name: str, browser: Any, page_of: Callable[[str], Path]
) -> None:
    with opened(browser, page_of(name)) as seen:
        for width in (*WIDTHS, 1024):
            seen.page.set_viewport_size({"width": width, "height": 900})
            assert seen.beyond() == [], width
        assert seen.page.evaluate("[...document.images].every(one => !one.src || one.naturalWidth > 0)")


def test_on_a_desk_the_name_of_an_attack_is_never_broken(browser: Any, page_of: Callable[[str], Path]) -> None:
    lines = """one => [...one.childNodes].filter(part => part.nodeType === 3).map(part => {
      const range = document.createRange();
      range.selectNodeContents(part);
      return range.getClientRects().length;
    })"""
    with opened(browser, page_of("measured")) as seen:
        names = [one.evaluate(lines) for one in seen.page.locator("tbody th .under").all()]
        assert len(names) > 2
        assert {tuple(parts) for parts in names} == {(1, 1)}


@pytest.mark.parametrize("name", PAGES)
def test_on_paper_nothing_is_cut_off_and_what_was_folded_is_open(
    name: str, browser: Any, page_of: Callable[[str], Path]
) -> None:
    with opened(browser, page_of(name), PAPER) as seen:
        seen.page.emulate_media(media="print")
        seen.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert seen.beyond() == []
        assert seen.count("details:not([open])") == 0
        assert seen.count(".tools select") == 0
        assert seen.page.pdf(format="A4")[:5] == b"%PDF-"


def test_the_slider_lays_each_private_image_over_what_came_back(browser: Any, page_of: Callable[[str], Path]) -> None:
    with opened(browser, page_of("images")) as seen:
        first = seen.page.locator("[data-compared] [data-item='1'] .over").first
        original = seen.page.locator("[data-original] [data-item='1'] img")
        assert first.get_attribute("src") == original.get_attribute("src")
        assert _cut(first) == "inset(0px calc(100% + 0%) 0px 0px)" or "100%" in _cut(first)
        seen.page.locator("#reveal").focus()
        seen.page.keyboard.press("End")
        assert _cut(first) in ("inset(0px)", "inset(0px 0% 0px 0px)", "inset(0px 0px 0px 0px)")
        assert "100 %" in str(seen.page.locator("#reveal").get_attribute("aria-valuetext"))


def _cut(image: Any) -> str:
    return str(image.evaluate("one => getComputedStyle(one).clipPath"))


def test_one_pair_opens_large_goes_on_to_the_next_by_keyboard_and_gives_the_focus_back(
    browser: Any, page_of: Callable[[str], Path]
) -> None:
    with opened(browser, page_of("images")) as seen:
        button = seen.page.locator("[data-compared] .open").first
        button.focus()
        seen.page.keyboard.press("Enter")
        assert seen.page.locator("#pair-title").inner_text() == "Image 1, No defence"
        assert "Assumed known" in seen.page.locator("#pair-knew").inner_text()
        seen.page.locator("#pair-next").click()
        assert seen.page.locator("#pair-title").inner_text() == "Image 2, No defence"
        seen.page.keyboard.press("Escape")
        assert not seen.page.locator("#pair").is_visible()
        assert seen.page.evaluate("document.activeElement.className") == "open"


def _items(seen: Any, line: int) -> list[str]:
    visible = seen.page.locator(f"[data-line='{line}'] [data-item]").all()
    return [one.get_attribute("data-item") for one in visible if one.is_visible()]


def test_images_are_sorted_and_filtered_by_what_leaked_of_them_in_every_line_alike(
    browser: Any, tmp_path: Path
) -> None:
    # Of eight the first three leaked, and of all the later ones are more alike (10 dB, 11 dB, ...).
    result = audit({"none": Verdict.LEAKS, "pruning:keep=0.01": Verdict.LEAKS_PARTLY})
    with opened(browser, write_report(result, tmp_path)) as seen:
        seen.page.select_option("#under", label="Pruning (keep 0.01)")
        seen.page.select_option("#order", "most")
        assert _items(seen, 0) == _items(seen, 2) == ["3", "2", "1", "8", "7", "6", "5", "4"]
        seen.page.select_option("#order", "least")
        assert _items(seen, 0) == ["4", "5", "6", "7", "8", "1", "2", "3"]
        seen.page.select_option("#which", "leaked")
        assert _items(seen, 0) == _items(seen, 1) == ["1", "2", "3"]
        assert seen.page.locator("#told").inner_text() == "3 of 8 shown"
        seen.page.select_option("#which", "kept")
        seen.page.select_option("#order", "given")
        assert _items(seen, 1) == ["4", "5", "6", "7", "8"]


def test_rows_of_a_table_are_sorted_and_filtered_too(browser: Any, page_of: Callable[[str], Path]) -> None:
    with opened(browser, page_of("few columns")) as seen:
        assert seen.count("[data-items] > [data-item]") == 8
        seen.page.locator("#more").click()
        assert seen.count("[data-items] > [data-item]") == 10
        seen.page.select_option("#which", "kept")
        assert seen.count("[data-items] > [data-item]") == 0


@pytest.mark.parametrize("name", ["images", "rows", "texts"])
def test_the_switch_hides_what_is_private_and_brings_it_back(
    name: str, browser: Any, page_of: Callable[[str], Path]
) -> None:
    shown = "() => [...document.querySelectorAll('.tiles img, .private')].map(one => one.src ?? one.textContent)"
    with opened(browser, page_of(name)) as seen:
        before = seen.page.evaluate(shown)
        seen.page.check("#redact")
        hidden = seen.page.evaluate(shown)
        assert not set(before) & set(hidden)
        seen.page.uncheck("#redact")
        assert seen.page.evaluate(shown) == before


def test_a_recorded_round_is_redacted_in_the_file_itself_unless_that_is_asked_for() -> None:
    plain = audit({RECORDED: Verdict.LEAKS})
    clear, whole = render_audit(plain, redact=False), render_audit(plain)
    private = [part for part in clear.split('"') if part.startswith("data:image")]
    blocks = [part for part in whole.split('"') if part.startswith("data:image")]
    assert set(blocks) < set(private)
    assert max(map(len, blocks)) < min(len(one) for one in set(private) - set(blocks))
    # Wherever it stands in the file, a picture is a few blocks.
    pictures = [base64.b64decode(coded) for coded in re.findall(r"base64,([\w+/=]+)", whole)]
    assert {max(Image.open(io.BytesIO(one)).size) for one in pictures} <= {1, 2, 3, 4}
    assert "holds no private input" in whole
    assert 'id="redact"' in clear
    assert 'id="redact"' not in whole


def test_a_redacted_page_tells_how_many_labels_came_back_and_not_which(browser: Any, tmp_path: Path) -> None:
    counts = (0, 6, 2)
    plain = audit_of([labelled(counts, counts, RECORDED), null_of(labelled(counts, counts, RECORDED))])
    plain = replace(plain, description={**plain.description, "class_names": ["healthy", "ill", "unknown"]})
    clear, whole = render_audit(plain, redact=False), render_audit(plain)
    assert "class ill: 6 true, 6 restored" in clear
    assert "8 of 8" in whole
    assert "class ill" not in whole
    assert '<svg class="counts"' not in whole
    assert "no private label" in whole
    with opened(browser, write_report(plain, tmp_path, redact=False)) as seen:
        assert seen.count("svg.counts") == 1
        seen.page.check("#redact")
        assert seen.count("svg.counts") == 0


def test_a_wish_that_an_audit_was_run_with_is_kept_and_can_be_overruled() -> None:
    asked = audit({"none": Verdict.LEAKS})
    asked = replace(asked, description={**asked.description, "redact": True})
    assert "holds no private input" in render_audit(asked)
    assert "holds no private input" not in render_audit(asked, redact=False)


def test_redacted_rows_and_texts_keep_which_cells_came_back_and_no_value() -> None:
    page = render_audit(texts(), redact=True)
    assert not re.search(r"word\d", page)
    assert page.count(">•••<") == 2 * 3 * 12
    assert '<mark class="private">' in page


@pytest.mark.parametrize("name", ["crowded", "images", "rows", "texts"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_the_paper_in_light_and_dark(
    scheme: Any, name: str, browser: Any, page_of: Callable[[str], Path]
) -> None:
    with opened(browser, page_of(name), color_scheme=scheme) as seen:
        seen.page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        assert seen.page.evaluate(_FAINT) == []


# Of the Web Content Accessibility Guidelines: 4.5 to 1 for text. All that can be seen and has words of its own, in
# drawings too.
_FAINT = """() => {
  const light = rgb => rgb.map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const contrast = one => {
    const style = getComputedStyle(one), ink = parse(one instanceof SVGElement ? style.fill : style.color);
    let under = one;
    while (under.parentElement && parse(getComputedStyle(under).backgroundColor)[3] === 0) under = under.parentElement;
    const [a, b] = [light(ink.slice(0, 3)), light(parse(getComputedStyle(under).backgroundColor).slice(0, 3))];
    return (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  };
  const worded = [...document.body.querySelectorAll("*")].filter(one => one.getClientRects().length
    && !one.closest("script, title, option") && [...one.childNodes].some(
      part => part.nodeType === 3 && part.textContent.trim()));
  return worded.filter(one => contrast(one) < 4.5).map(
    one => `${one.tagName}.${one.getAttribute("class")}: ${contrast(one)}`);
}"""


def test_every_control_has_a_name_and_every_table_a_caption(browser: Any, page_of: Callable[[str], Path]) -> None:
    unnamed = """() => [...document.querySelectorAll("select, input, button")].filter(
      one => !one.labels?.length && !one.textContent.trim() && !one.querySelector("img[alt]:not([alt=''])")
    ).length + [...document.querySelectorAll("table")].filter(one => !one.caption).length"""
    with opened(browser, page_of("crowded")) as seen:
        assert seen.page.evaluate(unnamed) == 0


def test_the_policy_runs_no_script_but_the_page_s_own(browser: Any, tmp_path: Path) -> None:
    page = write_report(audit({"none": Verdict.LEAKS}), tmp_path)
    text = page.read_text("utf-8").replace("</main>", "</main><script>document.title = 'owned'</script>")
    page.write_text(text.replace('<img src="data', '<img onload="document.title = 1" src="data'), "utf-8")
    with opened(browser, page) as seen:
        assert "LeakGauge" in seen.page.title()
        assert {"Content Security Policy" in one for one in seen.faults} == {True}
        seen.faults.clear()


@pytest.mark.parametrize("side", [32, 224])
def test_a_hundred_images_with_all_that_came_back_stay_below_five_megabytes(side: int) -> None:
    # Noise, which no coding makes small.
    noise = torch.rand(3, side, side, generator=torch.Generator().manual_seed(0)).expand(count := 100, -1, -1, -1)
    scores = {"psnr": (10.0,) * count, "identification": (1.0,) * count}
    pictures = Pictures(noise, noise)
    cases = [record(name, count, count, scores=scores, pictures=pictures) for name in ("none", "a", "b", "c")]
    nulls = [replace(null_of(case), scores={"psnr": (math.nan,) * count}) for case in cases]
    assert len(render_audit(audit_of([*cases, *nulls])).encode()) < 5_000_000
