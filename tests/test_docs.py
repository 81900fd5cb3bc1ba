"""That the pages tell of files that are there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import leakgauge
import site_pages
from leakgauge.report.parts import catalogue_parts

ROOT, PACKAGE = Path(__file__).parents[1], Path(leakgauge.__file__).parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MADE = {"snapshots/", "report/", "mymodel.py"}
"""What commands make, or a reader."""

SITE = {ROOT / "docs" / path for path in site_pages.pages()}
"""Pages that `make docs` makes of the catalogue."""

PAGES += sorted((ROOT / "docs" / "decisions").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_and_every_file_that_a_page_names_is_there(page):
    text = page.read_text("utf-8")
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]
    named = re.findall(r"`([\w/.-]+/|[\w/.-]+\.py)`", text)
    lost = [link for link in links if not (page.parent / link).exists() and page.parent / link not in SITE]
    lost += [name for name in named if not _is_there(name)]
    assert lost == []


def _is_there(name: str) -> bool:
    """In the package or the repository; a file or folder that stands alone, anywhere in the package."""
    if name in MADE or any((folder / name).exists() for folder in (PACKAGE, ROOT, ROOT / "docs")):
        return True
    return "/" not in name.rstrip("/") and any(PACKAGE.rglob(name.rstrip("/")))


def test_the_site_has_a_page_for_every_attack_and_every_defence_with_its_options_and_commands():
    pages = site_pages.pages()
    for kind in ("attacks", "defences"):
        for part in catalogue_parts(kind):
            text = pages[f"catalogue/{kind}/{part.name}.md"]
            assert all(command in text for command in part.commands)
            assert all(f"`{option.name}`" in text for option in part.options)
            assert "## What breaks it" in text or "## What it recovers" in text
            assert "## What it assumes" in text
            assert "Not asked yet." not in text, "run `python benchmarks/applicability.py`"
            assert "## Papers" in text


@pytest.mark.slow
def test_the_site_is_built_without_a_broken_link(tmp_path):
    words = ["build", "--quiet", "--strict", "--site-dir", str(tmp_path / "site")]
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "site" / "catalogue" / "attacks" / "best.html").is_file()
