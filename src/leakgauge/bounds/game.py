"""The game that a bound is about, played: one of m + 1 candidates takes part, and the attacker says which."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from leakgauge import params as tree
from leakgauge.attacks.prior_aware import Contributions, PriorAware
from leakgauge.bounds.bound import Bound, bound_of
from leakgauge.errors import InvalidCase
from leakgauge.metrics import Identification, Summary, summarise
from leakgauge.progress import Progress, Tick, silent
from leakgauge.protocol.facts import Fact
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.local_update import FedSGD
from leakgauge.protocol.threat_model import THREAT_MODELS
from leakgauge.protocol.wrappers import Private
from leakgauge.types import Batch, ModelState

_AT_ONCE = 1 << 22
"""Numbers that a simulation draws at a time."""


class Played(NamedTuple):
    """How often the attacker was right, beside the most it could have been; ``ledger`` is what it was told."""

    identified: Summary
    bound: Bound
    ledger: tuple[Fact, ...] = ()


@dataclass(frozen=True)
class Game:
    """DP-SGD on ``rest`` and one secret of ``candidates``, for ``rounds`` rounds in each of which the secret takes part
    with probability ``sampling``; the sum is divided by the size of the whole batch, whoever took part.

    With a ``learning_rate`` the server's model moves by every noisy update, so that each round is of another model.
    """

    learner: Learner
    state: ModelState
    client: Private
    candidates: Batch
    rest: Batch | None = None
    rounds: int = 1
    sampling: float = 1.0
    learning_rate: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.client, Private) or not isinstance(self.client.inner, FedSGD):
            raise InvalidCase("The game is played with DP-SGD of one gradient a round; wrap FedSGD in DPSGD.")

    @property
    def attacker(self) -> PriorAware:
        return PriorAware(self.candidates, self.rest, self.sampling)

    def play(self, times: int, *, generator: Generator, progress: Progress = silent) -> Played:
        """So many games, each with a new secret and new noise."""
        first = Contributions.of(self.client, self.learner, self.state, self.candidates, self.rest)
        hits = torch.zeros(times, dtype=torch.float64)
        for game in range(times):
            secret = int(torch.randint(len(self.candidates), (), generator=generator))
            hits[game] = float(self._choose(secret, first, generator) == secret)
            progress(Tick(step=game + 1, fraction=(game + 1) / times))
        crowd = len(self.candidates) - 1
        bound = bound_of(self.client, crowd=crowd, rounds=self.rounds, sampling=self.sampling)
        told = THREAT_MODELS["informed"].ledger(self.learner, defence="dpsgd", client=self.client)
        return Played(summarise(hits, Identification()), bound, (*told, *self.attacker.facts()))

    def _choose(self, secret: int, first: Contributions, generator: Generator) -> int:
        state, found = self.state, first
        evidence = torch.zeros(len(self.candidates), dtype=torch.float64)
        size = (0 if self.rest is None else len(self.rest)) + 1
        for number in range(self.rounds):
            if number and self.learning_rate:
                found = Contributions.of(self.client, self.learner, state, self.candidates, self.rest)
            total = self._noisy_sum(state, secret, generator)
            evidence += found.evidence(tree.flatten(total), self.sampling)
            if self.learning_rate:
                moved = tree.add(state.params, total, scale=-self.learning_rate / size)
                state = replace(state, params=moved)
        return int(evidence.argmax())

    def _noisy_sum(self, state: ModelState, secret: int, generator: Generator) -> dict[str, Tensor]:
        """What the client sends in one round, times what it divided its sum by."""
        present = self.sampling == 1 or float(torch.rand((), generator=generator)) < self.sampling
        chosen = [
            *([self.rest] if self.rest is not None else []),
            *([self.candidates[slice(secret, secret + 1)]] * present),
        ]
        if not chosen:
            raise InvalidCase("A sampled game needs other examples besides the secret; give it a rest.")
        batch = Batch(torch.cat([one.inputs for one in chosen]), torch.cat([one.labels for one in chosen]))
        update = self.client(self.learner, state, batch, generator=generator)
        return tree.scale(update.params, self.client.divisor(len(batch)))


class WorstCase(NamedTuple):
    """What the best attacker gets from gradients that lie badly: all of the clip's length, all orthogonal.

    ``identified``: the secret among m + 1 candidates. ``detected``: one candidate, which took part or did not, at a
    rate of false alarms of 1 / (m + 1), the very test that the bound is about.
    """

    identified: Summary
    detected: Summary


def worst_case(
    noise_multiplier: float, *, crowd: int, rounds: int, sampling: float, times: int, generator: Generator
) -> WorstCase:
    """The game in the space of gradients alone: of each candidate's gradient only the inner product matters."""
    shift = 1 / noise_multiplier
    hits, present, absent = [], [], []
    part = max(1, _AT_ONCE // (crowd + 1))
    for start in range(0, times, part):
        count = min(part, times - start)
        evidence = _evidence(shift, sampling, rounds, (count, crowd + 1), generator)
        hits.append(evidence[:, 0] > evidence[:, 1:].amax(dim=1))
        present.append(evidence[:, 0])
        absent.append(evidence[:, 1:].flatten())
    threshold = _quantile(torch.cat(absent), crowd / (crowd + 1))
    found = [torch.cat(hits).double(), (torch.cat(present) > threshold).double()]
    return WorstCase(*(summarise(one, Identification()) for one in found))


def _evidence(shift: float, sampling: float, rounds: int, shape: tuple[int, int], generator: Generator) -> Tensor:
    """Of each game and candidate, the first of them the secret."""
    if sampling == 1:  # the sum over rounds is one normal number
        seen = torch.randn(shape, generator=generator, dtype=torch.float64)
        seen[:, 0] += math.sqrt(rounds) * shift
        return seen
    total = torch.zeros(shape, dtype=torch.float64)
    for _ in range(rounds):
        seen = torch.randn(shape, generator=generator)
        seen[:, 0] += shift * (torch.rand(shape[0], generator=generator) < sampling)
        total += torch.log1p(sampling * torch.expm1(shift * seen - shift**2 / 2)).double()
    return total


def _quantile(values: Tensor, share: float) -> float:
    """`torch.quantile` refuses many values."""
    return float(values.kthvalue(max(1, math.ceil(share * len(values)))).values)
