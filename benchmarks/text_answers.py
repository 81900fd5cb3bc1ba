"""What the rows of text.json say, part by part, and the law of the rank as a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from statistics import mean, stdev
from typing import Any

from result_tables import table

Rows = Sequence[Mapping[str, Any]]

_TITLES = {
    "decoders": "Texts of decoders, the small GPT of the catalogue, on sentences it was not trained on. Published: "
    "DAGER, ROUGE above .99 up to a batch of 128, on GPT-2 and Llama; ours ends where a batch has more tokens than a "
    "layer has inputs, 256 here, which is their limit too",
    "wide": "Larger batches, on a GPT of twice the width: 512 inputs, so batches of about 25 such sentences",
    "noise": "Updates of noise, as long as real ones: nothing is to come back",
    "smollm2": "SmolLM2-135M, real weights: 576 inputs, so batches of about 25 such sentences",
    "encoders": "Texts of an encoder",
    "minilm": "MiniLM, real weights, with a fresh head of four classes",
    "lora": "LoRA on queries, keys and values through PEFT: tokens are found while there is room for them, and hidden "
    "above",
    "steps": "FedAvg: two texts, so many steps at a learning rate, read at the weights that were sent; rank is that of "
    "the span of all steps, of 256 at most",
    "tuning": "How rates and the weight of the prior were chosen: on three public texts, by the tokens that were found",
}
_SCORES = {
    "tokens found": "token_recall",
    "word for word": "exact_text",
    "ROUGE-1": "rouge_1",
    "ROUGE-2": "rouge_2",
    "ROUGE-L": "rouge_l",
}
_BESIDE = {"null": "null_", "guess": "guess_"}
_DEFENCES = (
    "Which defence stops it at what cost: a GPT of width 64 that has read half of 4,000 verses, one private text at a "
    "time unless said otherwise. Tokens found by the exact attack, and by TAG and LAMP, mean of {victims} texts, each "
    "with a seed of its own for the defence, in brackets the null; the guess is of the most frequent public tokens. "
    "Perplexity is of 1,000 other verses after {steps} steps in batches of 32 on the private half under the defence, "
    "mean of {seeds} seeds with their spread; the model that clients are sent has {before:.0f}, and guessing by "
    "frequency {guess:.0f}. The bound is the most probable that any attacker picks the text among 100"
)


def told(rows: Rows) -> tuple[str, str]:
    """Sentences and tables, and the figure."""
    parts = {part: [row for row in rows if row["part"] == part] for part in (*_TITLES, "defences", "training")}
    said = [f"{title}.\n\n{_table(part, parts[part])}" for part, title in _TITLES.items() if parts[part]]
    if parts["steps"]:
        said.append(f"{_survival(parts['steps'])}.")
    if parts["defences"] and parts["training"]:
        said.append(_trade_off(parts["defences"], parts["training"]))
    exact = [row for row in parts["decoders"] if row["certified"]]
    wrong = [row for row in exact if row["exact_text"] < 1]
    law = parts["lora"]
    kept = sum((row["found"] == row["distinct_tokens"]) == row["predicted"] for row in law)
    head = (
        f"{len(exact)} of {len(parts['decoders'])} batches of the small GPT came back certified, {len(wrong)} of these "
        f"with a wrong token. Of adapters the rank law held in {kept} of {len(law)} cells. See [text.md](text.md)."
    )
    return "\n\n".join([head, *said]), figure(law)


def _table(part: str, rows: Rows) -> str:
    if part == "lora":
        return _law(rows)
    cases = list(dict.fromkeys(row["case"] for row in rows))
    own = [[row for row in rows if row["case"] == case] for case in cases]
    columns = ["", *_SCORES, *(f"{name} of ROUGE-1" for name in _BESIDE), "certified", "CPU seconds"]
    lines = [
        [
            case,
            *(_mean(some, name) for name in _SCORES.values()),
            *(_mean(some, f"{prefix}rouge_1") for prefix in _BESIDE.values()),
            f"{sum(row['certified'] for row in some)} of {len(some)}",
            f"{mean(row['cpu_seconds'] for row in some):.1f}",
        ]
        for case, some in zip(cases, own, strict=True)
    ]
    if part == "steps":
        columns.append("different tokens, rank")
        for line, some in zip(lines, own, strict=True):
            line.append("; ".join(f"{row['distinct_tokens']}, {row['rank'] or 'none'}" for row in some))
    return table(columns, lines)


def _survival(rows: Rows) -> str:
    """To what number of steps texts came back word for word, and nine of ten tokens, in all batches."""
    whole = [row for row in rows if "LoRA" not in row["case"] and "each" not in row["case"]]
    said = []
    for rate in dict.fromkeys(row["case"].rpartition(" ")[2] for row in whole):
        own = [row for row in whole if row["case"].endswith(f" {rate}")]
        reached = [
            max(
                (steps for steps in _steps(own) if all(row[name] >= least for row in own if steps == _steps([row])[0])),
                default=0,
            )
            for name, least in (("exact_text", 1), ("token_recall", 0.9))
        ]
        said.append(f"{rate}: {reached[0]} and {reached[1]}")
    return f"Steps up to which all came back word for word, and nine of ten tokens, by rate: {'; '.join(said)}"


def _steps(rows: Rows) -> list[int]:
    return [int(row["case"].partition(" ")[0]) for row in rows]


def _mean(rows: Rows, name: str) -> str:
    return f"{mean(row[name] for row in rows):.2f}" if rows and all(name in row for row in rows) else "not measured"


def _law(rows: Rows) -> str:
    columns = ["", "different tokens", "room", "predicted", "found", "wrong", "certified"]
    lines = [
        [
            row["case"],
            str(row["distinct_tokens"]),
            str(row["room"]),
            "all" if row["predicted"] else "none",
            str(row["found"]),
            str(row["wrong"]),
            "yes" if row["certified"] else "no",
        ]
        for row in rows
    ]
    return table(columns, lines)


def _trade_off(rows: Rows, trainings: Rows) -> str:
    """A line for each defence: what each attack found, what a guess does, what it costs, and the bound."""
    attacks = list(dict.fromkeys(row["attack"] for row in rows))
    costs = {
        name: [row for row in trainings if row["defence"] == name] for name in {row["defence"] for row in trainings}
    }
    lines = []
    for defence in dict.fromkeys(row["defence"] for row in rows):
        mine = [row for row in rows if row["defence"] == defence]
        own = {name: [row for row in mine if row["attack"] == name] for name in attacks}
        bound = mine[0]["bound"]
        lines.append(
            [
                defence,
                *(_with_null(own[name]) for name in attacks),
                _mean(mine, "guess_token_recall"),
                _cost(costs.get(defence, ()) if mine[0]["batch_size"] == 1 else costs["none"]),
                "none" if bound is None else f"{bound:.3f}",
            ]
        )
    (before,) = costs["before"]
    words = _DEFENCES.format(
        victims=1 + max(row["victim"] for row in rows),
        seeds=1 + max(row["victim"] for row in trainings),
        steps=max(row["training_steps"] for row in trainings),
        before=before["perplexity"],
        guess=before["by_frequency"],
    )
    return f"{words}.\n\n{table(['', *attacks, 'guess', 'perplexity', 'bound'], lines)}"


def _with_null(rows: Rows) -> str:
    return f"{_mean(rows, 'token_recall')} ({_mean(rows, 'null_token_recall')})" if rows else "not measured"


def _cost(rows: Rows) -> str:
    if not rows:
        return "not measured"
    finite = [row["perplexity"] for row in rows if row["perplexity"] is not None]
    if len(finite) < len(rows):
        return f"not finite in {len(rows) - len(finite)} of {len(rows)}"
    return f"{mean(finite):,.0f}" + (f" ± {stdev(finite):.1f}" if len(finite) > 1 else "")


def figure(law: Rows) -> str:
    """The share of the tokens that were found against their number over the room that the rank has for them."""
    size, left, top, most = 320, 60, 40, 3.0
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + size + 40}" height="{top + size + 60}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<rect x="{left}" y="{top}" width="{size}" height="{size}" fill="none" stroke="#95a5a6"/>',
        f'<path d="M{left} {top}H{left + size / most:.1f}V{top + size}H{left + size}" fill="none" stroke="black" '
        'stroke-dasharray="5 4"/>',
        f'<text x="8" y="18">{escape("share of tokens found; dashed: predicted; ")}<tspan fill="#c0392b">● first round '
        '</tspan><tspan fill="#1f618d">● later</tspan></text>',
        f'<text x="{left}" y="{top + size + 44}">different tokens over room (3r, or r - 1 in the first round)</text>',
    ]
    for tick in (0, 1, 2, 3):
        at = left + size * tick / most
        mark = f"{tick}{'+' * (tick == most)}"
        parts.append(f'<text x="{at:.0f}" y="{top + size + 16}" text-anchor="middle">{mark}</text>')
    for share in (0, 1):
        parts.append(f'<text x="{left - 8}" y="{top + size * (1 - share) + 4}" text-anchor="end">{share}</text>')
    for row in law:
        x = left + size * min(most, row["distinct_tokens"] / row["room"]) / most
        y = top + size * (1 - row["found"] / row["distinct_tokens"])
        colour = "#c0392b" if row["first_round"] else "#1f618d"
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}" opacity="0.6"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"
