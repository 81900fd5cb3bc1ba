"""Statistics over the rows of benchmarks/quality.py, and their table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from leakgauge.metrics import student_interval
from quality_cases import METHODS, Row


def summary_of(rows: Sequence[Row]) -> dict[str, Any]:
    """Per method over all its images, the paired difference (best - baseline) and the nulls."""
    by_method = {method: [row for row in rows if row["method"] == method and not row["null"]] for method in METHODS}
    summary: dict[str, Any] = {method: _statistics(own) for method, own in by_method.items() if own}
    scores = {method: _scores(own) for method, own in by_method.items()}
    if shared := sorted(scores["best"].keys() & scores["baseline"].keys()):
        differences = torch.tensor([scores["best"][i] - scores["baseline"][i] for i in shared], dtype=torch.float64)
        low, high = student_interval(differences)
        summary["best - baseline"] = {
            "images": len(differences),
            "mean": _number(float(differences.mean())),
            "interval_95": [_number(low), _number(high)],
            "median": _number(_median(differences)),
            "smallest": _number(float(differences.min())),
            "images_won": int((differences > 0).sum()),
        }
    if nulls := _scores([row for row in rows if row["null"]]):
        summary["unrelated gradient"] = {"images": len(nulls), "mean": _mean(nulls.values())}
    return summary


def _statistics(rows: Sequence[Row]) -> dict[str, Any]:
    scores = _scores(rows)
    result: dict[str, Any] = {
        "images": len(rows),
        "without_result": len(rows) - len(scores),
        "cpu_seconds": _mean(row["cpu_seconds"] for row in rows),
        "steps": _mean(row["steps"] for row in rows),
    }
    if scores:
        values = torch.tensor(list(scores.values()), dtype=torch.float64)
        worst = min(scores, key=lambda image: scores[image])
        result |= {
            "mean": _number(float(values.mean())),
            "std": _number(float(values.std()) if len(values) > 1 else math.nan),
            "median": _number(_median(values)),
            "worst": {"image": worst, "psnr": _number(scores[worst])},
            "mean_to_next_image": _mean(row["psnr_to_next_image"] for row in rows if row["psnr"] is not None),
        }
    return result


def _scores(rows: Iterable[Row]) -> dict[int, float]:
    return {row["image"]: row["psnr"] for row in rows if row["psnr"] is not None}


def _median(values: Tensor) -> float:
    return float(values.quantile(0.5))


def _mean(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return _number(sum(numbers) / len(numbers)) if numbers else None


def _number(value: float) -> float | None:
    """Four decimals; what was not measured is None, which JSON can say."""
    return None if math.isnan(value) else round(value, 4)


def table(setting: dict[str, Any], rows: Sequence[Row]) -> str:
    """The summary for people."""
    summary = summary_of(rows)
    header = f"{setting['model']}, {setting['data']}, {setting['cpu_seconds']:g} CPU seconds per image, PSNR in dB"
    columns = ("mean", "std", "median", "worst", "next", "CPU s", "steps", "images")
    lines = [header, f"{'':10}" + "".join(f"{column:>9}" for column in columns)]
    for method in METHODS:
        if own := summary.get(method):
            cells = [own.get("mean"), own.get("std"), own.get("median"), own.get("worst", {}).get("psnr")]
            cells += [own.get("mean_to_next_image"), own["cpu_seconds"], own["steps"], own["images"]]
            lines.append(f"{method:10}" + "".join(f"{_cell(cell):>9}" for cell in cells))
    if paired := summary.get("best - baseline"):
        low, high = (_cell(bound) for bound in paired["interval_95"])
        lines.append(
            f"best - baseline: {paired['mean']:+.2f} dB (95 % interval {low} to {high}), "
            f"better on {paired['images_won']} of {paired['images']} images"
        )
    if null := summary.get("unrelated gradient"):
        lines.append(f"best on an unrelated gradient: {null['mean']:.2f} dB over {null['images']} images")
    return "\n".join(lines)


def _cell(value: float | None) -> str:
    return "-" if value is None else str(value) if isinstance(value, int) else f"{value:.2f}"
