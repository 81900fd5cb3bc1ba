"""What each attack of the catalogue recovers, and what each defence leaves of it: a picture and numbers for its page.

    python benchmarks/portraits.py                      # all, about half an hour of one core; what is there stays
    python benchmarks/portraits.py best dpsgd           # these anew
    python benchmarks/portraits.py --missing            # none; only tell which are missing

A portrait and no measurement of strength: one small client (`portrait_settings.py`), few steps, one null. An attack is
shown under four defences; a defence by the adaptive attack, beside no defence; an attack on encodings by what is
published of eight photographs. docs/portraits.json has the numbers, docs/portraits/ the pictures; the pages of the
catalogue are made of both (`site_pages.py`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from leakgauge.audit.case import Case
from leakgauge.audit.encodings import EncodingPlan, prepare_encodings
from leakgauge.audit.execute import PreparedAudit
from leakgauge.audit.executors import InProcess
from leakgauge.audit.plan import AuditPlan, prepare
from leakgauge.audit.record import Record
from leakgauge.audit.result import AuditResult, Finding, Measurement, summarise_records
from leakgauge.audit.resumption import SNAPSHOT_EVERY
from leakgauge.audit.store import MemoryStore
from leakgauge.catalogue import ATTACKS, DEFENCES, ENCODING_ATTACKS
from leakgauge.config import build_attack
from leakgauge.data import Photos
from leakgauge.encodings import CrossDataset, InsideDataset, Mixup, Scheme, SeededKeys
from leakgauge.encodings.challenge import make_challenge
from leakgauge.errors import LeakGaugeError
from leakgauge.files import finite, write_tensors, write_text
from leakgauge.metrics import PSNR, CellsRight, LabelRecall, TokenRecall
from leakgauge.progress import unwatched
from leakgauge.randomness import seeded
from leakgauge.report.words import has_run, humanise
from leakgauge.risk.trials import PartKind, kind_of
from leakgauge.space import TableSpace, TokenSpace
from leakgauge.types import Batch
from leakgauge.version import VERSION
from portrait_drawings import LabelPanel, PictureColumn, draw_labels, draw_pictures
from portrait_settings import SPELLED, TRIED, Setting, defended, setting_of

ROOT = Path(__file__).resolve().parent.parent
NUMBERS, PICTURES = ROOT / "docs" / "portraits.json", ROOT / "docs" / "portraits"
SHOWN = ("none", "pruning:keep=0.1", "clipping:max_norm=1+gaussian_noise:std=0.01", "dpsgd:noise_multiplier=1")
"""The defences that an attack is shown under."""

AGAINST_DEFENCES = "adaptive"
"""The attack that a defence is shown by: it does what the defence's description says of an attacker who knows it."""

COLUMNS = 8
"""Of a table's row that are shown."""

Portrait = dict[str, Any]


def of_attack(name: str) -> Portrait:
    setting, tried = setting_of(name), SPELLED.get(name, name)
    prepared = _prepared(setting)
    searches = kind_of(build_attack(tried)) is PartKind.MATCHING
    cases = [case for case in prepared.cases if case.attack_name == tried and not (searches and _spared(case))]
    found = _portrait(_run(replace(prepared, cases=cases)), f"attack-{name}")
    return found | {"setting": setting.words, "steps": setting.plan()["steps"], "tried": tried}


def _spared(case: Case) -> bool:
    """A search takes time: it is shown under the first defence and the last, and has a null under the first."""
    return case.defence not in (SHOWN[0], SHOWN[-1]) or (case.null > 0 and case.defence != SHOWN[0])


@cache
def _prepared(setting: Setting) -> PreparedAudit:
    """Everybody whom this client meets, so that it is set up once."""
    names = tuple(SPELLED.get(name, name) for name in ATTACKS if setting_of(name) is setting)
    return prepare(AuditPlan(**setting.plan(), attacks=names, defences=SHOWN, nulls=1, distractors=99))


def of_defence(name: str) -> Portrait:
    setting, tried = defended(name), TRIED.get(name, name)
    with TemporaryDirectory() as folder, contextlib.chdir(folder):
        write_tensors(Path("public.safetensors"), {"images": _photographs(60, first=100, size=32).inputs})
        both = tuple(dict.fromkeys(("none", tried)))
        plan = AuditPlan(**setting.plan(), attacks=(AGAINST_DEFENCES,), defences=both, nulls=1, distractors=99)
        found = _portrait(_run(prepare(plan)), f"defence-{name}")
    return found | {"setting": setting.words, "steps": plan.steps, "attack": AGAINST_DEFENCES, "tried": tried}


def of_encoding_attack(name: str) -> Portrait:
    """Of eight photographs, each in twenty encodings, as somebody publishes them."""
    schemes: Mapping[str, Scheme] = {"public": Mixup(3, public=2), "aligned": CrossDataset(3, private=1)}
    scheme, size = schemes.get(name, InsideDataset(2)), 16
    public = _photographs(60, first=100, size=size).inputs if scheme.k > scheme.private_per_encoding else None
    with TemporaryDirectory() as folder, contextlib.chdir(folder):
        write_tensors(Path("others.safetensors"), {"images": _photographs(200, first=300, size=size).inputs})
        keys = SeededKeys(seeded(0, "portrait"))
        private = _photographs(8, first=0, size=size)
        make_challenge(Path("published"), Path("kept"), scheme, private, classes=7, copies=20, keys=keys, public=public)
        if public is not None:
            write_tensors(Path("public.safetensors"), {"images": public})
        plan = EncodingPlan(
            "published",
            attack=name,
            public=None if public is None else "public.safetensors",
            auxiliary="others.safetensors",
            secret="kept",  # noqa: S106, which is a folder
            nulls=1,
        )
        found = _portrait(_run(prepare_encodings(plan)), f"encoding-{name}")
    return found | {"setting": f"eight photographs in {20 * len(private)} encodings, {scheme!r}", "steps": None}


