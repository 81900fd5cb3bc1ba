"""``leakgauge list`` and ``leakgauge show``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from leakgauge.cli.options import JsonFlag, OutOption
from leakgauge.cli.output import Screen, print_json, print_rows, stdout

if TYPE_CHECKING:
    from leakgauge.report.parts import CataloguePart

_INDENT = 2
_WIDEST_NAME = 26


def list_(
    what: Annotated[str | None, typer.Argument(help="attacks, defences, ...; or `runs`, with --out.")] = None,
    search: Annotated[str | None, typer.Option(help="Only what has these words in its name or description.")] = None,
    out: OutOption = Path("report"),
    as_json: JsonFlag = False,
) -> None:
    """List the catalogue, or the runs kept in a folder."""
    if what == "runs":
        print_rows(_runs(out), "list", as_json)
        return
    from leakgauge.report.parts import catalogue_parts

    found = [one for one in catalogue_parts(what) if search is None or one.matches(search)]
    if as_json:
        print_json("list", 0, [_row(one) for one in found])
    elif what is None and search is None:
        _names(found)
    else:
        _lines(found)


def show(
    name: Annotated[str, typer.Argument(help="A name of `leakgauge list`, such as best or dpsgd.")],
    as_json: JsonFlag = False,
) -> None:
    """Tell all there is to say about one attack, defence, model or other part."""
    from leakgauge.report.parts import named_parts

    found = named_parts(name)
    if as_json:
        print_json(
            "show",
            None,
            [_row(one) | {"words": one.words, "commands": list(one.commands), "made_of": one.made_of} for one in found],
        )
        return
    console = stdout()
    for number, part in enumerate(found):
        if number:
            console.print()
        _print_part(console, part)


def _row(part: CataloguePart) -> dict[str, Any]:
    return {"kind": part.kind, "name": part.name, "options": part.signature, "what": part.summary}


def _names(found: list[CataloguePart]) -> None:
    """The names alone, kind by kind: all of it fits a screen."""
    console = stdout()
    for kind in dict.fromkeys(one.kind for one in found):
        names = [one.name for one in found if one.kind == kind]
        console.print(Text(f"{kind} ({len(names)})", "bold"))
        console.print(_indented(Text(", ".join(names))))
    hints = "`leakgauge list attacks` says what each does, `--search noise` looks for words; `leakgauge show best`"
    console.print(Text(f"\n{hints} tells all of one.", "dim"))


def _lines(found: list[CataloguePart]) -> None:
    from leakgauge.report.grids import lines

    console = stdout()
    widest = max((len(one.name) for one in found), default=0)
    room = min(widest, _WIDEST_NAME) if console.width >= 60 else 0
    for kind in dict.fromkeys(one.kind for one in found):
        console.print(Text(kind, "bold underline"))
        for one in found:
            if one.kind == kind:
                console.print(_indented(lines(one.name, one.summary, room)))
    if not found:
        console.print("Nothing has these words; `leakgauge list` has all names.")


def _print_part(console: Screen, part: CataloguePart) -> None:
    console.print(Text.assemble((part.name, "bold"), f" ({part.kind.replace('_', ' ')})"))
    for paragraph in part.words.split("\n\n"):
        console.print()
        console.print(_indented(Text(paragraph)))
    if part.options:
        console.print(Text("\nOptions", "bold"))
    for one in part.options:
        default = "to be given" if one.default is None else one.default
        console.print(_indented(Text.assemble((one.name, "bold"), f" = {default}", (f"  {one.kind}", "dim"))))
    if part.made_of:
        console.print(Text("\nMade of", "bold"))
        console.print(_indented(Text(part.made_of)))
    console.print(Text("\nAsk for it", "bold"))
    for command in part.commands:
        console.print(Text(f"{' ' * _INDENT}{command}"), soft_wrap=True)


def _indented(part: RenderableType) -> Padding:
    return Padding(part, (0, 0, 0, _INDENT), expand=False)


def _runs(folder: Path) -> list[dict[str, Any]]:
    from leakgauge.audit.store import FolderStore

    store = FolderStore.open(folder)
    return [
        {
            "id": run["id"],
            "started": run["started"],
            "finished": sum(store.get(key) is not None for key in run["keys"]),
            "cases": len(run["keys"]),
            "seed": run["description"].get("seed"),
            "model": run["description"].get("model"),
        }
        for run in store.runs()
    ]
