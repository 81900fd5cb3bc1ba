"""The page of answers: what was asked, what was found, in how many rows. Every number comes from a result file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import contest_answers
import generator_answers
import plots
import readings
import text_answers
from instahide_answers import judge_noise
from leakgauge.reproduce import SCALES
from leakgauge.reproduce.standing import at_null, higher_is_leakier
from readings import OURS, Result, number, spread
from result_tables import anchor, control, table

Results = Mapping[str, Result]

OWN = "measurements"
PAPERS = {
    "geiping2020": "Geiping et al. 2020, Inverting Gradients",
    "huang2020": "Huang et al. 2020, InstaHide",
    "huang2021": "Huang et al. 2021, Evaluating Gradient Inversion Attacks and Defenses",
    "ma2023": "Ma et al. 2023, Instance-wise Batch Label Restoration",
    "cinet": "Zhang et al. 2023, CI-Net",
    "instahide": "Attacks on InstaHide's encodings, our own",
    OWN: "Measurements of our own: quality, speed, memory, labels, trade-off",
}
"""A page for each, and what it is called."""

CORRELATED = "identification_by_correlation"


@dataclass(frozen=True)
class Answer:
    """A question with what the files say to it: sentences, a plot or none, and the files."""

    asked: str
    said: str
    files: tuple[str, ...]
    plot: str | None = None


@dataclass(frozen=True)
class Question:
    """What was asked of one table; ``shown`` picks the rows that are told, all of them where it is empty.

    ``judge`` says what its rows make of a claim.
    """

    asked: str
    table: str
    metric: str
    shown: str = ""
    judge: Callable[[Result], str] | None = None

    def answer(self, results: Results) -> Answer:
        files = _files(results, self.table)
        if not files:
            return Answer(self.asked, "Not measured.\n", ())
        name, *others = files
        result = results[name]
        rows = [row for row in result["rows"] if re.search(self.shown, row["label"])]
        plot = (
            plots.bars([_bar(row, self.metric) for row in rows], readings.title_of(self.metric))
            if len(rows) > 4
            else None
        )
        sentences = [
            _extent(result, self.metric),
            *_extremes(result, self.metric),
            *_pairs(result, self.metric),
        ]
        sentences += [*_conclusions(result), *([self.judge(result)] if self.judge else [])]
        told = "" if plot is not None and len(rows) > 8 else "\n" + _told(result, rows, self.metric)
        return Answer(self.asked, " ".join(sentences) + "\n" + told, (name, *others), plot)


QUESTIONS = (
    Question("Can one image be read out of one gradient?", "geiping2020-table1", "psnr"),
    Question("Do several local steps on several images protect them?", "geiping2020-table2", "psnr"),
    Question("How many local steps, and at which rate, before nothing comes back?", "geiping2020-figure5", "psnr"),
    Question("Does a wider or deeper residual network give away less?", "geiping2020-figure4", "psnr"),
    Question("Does a wider or deeper plain network, on which the attack settles?", "geiping2020-width", "psnr"),
    Question("Which part of the 2020 attack carries it?", "geiping2020-table3", "psnr"),
    Question("Does anything come back from a large batch?", "geiping2020-figure6", "psnr"),
    Question(
        "Which defence stops gradient inversion, against an attacker who knows it?",
        "huang2021-table5-cpu",
        "lpips_vgg",
        r"batch 1,.*\)$",
    ),
    Question("Does it stop it in batches, where the undefended attack works?", "huang2021-table5-long", "lpips_vgg"),
    Question("How much total variation does the attack want?", "huang2021-figure4", "lpips_vgg"),
    Question("How much do BatchNorm statistics help the attacker?", "huang2021-figure5", "lpips_vgg"),
    Question("Do the same defences hold on MNIST, without BatchNorm?", "huang2021-mnist", "ssim", r"\d$|^None$"),
    Question("Are labels restored exactly, with BatchNorm and dropout?", "ma2023-table3", "label_recall"),
    Question(
        "Do skewed labels make restoring them harder?", "ma2023-table4", "label_counts", r"with BatchNorm/dropout$"
    ),
    Question("Are labels restored through deep networks, with a thousand classes?", "ma2023-models", "label_counts"),
    Question(
        "Which rule restores labels best once a model is trained?", "ma2023-methods", "label_recall", r"^trained, K=64"
    ),
    Question(
        "Does a generator beat pixels at equal CPU time?", "cinet-comparison", "psnr", r"batch 32: (CI|pixels, b)"
    ),
    Question("Does CI-Net reach its published numbers within our means?", "cinet-table4", "psnr"),
    Question("Does it on twice the batch?", "cinet-table5", "psnr"),
    Question("Does it with minutes instead of seconds?", "cinet-long", "psnr"),
    Question("Does it where no two images share a class?", "cinet-distinct", "psnr"),
    Question("Which part of CI-Net's generator carries it?", "cinet-figure8", "psnr"),
    Question("Is what a trained generator returns the client's, or its own?", "cinet-gias", "psnr"),
    Question("What does InstaHide cost in accuracy?", "huang2020-table2", "accuracy"),
    Question("How does that cost grow with k?", "huang2020-figure3", "accuracy"),
    Question("Is noise of the same size cheaper than InstaHide?", "huang2020-figure4", "accuracy", judge=judge_noise),
    Question("Do encryptions of one image look alike?", "huang2020-table4", "p_together"),
    Question("Does averaging encryptions of an image bring it back?", "huang2020-figure7", "psnr_fitted"),
    Question("Are the public images in an encoding found?", "huang2020-figure8", "hit_rate"),
    Question("Which search finds them best?", "instahide-search", "found"),
    Question("Do encodings and their labels give the private images away?", "instahide-clustering", CORRELATED),
    Question("Do they when most of what is mixed is public?", "instahide-cross", CORRELATED),
)
"""What is asked of the tables, in the order of the page."""


def paper_of(name: str) -> str:
    """The page that a result file belongs to."""
    paper = name.partition("-")[0]
    return paper if paper in PAPERS else OWN


def answers(results: Results) -> list[Answer]:
    own = (
        _quality,
        _tradeoff,
        _filters,
        _batch_rule,
        _bounds,
        _calibration,
        _architectures,
        _clients,
        _servers,
        _aggregation,
        _speed,
        _architecture_costs,
        _memory,
        _labels,
        _generator_claim,
        _encryption,
        _exact,
        _completion,
        _span,
        _texts,
        _fuzz,
    )
    return [
        *(make(results) for make in own[:4]),
        *(one.answer(results) for one in QUESTIONS),
        *(f(results) for f in own[4:]),
        *(make(results) for name, make in _ONCE_MEASURED.items() if name in results),
    ]


# What holds for every table.


def _files(results: Results, table: str) -> list[str]:
    """The files of a table, that of its largest scale first."""
    found = [name for name in results if name.startswith((f"{table}-", f"{table}."))]
    return sorted(found, key=lambda name: SCALES.index(results[name]["scale"]), reverse=True)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _bar(row: Result, metric: str) -> plots.Bar:
    ours, null = row["ours"][metric], row["null"].get(metric, {})
    given = row["published"] if metric == next(iter(row["ours"])) else row["also_published"].get(metric)
    paper = None if given is None else given["mean"]
    return plots.Bar(row["label"], ours["mean"] or 0.0, ours["deviation"], null.get("mean"), paper)


def _extent(result: Result, metric: str) -> str:
    rows = result["rows"]
    updates = sorted({row["ours"][metric]["updates"] for row in rows})
    runs = f"{updates[0]}" if len(updates) == 1 else f"{updates[0]} to {updates[-1]}"
    weak = sum(at_null(row, metric) for row in rows)
    old = sum(readings.older_recipe(result, row) for row in rows)
    said = f"{_count(len(rows), 'row')} of {runs} {'run' if runs == '1' else 'runs'} each"
    if weak:
        said += f"; {weak} not above {'its' if weak == 1 else 'their'} null"
    return said + (f"; {old} are {readings.OLDER}." if old else ".")


def _extremes(result: Result, metric: str) -> Iterator[str]:
    """The leakiest and the least leaky row; of accuracy and the like, the highest and the lowest."""
    rows = [row for row in result["rows"] if row["ours"][metric]["mean"] is not None]
    ordered = sorted(rows, key=lambda row: row["ours"][metric]["mean"], reverse=higher_is_leakier(metric))
    words = ("Highest", "lowest") if higher_is_leakier(metric) else ("Lowest", "highest")
    if len(ordered) > 1 and spread(ordered[0]["ours"][metric]) == spread(ordered[-1]["ours"][metric]):
        yield f"All alike: {_one(result, ordered[0], metric)}."
    elif len(ordered) > 1:
        yield f"{words[0]} {_one(result, ordered[0], metric)}; {words[1]} {_one(result, ordered[-1], metric)}."


def _one(result: Result, row: Result, metric: str) -> str:
    null, paper = row["null"].get(metric), readings.published(row, metric, next(iter(row["ours"])))
    beside = [] if null is None or null["mean"] is None else [f"null {spread(null)}"]
    beside += [] if paper == "–" else [f"published {paper}"]
    beside += [f"**{remark}**" for remark in readings.remarks(result, row, metric)]
    return f"{readings.title_of(metric)} **{spread(row['ours'][metric])}** ({', '.join([row['label'], *beside])})"


def _pairs(result: Result, metric: str) -> Iterator[str]:
    """In how many settings our own attack is leakier than the paper's, which met the same updates of the same model."""
    by_label = {row["label"]: row for row in result["rows"]}
    differences = []
    for label, row in by_label.items():
        cell, found, _ = label.partition(OURS)
        other = by_label.get(cell, by_label.get(f"{cell}: proposed"))
        if not found or other is None or row.get("model") != other.get("model"):
            continue
        mean, theirs = row["ours"][metric]["mean"], other["ours"][metric]["mean"]
        if mean is not None and theirs is not None:
            differences.append((mean - theirs) * (1 if higher_is_leakier(metric) else -1))
    if differences:
        ahead = sum(one > 0 for one in differences)
        yield f"On the same updates our attack is leakier than the paper's in {ahead} of {len(differences)} settings."


