"""One section for each result file: its command, its rows as a table, its notes and pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import readings
from leakgauge.reproduce import TABLES
from leakgauge.reproduce.orders import orders
from leakgauge.reproduce.standing import in_all
from readings import Result, measured, number, published


def section(name: str, result: Result) -> str:
    """What a page shows of one result file."""
    make = next((make for key, make in _FORMS.items() if key in result), _plain_rows)
    return make(name, result)


def title(name: str, result: Result) -> str:
    if "summary" in result:
        setting = result["setting"]
        return f"{setting['model']}: {setting['cpu_seconds']:g} CPU seconds an image, PSNR in dB"
    if "sentence" in result:
        return "Utility and leakage of defences on the embedded photographs"
    given: str = result.get("title", Path(name).stem.capitalize())
    return f"{given} (scale {result['scale']})" if "experiment" in result and "scale" in result else given


def anchor(name: str) -> str:
    """Where on its page a result is found."""
    return Path(name).stem.replace(".", "-")


def table(columns: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    head = list(columns)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def _reproduction(name: str, result: Result) -> str:
    metrics = readings.metrics_of(result)
    columns = [f"{metric}: {column}" for metric in metrics for column in ("published", "ours", "null")]
    columns = [column for column in columns if _filled(column, metrics[0], result)]
    work = ["updates", "steps", "seconds"] if "updates" in result["rows"][0] else ["runs", "seconds"]
    differing = [row.get("differs", []) for row in result["rows"]]
    shared = in_all(differing)
    own = ["; ".join(one for one in differs if one not in shared) for differs in differing]
    rows = []
    for row, other in zip(result["rows"], own, strict=True):
        remarks = "".join(f" **({remark})**" for remark in readings.remarks(result, row, metrics[0]))
        cells = [row["label"] + _trained(row.get("training")) + remarks]
        for column in columns:
            metric, _, kind = column.partition(": ")
            cells.append(_cell(row, kind, metric, metrics[0]))
        cells += _of_update(row) if "updates" in row else _of_study(row, metrics[0])
        rows.append([*cells, *([other] if any(own) else [])])
    everywhere = [f"In every row other than in the paper: {'; '.join(shared)}."] if shared else []
    notes = "\n".join(f"- {note}" for note in (*everywhere, *_notes(result), *_missing(result), *_reasons(result)))
    columns = ["setting", *columns, *work, *(["other than in the paper"] if any(own) else [])]
    head, body = _head(name, result, [result["command"]]), table(columns, rows)
    return f"{head}\n{body}{_verdict(result)}\n{notes}\n{_sheet(name)}"


def _notes(result: Result) -> list[str]:
    """What the file says, with orders as they are read today where its table still is."""
    if (known := TABLES.get(result["experiment"])) is None:
        return list(result["notes"])
    said = [note for note in result["notes"] if not note.startswith("Order by")]
    return [*said, *orders(known, result["rows"])]


def _missing(result: Result) -> list[str]:
    """Which rows the table has at this scale and the file has not."""
    if (known := TABLES.get(result["experiment"])) is None:
        return []
    measured_rows = {row["label"] for row in result["rows"]}
    missing = [row.label for row in known.at(result["scale"]).rows if row.label not in measured_rows]
    return [f"Not measured at this scale: {'; '.join(missing)}."] if missing else []


def _cell(row: Result, kind: str, metric: str, first: str) -> str:
    if kind == "published":
        return published(row, metric, first)
    return readings.ours(row, metric, first) if kind == "ours" else measured(row[kind][metric])


def _reasons(result: Result) -> list[str]:
    """Why rows are of an older recipe, and how many for each reason."""
    counts = Counter(result.get("outdated", {}).values())
    return [f"{number} of {len(result['rows'])} rows: {readings.OLDER}: {why}." for why, number in counts.items()]


def _verdict(result: Result) -> str:
    """Who leads in each cell, and by how much over the next; in bold who is ahead of all others by the rule."""
    if (verdict := result.get("verdict")) is None:
        return ""
    metrics = [key for key in verdict["cells"][0] if key != "cell"]
    rows = [[one["cell"], *(_leader(one[metric]) for metric in metrics)] for one in verdict["cells"]]
    said = "Who leads, by how much over the next; bold: ahead of all by the rule below."
    return f"\n{said}\n\n{table(['cell', *metrics], rows)}"


def _leader(one: Result) -> str:
    first = f"**{one['first']}**" if one["ahead"] else one["first"]
    spread = "" if one["deviation"] is None else f" ± {one['deviation']:.2g}"
    gap = "–" if one["difference"] is None else f"{one['difference']:+.2g}{spread}"
    return f"{first} {gap} ({one['second']})"


def _sheet(name: str) -> str:
    """The pictures that lie beside a result."""
    picture = (readings.RESULTS / name).with_suffix(".png")
    shown = f"\n![originals above what came back](../../benchmarks/results/{picture.name})\n"
    return shown if picture.is_file() else ""


def _of_update(row: Result) -> tuple[str, str, str]:
    steps = row["steps"]
    made = "–" if steps is None else "–".join(str(one) for one in dict.fromkeys(steps))
    return str(len(row["updates"])), made, f"{row['seconds_per_update']:.3g}"


def _of_study(row: Result, first: str) -> tuple[str, str]:
    """Of what attacks no update."""
    return str(row["ours"][first]["updates"]), f"{row['seconds']:.3g}"


def _filled(column: str, first: str, result: Result) -> bool:
    metric, _, kind = column.partition(": ")
    return kind != "published" or any(published(row, metric, first) != "–" for row in result["rows"])


def _trained(training: Result | None) -> str:
    if training is None:
        return ""
    accuracy = training["accuracy"]
    how = f"weights of {training['file']}" if "file" in training else f"{training['steps']} training steps"
    return f"; {how}" + ("" if accuracy is None else f", accuracy {100 * accuracy:.0f} %")


def _quality(name: str, result: Result) -> str:
    summary = result["summary"]
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
    return f"{_head(name, result, result['commands'])}\n{table(columns, rows)}\n{text}"


def _tradeoff(name: str, result: Result) -> str:
    """Each defence with its accuracy, time and what an adaptive attacker got; a null and a control beside it."""
    views = [(one["threat_model"], one["batch_size"]) for one in result["rows"][0]["leakage"] if one["adaptive"]]
    metrics = ("psnr", "identification", "lpips_vgg")
    columns = ["defence", "accuracy", "time"]
    for who, size in views:
        columns += [*(f"{who}, batch {size}: {metric} (null)" for metric in metrics), "control"]
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
            cells += [_leaked(None if found is None else found["metrics"].get(metric)) for metric in metrics]
            cells.append(control((found or {}).get("control")))
        rows.append(cells)
    remarks = "\n".join(f"- {one}" for one in (result["sentence"], *result["remarks"]))
    return f"{_head(name, result, [result['command_line']])}\n{table(columns, rows)}\n{remarks}\n"


def control(one: Result | None) -> str:
    """What the same attack found of other images where nothing was defended."""
    return "–" if one is None else f"{one['found']}/{one['of']}"


def _leaked(one: Result | None) -> str:
    if one is None or one["mean"] is None:
        return "–"
    null = one["null"]["mean"]
    return f"{number(one['mean'])} ({'–' if null is None else number(null)})"


def _plain_rows(name: str, result: Result) -> str:
    """Any benchmark whose rows are flat: one column per field."""
    columns = list(dict.fromkeys(key for row in result["rows"] for key in row))
    rows = [["–" if row.get(key) in (None, []) else _shown(row[key]) for key in columns] for row in result["rows"]]
    head = _head(name, result, [result["command"]])
    return f"{head}\n{table([key.replace('_', ' ') for key in columns], rows)}"


def _shown(value: Any) -> str:
    return "; ".join(map(str, value)) if isinstance(value, list) else number(value)


def _head(name: str, result: Result, commands: Sequence[str]) -> str:
    made = ", ".join(f"`{command}`" for command in commands)
    return f'<a id="{anchor(name)}"></a>\n## {title(name, result)}\n\n`{name}`: {made}\n'


_FORMS = {"experiment": _reproduction, "summary": _quality, "sentence": _tradeoff}
"""How a result is shown, by a field that only its kind has."""
