"""The parts of text.py that ask which defence stops an attack on texts, and what it costs: on a corpus that is large
enough for a perplexity to mean something."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from leakgauge.attacks.base import Attack, SteppedAttack
from leakgauge.attacks.matching.parametrisations import SoftTokens
from leakgauge.attacks.recipes import lamp, lamp_l2, tag
from leakgauge.attacks.text import LanguageMoves, TextMatching, TokenSpans
from leakgauge.bounds import bound_of
from leakgauge.config import build_client, build_defence
from leakgauge.data import Dataset
from leakgauge.models import GPT
from leakgauge.protocol import learner_and_state
from leakgauge.protocol.losses import NextToken
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.randomness import seeded
from leakgauge.training.defended import DefendedTraining
from leakgauge.training.models import model_for
from leakgauge.training.train import Training, train
from leakgauge.types import Batch
from text_cases import Cell, Row, adapted, batches, observed, private, public, public_file, rendered, scored
from text_verses import verses

SMALL = GPT(width=64)
READ, PACE = Training(125, 32, 0.05), Training(63, 32, 0.05)
"""Two passes over the public half, which made the model; and one over the private half, which a defence has a price
in."""

MATCHING = 100
"""Steps of the attacks that match gradients."""

CROWD = 99
"""Other texts that a bound speaks of."""

VICTIMS = SEEDS = 3

DEFENCES = (
    "none",
    "gaussian_noise:std=0.001",
    "gaussian_noise:std=0.01",
    "pruning:keep=0.1",
    "dpsgd:noise_multiplier=0.1",
    "dpsgd:noise_multiplier=1",
)


@dataclass(frozen=True)
class Setup:
    """A defence as a client meets it: the model that it is sent, what is done to its update, and its batch; and the
    model that a training under it starts from, if that is another."""

    name: str
    change: Callable[[nn.Module], nn.Module] = deepcopy
    first: Callable[[nn.Module], nn.Module] | None = None
    words: str = "none"
    size: int = 1


def _frozen(model: nn.Module) -> nn.Module:
    model = deepcopy(model)
    for name, tensor in model.named_parameters():
        tensor.requires_grad_("tokens" not in name)
    return model


def _lora(rank: int, first: bool, model: nn.Module) -> nn.Module:
    return adapted(deepcopy(model), rank, first)


SETUPS = (
    *(Setup(words, words=words) for words in DEFENCES),
    Setup("frozen embeddings", _frozen),
    # Adapters start from nothing and are attacked in a later round.
    *(Setup(f"LoRA, rank {rank}", partial(_lora, rank, False), partial(_lora, rank, True)) for rank in (4, 16)),
    Setup("batch of 8", size=8),
)


@cache
def sent(corpus: Path) -> tuple[Dataset, nn.Module]:
    """The corpus, and the model that clients are sent: one that has read the public half twice."""
    data = verses(corpus)
    model = model_for(data, SMALL, seed=0)
    train(model, public(data), READ, NextToken(), generator=seeded(0, "train"))
    return data, model.eval()


def tuning(data: Dataset, corpus: Path) -> Iterator[Cell]:
    """How TAG and LAMP start, and the weight of LAMP's prior, on public texts; the prior is of the others of them."""
    del data
    tried: dict[str, Callable[[str], Attack]] = {
        f"tag, spread {spread:g}": partial(lambda spread, _: _from(tag(steps=MATCHING), spread), spread)
        for spread in (0.1, 3.0)
    }
    for kind, make, spread, weight in (
        ("lamp", lamp, 0.1, 0.01),
        ("lamp", lamp, 3.0, 0.0),
        ("lamp", lamp, 3.0, 0.01),
        ("lamp", lamp, 3.0, 0.1),
        ("lamp_l2", lamp_l2, 3.0, 0.01),
    ):
        tried[f"{kind}, spread {spread:g}, prior {weight:g}"] = partial(_lamp_from, make, spread, weight)
    for case, attack in tried.items():
        for number in range(VICTIMS):
            yield Cell(case, number, partial(_tuned, corpus, case, attack, number))


def _from(attack: TextMatching, spread: float) -> TextMatching:
    return replace(attack, attack=replace(attack.attack, parametrisation=SoftTokens(spread)))


def _lamp_from(make: Callable[..., LanguageMoves], spread: float, weight: float, known: str) -> LanguageMoves:
    moves = make(public=known, weight=weight, steps=MATCHING)
    return replace(moves, attack=_from(moves.attack, spread))


_TUNED: dict[str, list[Row]] = {}