def _conclusions(result: Result) -> list[str]:
    """What the file itself concludes, by a rule, from its rows."""
    if "verdict" in result:
        return list(result["verdict"]["summary"][:1])
    return readings.orders_of(result)[:2]


def _told(result: Result, rows: Sequence[Result], metric: str) -> str:
    first = next(iter(rows[0]["ours"]))
    lines = []
    for row in rows:
        null = row["null"].get(metric)
        cells = [
            readings.published(row, metric, first),
            readings.ours(row, metric, first),
            "–" if null is None else spread(null),
        ]
        lines.append([row["label"], *cells, "; ".join(readings.remarks(result, row, metric))])
    return table(["row", "published", f"ours: {readings.title_of(metric)}", "null", ""], lines)


# Measurements of our own.


def _quality(results: Results) -> Answer:
    files = tuple(name for name in results if name.startswith("quality-"))
    lines, drawn = [], []
    for name in files:
        setting, summary = results[name]["setting"], results[name]["summary"]
        gain, null = summary["best - baseline"], summary["unrelated gradient"]["mean"]
        low, high = gain["interval_95"]
        cells = [f"{summary[one]['mean']:.2f} ± {summary[one]['std']:.2f}" for one in ("baseline", "best")]
        won = f"{gain['images_won']} of {gain['images']}"
        lines.append([setting["model"], *cells, f"{gain['mean']:+.2f} ({low:.2f} to {high:.2f})", won, f"{null:.2f}"])
        for method in ("baseline", "best"):
            one = summary[method]
            drawn.append(plots.Bar(f"{setting['model']}: {method}", one["mean"], one["std"], null))
    columns = ["victim", "2020 method", "leakgauge.best", "gain in dB (95 % interval)", "images ahead", "null"]
    asked = "How much more does `leakgauge.best` bring back than the method of 2020, for equal CPU seconds?"
    said = f"{len(files)} victims, PSNR in dB over the same images.\n\n{table(columns, lines)}"
    return Answer(asked, said, files, plots.bars(drawn, "PSNR in dB"))


