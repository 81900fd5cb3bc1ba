from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_report_examples import audit_of, labelled, null_of, record

from browser_support import needs_browser, seen
from leakgauge.report.audit_page import write_report

SCRIPT = """
  const images = [...root.querySelectorAll("img")].map(image => image.complete && image.naturalWidth > 0);
  const charts = [...root.querySelectorAll("svg.counts")].filter(chart => chart.getBoundingClientRect().height > 90);
  const found = [images.length, images.every(Boolean), charts.length];
"""


@needs_browser
@pytest.mark.parametrize("width", [320, 800, 1200])
def test_a_browser_shows_all_images_and_charts_without_error_and_without_scrolling_sideways(
    width: int, tmp_path: Path
) -> None:
    long = f"<{'Shield' * 30} object>"
    cases = [
        record(defence, round=number)
        for defence in ("none", long, "clipping:max_norm=1+gaussian_noise:std=0.01")
        for number in range(2)
    ]
    cases = [replace(case, reason="x" * 200, facts={"loss": torch.pi, "note": "y" * 200}) for case in cases]
    counts = [1 + number % 120 for number in range(200)]
    of_labels = [
        labelled(counts, counts[::-1], defence, round=number) for defence in ("none", long) for number in range(2)
    ]
    write_report(audit_of([*cases, *map(null_of, cases), *of_labels]), tmp_path / "report")
    # Five lines (private, three defences, null) of two rounds of eight; two rounds of two charts.
    assert seen(tmp_path, width, SCRIPT) == "0 80 true 4"