def _tuned(corpus: Path, case: str, attack: Callable[[str], Attack], number: int) -> Row:
    if case not in _TUNED:
        data, model = sent(corpus)
        texts = public(data)
        heard = rendered(texts[torch.arange(2 * VICTIMS, len(texts))], data.space)
        victims = [(texts[torch.tensor([at])], texts[torch.tensor([VICTIMS + at])]) for at in range(VICTIMS)]
        seen = observed(model, [truth for truth, _ in victims], data.space)
        _TUNED[case] = answers(attack, seen, victims, heard)
    return _TUNED[case][number]


def answers(
    attack: Callable[[str], Attack],
    seen: list[UpdateObservation],
    victims: list[tuple[Batch, Batch]],
    heard: list[str],
) -> list[Row]:
    """The rows of several victims with the same model: one search serves them all, and its time is shared out."""
    with TemporaryDirectory() as folder:
        mine = attack(str(public_file(Path(folder), heard)))
        started = time.process_time()
        if isinstance(mine, SteppedAttack):
            found = mine.search(seen, generator=seeded(0, "attack")).run()
        else:
            found = [mine(one, generator=seeded(0, "attack")) for one in seen]
        spent = (time.process_time() - started) / len(seen)
    each = zip(seen, found, victims, strict=True)
    return [{**scored(one, back, victim, heard), "cpu_seconds": spent} for one, back, victim in each]


ATTACKS: dict[str, Callable[[str], Attack]] = {
    "token_spans": lambda _: TokenSpans(),
    "tag": lambda _: tag(steps=MATCHING),
    "lamp": lambda known: lamp(public=known, steps=MATCHING),
}


def defences(data: Dataset, corpus: Path) -> Iterator[Cell]:
    """Each against the exact attack and those that match gradients, LAMP with a prior of the public half."""
    del data
    for kind in ATTACKS:
        for setup in SETUPS:
            for number in range(VICTIMS):
                yield Cell(f"{setup.name}: {kind}", number, partial(_defended, corpus, setup, kind, number))


def _defended(corpus: Path, setup: Setup, kind: str, number: int) -> Row:
    bound = bound_of(build_defence(setup.words)(build_client("fedsgd")), crowd=CROWD, guesses=setup.size)
    return {"defence": setup.name, "attack": kind, "bound": bound.at_most, **_at_once(corpus, setup, kind)[number]}


@cache
def _at_once(corpus: Path, setup: Setup, kind: str) -> list[Row]:
    """The rows of all victims of a defence."""
    data, model = sent(corpus)
    mine, victims = setup.change(model), list(batches(data, setup.size, VICTIMS))
    seen = observed(mine, [truth for truth, _ in victims], data.space, defence=setup.words)
    return answers(ATTACKS[kind], seen, victims, rendered(public(data), data.space))


def trainings(data: Dataset, corpus: Path) -> Iterator[Cell]:
    """What each defence costs: perplexity of other sentences after a training on the private half, every update
    through the defence."""
    del data
    yield Cell("before", 0, partial(_before, corpus))
    for setup in SETUPS:
        for seed in range(SEEDS):
            if setup.size == 1:
                yield Cell(setup.name, seed, partial(_trained, corpus, setup, seed))


def _before(corpus: Path) -> Row:
    data, model = sent(corpus)
    learner, state = learner_and_state(model, NextToken())
    counts = torch.bincount(public(data).inputs.flatten(), minlength=len(data.space.vocabulary)).double() + 1
    counts[data.space.pad] = 0
    likely = (counts / counts.sum()).log()
    said = data.test.inputs[:, 1:]
    alone = float(-likely[said[said != data.space.pad]].mean())
    cost = {"perplexity": perplexity(learner, state, data.test), "by_frequency": math.exp(alone)}
    return {"defence": "before", **cost, "training_steps": 0, "cpu_seconds": 0.0}


def _trained(corpus: Path, setup: Setup, seed: int) -> Row:
    data, model = sent(corpus)
    learner, state = learner_and_state((setup.first or setup.change)(model), NextToken(), mode="train")
    started = time.process_time()
    training = DefendedTraining(learner, state, private(data), build_defence(setup.words), PACE, seed=seed)
    while training.done < PACE.steps and not training.diverged:
        training.step()
    cost = perplexity(learner, training.state, data.test)
    spent = time.process_time() - started
    return {"defence": setup.name, "perplexity": cost, "training_steps": training.done, "cpu_seconds": spent}


def perplexity(learner: Any, state: Any, held: Batch) -> float | None:
    """Of sentences; None where it is not finite."""
    with torch.no_grad():
        parts = [
            learner.objective(state.params, state.buffers, held[rows]) for rows in torch.arange(len(held)).split(250)
        ]
    mean = float(torch.stack(parts).mean())
    return math.exp(mean) if math.isfinite(mean) and mean < 50 else None
