"""What the parts of text.py share: who is private, how a batch is attacked, and what its row says."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

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
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.randomness import seeded
from leakgauge.space import TokenSpace
from leakgauge.training.models import model_for
from leakgauge.training.train import Training, train
from leakgauge.types import Batch, ParamTree, Reconstruction, Update

Row = dict[str, Any]
STEPS, RATE = 60, 0.05
"""Of the models that are called trained."""

METRICS = (TokenRecall(), ExactText(), Rouge1(), Rouge2(), RougeL())


class Cell(NamedTuple):
    """One measurement: what it is of, which of its victims, and how its row is made."""

    case: str
    victim: int
    measure: Callable[[], Row]


def public(data: Dataset) -> Batch:
    """Half of the training split: what models were trained on before, and all that an attacker has read."""
    return data.train[torch.arange(0, len(data.train), 2)]


def private(data: Dataset) -> Batch:
    """The other half, which no model of these measurements was trained on; the test split is for perplexity."""
    return data.train[torch.arange(1, len(data.train), 2)]


_MADE: dict[tuple[str, TextModel, int], nn.Module] = {}


def trained(data: Dataset, factory: TextModel, steps: int, loss: LossFunction) -> nn.Module:
    """On the public half; made once, when it is first asked for."""
    key = (data.name, factory, steps)
    if key not in _MADE:
        model = model_for(data, factory, seed=0)
        train(model, public(data), Training(steps, 32, RATE), loss, generator=seeded(0, "train"))
        _MADE[key] = model.eval()
    return _MADE[key]


def cells(
    data: Dataset,
    case: str,
    sizes: tuple[int, int],
    model: Callable[[], nn.Module],
    also: Callable[[Batch, Reconstruction], Row] | None = None,
    **options: Any,
) -> Iterator[Cell]:
    """An attack on batches of private texts: ``sizes`` are that of a batch and how many there are."""
    heard = rendered(public(data), data.space)
    for number, victim in enumerate(batches(data, *sizes)):

        def measure(victim: tuple[Batch, Batch] = victim) -> Row:
            row, found = attacked(model(), victim, data.space, heard, **options)
            return {**(also(victim[0], found) if also else {}), **row}

        yield Cell(case, number, measure)


def attacked(
    model: nn.Module, victim: tuple[Batch, Batch], space: TokenSpace, heard: list[str], **options: Any
) -> tuple[Row, Reconstruction]:
    """What came back of the first of two batches, and its scores."""
    (seen,) = observed(model, [victim[0]], space, **options)
    if options.get("noise"):
        seen = replace(seen, update=Update(_noise_like(seen.update.params)))
    attack: Attack = options.get("attack", TokenSpans())
    started = time.process_time()
    found = attack(seen, generator=seeded(0, "attack"))
    return {**scored(seen, found, victim, heard), "cpu_seconds": time.process_time() - started}, found


def observed(model: nn.Module, truths: Sequence[Batch], space: TokenSpace, **options: Any) -> list[UpdateObservation]:
    """What a server sees of clients with these batches."""
    learner, state = learner_and_state(model, options.get("loss", NextToken()))
    federation = Federation(learner, state, build_client(options.get("client", "fedsgd")), space)
    known, defence = THREAT_MODELS["honest_but_curious"], build_defence(options.get("defence", "none"))
    return [
        simulate_round(federation, truth, threat_model=known, defence=defence, generator=seeded(number, "round"))
        for number, truth in enumerate(truths)
    ]


def scored(seen: UpdateObservation, found: Reconstruction, victim: tuple[Batch, Batch], heard: list[str]) -> Row:
    """The scores of what came back, of the same against the other batch, and of a guess by who has ``heard`` public
    sentences."""
    truth, other = victim
    space = seen.space
    assert isinstance(space, TokenSpace)
    with TemporaryDirectory() as folder:
        guess = TokenGuess(str(public_file(Path(folder), heard)))(seen, generator=seeded(0))
    row: Row = {"batch_size": len(truth), "tokens": int(space.lengths(truth.inputs).sum())}
    for prefix, one, against in (("", found, truth), ("null_", found, other), ("guess_", guess, truth)):
        beside = align(one, against, space=space)
        # A text of which nothing came back has none of its tokens found.
        row |= {f"{prefix}{metric.name}": float(metric(beside).nan_to_num(0.0).mean()) for metric in METRICS}
    row["certified"] = found.certificate is not None
    row["returned"] = 0 if found.inputs is None else len(found.inputs)
    return row


def _noise_like(update: ParamTree) -> ParamTree:
    generator = seeded(0, "noise")
    drawn = {name: torch.randn(one.shape, generator=generator) for name, one in update.items()}
    return {name: one * (update[name].norm() / one.norm()) for name, one in drawn.items()}


def adapted(base: nn.Module, rank: int, first: bool) -> nn.Module:
    """A model with LoRA on queries, keys and values, in its first round or as if it had seen others."""
    from peft import LoraConfig, get_peft_model

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rank)
        settings = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=["query", "key", "value"])
        model: nn.Module = get_peft_model(base, settings)
        for name, tensor in model.named_parameters():
            if "lora_B" in name and not first:
                nn.init.normal_(tensor, std=0.02)
    return model


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
