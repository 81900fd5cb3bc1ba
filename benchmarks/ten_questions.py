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
    """A mean with its 95 % interval, where it was measured more than once, its null, and how often it was measured."""

    mean: float
    low: float | None
    high: float | None
    null: float | None
    count: int | None = None

    def told(self, unit: str = "") -> str:
        scale, sign = (100.0, " %") if unit == "%" else (1.0, f" {unit}" if unit else "")
        inside = "measured once"
        if self.low is not None and self.high is not None:
            inside = f"95 % interval {number(scale * self.low)} to {number(scale * self.high)}"
            inside += "" if self.count is None else f", n = {self.count}"
        null = "" if self.null is None else f"; null {number(scale * self.null)}"
        return f"**{number(scale * self.mean)}{sign}** ({inside}{null})"

    def within(self, least: float, most: float) -> Number:
        """Its interval cut to what is possible."""
        low, high = (None if end is None else min(max(end, least), most) for end in (self.low, self.high))
        return Number(self.mean, low, high, self.null, self.count)

    def verdict(self, *, higher_leaks: bool = True) -> str:
        """Whether it is beyond its null, by its interval where there is one; open where the interval holds both."""
        if self.null is None:
            return ""
        beyond = self.mean > self.null if higher_leaks else self.mean < self.null
        if not beyond:
            return NO
        if self.low is None or self.high is None:
            return ONCE
        return YES if (self.low > self.null if higher_leaks else self.high < self.null) else OPEN


YES, OPEN, ONCE, NO = "Yes", "Open", "Perhaps, it was measured once", "Not by what was tried"
"""The words an answer begins with."""

HARDLY, FAINT = "Hardly", 2.0
"""The word for what is told from its null by fewer decibels than these."""


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
    """A row of a reproduced table: Student's interval over its updates, or over its images where its spread is."""
    ours, null = row["ours"].get(metric), row["null"].get(metric) or {}
    if ours is None or ours["mean"] is None:
        raise NotMeasured
    error, deviation = ours.get("standard_error"), ours.get("deviation")
    count = round((deviation / error) ** 2) if error and deviation else ours["updates"]
    margin = None if error is None or count < 2 else float(stats.t.ppf(0.975, count - 1)) * error
    low, high = (None, None) if margin is None else (ours["mean"] - margin, ours["mean"] + margin)
    return Number(ours["mean"], low, high, null.get("mean"), count)


def of_scores(scores: Sequence[float], null: float | None) -> Number:
    """Student's interval over images."""
    low, high = student_interval(torch.tensor(scores, dtype=torch.float64))
    ends = (None if math.isnan(one) else one for one in (low, high))
    return Number(sum(scores) / len(scores), *ends, null, len(scores))


def of_share(hits: int, trials: int, null: float | None) -> Number:
    """Wilson's interval of a share."""
    interval = stats.binomtest(hits, trials).proportion_ci(method="wilson")
    return Number(hits / trials, float(interval.low), float(interval.high), null, trials)


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


def _others_weights(result: Result) -> str:
    """What a network gave whose weights others have trained."""
    row = next((row for row in result["rows"] if "published weights" in row["cell"]), None)
    if row is None:
        return ""
    told = _span_cell(result, row["cell"]).told("dB")
    return f", and a {row['cell'].partition(',')[0]} with published weights, {100 * row['accuracy']:.0f} %, gave {told}"


def trained(results: Results) -> Told:
    file = file_of(results, "span")
    rows = _on_curve(results[file], "training")
    last, first = (_span_cell(results[file], rows[at]["cell"]) for at in (-1, 0))
    found = (
        f"{last.verdict()}: one image out of a {rows[-1]['cell'].partition(',')[0]} with "
        f"{100 * rows[-1]['accuracy']:.0f} % accuracy came back at {last.told('dB')}."
    )
    open_ = " More images would settle it." if last.verdict() == OPEN else ""
    means = (
        f"Before its training the same network gave {first.told('dB')} in the same {rows[0]['cpu_seconds']} CPU "
        f"seconds{_others_weights(results[file])}.{open_}"
    )
    drawn = [(row["cell"], _span_cell(results[file], row["cell"])) for row in rows]
    return Told(found, means, file, _bars(drawn, "PSNR in dB"))


def batch_of_32(results: Results) -> Told:
    file = file_of(results, "huang2021-table5")
    rows = rows_of(results[file], r"^None, batch \d+, strongest")
    *_, smaller, largest = sorted({0, *map(_size, rows)})
    row, second = _nearest(rows, largest), _nearest(rows, smaller or largest)
    one, other = (of_table(each, "lpips_vgg") for each in (row, second))
    model, trained_ = str(row["model"]).partition("(")[0], row.get("training") is not None
    asked = "" if trained_ and "ResNet" in model else _trained_batch(results, largest)
    verdict = one.verdict(higher_leaks=False)
    found = (
        f"{asked}{verdict}: of {largest} images in the update of {'a ' if trained_ else 'an un'}trained {model} of "
        f"{row['parameters']:,} parameters, what came back is {one.told()} away from them in LPIPS, where 0 is a "
        "copy and the null is what an unrelated update gives."
    )
    means = (
        f"Of {smaller or largest} images it is {other.told()}; the attacker was told the labels and the exact "
        "statistics of BatchNorm, which few are."
    )
    drawn = [(each["label"], of_table(each, "lpips_vgg")) for each in rows]
    return Told(found, means, file, _bars(drawn, "LPIPS, lower leaks more"), rows)


