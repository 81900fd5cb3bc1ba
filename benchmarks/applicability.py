"""What each attack and defence of the catalogue assumes, in its own words: asked on models that differ in what counts.

    python benchmarks/applicability.py               # about two CPU minutes; writes docs/applicability.json
    python benchmarks/applicability.py sentence row  # those whose words hold one of these; the others stay

Nothing is attacked: `leakgauge.check` tries every part on an update of noise and keeps why it refused
(`site_pages.py` makes the pages of the catalogue of it).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from architectures import vit_wide
from leakgauge.catalogue import MODELS
from leakgauge.config import build, build_dataset, build_loss
from leakgauge.files import write_text
from leakgauge.risk import check
from leakgauge.training.models import model_for
from leakgauge.version import VERSION

ANSWERS = Path(__file__).resolve().parent.parent / "docs" / "applicability.json"
SECONDS = 60.0

VIT = "a vision transformer"
"""Of this repository's architectures: there is none in the catalogue."""

ASKED: Mapping[str, tuple[str, str, int]] = {
    "one image, a small convolutional network": ("digits", "compact", 1),
    "one image, a wide convolutional network": ("digits", "compact:width=32,activation=relu", 1),
    "one image, a fully connected network": ("digits", "mlp:hidden=(64,)", 1),
    "four images, a fully connected network": ("digits", "mlp:hidden=(256,)", 4),
    "one image, a vision transformer": ("photos", VIT, 1),
    "one row of a table, a fully connected network": ("breast_cancer", "mlp", 1),
    "one sentence, a small decoder": ("text", "gpt:width=64,layers=1", 1),
}
"""Data, model and batch size; small ones, as what a part asks of them does not depend on their size."""


def asked(dataset: str, model: str, size: int) -> dict[str, dict[str, Any]]:
    """Whether each part applies, and why or why not; None where that was not tried."""
    data = build_dataset(dataset, None)
    module = vit_wide() if model == VIT else model_for(data, build(MODELS, model, kind="model"), seed=0)
    found = check(module, build_loss("cross_entropy", model), space=data.space, batch_size=size, seconds=SECONDS)
    return {one.name: {"applies": one.applies, "why": one.why} for one in (*found.attacks, *found.defences)}


def main() -> int:
    torch.set_num_threads(1)
    kept = json.loads(ANSWERS.read_text("utf-8"))["settings"] if ANSWERS.is_file() else {}
    named = [words for words in ASKED if any(one in words for one in sys.argv[1:])]
    found = {words: kept[words] for words in ASKED if named and words in kept and words not in named}
    for words, (dataset, model, size) in ASKED.items():
        if words in found:
            continue
        found[words] = asked(dataset, model, size)
        print(words, sum(bool(one["applies"]) for one in found[words].values()), "apply", flush=True)
    ordered = {words: found[words] for words in ASKED if words in found}
    facts = {"command": "python benchmarks/applicability.py", "version": VERSION, "settings": ordered}
    write_text(ANSWERS, json.dumps(facts, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
