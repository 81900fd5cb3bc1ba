"""What the rows of text.json say, part by part, and the law of the rank as a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from statistics import mean
from typing import Any

from result_tables import table

Rows = Sequence[Mapping[str, Any]]

_TITLES = {
    "decoders": "Texts of decoders, the small GPT of the catalogue. Published: DAGER, ROUGE above .99 up to a batch of "
    "128, on GPT-2 and Llama; ours ends where a batch has more tokens than a layer has inputs, their limit too",
    "wide": "Larger batches, on a GPT of twice the width",
    "encoders": "Texts of an encoder",
    "smollm2": "SmolLM2-135M, real weights",
    "lora": "LoRA on queries, keys and values through PEFT: tokens are found while there is room for them, and hidden "
    "above",
    "steps": "FedAvg: two texts, so many steps on both of them at a learning rate",
    "defences": "Defences at a batch of two, by the exact attack and by TAG with five CPU seconds, and what a short "
    "training under them costs in perplexity on "
    "other sentences",
}
_SCORES = {
    "tokens found": "token_recall",
    "word for word": "exact_text",
    "ROUGE-1": "rouge_1",
    "ROUGE-2": "rouge_2",
    "null of ROUGE-1": "null_rouge_1",
}


def told(rows: Rows) -> tuple[str, str]:
    """Sentences and tables, and the figure."""
    parts = {part: [row for row in rows if row["part"] == part] for part in _TITLES}
    said = [f"{_TITLES[part]}.\n\n{_table(part, own)}" for part, own in parts.items() if own]
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
    cases = list(dict.fromkeys(row["case"] for row in rows))
    own = [[row for row in rows if row["case"] == case] for case in cases]
    columns = ["", *_SCORES, "certified", "CPU seconds"]
    lines = [
        [
            case,
            *(f"{mean(row[name] for row in some):.2f}" for name in _SCORES.values()),
            f"{sum(row['certified'] for row in some)} of {len(some)}",
            f"{mean(row['cpu_seconds'] for row in some):.1f}",
        ]
        for case, some in zip(cases, own, strict=True)
    ]
    if part == "lora":
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
    if part == "defences":
        columns.append("perplexity")
        for line, some in zip(lines, own, strict=True):
            cost = some[0]["perplexity"]
            line.append("not finite" if cost is None else f"{cost:,.0f}")
    return table(columns, lines)


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
