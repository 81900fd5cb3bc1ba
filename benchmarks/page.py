"""Every committed result on one page: published numbers beside ours, quality at equal seconds, speed.

    python benchmarks/page.py                # write docs/results.md
    python benchmarks/page.py --check        # fail if the page is not what the result files say

The page is made of benchmarks/results/*.json alone, so that no number on it was typed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from leakgauge.files import write_text

ROOT = Path(__file__).resolve().parent.parent
RESULTS, PAGE = ROOT / "benchmarks" / "results", ROOT / "docs" / "results.md"

Result = Mapping[str, Any]

_HEAD = """# Results

Made by `python benchmarks/page.py` from the files in `benchmarks/results/`; each holds every victim, every null and
what the attacker was told. The null is the same attack on an update that has nothing to do with the victim. ± is the
standard deviation over updates unless said otherwise; a dash means that nothing was published or measured.
"""


def render(results: Mapping[str, Result]) -> str:
    """The whole page, from results by file name."""
    parts = [_HEAD]
    for name, result in sorted(results.items()):
        make = next((make for key, make in _FORMS.items() if key in result), _plain_rows)
        parts.append(make(name, result))
    return "\n".join(parts)


def load() -> dict[str, Result]:
    return {path.name: json.loads(path.read_text("utf-8")) for path in RESULTS.glob("*.json")}


def _reproduction(name: str, result: Result) -> str:
    metrics = list(result["rows"][0]["ours"])
    columns = ["setting", *(f"{metric}: {column}" for metric in metrics for column in ("published", "ours", "null"))]
    columns = [column for column in columns if _filled(column, metrics[0], result)]
    work = ["updates", "steps", "seconds"] if "updates" in result["rows"][0] else ["runs", "seconds"]
    rows = []
    for row in result["rows"]:
        cells = [row["label"] + _trained(row.get("training"))]
        for column in columns[1:]:
            metric, _, kind = column.partition(": ")
            cells.append(_published(row, metric, metrics[0]) if kind == "published" else _measured(row[kind][metric]))
        rows.append([*cells, *(_of_update(row) if "updates" in row else _of_study(row, metrics[0]))])
    notes = "\n".join(f"- {note}" for note in result["notes"])
    head, table = _title(result["title"], name, [result["command"]]), _table([*columns, *work], rows)
    return f"{head}\n{table}{_verdict(result)}\n{notes}\n{_sheet(name)}"


def _verdict(result: Result) -> str:
    """Who leads in each cell, and by how much over the next; in bold who is ahead of all others by the rule."""
    if (verdict := result.get("verdict")) is None:
        return ""
    metrics = [key for key in verdict["cells"][0] if key != "cell"]
    rows = [[one["cell"], *(_leader(one[metric]) for metric in metrics)] for one in verdict["cells"]]
    said = "Who leads, by how much over the next; bold: ahead of all by the rule below."
    return f"\n{said}\n\n{_table(['cell', *metrics], rows)}"


def _leader(one: Result) -> str:
    first = f"**{one['first']}**" if one["ahead"] else one["first"]
    spread = "" if one["deviation"] is None else f" ± {one['deviation']:.2g}"
    gap = "–" if one["difference"] is None else f"{one['difference']:+.2g}{spread}"
    return f"{first} {gap} ({one['second']})"


def _sheet(name: str) -> str:
    """The pictures that lie beside a result."""
    picture = (RESULTS / name).with_suffix(".png")
    return f"\n![originals above what came back](../benchmarks/results/{picture.name})\n" if picture.is_file() else ""


def _of_update(row: Result) -> tuple[str, str, str]:
    steps = row["steps"]
    made = "–" if steps is None else "–".join(str(one) for one in dict.fromkeys(steps))
    return str(len(row["updates"])), made, f"{row['seconds_per_update']:.3g}"


def _of_study(row: Result, first: str) -> tuple[str, str]:
    """Of what attacks no update."""
    return str(row["ours"][first]["updates"]), f"{row['seconds']:.3g}"


def _filled(column: str, first: str, result: Result) -> bool:
    metric, _, kind = column.partition(": ")
    return kind != "published" or any(_published(row, metric, first) != "–" for row in result["rows"])


def _published(row: Result, metric: str, first: str) -> str:
    given = row["published"] if metric == first else row["also_published"].get(metric)
    if given is None or given["mean"] is None:
        return "–"
    spread = "" if given["deviation"] is None else f" ± {given['deviation']:.3g}"
    return _number(given["mean"]) + spread + (" (s.e.)" if spread and given["spread"] == "standard error" else "")


def _measured(one: Result) -> str:
    if one["mean"] is None:
        return "–"
    best = "" if one.get("best") is None else f", best {_number(one['best'])}"
    return _number(one["mean"]) + ("" if one["deviation"] is None else f" ± {one['deviation']:.2f}") + best


def _trained(training: Result | None) -> str:
    if training is None:
        return ""
    accuracy = training["accuracy"]
    return f"; {training['steps']} training steps" + ("" if accuracy is None else f", accuracy {100 * accuracy:.0f} %")


def _quality(name: str, result: Result) -> str:
    setting, summary = result["setting"], result["summary"]
    title = f"{setting['model']}: {setting['cpu_seconds']:g} CPU seconds an image, PSNR in dB"
    rows = []
    for method in ("baseline", "best"):
        one = summary[method]
        spread = f"{one['mean']:.2f} ± {one['std']:.2f}"
        worst = f"{one['worst']['psnr']:.2f}"
        rows.append([method, spread, worst, f"{one['mean_to_next_image']:.2f}", f"{one['steps']:.0f}"])
    gain = summary["best - baseline"]
    low, high = gain["interval_95"]
    text = (
        f"Gain {gain['mean']:.2f} dB (95 % interval {low:.2f} to {high:.2f}), ahead on {gain['images_won']} of "
        f"{gain['images']} images; an unrelated gradient gives {summary['unrelated gradient']['mean']:.2f} dB.\n"
    )
    columns = ["method", "mean", "worst image", "against another image", "steps"]
    return f"{_title(title, name, result['commands'])}\n{_table(columns, rows)}\n{text}"


def _tradeoff(name: str, result: Result) -> str:
    """Each defence with its accuracy, time and what an adaptive attacker got; a null beside every number."""
    views = [(one["threat_model"], one["batch_size"]) for one in result["rows"][0]["leakage"] if one["adaptive"]]
    metrics = ("psnr", "identification", "lpips_vgg")
    columns = ["defence", "accuracy", "time"]
    columns += [f"{who}, batch {size}: {metric} (null)" for who, size in views for metric in metrics]
    rows = []
    for row in result["rows"]:
        utility = row["utility"] or {}
        accuracy = utility.get("accuracy", {}).get("mean")
        overhead = (utility.get("overhead") or {}).get("median")
        cells = [row["defence"], "–" if accuracy is None else f"{100 * accuracy:.1f} %"]
        cells.append("–" if overhead is None else f"{overhead:.2f}x")
        for view in views:
            seen = (
                one for one in row["leakage"] if one["adaptive"] and (one["threat_model"], one["batch_size"]) == view
            )
            found = next(seen, None)
            for metric in metrics:
                cells.append(_leaked(None if found is None else found["metrics"].get(metric)))
        rows.append(cells)
    remarks = "\n".join(f"- {one}" for one in (result["sentence"], *result["remarks"]))
    title = "Utility and leakage of defences on the embedded photographs"
    return f"{_title(title, name, [result['command_line']])}\n{_table(columns, rows)}\n{remarks}\n"


def _leaked(one: Result | None) -> str:
    if one is None or one["mean"] is None:
        return "–"
    null = one["null"]["mean"]
    return f"{_number(one['mean'])} ({'–' if null is None else _number(null)})"


def _plain_rows(name: str, result: Result) -> str:
    """Any benchmark whose rows are flat: one column per field."""
    columns = list(dict.fromkeys(key for row in result["rows"] for key in row))
    rows = [["–" if row.get(key) is None else _number(row[key]) for key in columns] for row in result["rows"]]
    title = result.get("title", name.removesuffix(".json").capitalize())
    return f"{_title(title, name, [result['command']])}\n{_table([key.replace('_', ' ') for key in columns], rows)}"


def _title(title: str, name: str, commands: Sequence[str]) -> str:
    return f"## {title}\n\n`{name}`: " + ", ".join(f"`{command}`" for command in commands) + "\n"


def _number(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    if value != 0 and abs(value) < 1e-3:
        return f"{value:.1e}"
    return f"{value:.3f}" if abs(value) < 2 else f"{value:.2f}"


def _table(columns: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    head = list(columns)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


_FORMS = {"experiment": _reproduction, "summary": _quality, "sentence": _tradeoff}
"""How a result is shown, by a field that only its kind has."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only compare; exit with 1 when the page is out of date")
    page = render(load())
    if not parser.parse_args().check:
        write_text(PAGE, page)
        return 0
    if PAGE.read_text("utf-8") != page:
        print("docs/results.md is not what benchmarks/results/ says; run `python benchmarks/page.py`.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