def _trained_batch(results: Results, size: int) -> str:
    """What came back of so many images out of a ResNet that was trained, by the measurements of spans."""
    spans = results.get("span.json", {"rows": ()})
    row = next((row for row in spans["rows"] if row["batch_size"] >= size and row["accuracy"]), None)
    if row is None:
        return "Of a trained ResNet that was not measured. "
    one, network = _span_cell(spans, row["cell"]), row["cell"].partition(",")[0]
    # Of many images a mean of their brightness is told from its null, and nobody would know them.
    faint = one.verdict() == YES and one.null is not None and one.mean < one.null + FAINT
    word = HARDLY if faint else one.verdict()
    return (
        f"{word}, of a trained ResNet: {row['batch_size']} images in the update of a {network} with "
        f"{100 * row['accuracy']:.0f} % accuracy came back at {one.told('dB')}, in {row['cpu_seconds']} CPU seconds. "
    )


def _nearest(rows: Sequence[Result], size: int) -> Result:
    """The row of the strongest attack on batches of a size."""
    return min((row for row in rows if _size(row) == size), key=lambda row: of_table(row, "lpips_vgg").mean)


def _size(row: Result) -> int:
    found = re.search(r"batch (\d+)", row["label"])
    return int(found[1]) if found else 0


def local_steps(results: Results) -> Told:
    file = file_of(results, "geiping2020-table2")
    rows = rows_of(results[file], r"^E=\d+, n=\d+, B=\d+: ours")
    found = {row["label"].partition(":")[0]: of_table(row, "psnr") for row in rows}
    usual = max(found, key=lambda label: (_numbers(label)[1] > 1, _steps(label), _numbers(label)[1]))
    most = max(found, key=lambda label: found[label].mean)
    protects = {YES: "No", NO: "By what was tried, yes"}
    word = found[usual].verdict()
    told = f"{protects.get(word, word)}: after {_words(usual)}, {found[usual].told('dB')} came back."
    beyond = sum(one.verdict() == YES for one in found.values())
    means = (
        f"The most is {found[most].told('dB')}, after {_words(most)}; {beyond} of {len(found)} settings are beyond "
        "their null."
    )
    return Told(told, means, file, _bars(found.items(), "PSNR in dB"), rows)


def _numbers(label: str) -> tuple[int, int, int]:
    """Epochs, images and the size of mini-batches."""
    epochs, images, size = map(int, re.findall(r"\d+", label)[:3])
    return epochs, images, size


def _steps(label: str) -> int:
    epochs, images, size = _numbers(label)
    return epochs * -(-images // size)


def _words(label: str) -> str:
    (epochs, images, _), steps = _numbers(label), _steps(label)
    return " ".join((_several(steps, "local step"), f"({_several(epochs, 'epoch')})", "on", _several(images, "image")))


def _several(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


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
        f"Keeping 1 % of the update, {one.told('%')} of the images are still identified by an attacker who knows it, "
        f"instead of {other.told('%')}."
    )
    meet = one.high is not None and other.low is not None and one.high > other.low
    means = (
        f"It costs {100 * (_accuracy(plain) - _accuracy(row)):.1f} points of {100 * _accuracy(plain):.1f} % accuracy"
        + ("; the intervals meet, so that it helps at all is not shown." if meet else ".")
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
        f"The most is {number(100 * shares[most].mean)} % ({_released(most)}) and the least "
        f"{shares[least].told('%')} ({_released(least)})."
    )
    return Told(found, means, file, _bars(shares.items(), "share of private images identified; (images, epochs)"), rows)


def _released(label: str) -> str:
    """ "(30, 30) labels only" in words."""
    found = re.match(r"\((\d+), (\d+)\) (.*)", label)
    return label if found is None else f"{found[1]} images encoded {found[2]} times each, {found[3]}"


def epsilon(results: Results) -> Told:
    file = file_of(results, "bounds")
    rows = [row for row in rows_of(results[file], "^worst case$", "kind") if row["candidates"] == 100]
    if not rows:
        raise NotMeasured
    row = min(rows, key=lambda one: abs(one["epsilon"] - 8))
    one = Number(row["identified"], row["identified_low"], row["identified_high"], 1 / row["candidates"])
    found = (
        f"At epsilon {row['epsilon']:.1f} no attacker picks the right one of {row['candidates']} candidates with more "
        f"than {100 * row['at_most']:.1f} %, and the strongest that was played, in the worst case, gets "
        f"{one.told('%')}."
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
    means = f"The weakest of {len(rows)} rules, {least['label'].partition(': ')[2]}, restores {low.told('%')}."
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
    enough = (
        "No" if last.low is not None and last.null is not None and last.low > last.null else "By what was tried, yes"
    )
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
