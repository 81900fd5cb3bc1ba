"""Known vulnerabilities of the pinned versions, and which of them nobody could be asked about.

    python benchmarks/known_vulnerabilities.py FILE constraints.txt   # of `pip-audit --format json --output FILE`

Where the service that pip-audit asks does not answer, the index still says what is known of the newest version of a
package; that is the answer for those that are pinned to it.

Exit code 0 only where every version was asked about and none is known to be vulnerable; 1 where one is; 3 where some
could not be checked, since no answer is no reassurance.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.request import urlopen

NONE, VULNERABLE, NOT_CHECKED = 0, 1, 3


def judge(report: Mapping[str, Any]) -> tuple[int, list[str]]:
    """The exit code and what to print, of the answer of pip-audit."""
    pins = report["dependencies"]
    unasked = [one["name"] for one in pins if "skip_reason" in one]
    told = [
        f"{one['name']} {one['version']}: {flaw['id']}, mended in {', '.join(flaw['fix_versions']) or 'no version yet'}"
        for one in pins
        for flaw in one.get("vulns", ())
    ]
    if unasked:
        told.append(
            f"NOT CHECKED, as the service gave no answer: {len(unasked)} of {len(pins)} ({', '.join(unasked)})."
        )
    told.append(f"{len(pins) - len(unasked)} of {len(pins)} pinned versions were checked.")
    vulnerable = any(one.get("vulns") for one in pins)
    return VULNERABLE if vulnerable else NOT_CHECKED if unasked or not pins else NONE, told


def completed(
    report: Mapping[str, Any], pins: Mapping[str, str], newest: Callable[[str], tuple[str, list[dict[str, Any]]]]
) -> dict[str, Any]:
    """The report with what is known of newest versions for those that were skipped and are pinned to one."""
    found = []
    for one in report["dependencies"]:
        if "skip_reason" in one and (version := pins.get(one["name"])) is not None:
            known, flaws = newest(one["name"])
            if known == version:
                flaws = [{"id": flaw["id"], "fix_versions": flaw.get("fixed_in") or []} for flaw in flaws]
                one = {"name": one["name"], "version": version, "vulns": flaws}
        found.append(one)
    return {"dependencies": found}


def newest_of(name: str) -> tuple[str, list[dict[str, Any]]]:
    """The newest version of a package and what is known against it, by the index; nothing where it does not answer."""
    try:
        with urlopen(f"https://pypi.org/pypi/{name}/json", timeout=30) as answer:
            said = json.load(answer)
        return str(said["info"]["version"]), list(said["vulnerabilities"])
    except (OSError, ValueError, KeyError, TypeError):
        return "", []


def pinned(text: str) -> dict[str, str]:
    """
    >>> pinned("# why\\nAst_Serialize==0.1  # so\\ntorch==2.0\\n")
    {'ast-serialize': '0.1', 'torch': '2.0'}
    """
    lines = (line.partition("#")[0].strip().partition("==") for line in text.splitlines())
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, _, version in lines if version}


def main(arguments: list[str]) -> int:
    found, constraints = map(Path, arguments)
    try:
        report = json.loads(found.read_text("utf-8"))
    except (OSError, ValueError):
        print("NOT CHECKED: pip-audit gave no answer at all.")
        return NOT_CHECKED
    code, told = judge(completed(report, pinned(constraints.read_text("utf-8")), newest_of))
    print("\n".join(told))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
