"""The table of reproduction: of each paper, how many of its published numbers were reached here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import readings
from leakgauge.reproduce import SCALES, TABLES
from leakgauge.reproduce.standing import at_null, differences, higher_is_leakier, standing
from readings import Result
from result_tables import anchor, table

Judged = Literal["reached", "reached elsewhere", "short", "not reached", "refuted", "not compared"]

COLUMNS: Mapping[Judged, str] = {
    "reached": "reached",
    "reached elsewhere": "reached on a smaller network",
    "short": "above the null, short of it",
    "not reached": "not reached: at the null",
    "refuted": "refuted",
    "not compared": "not compared",
}

_ENOUGH = 5
"""Updates, each of other images, that a refutation takes."""

_OF_SAMPLE = ("updates", "nulls", "draw", "models")
"""What of a recipe decides which images are taken, and not what is done to them."""

RULE = f"""A published number is reached where ours is within its spread or beyond, or where both are no more than the
null; one that was reached on another network than the paper's, which its row names, is counted apart. It is refuted
on at least {_ENOUGH} updates of the paper's own model: where a search settled, or all but the choice of images was the
paper's, and it stayed short; or where the paper has an attack at the null that is above it here by more than the
published spread. What has no null, or was not measured, is not compared. A row at the null with less work than the
paper's says nothing about the paper. Of a row that was run at two scales the larger counts."""


def judge(row: Result, metric: str) -> Judged | None:
    """What became of the number that a paper prints for this row; None where it prints none."""
    given = row["published"]
    if given is None or given["mean"] is None:
        return None
    stands = standing(row, metric, metric)
    other = [one for one in row.get("differs", ["model unknown"]) if not one.startswith(_OF_SAMPLE)]
    telling = row["ours"][metric]["updates"] >= _ENOUGH and not any(one.startswith("model") for one in other)
    if stands in ("short", "not reached"):
        return "refuted" if telling and _settled(row, other) else "short" if stands == "short" else "not reached"
    if stands == "reached" and telling and _said_to_fail(row, metric):
        return "refuted"
    if stands == "not compared":
        return "not compared"
    return "reached elsewhere" if row.get("elsewhere", _elsewhere(row.get("differs", ()))) else "reached"


def _elsewhere(differs: Iterable[str]) -> bool:
    """Whether the network is another than the paper's."""
    return any(one.startswith(("model ", "model.", "work.model")) for one in differs)


def _said_to_fail(row: Result, metric: str) -> bool:
    """Whether the paper has at the null what is above it here, by more than the spread that it gives."""
    given, ours = row["published"], row["ours"][metric]
    as_published = {**row, "ours": {metric: {**ours, "mean": given["mean"]}}}
    beyond = (ours["mean"] - given["mean"]) * (1 if higher_is_leakier(metric) else -1)
    return at_null(as_published, metric) and given["deviation"] is not None and beyond > given["deviation"]


def _settled(row: Result, other: Sequence[str]) -> bool:
    """Whether no update was left before the paper would have left it; ``other`` is what the recipe has other."""
    ended = bool(row.get("updates")) and all(one["outcome"] in ("converged", "solved") for one in row["updates"])
    return not other or (ended and all(one.startswith("attack") for one in other))


def counted(result: Result) -> Counter[Judged]:
    """How the published numbers of one table fared."""
    metric = readings.metrics_of(result)[0]
    return Counter(found for row in result["rows"] if (found := judge(row, metric)) is not None)


def by_experiment(results: Mapping[str, Result]) -> dict[str, Result]:
    """Every table under the name of its largest file, each row as the largest scale has it that has the row."""
    own = sorted(
        (name for name, one in results.items() if "experiment" in one),
        key=lambda name: SCALES.index(results[name]["scale"]),
    )
    rows: dict[str, dict[str, Result]] = {}
    scales: dict[str, dict[str, None]] = {}
    largest: dict[str, str] = {}
    for name in own:
        experiment = results[name]["experiment"]
        own_rows = {row["label"]: with_network(row, results[name]) for row in results[name]["rows"]}
        rows.setdefault(experiment, {}).update(own_rows)
        scales.setdefault(experiment, {})[results[name]["scale"]] = None
        largest[experiment] = name
    return {
        largest[one]: {**results[largest[one]], "rows": list(rows[one].values()), "scale": ", ".join(scales[one])}
        for one in sorted(largest)
    }


def with_network(row: Result, result: Result) -> Result:
    """The row, of a file from before differences were noted with whether its network is another, by today's table.

    That much a reader is to know; a refutation stands on what the file itself says.
    """
    table = TABLES.get(result["experiment"])
    known = {} if table is None else {one.label: one for one in table.rows}
    if "differs" in row or row["label"] not in known:
        return row
    at = known[row["label"]].at
    return {**row, "elsewhere": _elsewhere(differences(at(result["scale"]), at("full")))}


def _lines(results: Mapping[str, Result], papers: Mapping[str, str]) -> Iterator[list[str]]:
    for paper in papers:
        own = {name: one for name, one in results.items() if name.startswith(f"{paper}-")}
        counts = {name: counted(one) for name, one in own.items()}
        total = sum(counts.values(), Counter[Judged]())
        if total.total():
            yield [f"**{papers[paper]}**", "", *_cells(total)]
            for name, one in counts.items():
                if one.total():
                    link = f"[{own[name]['experiment']}](results/{paper}.md#{anchor(name)})"
                    yield [link, own[name]["scale"], *_cells(one)]


def _cells(counts: Counter[Judged]) -> list[str]:
    return [str(counts.total()), *(str(counts[column]) for column in COLUMNS)]


def section(results: Mapping[str, Result], papers: Mapping[str, str]) -> str:
    """The part of the page of answers that says what was reproduced; ``papers`` are their titles."""
    found = by_experiment(results)
    body = table(["table", "scales", "published numbers", *COLUMNS.values()], _lines(found, papers))
    return f'<a id="reproduced"></a>\n## What was reproduced\n\n{RULE}\n\n{body}'