def _tradeoff(results: Results) -> Answer:
    result = results["tradeoff.json"]
    drawn = []
    for row in result["rows"]:
        worst = row["leakage"][0]["metrics"]["identification"]
        if worst["mean"] is not None:
            drawn.append(plots.Bar(row["defence"], worst["mean"], None, worst["null"]["mean"]))
    view = result["rows"][0]["leakage"][0]
    axis = f"identification ({view['threat_model']}, batch {view['batch_size']})"
    said = f"{len(result['rows'])} defences. {result['sentence']} {result['remarks'][0]}\n"
    asked = "Which defence stops the leak at what cost in accuracy and time?"
    return Answer(asked, said, ("tradeoff.json",), plots.bars(drawn, axis))


def _filters(results: Results) -> Answer:
    result = results["tradeoff-filters.json"]
    lines = []
    for row in result["rows"]:
        accuracy = ((row["utility"] or {}).get("accuracy") or {}).get("mean")
        cells = [f"`{row['defence']}`", "–" if accuracy is None else f"{100 * accuracy:.1f} %"]
        for view in (one for one in row["leakage"] if one["adaptive"]):
            found = view["metrics"].get("identification")
            shown = "–" if found is None or found["mean"] is None else number(found["mean"])
            null = None if found is None else found["null"]["mean"]
            cells.append(f"{shown} ({view['verdict']})" if view.get("verdict") else shown)
            cells += ["–" if null is None else number(null), control(view.get("control"))]
        lines.append(cells)
    views = [one for one in result["rows"][0]["leakage"] if one["adaptive"]]
    columns = ["filter", "accuracy"]
    for view in views:
        columns += [f"identified, batch {view['batch_size']}", "null", "control"]
    images = views[0]["metrics"]["identification"]["count"]
    said = (
        f"{len(lines)} rows, {images} images each, lengths as on the gradient; the attacker knows the filter, and the "
        f"control is what the same attack finds of others undefended. {result['sentence']}\n\n{table(columns, lines)}"
    )
    return Answer("Do the filters that NVFlare and Flower deploy protect anything?", said, ("tradeoff-filters.json",))


