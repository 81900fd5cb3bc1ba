"""Ten questions that a practitioner or a reviewer asks, each answered in two sentences of the result files.

Every answer has a number with its 95 % interval and its null, a small plot and a link to the rows. Which word an answer
begins with follows from its numbers by `verdict`; what no file says is "not measured".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from scipy import stats

import plots
import readings
from leakgauge.metrics import student_interval
from readings import Result, number

Results = Mapping[str, Result]


class NotMeasured(Exception):
    """No file says it."""


@dataclass(frozen=True)
class Number:
    """A mean with its 95 % interval, where it was measured more than once, and its null."""

    mean: float
    low: float | None
    high: float | None
    null: float | None

    def told(self, unit: str = "") -> str:
        scale, sign = (100.0, " %") if unit == "%" else (1.0, f" {unit}" if unit else "")
        inside = "measured once"
        if self.low is not None and self.high is not None:
            inside = f"95 % interval {number(scale * self.low)} to {number(scale * self.high)}"
        null = "" if self.null is None else f"; null {number(scale * self.null)}"
        return f"**{number(scale * self.mean)}{sign}** ({inside}{null})"

    def within(self, least: float, most: float) -> Number:
        """Its interval cut to what is possible."""
        low, high = (None if end is None else min(max(end, least), most) for end in (self.low, self.high))
        return Number(self.mean, low, high, self.null)

    def verdict(self, *, higher_leaks: bool = True) -> str:
        """Whether it is beyond its null by its interval."""
        if self.null is None:
            return ""
        if self.low is None or self.high is None:
            beyond = self.mean > self.null if higher_leaks else self.mean < self.null
            return "Perhaps, it was measured once" if beyond else "Not by what was tried"
        beyond = self.low > self.null if higher_leaks else self.high < self.null
        return "Yes" if beyond else "Not beyond its null by what was tried"


@dataclass(frozen=True)
class Told:
    """An answer: what was found, and what that means; the second sentence is made of the same numbers."""

    found: str
    means: str
    file: str
    plot: str
    rows: Sequence[Result] = ()
    """Of a reproduced table, which knows whether the code has changed since."""


def file_of(results: Results, prefix: str) -> str:
    """The file of a table; the longest scale it was measured at."""
    if f"{prefix}.json" in results:
        return f"{prefix}.json"
    names = [name for name in results if name.startswith(f"{prefix}-")]
    if not names:
        raise NotMeasured
    return max(names, key=lambda name: ("-long" in name, name))


def rows_of(result: Result, pattern: str, key: str = "label") -> list[Result]:
    found = [row for row in result["rows"] if re.search(pattern, str(row.get(key, "")))]
    if not found:
        raise NotMeasured
    return found


def of_table(row: Result, metric: str) -> Number:
    """A row of a reproduced table: Student's interval over its updates."""
    ours, null = row["ours"].get(metric), row["null"].get(metric) or {}
    if ours is None or ours["mean"] is None:
        raise NotMeasured
    error = ours.get("standard_error")
    margin = None if error is None or ours["updates"] < 2 else float(stats.t.ppf(0.975, ours["updates"] - 1)) * error
    low, high = (None, None) if margin is None else (ours["mean"] - margin, ours["mean"] + margin)
    return Number(ours["mean"], low, high, null.get("mean"))


def of_scores(scores: Sequence[float], null: float | None) -> Number:
    """Student's interval over images."""
    low, high = student_interval(torch.tensor(scores, dtype=torch.float64))
    return Number(sum(scores) / len(scores), *(None if math.isnan(one) else one for one in (low, high)), null)


def of_share(hits: int, trials: int, null: float | None) -> Number:
    """Wilson's interval of a share."""
    interval = stats.binomtest(hits, trials).proportion_ci(method="wilson")
    return Number(hits / trials, float(interval.low), float(interval.high), null)


def _bars(pairs: Iterable[tuple[str, Number]], axis: str) -> str:
    lines = []
    for label, one in pairs:
        reach = None if one.high is None else one.high - one.mean
        lines.append(plots.Bar(label, one.mean, reach, one.null))
    return plots.bars(lines, axis, spread="95 % interval")


# The questions, in the order of the page.


