"""Whether `make demo` still prints the scores it printed before: every score, null, guess and verdict.

    python benchmarks/demo.py                       # run the demo, a minute or two, and compare
    python benchmarks/demo.py --short               # the same audit with eight steps, as the test suite does
    python benchmarks/demo.py --keep demo FILE      # take the scores of `leakgauge audit examples/demo.toml --json`
    python benchmarks/demo.py --keep short FILE     # the same, with `--steps 8 --jobs 1`

What is kept lies in tests/audit/demo_scores.json. Keep new
scores only in a change that says which number it changes, and why. Intervals are not kept: they are what is said
about a score, and how they are computed may improve.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from leakgauge.files import write_text

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "tests" / "audit" / "demo_scores.json"
_PLAN = str(ROOT / "examples" / "demo.toml")
OPTIONS = {"demo": ("audit", _PLAN, "--json"), "short": ("audit", _PLAN, "--steps", "8", "--jobs", "1", "--json")}
"""What `make demo` runs, and what the test suite runs in its place."""

DIGITS = 4
"""Significant digits: the reports print three or four."""

AGREEMENT = 0.01
"""By how much scores may differ: processors round differently, and steps of a search carry it on."""

Scores = dict[str, dict[str, Any]]


def scores(payload: Mapping[str, Any]) -> Scores:
    """Every score of an audit's JSON, rounded as it is printed, by defence and attack."""
    return {f"{row['defence']} / {row['attack']}": _row(row) for row in payload["rows"]}


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    kept = {"verdict": row["verdict"], "outcome": row["outcome"], "steps": row["facts"].get("steps")}
    for name, metric in row["metrics"].items():
        if metric["measured"]:
            null = metric["null"]["mean"]
            named = {"mean": metric["mean"], "worst": metric["worst"], "null": null, "guess": metric["guess"]}
            kept[name] = {key: _printed(value) for key, value in named.items() if value is not None}
    return kept


def _printed(value: float) -> str:
    return f"{value:.{DIGITS}g}"


def differences(kept: Scores, found: Scores) -> Iterator[str]:
    """One sentence for each score that is not what it was; nothing when all are."""
    for row in sorted(kept.keys() | found.keys()):
        old, new = kept.get(row, {}), found.get(row, {})
        for name in sorted(old.keys() | new.keys()):
            if not same(old.get(name), new.get(name)):
                yield f"{row}: {name} was {old.get(name)} and is {new.get(name)}."


def same(old: Any, new: Any) -> bool:
    """Whether two scores are one, as far as processors agree on it.

    >>> same({"mean": "12.64"}, {"mean": "12.63"}), same({"mean": "12.64"}, {"mean": "12.9"})
    (True, False)
    """
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(same(old[name], new[name]) for name in old)
    try:
        return math.isclose(float(old), float(new), rel_tol=AGREEMENT, abs_tol=AGREEMENT)
    except (TypeError, ValueError):
        return bool(old == new)


def kept_scores(kind: str) -> Scores:
    scores: Scores = json.loads(KEPT.read_text("utf-8"))[kind]["scores"]
    return scores


def _run(kind: str) -> Mapping[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "leakgauge", *OPTIONS[kind], "--out", folder]
        # Weights that happen to lie on a machine would add metrics that the demo does not have.
        surroundings = {name: value for name, value in os.environ.items() if name != "LEAKGAUGE_WEIGHTS"}
        answer = subprocess.run(words, env=surroundings, stdout=subprocess.PIPE, check=True, text=True)
    payload: Mapping[str, Any] = json.loads(answer.stdout)
    return payload


def _keep(kind: str, file: Path) -> None:
    kept = json.loads(KEPT.read_text("utf-8")) if KEPT.is_file() else {}
    command = " ".join(("leakgauge", *OPTIONS[kind])).replace(f"{ROOT}{os.sep}", "")
    kept[kind] = {"command": command, "scores": scores(json.loads(file.read_text("utf-8")))}
    write_text(KEPT, _a_line_for_each_row(kept))


def _a_line_for_each_row(kept: Mapping[str, Any]) -> str:
    blocks = []
    for kind, one in kept.items():
        rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in one["scores"].items())
        blocks.append(f'"{kind}": {{"command": {json.dumps(one["command"])}, "scores": {{\n{rows}}}}}')
    return "{" + ",\n".join(blocks) + "}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--short", action="store_true", help="eight steps of each attack")
    parser.add_argument("--keep", nargs=2, metavar=("KIND", "FILE"), help="take the scores of this output as the kept")
    options = parser.parse_args()
    if options.keep is not None:
        _keep(options.keep[0], Path(options.keep[1]))
        return 0
    kind = "short" if options.short else "demo"
    changed = list(differences(kept_scores(kind), scores(_run(kind))))
    print("\n".join(changed) or f"All {len(kept_scores(kind))} rows score what they scored before.")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
