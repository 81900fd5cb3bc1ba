"""That the pages tell of files that are there."""

from __future__ import annotations

import json
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
    links = [link for link in re.findall(r"(?:\]\(|src=\")([^)#\s\"]+)", text) if "://" not in link]
    named = re.findall(r"`([\w/.-]+/|[\w/.-]+\.py)`", text)
    lost = [link for link in links if not (page.parent / link).exists() and page.parent / link not in SITE]
    lost += [name for name in named if not _is_there(name)]
    assert lost == []


def _is_there(name: str) -> bool:
    """In the package or the repository; a file or folder that stands alone, anywhere in the package."""
    if name in MADE or any((folder / name).exists() for folder in (PACKAGE, ROOT, ROOT / "docs")):
        return True
    return "/" not in name.rstrip("/") and any(PACKAGE.rglob(name.rstrip("/")))


def test_the_readme_fits_two_screens_and_no_line_of_its_code_is_cut_off():
    lines = (ROOT / "README.md").read_text("utf-8").splitlines()
    assert len(lines) <= 65
    fenced = False
    for line in lines:
        fenced ^= line.startswith("```")
        assert len(line.removeprefix("    ")) <= 95 or not (fenced or line.startswith("    ")), line


def test_the_site_has_a_page_for_every_attack_and_every_defence_with_its_options_and_commands():
    pages, portraits = site_pages.pages(), json.loads(site_pages.NUMBERS.read_text("utf-8"))
    for kind in site_pages.KINDS:
        for part in catalogue_parts(kind):
            text = pages[f"catalogue/{kind}/{part.name}.md"]
            assert all(command in text for command in part.commands)
            assert all(f"`{option.name}`" in text for option in part.options)
            assert "## What breaks it" in text or "## What it recovers, and what breaks it" in text
            assert "## What it assumes" in text
            assert "Not asked yet." not in text, "run `python benchmarks/applicability.py`"
            assert ("Not drawn yet" in text) == (part.name not in portraits[kind]), (
                "run `python benchmarks/portraits.py`"
            )
            assert "## Papers" in text


def test_every_portrait_shows_what_was_private_what_came_back_and_its_null():
    portraits = json.loads(site_pages.NUMBERS.read_text("utf-8"))
    drawn = {path.name for path in (ROOT / "docs" / "portraits").iterdir()}
    shown = [one for kind in site_pages.KINDS for one in portraits[kind].values()]
    assert drawn == {one["picture"] for one in shown if one["picture"]}
    for one in shown:
        assert one["picture"] if one["shown"] in ("images", "labels") else one["private"]
        # Somewhere something came back: a page that shows nothing but "nothing" tells nothing.
        assert any(row["found"] is not None for row in one["rows"])
        assert any(row["null"] is not None for row in one["rows"]) or one["rows"][0]["reason"] == ""


@pytest.mark.slow
def test_the_site_is_built_without_a_broken_link(tmp_path):
    words = ["build", "--quiet", "--strict", "--site-dir", str(tmp_path / "site")]
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "site" / "catalogue" / "attacks" / "best.html").is_file()