def _span_cell(result: Result, name: str) -> Number:
    scores = [score for one in result["victims"] if one["cell"] == name for score in one["psnr"]]
    nulls = [score for one in result["victims"] if one["cell"] == name for score in one["null"]]
    if not scores:
        raise NotMeasured
    return of_scores(scores, sum(nulls) / len(nulls))


def _on_curve(result: Result, curve: str) -> list[Result]:
    found = sorted((row for row in result["rows"] if row["curve"] and row["curve"][0] == curve), key=_place)
    if len(found) < 2:
        raise NotMeasured
    return found


def _place(row: Result) -> float:
    return float(row["curve"][1])


def trained(results: Results) -> Told:
    file = file_of(results, "span")
    rows = _on_curve(results[file], "training")
    last, first = (_span_cell(results[file], rows[at]["cell"]) for at in (-1, 0))
    found = (
        f"{last.verdict()}: one image out of a {rows[-1]['cell'].partition(',')[0]} with "
        f"{100 * rows[-1]['accuracy']:.0f} % accuracy came back at {last.told('dB')}."
    )
    means = f"Before its training the same network gave {first.told('dB')} in the same {rows[0]['cpu_seconds']} CPU s."
    drawn = [(row["cell"], _span_cell(results[file], row["cell"])) for row in rows]
    return Told(found, means, file, _bars(drawn, "PSNR in dB"))


def batch_of_32(results: Results) -> Told:
    file = file_of(results, "huang2021-table5")
    rows = rows_of(results[file], r"^None, batch \d+, strongest")
    large = max(rows, key=lambda row: (_size(row), readings.OURS in row["label"]))
    small = min(rows, key=lambda row: (_size(row), readings.OURS not in row["label"]))
    one, other = of_table(large, "lpips_vgg"), of_table(small, "lpips_vgg")
    found = (
        f"{one.verdict(higher_leaks=False)}: LPIPS, of which less is nearer, is {one.told()} for the row "
        f"“{large['label']}”."
    )
    means = f"For “{small['label']}” it is {other.told()}."
    drawn = [(row["label"], of_table(row, "lpips_vgg")) for row in rows]
    return Told(found, means, file, _bars(drawn, "LPIPS, lower leaks more"), rows)


def _size(row: Result) -> int:
    found = re.search(r"batch (\d+)", row["label"])
    return int(found[1]) if found else 0


def local_steps(results: Results) -> Told:
    file = file_of(results, "geiping2020-table2")
    rows = rows_of(results[file], r"^E=\d+, n=\d+, B=\d+: ours")
    found = {row["label"].partition(":")[0]: of_table(row, "psnr") for row in rows}
    most = max(found, key=lambda label: found[label].mean)
    least = min(found, key=lambda label: found[label].mean)
    above = sum(
        one.null is not None and (one.mean if one.low is None else one.low) > one.null for one in found.values()
    )
    told = (
        f"Not enough: after {_words(most)}, {found[most].told('dB')} came back of the images."
        if above
        else (f"By what was tried, yes: the most that came back, after {_words(most)}, is {found[most].told('dB')}.")
    )
    means = (
        f"{above} of {len(found)} settings are above their null beyond the interval; the least is "
        f"{found[least].told('dB')} after {_words(least)}."
    )
    return Told(told, means, file, _bars(found.items(), "PSNR in dB"), rows)


def _words(label: str) -> str:
    epochs, images, size = re.findall(r"\d+", label)[:3]
    return f"{epochs} epoch{'s' * (epochs != '1')} on {images} image{'s' * (images != '1')} in batches of {size}"


def _identified(row: Result) -> Number:
    """By the strongest attacker who knows the defence, one image an update."""
    for view in row["leakage"]:
        one = view["metrics"].get("identification")
        if view["adaptive"] and one is not None and one["mean"] is not None:
            return of_share(round(one["mean"] * one["count"]), one["count"], one["null"]["mean"])
    raise NotMeasured


def _accuracy(row: Result) -> float:
    value = ((row["utility"] or {}).get("accuracy") or {}).get("mean")
    if value is None:
        raise NotMeasured
    return float(value)