_RUN = MemoryStore()
"""Every defence stands beside no defence, which is attacked once."""


def _run(prepared: PreparedAudit) -> AuditResult:
    records = list(InProcess().run(prepared.cases, prepared.metrics, _RUN, unwatched, SNAPSHOT_EVERY))
    return summarise_records(records, prepared.description)


def _photographs(count: int, *, first: int, size: int) -> Batch:
    """Of all classes in turn."""
    photos = Photos(size=size)().train
    return photos[torch.randperm(len(photos), generator=seeded(0, "portraits"))[first : first + count]]


def _portrait(result: AuditResult, picture: str) -> Portrait:
    """What the rows say, by the metric of what is shown, and the picture of it."""
    rows = list(result.rows)
    first = rows[0].records[0]
    space = first.space
    if any(row.restored_labels and row.records[0].pictures.reconstructions is None for row in rows):
        shown, metric, drawn = "labels", LabelRecall.name, _draw_labels(rows, picture)
    elif isinstance(space, TokenSpace):
        shown, metric, drawn = "texts", TokenRecall.name, None
    elif isinstance(space, TableSpace):
        shown, metric, drawn = "rows", CellsRight.name, None
    else:
        shown, metric, drawn = "images", PSNR.name, _draw_images(rows, picture)
    found = {"shown": shown, "metric": metric, "picture": drawn, "rows": [_row(row, metric) for row in rows]}
    if isinstance(space, TableSpace):
        found["columns"] = [column.name for column in space.columns][:COLUMNS]
    return found | {"private": _words(first, first.pictures.originals)}


def _row(row: Finding, metric: str) -> dict[str, Any]:
    measured: Measurement | None = row.measured(metric)
    null = row.nulls[0] if row.nulls else None
    return {
        "defence": row.defence,
        "found": None if measured is None else finite(round(measured.attack.mean, 3)),
        "null": None if measured is None or not measured.null.count else finite(round(measured.null.mean, 3)),
        "guess": None if measured is None else finite(round(measured.guess, 3)),
        "reason": "" if has_run(row) else row.reason,
        "cpu_seconds": finite(round(row.cpu_seconds, 1)),
        "came_back": _words(row.records[0], row.records[0].pictures.reconstructions),
        "null_came_back": None if null is None else _words(row.records[0], null.pictures.reconstructions),
    }


def _words(record: Record, inputs: Tensor | None) -> list[str] | None:
    """The first text as one string, the first cells of the first row; None for images and where nothing is."""
    if inputs is None or not len(inputs) or not isinstance(record.space, TokenSpace | TableSpace):
        return None
    if not bool(inputs[0].isfinite().all()):
        return None
    if isinstance(record.space, TokenSpace):
        return [" ".join(record.space.render(inputs[0]).split())]
    return [text for _, text in record.space.render(inputs[0])][:COLUMNS]


def _draw_images(rows: list[Finding], name: str) -> str | None:
    first = rows[0].records[0].pictures
    if first.originals is None:
        return None
    columns = []
    for row in rows:
        seen = row.records[0].pictures
        null = row.nulls[0].pictures.reconstructions if row.nulls else None
        columns.append(
            PictureColumn(humanise(row.defence), seen.reconstructions, null, seen.encodings, bool(row.nulls))
        )
    return _kept(name, draw_pictures(first.originals, columns))


def _draw_labels(rows: list[Finding], name: str) -> str:
    panels = []
    for row in rows:
        record, null = row.records[0], row.nulls[0] if row.nulls else None
        restored = None if null is None else null.restored_counts
        panels.append(LabelPanel(humanise(row.defence), record.true_counts or (), record.restored_counts, restored))
    return _kept(name, draw_labels(panels))


def _kept(name: str, drawing: str) -> str:
    PICTURES.mkdir(exist_ok=True)
    write_text(PICTURES / f"{name}.svg", drawing)
    return f"{name}.svg"


KINDS = {"defences": DEFENCES, "attacks": ATTACKS, "encoding_attacks": ENCODING_ATTACKS}
MAKERS = {"attacks": of_attack, "encoding_attacks": of_encoding_attack, "defences": of_defence}


def missing(kept: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The parts of the catalogue without a portrait."""
    return [(kind, name) for kind, shelf in KINDS.items() for name in shelf if name not in kept.get(kind, {})]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--missing", action="store_true", help="only tell which there are none of")
    options = parser.parse_args()
    torch.set_num_threads(1)
    kept = json.loads(NUMBERS.read_text("utf-8")) if NUMBERS.is_file() else {}
    every = [(kind, name) for kind, shelf in KINDS.items() for name in shelf]
    wanted = [one for one in every if one[1] in options.names] if options.names else missing(kept)
    if options.missing:
        print("\n".join(name for _, name in wanted))
        return 0
    for kind, name in wanted:
        try:
            made = MAKERS[kind](name)
        except LeakGaugeError as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            continue
        kept.setdefault(kind, {})[name] = made
        told = [(row["defence"], row["found"], row["null"], row["cpu_seconds"], row["reason"]) for row in made["rows"]]
        print(name, made["setting"], made["metric"], told, flush=True)
        facts = {"command": "python benchmarks/portraits.py", "version": VERSION, "seed": 0}
        ordered = {kind: {one: kept[kind][one] for one in KINDS[kind] if one in kept.get(kind, {})} for kind in KINDS}
        write_text(NUMBERS, json.dumps(facts | ordered, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
