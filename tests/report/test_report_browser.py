from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_report_examples import audit_of, labelled, null_of, record

from leakgauge.report.html import write_report

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--allow-file-access-from-files",
    "--enable-logging=stderr",
    "--virtual-time-budget=2000",
    "--dump-dom",
)
FRAME = """<!DOCTYPE html><iframe id="page" src="report/index.html" style="width: {width}px; height: 900px"></iframe>
<script>
document.getElementById("page").onload = event => {{
  const root = event.target.contentDocument.documentElement;
  const images = [...root.querySelectorAll("img")].map(image => image.complete && image.naturalWidth > 0);
  const charts = [...root.querySelectorAll("svg.counts")].filter(chart => chart.getBoundingClientRect().height > 90);
  document.title = [root.scrollWidth - root.clientWidth, images.length, images.every(Boolean), charts.length].join(" ");
}};
</script>"""


@pytest.mark.skipif(BROWSER is None, reason="needs a Chromium browser")
@pytest.mark.parametrize("width", [320, 390, 800, 1200])
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
    (tmp_path / "frame.html").write_text(FRAME.format(width=width))
    ran = subprocess.run(
        [str(BROWSER), *QUIET, f"--user-data-dir={tmp_path / 'profile'}", (tmp_path / "frame.html").as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    title = re.search(r"<title>(.*)</title>", ran.stdout)
    assert title is not None
    # Five lines (private, three defences, null) of two rounds of eight; two rounds of two charts.
    assert title[1] == "0 80 true 4"
    assert "CONSOLE" not in ran.stderr
