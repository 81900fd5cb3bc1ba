"""That the pages tell of files that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import leakgauge

ROOT, PACKAGE = Path(__file__).parents[1], Path(leakgauge.__file__).parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MADE = {"snapshots/", "report/"}
"""Folders that commands make."""

PAGES += sorted((ROOT / "docs" / "decisions").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_and_every_file_that_a_page_names_is_there(page):
    text = page.read_text("utf-8")
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]
    named = re.findall(r"`([\w/.-]+/|[\w/.-]+\.py)`", text)
    lost = [link for link in links if not (page.parent / link).exists()]
    lost += [name for name in named if not _is_there(name)]
    assert lost == []


def _is_there(name: str) -> bool:
    """In the package or the repository; a file or folder that stands alone, anywhere in the package."""
    if name in MADE or any((folder / name).exists() for folder in (PACKAGE, ROOT, ROOT / "docs")):
        return True
    return "/" not in name.rstrip("/") and any(PACKAGE.rglob(name.rstrip("/")))