def pruned(results: Results) -> Told:
    file = file_of(results, "tradeoff")
    (row,), (plain,) = (rows_of(results[file], words, "defence")[:1] for words in (r"^pruning:keep=0\.01$", r"^none$"))
    one, other = _identified(row), _identified(plain)
    found = (
        f"Keeping 1 % of the update, {one.told('%')} of the images are still identified, instead of {other.told('%')}."
    )
    means = (
        f"It costs {100 * (_accuracy(plain) - _accuracy(row)):.1f} points of {100 * _accuracy(plain):.1f} % accuracy."
    )
    drawn = [(r["defence"], _identified(r)) for r in rows_of(results[file], r"^(none|pruning:.*)$", "defence")]
    return Told(found, means, file, _bars(drawn, "share identified by who knows the defence"))


def instahide(results: Results) -> Told:
    file = file_of(results, "instahide-clustering")
    rows = rows_of(results[file], r"labels only|mirrored")
    key = "identification_by_correlation"
    shares = {}
    for row in rows:
        ours = row["ours"][key]
        shares[row["label"]] = of_share(
            round(ours["mean"] * ours["images"]), ours["images"], (row["null"].get(key) or {}).get("mean")
        )
    labels = [label for label in shares if "labels only" in label]
    if not labels:
        raise NotMeasured
    most, least = (choose(shares, key=lambda label: shares[label].mean) for choose in (max, min))
    worst = max(labels, key=lambda label: shares[label].mean)
    hidden = "No" if shares[worst].low is not None and shares[worst].low > 0.5 else "Not wholly"
    found = f"{hidden}: of encodings and labels alone, {shares[worst].told('%')} of the private images are identified."
    means = (
        f"The most is {number(100 * shares[most].mean)} % ({most}) and the least {shares[least].told('%')} ({least})."
    )
    return Told(found, means, file, _bars(shares.items(), "share of private images identified; (images, epochs)"), rows)


def epsilon(results: Results) -> Told:
    file = file_of(results, "bounds")
    rows = [row for row in rows_of(results[file], "^worst case$", "kind") if row["candidates"] == 100]
    if not rows:
        raise NotMeasured
    row = min(rows, key=lambda one: abs(one["epsilon"] - 8))
    one = Number(row["identified"], row["identified_low"], row["identified_high"], 1 / row["candidates"])
    found = (
        f"At epsilon {row['epsilon']:.1f} no attacker picks the right one of {row['candidates']} candidates with more "
        f"than {100 * row['at_most']:.1f} %, and the worst that was played gets {one.told('%')}."
    )
    means = (
        f"That is noise {row['noise']:g} over {row['rounds']} rounds at a sampling rate of {row['sampling']:g}; it "
        "holds for any data, where the failure of one attack holds for that attack."
    )
    near = sorted(rows, key=lambda one: abs(one["epsilon"] - 8))[:6]
    drawn = [
        (
            f"epsilon {r['epsilon']:.1f} (noise {r['noise']:g}, {r['rounds']} rounds, rate {r['sampling']:g})",
            Number(r["identified"], r["identified_low"], r["identified_high"], 1 / r["candidates"]),
        )
        for r in sorted(near, key=lambda one: float(one["epsilon"]))
    ]
    return Told(found, means, file, _bars(drawn, "share identified among 100"))


def labels(results: Results) -> Told:
    file = file_of(results, "ma2023-methods")
    rows = rows_of(results[file], r"^trained, K=64: ")
    ours = next((row for row in rows if "the default" in row["label"]), rows[-1])
    one = of_table(ours, "label_recall")
    least = min(rows, key=lambda row: row["ours"]["label_recall"]["mean"])
    found = f"{one.verdict()}: out of a trained network's update of 64 images, {one.told('%')} of the labels come back."
    low = of_table(least, "label_recall")
    means = f"The least of {len(rows)} rules, {least['label'].partition(': ')[2]}, restores {low.told('%')}."
    drawn = [(row["label"].partition(": ")[2], of_table(row, "label_recall")) for row in rows]
    return Told(found, means, file, _bars(drawn, "share of labels restored"), rows)


