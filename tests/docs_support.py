"""What stands for a reader's own things in the code of the pages: a small model, digits, and audits of one step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import leakgauge
from leakgauge.data import Digits
from leakgauge.types import Batch

DIGITS = Digits()(None)


def small_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Sigmoid(), nn.Linear(16, 10))


@dataclass(frozen=True)
class Block:
    """A piece of code on a page, and on which line it begins."""

    page: Path
    line: int
    language: str
    code: str


def blocks(page: Path, language: str) -> list[Block]:
    """The fenced blocks of a page in a language."""
    found: list[Block] = []
    lines = page.read_text("utf-8").splitlines()
    start = None
    for number, line in enumerate(lines):
        if start is None and line.strip() == f"```{language}":
            start = number + 1
        elif start is not None and line.strip() == "```":
            found.append(Block(page, start + 1, language, "\n".join(lines[start:number])))
            start = None
    return found


def commands(page: Path) -> list[str]:
    """What a page tells to type: the indented lines that begin with our name, and go on after a backslash."""
    text = page.read_text("utf-8").replace("\\\n", " ")
    lines = (line.strip() for line in text.splitlines() if line.startswith("    "))
    return [line.removeprefix("$ ").partition("  #")[0].strip() for line in lines if line.startswith("leakgauge ")]


def surroundings(monkeypatch: pytest.MonkeyPatch, folder: Path) -> dict[str, Any]:
    """Names that pages use for what is the reader's; an audit is the real one, cut to a step of each attack."""
    monkeypatch.chdir(folder)
    real, short = leakgauge.audit, {"budget": leakgauge.Budget(steps=1), "nulls": 1, "distractors": 20}
    monkeypatch.setattr(leakgauge, "audit", lambda *args, **known: real(*args, **known | short))
    private = DIGITS.test[slice(0, 1)]
    before = {name: one.clone() for name, one in small_model().state_dict().items()}
    after = {name: one - 0.1 * torch.randn_like(one) for name, one in before.items()}
    return {
        "Path": Path,
        "leakgauge": leakgauge,
        "torch": torch,
        "model": small_model(),
        "my_model": small_model,
        "build_model": small_model,
        "loss": nn.functional.cross_entropy,
        "images": private.inputs,
        "labels": private.labels,
        "private_images": private.inputs,
        "private_labels": private.labels,
        "private": Batch(DIGITS.train.inputs[:16], DIGITS.train.labels[:16]),
        "others": DIGITS.train.inputs[:40],
        "ours": "clipping:max_norm=1+gaussian_noise:std=0.1",
        "before": before,
        "after": after,
    }
