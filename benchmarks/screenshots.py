"""The pictures of the documentation: a report at three widths and the terminal at two, from a folder of an audit.

    leakgauge audit examples/demo.toml --out report
    python benchmarks/screenshots.py report          # writes docs/pictures/

The report is shown by Chromium through Playwright, the terminal drawn by rich; nothing is retouched.
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright
from rich.console import Console

from leakgauge.audit.execute import load_result
from leakgauge.catalogue import standard_metrics
from leakgauge.files import write_text
from leakgauge.report.console import audit_tables
from leakgauge.report.headline import headline

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
WIDTHS, HEIGHTS = (1280, 768, 390), {1280: 1500, 768: 1300, 390: 1300}
COLOURS = 256
"""Of a screenshot: enough for flat areas and small photographs, at a fraction of the bytes."""


def report_pictures(page: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for width in WIDTHS:
            seen = browser.new_page(viewport={"width": width, "height": HEIGHTS[width]})
            seen.goto(page.resolve().as_uri())
            shot = Image.open(io.BytesIO(seen.screenshot())).convert("RGB")
            shot.quantize(COLOURS, dither=Image.Dither.NONE).save(PICTURES / f"report-{width}.png", optimize=True)
        browser.close()


def terminal_pictures(folder: Path) -> None:
    result = load_result(folder, standard_metrics(None))
    for width in (80, 120):
        console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, highlight=False)
        first, *rest = headline(result)
        console.print("$ leakgauge audit examples/demo.toml", style="dim")
        console.print(first, style="bold", markup=False)
        for sentence in rest:
            console.print(sentence, markup=False)
        console.print(audit_tables(result))
        text = console.export_svg(title=f"{width} columns", unique_id="terminal")
        # Its fonts would be fetched from elsewhere; whoever looks has one of their own.
        text = re.sub(r"@font-face \{.*?\}", "", text, flags=re.DOTALL).replace("Fira Code, monospace", "monospace")
        write_text(PICTURES / f"terminal-{width}.svg", text)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    PICTURES.mkdir(exist_ok=True)
    report_pictures(options.folder / "index.html")
    terminal_pictures(options.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
