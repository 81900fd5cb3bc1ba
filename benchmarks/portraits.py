"""What each attack of the catalogue recovers of one embedded input, and what four defences leave of it.

    python benchmarks/portraits.py                  # all attacks, about ten CPU minutes; what is there stays
    python benchmarks/portraits.py best span_matching   # these anew

Each attack meets the first of the settings below that it can run on, with few steps: a portrait, not a measurement of
its strength. docs/portraits.json has the numbers with their nulls and why other settings were refused; the pages of the
catalogue are made of both (`site_pages.py`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from leakgauge.audit.execute import execute
from leakgauge.audit.plan import AuditPlan, prepare
from leakgauge.audit.result import AuditResult, Finding
from leakgauge.catalogue import ATTACKS
from leakgauge.errors import LeakGaugeError
from leakgauge.files import finite, write_text
from leakgauge.metrics import PSNR
from leakgauge.report.images import strip, write_strips
from leakgauge.report.words import has_run
from leakgauge.space import ImageSpace, TokenSpace

ROOT = Path(__file__).resolve().parent.parent
NUMBERS, PICTURES = ROOT / "docs" / "portraits.json", ROOT / "docs" / "portraits"
DEFENCES = ("none", "pruning:keep=0.1", "clipping:max_norm=1+gaussian_noise:std=0.01", "dpsgd:noise_multiplier=1")
STEPS, ENLARGED = 150, 2

SETTINGS: Mapping[str, dict[str, Any]] = {
    "one photograph, a small convolutional network": {"dataset": "photos", "model": "compact", "batch_size": 1},
    "one photograph, a wide convolutional network": {
        "dataset": "photos",
        "model": "compact:width=128,activation=relu",
        "batch_size": 1,
    },
    "one photograph, a fully connected network": {"dataset": "photos", "model": "mlp:hidden=(64,)", "batch_size": 1},
    "four photographs, a fully connected network": {"dataset": "photos", "model": "mlp:hidden=(256,)", "batch_size": 4},
    "one photograph, two local steps of FedAvg": {
        "dataset": "photos",
        "model": "compact",
        "batch_size": 2,
        "local_update": "fedavg:epochs=2,batch_size=1,learning_rate=0.01",
    },
    "one row of a table, a fully connected network": {"dataset": "breast_cancer", "model": "mlp", "batch_size": 1},
    "one sentence, a small decoder": {"dataset": "text", "model": "gpt", "batch_size": 1},
}


def portrait(name: str) -> dict[str, Any]:
    """The numbers of an attack in the first setting that it can run on, and why not in others; and its picture."""
    refused: dict[str, str] = {}
    for words, setting in SETTINGS.items():
        plan = AuditPlan(**setting, attacks=(name,), defences=DEFENCES, steps=STEPS, nulls=1, distractors=99)
        try:
            result = execute(prepare(plan), None)
        except LeakGaugeError as error:
            refused[words] = str(error)
            continue
        ran = [row for row in result.rows if has_run(row)]
        if ran:
            space = ran[0].records[0].space
            picture = isinstance(space, ImageSpace | None) and _draw(result, PICTURES / f"{name}.png")
            return {
                "setting": words,
                "picture": picture,
                "rows": [_row(row) for row in result.rows],
                "refused": refused,
            }
        refused[words] = result.rows[0].reason
    return {"setting": None, "picture": False, "rows": [], "refused": refused}


def _row(row: Finding) -> dict[str, Any]:
    psnr = row.measured(PSNR.name)
    found = {
        "defence": row.defence,
        "verdict": row.verdict.value,
        "leaked": row.leaked,
        "of": len(row.judgement.leaked),
    }
    found |= {"reason": row.reason, "cpu_seconds": finite(round(row.cpu_seconds, 1)), "text": _text(row)}
    found["psnr"] = None if psnr is None else round(psnr.attack.mean, 1)
    found["null"] = None if psnr is None or not psnr.null.count else round(psnr.null.mean, 1)
    labels = None if row.labels is None else row.labels.verdict.value
    counts = [[record.true_counts, record.restored_counts] for record in row.records if record.restored_counts]
    return found | {"labels": labels, "counts": counts if row.restored_labels else []}


def _text(row: Finding) -> list[str]:
    record = row.records[0]
    if not isinstance(record.space, TokenSpace) or record.pictures.reconstructions is None:
        return []
    originals = () if record.pictures.originals is None else record.pictures.originals[:1]
    texts = (*originals, *record.pictures.reconstructions[:1])
    return ["nothing" if bool(one.isnan().any()) else record.space.render(one).strip() for one in texts]


def _draw(result: AuditResult, path: Path) -> bool:
    """The private images, and below what came back under each defence, side by side."""
    shown = [row for row in result.rows if has_run(row) and row.records[0].pictures.reconstructions is not None]
    if not shown or shown[0].records[0].pictures.originals is None:
        return False
    lines = [shown[0].records[0].pictures.originals, *(row.records[0].pictures.reconstructions for row in shown)]
    columns = [torch.cat(list(line[:4].nan_to_num(1.0).clamp(0, 1)), dim=1) for line in lines if line is not None]
    path.parent.mkdir(exist_ok=True)
    large = [one.repeat_interleave(ENLARGED, dim=1).repeat_interleave(ENLARGED, dim=2) for one in columns]
    return write_strips([strip(large)], path) is not None


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    torch.set_num_threads(1)
    kept = json.loads(NUMBERS.read_text("utf-8"))["attacks"] if NUMBERS.is_file() else {}
    for name in options.names or [name for name in ATTACKS if name not in kept]:
        kept[name] = portrait(name)
        found = [(row["defence"], row["leaked"], row["psnr"]) for row in kept[name]["rows"]]
        print(name, kept[name]["setting"], found, flush=True)
        facts = {"command": "python benchmarks/portraits.py", "steps": STEPS, "seed": 0, "defences": DEFENCES}
        ordered = {name: kept[name] for name in ATTACKS if name in kept}
        write_text(NUMBERS, json.dumps({**facts, "attacks": ordered}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
