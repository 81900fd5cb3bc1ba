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

from leakgauge.catalogue import CATALOGUE, describe_metric
from leakgauge.report.parts import CataloguePart, catalogue_parts
from leakgauge.report.words import humanise

ROOT = Path(__file__).resolve().parent.parent
NUMBERS, ANSWERS = ROOT / "docs" / "portraits.json", ROOT / "docs" / "applicability.json"
KINDS = {"attacks": "attack", "encoding_attacks": "attack on encodings", "defences": "defence"}
BESIDE = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
"""Files of the repository that pages link to."""


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
    portraits = json.loads(NUMBERS.read_text("utf-8")) if NUMBERS.is_file() else {}
    asked = json.loads(ANSWERS.read_text("utf-8"))["settings"] if ANSWERS.is_file() else {}
    made: dict[str, str] = {}
    for kind in KINDS:
        parts = catalogue_parts(kind)
        made[f"catalogue/{kind}/index.md"] = _index(kind, parts)
        for part in parts:
            answers = {words: found[part.name] for words, found in asked.items() if part.name in found}
            seen = portraits.get(kind, {}).get(part.name)
            made[f"catalogue/{kind}/{part.name}.md"] = page(part, seen, answers)
    return made


def page(part: CataloguePart, seen: Mapping[str, Any] | None, answers: Mapping[str, Any]) -> str:
    """One part: what it does, how to ask for it, its options, and what was seen of it."""
    text = [f"# {part.name}", f"*{KINDS[part.kind].capitalize()}.* {_escaped(part.words)}"]
    text += ["## Ask for it", *("    " + command for command in part.commands)]
    if part.options:
        rows = [f"| `{one.name}` | `{_bar(one.default or 'to be given')}` | {_bar(one.kind)} |" for one in part.options]
        text += ["## Options", "\n".join(["| option | unless you say otherwise | |", "|---|---|---|", *rows])]
    if part.made_of:
        text += ["## Made of", f"```\n{part.made_of}\n```"]
    text += _assumed(part, answers)
    text += _portrait(part, seen)
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


def _portrait(part: CataloguePart, seen: Mapping[str, Any] | None) -> Iterator[str]:
    """One picture, and the numbers that belong to it."""
    yield "## What attacks make of it" if part.kind == "defences" else "## What it recovers, and what breaks it"
    if seen is None:
        yield "Not drawn yet: `python benchmarks/portraits.py`."
    else:
        yield _circumstances(part, seen)
        if seen["picture"]:
            yield f"![Private, came back, null]({_UP}portraits/{seen['picture']})"
        yield _PICTURED[seen["shown"]]
        yield _scores(seen)
        if seen["shown"] == "texts":
            yield from _texts(seen)
        elif seen["shown"] == "rows":
            yield _cells(seen)
        reasons = dict.fromkeys(row["reason"] for row in seen["rows"] if row["reason"])
        if reasons:
            yield "\n".join(["Where nothing came back, it said why:", "", *(f"- {_escaped(one)}" for one in reasons)])
    yield _FURTHER[part.kind]


_UP = "../../"
_PICTURED = {
    "images": "Above what was private, below it what came back, and last the null: what the same attack makes of an "
    "unrelated update.",
    "labels": "Bars are how many examples each class has, dots how many came back, lines what the same attack makes of "
    "an unrelated update, which is the null.",
    "texts": "The null is what the same attack makes of an unrelated update.",
    "rows": "The null is what the same attack makes of an unrelated update.",
}
_FURTHER = {
    "attacks": f"What an attacker may know: [threat models]({_UP}threat-models.md). What it finds on larger models and "
    f"under more defences: [results]({_UP}results.md).",
    "encoding_attacks": f"On more images, and with less known: [results]({_UP}results/instahide.md).",
    "defences": f"## What breaks it\n\nWhat an attacker who knows a defence does about it, and what it costs: "
    f"[trade-offs]({_UP}tradeoff.md). Which one to take: [choose a defence]({_UP}choose-a-defence.md). What was "
    f"measured: [results]({_UP}results.md).",
}


def _circumstances(part: CataloguePart, seen: Mapping[str, Any]) -> str:
    steps = "" if seen["steps"] is None else f", at most {seen['steps']} steps"
    if part.kind == "defences":
        attack = f"[{seen['attack']}](../attacks/{seen['attack']}.md)"
        tried = f"`{seen['tried']}` beside no defence, met by {attack}, an attacker who knows it"
    else:
        tried = f"`{seen.get('tried', part.name)}`"
    return f"A portrait, no measurement of strength: {tried}; {seen['setting']}{steps}."


def _scores(seen: Mapping[str, Any]) -> str:
    """A line for each defence; no verdict, as one input and one null convict nobody."""
    metric = describe_metric(seen["metric"])
    guessed = seen["shown"] == "labels"
    head = ["defence", metric.title, "null", *(["blind guess"] if guessed else [])]
    lines = [head, ["---"] * len(head)]
    for row in seen["rows"]:
        names = ("found", "null", *(["guess"] if guessed else []))
        scores = ["not measured" if row[one] is None else metric.show(row[one]) for one in names]
        lines.append([humanise(row["defence"]), *scores])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _texts(seen: Mapping[str, Any]) -> Iterator[str]:
    lines = [f"- private: *{_escaped(_said(seen['private']))}*"]
    lines += [f"- {humanise(row['defence']).lower()}: *{_escaped(_said(row['came_back']))}*" for row in seen["rows"]]
    yield "\n".join([*lines, f"- null: *{_escaped(_said(seen['rows'][0]['null_came_back']))}*"])


def _said(words: list[str] | None) -> str:
    return "nothing" if words is None else words[0]


def _cells(seen: Mapping[str, Any]) -> str:
    """The first columns of the private row, and below each what came back."""
    rows = [("private", seen["private"]), *((humanise(row["defence"]), row["came_back"]) for row in seen["rows"])]
    rows.append(("null", seen["rows"][0]["null_came_back"]))
    lines = [["", *seen["columns"]], ["---"] * (1 + len(seen["columns"]))]
    lines += [[words, *(["nothing"] * len(seen["columns"]) if cells is None else cells)] for words, cells in rows]
    return "\n".join(f"| {' | '.join(_bar(_escaped(cell)) for cell in line)} |" for line in lines)


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