def _batch_rule(results: Results) -> Answer:
    """What the batch that the rank rule asks for buys and costs, in the words of the trade-off itself."""
    result = results["tradeoff-batch-rule.json"]
    (row,) = result["rows"]
    columns, lines = ["batch", "identified", "null", "PSNR", "null", "verdict"], []
    for view in row["leakage"]:
        found = [view["metrics"][name] for name in ("identification", "psnr")]
        scores = [number(value) for one in found for value in (one["mean"], one["null"]["mean"])]
        lines.append([str(view["batch_size"]), *scores, view["verdict"]])
    rule = next(one for one in result["remarks"] if "rank rule" in one)
    model = result["description"]["model"]
    said = f"{rule} (`{model}`, untrained, {result['rows'][0]['leakage'][0]['attack']}.)\n\n{table(columns, lines)}"
    return Answer("Is a larger batch a defence?", said, ("tradeoff-batch-rule.json",))


def _aggregation(results: Results) -> Answer:
    rows = results["aggregation.json"]["rows"]
    columns = ("clients", "identified", "identified_null", "psnr", "psnr_null", "labels", "labels_null", "guess")
    lines = [["–" if row[key] is None else number(row[key]) for key in columns] for row in rows]
    last, seen = rows[-1], [row for row in rows if row["identified"] is not None][-1]
    said = (
        f"One image and {last['labels_each']} labels of each client, out of the sum alone: of {seen['clients']} "
        f"clients {number(100 * seen['identified'])} % of the images came back, of {last['clients']} "
        f"{number(100 * last['labels'])} % of the labels.\n\n"
        f"{table([key.replace('_', ' ') for key in columns], lines)}"
    )
    drawn = [
        _over_clients(rows, "identified", "images identified", "#c0392b"),
        _over_clients(rows, "identified_null", "their null", "#c0392b", null=True),
        _over_clients(rows, "labels", "labels restored", "#1f618d"),
        _over_clients(rows, "guess", "labels, guessed", "#1f618d", null=True),
    ]
    plot = plots.curves(drawn, "clients in the sum", "share of all clients' images and labels, 95 % intervals")
    return Answer("Is secure aggregation enough, where the server is honest?", said, ("aggregation.json",), plot)


def _executors(results: Results) -> Answer:
    """What the pool costs and saves, and what store and cluster stand, each with the load of the machine before it."""
    rows = {(row["part"], row["of"]): row for row in results["executors.json"]["rows"]}
    lines = []
    if (pool := rows.get(("pool", "one beside two"))) is not None:
        overhead, gain = f"{100 * pool['overhead']:.1f} %", f"{pool['speed_up_of_two']:.2f}x"
        lines += [
            ["overhead of a pool of one worker", overhead, number(pool["load_before"])],
            ["speed-up of two workers over one", gain, number(pool["load_before"])],
        ]
    if (listed := rows.get(("listing", "listing"))) is not None:
        took = f"{listed['seconds']:.2f} s, {listed['cpu_seconds']:.2f} of them of CPU"
        lines.append([f"{listed['records']:,} records listed", took, number(listed["load_before"])])
    if (memory := rows.get(("memory", "driver_memory"))) is not None:
        grown = f"{memory['grown_megabytes']:.1f} MB after the first {memory['after_cases']:,}"
        lines.append([f"a driver's memory over {memory['cases']:,} cases", grown, number(memory["load_before"])])
    if (faults := rows.get(("faults", "ray_faults"))) is not None:
        equal = "bit-equal" if faults["equal"] else "NOT equal"
        done = f"{faults['done']} of {faults['cases']} cases done, {equal}"
        lines.append(["a worker and a node of a Ray cluster killed", done, number(faults["load_before"])])
    said = f"Cases of about two seconds.\n\n{table(['what', 'measured', 'load before'], lines)}"
    return Answer("What do workers cost and save, and what do they survive?", said, ("executors.json",))


