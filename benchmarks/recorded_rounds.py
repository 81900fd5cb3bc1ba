"""What becomes of rounds as people record them: each situation through ``leakgauge invert --truth``, end to end.

    python benchmarks/recorded_rounds.py --out FILE              # every situation, kept as it is done
    python benchmarks/recorded_rounds.py --only Adam --steps 100

A situation passes if it is refused in a sentence that says so, attacked correctly, or inconclusive with the right cause
named by ``explain``. One that is acquitted, or accused though it was misread and nothing was found, fails.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from leakgauge import write_round
from leakgauge.cli import main
from leakgauge.errors import LeakGaugeError
from leakgauge.files import write_text
from leakgauge.fingerprint import answering_code
from leakgauge.version import VERSION
from recorded_situations import SITUATIONS, Situation


def run(situation: Situation, steps: int) -> dict[str, Any]:
    """What the command line makes of one situation."""
    began = time.process_time()
    try:
        made = situation.make()
    except LeakGaugeError as error:
        return judge(situation, {"refused": str(error)}, began)
    home = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            write_round(Path("round.safetensors"), made.recorded)
            np.savez("truth.npz", images=made.truth.inputs.numpy(), labels=made.truth.labels.numpy())
            words = ("--model", f"recorded_situations:{made.factory}", "--truth", "truth.npz", "--steps", str(steps))
            said, refusal = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(refusal), contextlib.suppress(SystemExit):
                main(("invert", "round.safetensors", *words, "--json"))
        finally:
            os.chdir(home)
    if not said.getvalue():
        return judge(situation, {"refused": " ".join(refusal.getvalue().split())}, began)
    answer = json.loads(said.getvalue())
    (row,) = answer["rows"]
    kept = {name: answer.get(name) for name in ("explained", "residual", "truth_residual", "control_residual")}
    found = {
        "verdict": row["verdict"],
        "reasons": row["reasons"],
        "psnr": row["metrics"]["psnr"]["mean"],
        "explanation": answer.get("explanation", []),
        "options": answer.get("options", []),
    }
    return judge(situation, kept | found, began)


def judge(situation: Situation, found: dict[str, Any], began: float) -> dict[str, Any]:
    return {
        "situation": situation.name,
        "expected": situation.refused or situation.cause or "as declared",
        "passes": passes(situation, found),
        "cpu_seconds": round(time.process_time() - began, 1),
        **found,
    }


def passes(situation: Situation, found: dict[str, Any]) -> bool:
    """Whether the answer is right: neither acquitted nor accused wrongly, and the cause by its name."""
    if situation.refused is not None or "refused" in found:
        return situation.refused is not None and situation.refused in found.get("refused", "")
    if situation.cause is None:
        return found["explained"] is True and found["verdict"] in ("leaks", "leaks partly", "inconclusive")
    named = situation.cause in " ".join(found["explanation"])
    found_it = found["verdict"] == "leaks" and situation.leaks
    return found["explained"] is False and named and (found_it or found["verdict"] == "inconclusive")


def tell(steps: int, only: str, out: Path | None) -> None:
    """All situations that the file does not hold yet, kept one by one."""
    kept: dict[str, dict[str, Any]] = {}
    if out is not None and out.is_file():
        kept = {row["situation"]: row for row in json.loads(out.read_text("utf-8"))["rows"]}
    for situation in SITUATIONS:
        if only not in situation.name or situation.name in kept:
            continue
        row = kept[situation.name] = run(situation, steps)
        answer = row.get("refused") or " ".join([row["verdict"], *row["reasons"], *row["explanation"][:1]])
        print(f"{'ok  ' if row['passes'] else 'FAIL'} {situation.name}: {answer}", flush=True)
        if out is not None:
            rows = [kept[one.name] for one in SITUATIONS if one.name in kept]
            write_text(out, json.dumps(result(rows, steps), indent=1) + "\n")


def result(rows: list[dict[str, Any]], steps: int) -> dict[str, Any]:
    """The file that is kept."""
    command = f"python benchmarks/recorded_rounds.py --steps {steps}"
    return {
        "title": "Rounds as people record them: what is told of each",
        "command": f"{command} --out benchmarks/results/recorded-rounds.json",
        "version": VERSION,
        "fingerprint": answering_code(),
        "rows": rows,
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--only", default="", help="situations whose name holds this")
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    tell(given.steps, given.only, given.out)