def texts(results: Results) -> Told:
    file = file_of(results, "text")
    rows = rows_of(results[file], "^lora$", "part")
    groups: dict[str, list[Result]] = {}
    for row in rows:
        groups.setdefault(row["case"].partition(",")[0], []).append(row)
    shares = {}
    for rank, own in groups.items():
        nulls = [row["null_token_recall"] for row in own if row.get("null_token_recall") is not None]
        one = of_scores([row["token_recall"] for row in own], sum(nulls) / len(nulls) if nulls else None)
        shares[rank] = one.within(0.0, 1.0)
    low, high = (choose(shares, key=_rank) for choose in (min, max))
    found = f"{shares[high].verdict()}: of adapters of {high}, {shares[high].told('%')} of the tokens come back."
    means = f"At {low} it is {shares[low].told('%')}: what a rank has no room for stays hidden."
    return Told(found, means, file, _bars(shares.items(), "share of tokens found, over batches"))


def _rank(words: str) -> int:
    return int(re.sub(r"\D", "", words) or 0)


def aggregated(results: Results) -> Told:
    file = file_of(results, "aggregation")
    rows = [row for row in results[file]["rows"] if row["identified"] is not None]
    if not rows:
        raise NotMeasured
    drawn = [
        (
            f"{r['clients']} clients",
            Number(r["identified"], r["identified_low"], r["identified_high"], r["identified_null"]),
        )
        for r in rows
    ]
    last = drawn[-1][1]
    enough = "No" if last.low is not None and last.null is not None and last.low > last.null else "By what was tried"
    clients = f"{rows[-1]['clients']} clients with an image each"
    found = f"{enough}: out of the sum of {clients}, {last.told('%')} are identified."
    psnr = Number(rows[-1]["psnr"], rows[-1]["psnr_low"], rows[-1]["psnr_high"], rows[-1]["psnr_null"])
    means = f"They come back at {psnr.told('dB')}, and {number(100 * rows[-1]['labels'])} % of the labels do."
    return Told(found, means, file, _bars(drawn, "share of images identified out of the sum"))


def larger_batch(results: Results) -> Told:
    file = file_of(results, "span")
    rows = _on_curve(results[file], "batch")
    cells = {f"batch {_place(row):g}": _span_cell(results[file], row["cell"]) for row in rows}
    first, last = rows[0], rows[-1]
    one = cells[f"batch {_place(last):g}"]
    found = (
        f"Time, on an untrained ResNet-18: a batch of {_place(last):g} still comes back at {one.told('dB')}, within "
        f"{last['cpu_seconds']:g} CPU seconds."
        if one.low is not None and one.null is not None and one.low > one.null
        else f"On an untrained ResNet-18 a batch of {_place(last):g} comes back at {one.told('dB')}."
    )
    means = f"One image takes {first['cpu_seconds']:g} CPU seconds for {cells[f'batch {_place(first):g}'].told('dB')}."
    return Told(found, means, file, _bars(cells.items(), "PSNR in dB"))


QUESTIONS: tuple[tuple[str, Callable[[Results], Told]], ...] = (
    ("Does a trained ResNet leak its image at batch 1?", trained),
    ("Does it at batch 32?", batch_of_32),
    ("Does FedAvg, several local steps, protect?", local_steps),
    ("What does pruning the update to 1 % buy?", pruned),
    ("Does InstaHide hide?", instahide),
    ("What does an epsilon of 8 buy?", epsilon),
    ("Do labels leak?", labels),
    ("Does a LoRA adapter of a language model give its texts away?", texts),
    ("Is secure aggregation enough?", aggregated),
    ("What does a bigger batch buy?", larger_batch),
)


def page(results: Results, link: Callable[[str], str]) -> tuple[str, dict[str, str]]:
    """The page, and its plots by file name; ``link`` is where the rows of a file are."""
    parts, drawn = [], {}
    for index, (asked, answer) in enumerate(QUESTIONS, 1):
        head = f'<a id="q{index}"></a>\n## {index}. {asked}\n'
        try:
            told = answer(results)
        except NotMeasured:
            parts.append(f"{head}\nNot measured.\n")
            continue
        picture = f"question-{index}.svg"
        drawn[picture] = told.plot
        old = sum(readings.older_recipe(results[told.file], row) for row in told.rows)
        rows = f"Rows: [{told.file}]({link(told.file)})" + (f"; {old} of those shown {readings.OLDER}" if old else "")
        parts.append(f"{head}\n{told.found} {told.means}\n\n![{asked}](results/{picture})\n\n{rows}\n")
    return "\n".join(parts), drawn