def _recorded(results: Results) -> Answer:
    rows = results["recorded-rounds.json"]["rows"]
    wrong = [f"{row['situation']} ({row.get('verdict') or 'refused'})" for row in rows if not row["passes"]]
    said = (
        f"{len(rows)} situations as people record them, each through `leakgauge invert --truth`: "
        f"{len(rows) - len(wrong)} are refused in a sentence that says so, attacked correctly, or inconclusive with "
        f"the right cause named. Not so: {', '.join(wrong) or 'none'}.\n"
    )
    return Answer(
        "Is a round that was recorded wrongly told from one that leaks nothing?", said, ("recorded-rounds.json",)
    )


def _generator_claim(results: Results) -> Answer:
    """Over the tables of CI-Net, each at its largest scale."""
    names = [
        found[0] for table in ("table4", "table5", "long", "distinct") if (found := _files(results, f"cinet-{table}"))
    ]
    said = generator_answers.claim([results[name] for name in names])
    asked = "Do a generator's weights bring back batches that pixels do not, as CI-Net claims?"
    return Answer(asked, said, tuple(names))


def _contest(results: Results) -> Answer:
    said, plot = contest_answers.contest(results["contest.json"])
    return Answer("Does any attack of the catalogue beat `best`?", said, ("contest.json",), plot)


def _peers(results: Results) -> Answer:
    said, plot = contest_answers.peers(results["peers.json"])
    asked = "How does `best` stand beside other people's programs, at equal CPU seconds?"
    return Answer(asked, said, ("peers.json",), plot)


def _soak(results: Results) -> Answer:
    found = results["soak.json"]
    steady, stopped = found["rows"]
    wrong = len(steady["wrong"]) + len(stopped["wrong"])
    said = (
        f"In {found['scale']}, {steady['audits']} audits ran one after another in one process: memory grew by "
        f"{steady['kilobytes_per_audit']:g} kB with each (median slope), and at the end {steady['files']:+d} files and "
        f"{steady['threads']:+d} threads were open. {_count(stopped['audits'], 'command')} met {stopped['stops']} "
        "SIGINT or SIGTERM at random moments and went on to the answer of one that nobody disturbed; "
        f"{_count(wrong, 'fault')} (a process or half a file left, a damaged store, another answer or exit code)."
    )
    return Answer("Does it stay sound for long, and when it is stopped at any moment?", said, ("soak.json",))


_ONCE_MEASURED = {
    "contest.json": _contest,
    "peers.json": _peers,
    "executors.json": _executors,
    "recorded-rounds.json": _recorded,
    "soak.json": _soak,
}
"""Of files that need a machine of their own, or programs of others, to be made."""


def _over_clients(rows: Sequence[Result], key: str, name: str, colour: str, null: bool = False) -> plots.Curve:
    measured = [row for row in rows if row[key] is not None]
    points = [(row["clients"], row[key], row.get(f"{key}_low"), row.get(f"{key}_high")) for row in measured]
    return plots.Curve(name, colour, points, null)


def _bounds(results: Results) -> Answer:
    rows = results["bounds.json"]["rows"]
    worst, networks = ([row for row in rows if row["kind"] == kind] for kind in ("worst case", "network"))
    played = [*worst, *networks]
    above = [row for row in played if row["identified_low"] > row["at_most"]]
    step = [row for row in worst if (row["sampling"], row["rounds"], row["candidates"]) == (1.0, 1, 100)]
    columns = ["noise multiplier", "at most", "detected", "identified", "identified, networks"]
    lines = []
    for row in step:
        alike = [one for one in networks if (one["noise"], one["rounds"], one["candidates"]) == (row["noise"], 1, 100)]
        ends = [one["identified"] for one in alike]
        seen = f"{min(ends):.3f} to {max(ends):.3f}" if ends else "–"
        lines.append([f"{row['noise']:g}", *(f"{row[key]:.3f}" for key in ("at_most", "detected", "identified")), seen])
    said = (
        f"{len(worst)} cells of the worst gradients and {len(networks)} of real networks: in {len(above)} of "
        f"{len(played)} the success is above the bound beyond its interval (95 % for all at once). "
        f"One full-batch step, one in 100:\n\n"
        f"{table(columns, lines)}\n{_spectra([row for row in rows if row['kind'] == 'jacobian'])}"
    )

    def points(group: Sequence[Result], name: str) -> list[tuple[float, float, float, float]]:
        return [(row["at_most"], row[name], row[f"{name}_low"], row[f"{name}_high"]) for row in group]

    drawn = [
        ("identified, worst case", "#2c3e50", points(worst, "identified")),
        ("detected, worst case", "#1f618d", points(worst, "detected")),
        ("identified, networks", "#c0392b", points(networks, "identified")),
    ]
    plot = plots.against(drawn, "the most that any attacker could", "found")
    return Answer("Does an attacker who knows all but one example beat the bound?", said, ("bounds.json",), plot)


