"""A page in a real browser, at a given width, and what a script finds there."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_QUIET = (
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
_FRAME = """<!DOCTYPE html><iframe id="page" src="report/index.html" style="width: {width}px; height: 900px"></iframe>
<script>
document.getElementById("page").onload = event => {{
  const root = event.target.contentDocument.documentElement;
  {script}
  document.title = [root.scrollWidth - root.clientWidth, ...found].join(" ");
}};
</script>"""

needs_browser = pytest.mark.skipif(BROWSER is None, reason="needs a Chromium browser")


def seen(folder: Path, width: int, script: str) -> str:
    """How far ``folder / "report"`` scrolls sideways, and the array ``found`` that a script makes of its ``root``."""
    (folder / "frame.html").write_text(_FRAME.format(width=width, script=script))
    ran = subprocess.run(
        [str(BROWSER), *_QUIET, f"--user-data-dir={folder / 'profile'}", (folder / "frame.html").as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "CONSOLE" not in ran.stderr
    title = re.search(r"<title>(.*)</title>", ran.stdout)
    assert title is not None
    return title[1]
