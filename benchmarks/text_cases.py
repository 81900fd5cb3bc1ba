"""What the parts of text.py share: who is private, how a batch is attacked, and what its row says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from leakgauge.attacks.base import Attack
from leakgauge.attacks.text import TokenGuess, TokenSpans
from leakgauge.config import build_client, build_defence
from leakgauge.data import Dataset
from leakgauge.files import write_text
from leakgauge.metrics import ExactText, Rouge1, Rouge2, RougeL, TokenRecall, align
from leakgauge.models.transformer import TextModel
from leakgauge.protocol import THREAT_MODELS, Federation, learner_and_state, simulate_round
from leakgauge.protocol.losses import LossFunction, NextToken
from leakgauge.randomness import seeded
from leakgauge.space import TokenSpace
from leakgauge.training.models import model_for
from leakgauge.training.train import Training, train
from leakgauge.types import Batch, Reconstruction

Row = dict[str, Any]
STEPS, RATE = 60, 0.05
METRICS = (TokenRecall(), ExactText(), Rouge1(), Rouge2(), RougeL())


def public(data: Dataset) -> Batch:
    """Half of the training split: what models were trained on before, and all that an attacker has read."""
    return data.train[torch.arange(0, len(data.train), 2)]


def private(data: Dataset) -> Batch:
    """The other half, which no model of these measurements was trained on; the test split is for perplexity."""
    return data.train[torch.arange(1, len(data.train), 2)]


def trained(data: Dataset, factory: TextModel, steps: int, loss: LossFunction) -> nn.Module:
    model = model_for(data, factory, seed=0)
    train(model, public(data), Training(steps, 32, RATE), loss, generator=seeded(0, "train"))
    return model.eval()


def attacked(
    model: nn.Module, truth: Batch, space: TokenSpace, other: Batch, **options: Any
) -> tuple[Row, Reconstruction]:
    """The scores of what came back, of the same against other texts, and of a guess from public sentences."""
    loss = options.get("loss", NextToken())
    learner, state = learner_and_state(model, loss)
    federation = Federation(learner, state, build_client(options.get("client", "fedsgd")), space)
    defence = build_defence(options.get("defence", "none"))
    known = THREAT_MODELS["honest_but_curious"]
    seen = simulate_round(federation, truth, threat_model=known, defence=defence, generator=seeded(0, "round"))
    attack: Attack = options.get("attack", TokenSpans())
    started = time.process_time()
    found = attack(seen, generator=seeded(0, "attack"))
    spent = time.process_time() - started
    row: Row = {"batch_size": len(truth), "tokens": int(space.lengths(truth.inputs).sum()), "cpu_seconds": spent}
    compared = [("", found, truth), ("null_", found, other)]
    if sentences := options.get("public"):
        with TemporaryDirectory() as folder:
            path = public_file(Path(folder), sentences)
            compared.append(("guess_", TokenGuess(str(path))(seen, generator=seeded(0)), truth))
    for prefix, one, against in compared:
        beside = align(one, against, space=space)
        # A text of which nothing came back has none of its tokens found.
        row |= {f"{prefix}{metric.name}": float(metric(beside).nan_to_num(0.0).mean()) for metric in METRICS}
    row["certified"] = found.certificate is not None
    row["returned"] = 0 if found.inputs is None else len(found.inputs)
    return row, found


def public_file(folder: Path, sentences: list[str]) -> Path:
    path = folder / "public.txt"
    write_text(path, "\n".join(sentences) + "\n")
    return path


def rendered(batch: Batch, space: TokenSpace) -> list[str]:
    return [space.render(text) for text in batch.inputs]


def batches(data: Dataset, size: int, count: int) -> Iterator[tuple[Batch, Batch]]:
    """Private texts, and others of the same half."""
    own = private(data)
    order = torch.randperm(len(own), generator=seeded(0, "victims", size))
    for number in range(count):
        rows = order[(2 * number * size + torch.arange(2 * size)) % len(order)]
        yield own[rows[:size]], own[rows[size:]]


def spoken(truth: Batch, space: TokenSpace) -> set[int]:
    """The different tokens of a batch that something follows, which is what layers span."""
    ends = space.lengths(truth.inputs).tolist()
    return {one for text, end in zip(truth.inputs.tolist(), ends) for one in text[: end - 1]}