def _spectra(rows: Sequence[Result]) -> str:
    """How much one gradient tells of its image where nothing hides it, and what noise without a clip leaves."""
    noises = [key for key in rows[0] if key.startswith("nearest_db_at_")]
    columns = ["model", "trained", "largest singular value", "eighth", "share of the eight"]
    columns += [f"no nearer than, noise {key.removeprefix('nearest_db_at_')}" for key in noises]
    lines = [
        [
            f"{row['model']}, {row['dataset']}",
            f"{row['train_steps']} steps",
            *(number(row[key]) for key in ("largest", "eighth", "share_of_eight")),
            *(f"{row[key]:.1f} dB" for key in noises),
        ]
        for row in rows
    ]
    said = "Without noise there is no bound; the Jacobian of one image's gradient in the image:"
    return f"\n{said}\n\n{table(columns, lines)}"


def _speed(results: Results) -> Answer:
    rows = [row for row in results["speed.json"]["rows"] if row["step"].endswith("whole iteration")]
    cases = dict.fromkeys(row["case"] for row in rows)
    lines = []
    for case in cases:
        fast = min((row for row in rows if row["case"] == case), key=lambda row: row["training_steps"])
        route = fast["step"].partition(",")[0]
        lines.append([case, route, f"{fast['training_steps']:.2f}", f"{fast['speed_up_over_2020']:.2f}x"])
    columns = ["model/batch", "cheapest route", "cost in training steps", "speed-up over 2020"]
    said = f"{len(results['speed.json']['rows'])} rows, medians of rounds.\n\n{table(columns, lines)}"
    return Answer("What does a step of an attack cost?", said, ("speed.json",))


def _architecture_costs(results: Results) -> Answer:
    name = "architectures-speed.json"
    rows, limits = results[name]["rows"], results[name]["limits"]
    titles = list(rows[0]["in_training_steps"])
    lines = [
        [row["architecture"], f"{row['training_step_ms']:.1f}"]
        + ["{:.2f} ({:.2f} to {:.2f})".format(*row["in_training_steps"][title]) for title in titles]
        for row in rows
    ]
    said = [
        f"One step in training steps of the same model and batch, median and quartiles; {_count(len(rows), 'row')}."
    ]
    for kind, own in limits.items():
        for route, most in own.items():
            found = [row["in_training_steps"][route][0] for row in rows if row["kind"] == kind]
            held = sum(cost <= most for cost in found)
            said.append(f"{kind.capitalize()}, {route}: at most {most:.1f} on {held} of {len(found)}.")
    columns = ["architecture", "training step, ms", *titles]
    return Answer(
        "What does it cost on models as users write them?", f"{' '.join(said)}\n\n{table(columns, lines)}", (name,)
    )


def _memory(results: Results) -> Answer:
    rows = results["generators.json"]["rows"]
    sizes = sorted({row["batch_size"] for row in rows})
    lines = [
        [row["space"], str(row["batch_size"]), number(row["steps_per_second"]), number(row["peak_mib"])]
        for row in rows
        if row["batch_size"] in (sizes[0], sizes[-1])
    ]
    said = f"{len(rows)} rows.\n\n{table(['search space', 'batch', 'steps a second', 'peak MiB'], lines)}"
    return Answer("What does a generator cost beside pixels?", said, ("generators.json",))


def _labels(results: Results) -> Answer:
    rows = results["labels.json"]["rows"]
    slowest: dict[str, Result] = {}
    for row in rows:
        kept = slowest.setdefault(row["rule"], row)
        slowest[row["rule"]] = max(kept, row, key=lambda one: one["restore_ms"])
    lines = [
        [
            rule,
            *(str(row[key]) for key in ("classes", "examples", "features")),
            number(row["restore_ms"]),
            number(row["recall"]),
        ]
        for rule, row in slowest.items()
    ]
    columns = ["rule", "classes", "examples", "features", "milliseconds", "recall"]
    said = f"{len(rows)} rows; the slowest of each rule:\n\n{table(columns, lines)}"
    return Answer("How long does it take to restore labels?", said, ("labels.json",))


