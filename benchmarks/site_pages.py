"""What the site has besides the files of docs/: a page for each attack and defence, made of the catalogue.

mkdocs calls the functions `on_files` and `on_page_markdown` (see mkdocs.yml). Nothing on these pages was typed: words
and options are those of the code (`leakgauge show`), numbers and pictures of docs/portraits.json (`portraits.py`), and
what a part assumes of docs/applicability.json (`applicability.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from leakgauge.catalogue import CATALOGUE
from leakgauge.report.parts import CataloguePart, catalogue_parts
from leakgauge.report.words import humanise

ROOT = Path(__file__).resolve().parent.parent
NUMBERS, ANSWERS = ROOT / "docs" / "portraits.json", ROOT / "docs" / "applicability.json"
KINDS = {"attacks": "attack", "encoding_attacks": "attack on encodings", "defences": "defence"}
BESIDE = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
"""Files of the repository that pages link to."""

_NOTHING: dict[str, Any] = {"setting": None, "picture": False, "rows": [], "refused": {}}


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Adds the made pages, and what pages show of the repository."""
    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    for name in BESIDE:
        text = re.sub(r"\]\((?:docs/)?([\w/-]+\.md)\)", r"](\1)", (ROOT / name).read_text("utf-8"))
        files.append(File.generated(config, name, content=text))
    for picture in sorted((ROOT / "benchmarks" / "results").glob("*.png")):
        files.append(File.generated(config, f"benchmarks/results/{picture.name}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links that leave docs/ lead to the copies beside it."""
    up = "../" * page.file.src_uri.count("/")
    markdown = re.sub(r"\]\((?:\.\./)+(benchmarks/results/[^)]+)\)", rf"]({up}\1)", markdown)
    return re.sub(rf"\]\((?:\.\./)+({'|'.join(map(re.escape, BESIDE))})\)", rf"]({up}\1)", markdown)


def pages() -> dict[str, str]:
    """Every made page, by its path below docs/."""
    portraits = json.loads(NUMBERS.read_text("utf-8")) if NUMBERS.is_file() else {"attacks": {}, "steps": 0}
    asked = json.loads(ANSWERS.read_text("utf-8"))["settings"] if ANSWERS.is_file() else {}
    made: dict[str, str] = {}
    for kind in KINDS:
        parts = catalogue_parts(kind)
        made[f"catalogue/{kind}/index.md"] = _index(kind, parts)
        for part in parts:
            answers = {words: found[part.name] for words, found in asked.items() if part.name in found}
            made[f"catalogue/{kind}/{part.name}.md"] = page(part, portraits, answers)
    return made


def page(part: CataloguePart, portraits: Mapping[str, Any], answers: Mapping[str, Any]) -> str:
    """One part: what it does, how to ask for it, its options, and what was seen of it."""
    text = [f"# {part.name}", f"*{KINDS[part.kind].capitalize()}.* {_escaped(part.words)}"]
    text += ["## Ask for it", *("    " + command for command in part.commands)]
    if part.options:
        rows = [f"| `{one.name}` | `{_bar(one.default or 'to be given')}` | {_bar(one.kind)} |" for one in part.options]
        text += ["## Options", "\n".join(["| option | unless you say otherwise | |", "|---|---|---|", *rows])]
    if part.made_of:
        text += ["## Made of", f"```\n{part.made_of}\n```"]
    text += _assumed(part, answers)
    if part.kind == "attacks":
        text += _of_attack(part.name, portraits)
    elif part.kind == "defences":
        text += _of_defence(part.name, portraits)
    papers = sorted({*_CITED.findall(part.words), *(f"{who}, {when}" for who, when in _NAMED.findall(part.words))})
    listed = "\n".join(f"- {_escaped(one)}" for one in papers) or "Its description cites none."
    text += ["## Papers", listed, _ABOUT_PAPERS]
    return "\n\n".join(text) + "\n"


_CITED = re.compile(r"\[([A-Z][^\]\[]*?\d{4}[^\]\[]*)\]")
_NAMED = re.compile(r"([A-Z][\w'’-]+(?: et al\.| (?:and|&) [A-Z][\w'’-]+)?) \[(\d{4})")
"""[Author, year], and an author in the sentence with the year behind."""

_ABOUT_PAPERS = "What of each paper is here: [papers](../../papers.md); what was measured: [results](../../results.md)."


def _assumed(part: CataloguePart, answers: Mapping[str, Any]) -> Iterator[str]:
    """In its own words, asked on updates of noise."""
    yield "## What it assumes"
    if not answers:
        yield (
            "Published encodings and their labels, and of them what its description says: "
            "[InstaHide](../../instahide.md); what it recovers and what breaks it was measured: "
            "[results](../../results/instahide.md)."
            if part.kind == "encoding_attacks"
            else "Not asked yet."
        )
        return
    on = [f"{words}{_because(one['why'])}" for words, one in answers.items() if one["applies"]]
    yield "Asked by `leakgauge check` on updates of noise, it applies to " + ("; ".join(on) or "none of these") + "."
    reasons: dict[str, list[str]] = {}
    for words, one in answers.items():
        if one["applies"] is False:
            reasons.setdefault(one["why"], []).append(words)
    if reasons:
        lines = [f"- {_escaped(why.rstrip('.'))}. *({'; '.join(where)})*" for why, where in reasons.items()]
        yield "\n".join(["It refuses others, and says why:", "", *lines])


def _because(why: str) -> str:
    return f" ({_escaped(why.rstrip('.'))})" if why else ""


def _of_attack(name: str, portraits: Mapping[str, Any]) -> Iterator[str]:
    seen = portraits["attacks"].get(name, _NOTHING)
    if seen["setting"] is None:
        yield "## What it recovers"
        tried = (
            "none of the settings that portraits are made in suits it" if seen["refused"] else "it was not tried yet"
        )
        yield f"Not measured: {tried}."
    else:
        yield "## What it recovers, and what breaks it"
        yield (
            f"A portrait, not its strength: {seen['setting']}, at most {portraits['steps']} steps, an `informed` "
            "attacker. The null is the same attack on an unrelated update."
        )
        if seen["picture"]:
            order = ", ".join(["the private image", *(humanise(row["defence"]).lower() for row in seen["rows"])])
            yield f"![From left to right: {order}](../../portraits/{name}.png)"
            yield f"From left to right: {order}."
        yield _table(seen["rows"])
        yield from _texts(seen["rows"])
    yield "See [threat models](../../threat-models.md) for what an attacker may know."


def _table(rows: list[dict[str, Any]]) -> str:
    of_labels = any(row["labels"] or row["counts"] for row in rows)
    head = "| defence | PSNR | null |" if not of_labels else "| defence | labels |"
    lines = [head, "|---" * (head.count("|") - 1) + "|"]
    for row in rows:
        name = humanise(row["defence"])
        if of_labels:
            lines.append(f"| {name} | {row['labels'] or 'not judged'}{_counts(row)} |")
            continue
        scores = " | ".join("not measured" if row[one] is None else f"{row[one]} dB" for one in ("psnr", "null"))
        lines.append(f"| {name} | {scores} |")  # no verdict: one input and one null convict nobody
    return "\n".join(lines)


def _counts(row: Mapping[str, Any]) -> str:
    if not row["counts"]:
        return ""
    true, restored = row["counts"][0]
    return "" if true is None else f"; restored {sum(map(min, true, restored))} of {sum(true)}"


def _texts(rows: list[dict[str, Any]]) -> Iterator[str]:
    told = [(row["defence"], row["text"]) for row in rows if len(row["text"]) == 2]
    if told:
        lines = [f"- private: *{_escaped(told[0][1][0])}*"]
        yield "\n".join([*lines, *(f"- {humanise(name).lower()}: *{_escaped(text[1])}*" for name, text in told)])


def _of_defence(name: str, portraits: Mapping[str, Any]) -> Iterator[str]:
    """What the portraits say of it, attack by attack."""
    rows = []
    for attack, seen in portraits["attacks"].items():
        for row in seen["rows"]:
            if name in {part.partition(":")[0] for part in row["defence"].split("+")} and row["psnr"] is not None:
                null = "not measured" if row["null"] is None else f"{row['null']} dB"
                found = f"{humanise(row['defence'])} | {row['psnr']} dB | {null}"
                rows.append(f"| [{attack}](../attacks/{attack}.md) | {found} |")
    if rows:
        yield "## What attacks made of it"
        yield "From the portraits of the attacks, short and of one embedded input; a stronger attack may find more."
        yield "\n".join(["| attack | as tried | PSNR | null |", "|---|---|---|---|", *rows])
    yield "## What breaks it"
    answered = "[trade-offs](../../tradeoff.md); measured: [results](../../results.md)"
    yield f"What an attacker who knows a defence does about it, and what it costs: {answered}."


def _index(kind: str, parts: list[CataloguePart]) -> str:
    rows = [f"| [{part.name}]({part.name}.md) | {_bar(_escaped(part.summary))} |" for part in parts]
    others = [other for other in KINDS if other != kind]
    links = ", ".join(f"[{KINDS[other]}s](../{other}/index.md)" for other in others)
    head = (
        f"# Every {KINDS[kind]}\n\nMade of the catalogue: {len(parts)} of {len(CATALOGUE[kind])}. See also {links}.\n"
    )
    return "\n".join([head, "| name | what it does |", "|---|---|", *rows]) + "\n"


def _escaped(words: str) -> str:
    """Words of a docstring, in which brackets are citations and not links."""
    return words.replace("[", "\\[").replace("]", "\\]").replace("<", "&lt;").replace("|", "\\|").replace("*", "\\*")


def _bar(words: str) -> str:
    return words.replace("\\|", "|").replace("|", "\\|")
