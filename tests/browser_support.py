"""A page in a real browser, and all that it asks for or complains of."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WIDTHS = (1280, 768, 390)
"""A desk, a tablet and a phone."""

# How far anything that can be seen reaches beyond the right edge; what scrolls within itself counts as cut off.
_BEYOND = """() => {
  const edge = document.documentElement.clientWidth;
  const seen = [...document.body.querySelectorAll("*")].filter(
    one => !one.closest(".sr, .skip, dialog:not([open])") && one.getClientRects().length);
  const beyond = one => Math.max(one.getBoundingClientRect().right - edge,
    one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX !== "visible" ? 999 : 0);
  return seen.filter(one => beyond(one) > 1).map(one => `${one.tagName}.${one.className}`);
}"""

needs_browser = pytest.mark.skipif(BROWSER is None, reason="needs a Chromium browser")


@dataclass(frozen=True)
class Opened:
    """A page that is open: Playwright's, and what it did that a self-contained page does not do."""

    page: Any
    faults: list[str] = field(default_factory=list)

    def beyond(self) -> list[str]:
        """What does not fit between the edges."""
        found: list[str] = self.page.evaluate(_BEYOND)
        return found

    def count(self, selector: str) -> int:
        """How many of these can be seen."""
        return sum(one.is_visible() for one in self.page.locator(selector).all())


@contextmanager
def opened(browser: Any, path: Path, width: int = 1280, **options: Any) -> Iterator[Opened]:
    """The page at this width, in a context of its own; whatever it complains of or asks for is a fault."""
    context = browser.new_context(viewport={"width": width, "height": 900}, **options)
    seen = Opened(context.new_page())
    seen.page.on("console", lambda message: seen.faults.append(f"{message.type}: {message.text}"))
    seen.page.on("pageerror", lambda error: seen.faults.append(str(error)))
    seen.page.on("request", lambda request: _note(seen, request.url, path))
    try:
        seen.page.goto(path.as_uri())
        yield seen
        assert not seen.faults, seen.faults
    finally:
        context.close()


def _note(seen: Opened, url: str, path: Path) -> None:
    if not url.startswith("data:") and url.partition("#")[0] != path.as_uri():
        seen.faults.append(f"request: {url}")