def _architectures(results: Results) -> Answer:
    result = results["gallery.json"]
    names = list(dict.fromkeys(row["architecture"] for row in result["rows"]))
    lines, some, every = [], 0, 0
    for name in names:
        rows = [row for row in result["rows"] if row["architecture"] == name]
        hits = sum(row["identified"] for row in rows)
        some, every = some + (hits > 0), every + (hits == len(rows))
        lines.append(
            [
                name,
                rows[0]["family"],
                f"{hits} of {len(rows)}",
                *(", ".join(f"{row[key]:.1f}" for row in rows) for key in ("psnr", "null")),
                "; ".join(dict.fromkeys(row["why_not"] for row in rows if row["why_not"])) or "–",
            ]
        )
    accused = sum(row["null_identified"] for row in result["rows"])
    said = (
        f"{_count(len(names), 'architecture')}, one image and {result['cpu_seconds']:g} CPU seconds each, undefended "
        f"and untrained: on {some} an original is identified among {1 + result['crowd']}, on {every} every "
        f"one; {accused} of {len(result['rows'])} nulls are.\n\n"
        f"{table(['architecture', 'family', 'identified', 'PSNR', 'null', 'why not'], lines)}"
    )
    return Answer("Which architectures give an image away in seconds?", said, ("gallery.json",))


def _span(results: Results) -> Answer:
    rows = results["span.json"]["rows"]
    exact = sum(row["median"] > 45 for row in rows)
    lines = [
        [
            row["cell"],
            "–" if row["accuracy"] is None else f"{100 * row['accuracy']:.0f} %",
            f"{row['cpu_seconds']:g}",
            str(row["images"]),
            number(row["median"]),
            f"{row['above_30']} of {row['images']}",
            number(row["null"]),
        ]
        for row in rows
    ]
    columns = [
        "network, untrained without an accuracy",
        "accuracy",
        "CPU seconds",
        "images",
        "median PSNR",
        "above 30 dB",
        "null",
    ]
    said = (
        f"{len(rows)} networks, batches and defences, `best` with nothing but a budget: in {exact} of them the median "
        "is above 45 dB, which is the image itself. Few images each where few are given; see "
        "[feature-maps.md](feature-maps.md) and [span.md](span.md)."
        f"\n\n{table(columns, lines)}"
    )
    return Answer("What does the span of a gradient give away?", said, ("span.json",))


def _texts(results: Results) -> Answer:
    rows = results["text.json"]["rows"]
    said, plot = text_answers.told(rows)
    return Answer("What does the update of a language model or an adapter give away?", said, ("text.json",), plot)


def _clients(results: Results) -> Answer:
    result = results["clients.json"]
    rows = result["rows"]
    plain = next(row["psnr"] for row in rows if row["client"] == "one gradient")
    near = sum(row["psnr"] >= row["sgd"] - 3 for row in rows)
    lines = [
        [row["client"], f"`{row['local_update']}`", *(number(row[column]) for column in ("psnr", "sgd", "null"))]
        for row in rows
    ]
    said = (
        f"{len(rows)} ways to train, the same attack, images and {result['steps']} steps: one plain gradient gives "
        f"{number(plain)} dB, and {near} of them give at most 3 dB less than plain SGD, of one step or, beside "
        "clients of several, of four."
        f"\n\n{table(['client', 'in words', 'PSNR', 'plain SGD', 'null'], lines)}"
    )
    return Answer("What does it change how a client trains?", said, ("clients.json",))


def _servers(results: Results) -> Answer:
    rows = results["servers.json"]["rows"]
    columns = ("images", "clients", "exact", "expected", "identified", "null")
    lines = [[row["server"], *("–" if row[key] is None else number(row[key]) for key in columns)] for row in rows]
    most = max(rows, key=lambda row: (row["exact"] / row["images"], row["images"]))
    near = [row for row in rows if row["expected"] is not None]
    kept = sum(row["exact"] >= 0.8 * row["expected"] for row in near)
    most_exact = f"{most['server']}: {number(most['exact'])} of {most['images']}, expected {number(most['expected'])}"
    said = (
        f"Images of one update, on average; exact is above 40 dB. The most by {most_exact}. {kept} of {len(near)} "
        f"servers that say what they expect got four fifths of it or more.\n\n{table(['server', *columns], lines)}"
    )
    asked = "What does a server that cheats read, and what does secure aggregation leave?"
    return Answer(asked, said, ("servers.json",))


def _calibration(results: Results) -> Answer:
    rows = results["calibration.json"]["rows"]
    lines = [
        [row["dataset"], f"`{row['attack']}`", str(row["batch_size"]), f"{row['accused']} of {row['updates']}"]
        for row in rows
    ]
    columns = ["data", "attack", "batch", "accused"]
    said = f"Updates of other data, judged as if of the private ones.\n\n{table(columns, lines)}"
    return Answer("How often is an update accused that gives nothing away?", said, ("calibration.json",))


def _encryption(results: Results) -> Answer:
    rows = results["encryption.json"]["rows"]
    lines = [[row["what"], str(row["images"]), number(row["seconds"])] for row in rows]
    said = f"{len(rows)} rows.\n\n{table(['what', 'images', 'seconds'], lines)}"
    return Answer("How long does it take to encrypt with InstaHide?", said, ("encryption.json",))


def _completion(results: Results) -> Answer:
    rows = results["completion.json"]["rows"]
    keys = ("sent", "known", "energy", "null_known")
    lines = [
        [
            str(row["units"]),
            str(row["batch"]),
            *(f"{100 * row[key]:.3g} %" for key in keys),
            "–" if row["error"] is None else f"{row['error']:.0e}",
            number(row["cpu_seconds"]),
        ]
        for row in rows
    ]
    more = [row for row in rows if row["known"] > row["sent"]]
    said = (
        f"A layer of 4096 inputs, means over {rows[0]['updates']} batches. In {len(more)} of {len(rows)} cells entries "
        f"that were not sent come back, with a relative error of {max(row['error'] for row in more):.0e} at the most."
    )
    columns = ["units", "batch", "sent", "known", "of the squared length", "known of noise", "error", "CPU seconds"]
    return Answer(
        "How much of a linear layer's update does pruning hide?",
        f"{said} See [exact.md](exact.md).\n\n{table(columns, lines)}",
        ("completion.json",),
    )


def _exact(results: Results) -> Answer:
    rows = results["exact.json"]["rows"]
    certified, false = (sum(row[key] for row in rows) for key in ("certified", "false"))
    keys = ("batch", "width", "change", "updates", "recovered", "certified", "false")
    keys += ("least_db", "null_db", "cpu_seconds")
    lines = [[row["kind"], *("–" if row[key] is None else str(row[key]) for key in keys)] for row in rows]
    said = (
        f"{sum(row['updates'] for row in rows)} updates, {certified} certificates, {false} of them false.\n\n"
        f"{table(['kind', *(key.replace('_', ' ') for key in keys)], lines)}"
    )
    return Answer("What comes back exactly, without a search, and is it ever certified wrongly?", said, ("exact.json",))


def _fuzz(results: Results) -> Answer:
    rows = results["fuzz.json"]["rows"]
    inputs, refused, *wrong = (
        sum(row[key] for row in rows) for key in ("inputs", "refused", "crashes", "hangs", "outside")
    )
    crashes, hangs, outside = wrong
    codes = ", ".join(sorted({str(row.get("version", results["fuzz.json"]["version"])) for row in rows}))
    said = (
        f"{inputs:,} malformed files to {_count(len(rows), 'reader')} (version {codes}): {refused:,} were refused in a "
        f"sentence, the rest read as what they still said; {crashes} crashes, {hangs} over 5 CPU seconds, {outside} "
        "that wrote outside the folder, started a program or imported what they named."
    )
    tried = {row["reader"] for row in rows}
    if missing := [name for name in results["fuzz.json"].get("readers", ()) if name not in tried]:
        said += f" Not measured at this length: {', '.join(missing)}."
    return Answer("Does a malformed file crash a command, hang it, or run code?", said, ("fuzz.json",))


def page(results: Results) -> tuple[str, dict[str, str]]:
    """The page of answers, and its plots by file name."""
    contents, parts, drawn = [], [], {}
    for index, one in enumerate(answers(results), 1):
        contents.append(f"{index}. [{one.asked}](#q{index})")
        counted = _count(sum(len(results[name]["rows"]) for name in one.files), "row")
        links = ", ".join(f"[{name}](results/{paper_of(name)}.md#{anchor(name)})" for name in one.files)
        picture = ""
        if one.plot is not None:
            file = f"{anchor(one.files[0])}.svg"
            drawn[file] = one.plot
            picture = f"\n![{anchor(one.files[0])}](results/{file})\n"
        parts.append(f'<a id="q{index}"></a>\n## {index}. {one.asked}\n\n{one.said}{picture}\n{counted}: {links}\n')
    return "\n".join([*contents, "", *parts]), drawn
