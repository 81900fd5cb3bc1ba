"""The attacker who nearly meets the bound: it knows all but one example, and the candidates for that one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Generator, Tensor

from leakgauge import params as tree
from leakgauge.attacks.base import Attack
from leakgauge.errors import InvalidCase
from leakgauge.fingerprint import digest
from leakgauge.progress import Progress, silent
from leakgauge.protocol.facts import Fact, Subject
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.local_update import FedSGD, LocalUpdate
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.protocol.wrappers import Private, clip_factors, per_example_gradients
from leakgauge.types import Batch, ModelState, Outcome, Reconstruction

_TOGETHER = 32
"""Candidates whose gradients are held at a time, before they are clipped and laid flat."""


@dataclass(frozen=True)
class Contributions:
    """What each candidate would add to the sum of clipped gradients, candidates x entries, and the sum of the rest.

    ``deviation`` is that of the noise on every entry of the sum.
    """

    each: Tensor
    rest: Tensor
    deviation: float

    @classmethod
    def of(
        cls, client: Private, learner: Learner, state: ModelState, candidates: Batch, rest: Batch | None
    ) -> Contributions:
        each = _clipped(client, learner, state, candidates)
        others = torch.zeros_like(each[0]) if rest is None else _clipped(client, learner, state, rest).sum(dim=0)
        return cls(each, others, client.noise_multiplier * client.max_grad_norm)

    def evidence(self, total: Tensor, sampling: float = 1.0) -> Tensor:
        """log of how much likelier the noisy sum is with each candidate than without any."""
        # Without noise the scale is free, and the nearest wins.
        variance = self.deviation**2 or 1.0
        ratio = (self.each @ (total - self.rest) - self.each.square().sum(dim=1) / 2).double() / variance
        if sampling == 1:
            return ratio
        return torch.logaddexp(torch.tensor(math.log1p(-sampling), dtype=torch.float64), math.log(sampling) + ratio)


@final
@dataclass(frozen=True, repr=False)
class PriorAware(Attack):
    """Pick the candidate that explains the rounds best, everything else being known [Hayes et al., 2023].

    For DP-SGD that is argmax_z sum_t <noisy sum_t - clipped gradients of the known, clip(grad_t(z))>, here less half
    the squared length, which matters for gradients shorter than the clip, and as a likelihood where an example takes
    part with probability ``sampling``. For any other client it is the candidate whose expected update is nearest.

    No server has this knowledge. What even this attacker does not find is hidden by noise and not by ignorance.
    """

    candidates: Batch
    rest: Batch | None = None
    sampling: float = 1.0

    def __post_init__(self) -> None:
        if len(self.candidates) < 2 or not 0 < self.sampling <= 1:
            raise InvalidCase(
                f"PriorAware picks among at least 2 candidates, with a sampling in (0, 1], got {len(self.candidates)} "
                f"and {self.sampling}; correct them."
            )

    def __repr__(self) -> str:
        given = [self.candidates, *([] if self.rest is None else [self.rest])]
        content = digest((), [one for batch in given for one in (batch.inputs, batch.labels)], ())
        return f"PriorAware({len(self.candidates)} candidates {content}, sampling={self.sampling})"

    def facts(self) -> tuple[Fact, ...]:
        """What it is told beyond a threat model, for the ledger."""
        others = 0 if self.rest is None else len(self.rest)
        return (
            Fact(Subject.REST, True, f"all other private examples with their labels ({others})"),
            Fact(Subject.CANDIDATES, True, f"the {len(self.candidates)} inputs and labels of which one is private"),
        )

    def choose(self, observations: Sequence[UpdateObservation]) -> int:
        """Which candidate took part in these rounds."""
        return int(torch.stack([self.evidence(one) for one in observations]).sum(dim=0).argmax())

    def evidence(self, observation: UpdateObservation) -> Tensor:
        """How much one round speaks for each candidate, up to what it says of all."""
        client = known(observation.local_update, "local_hyperparameters", needed_by=self)
        if isinstance(client, Private) and isinstance(client.inner, FedSGD):
            count = known(observation.num_examples, "num_examples", needed_by=self)
            found = Contributions.of(client, observation.learner, observation.state, self.candidates, self.rest)
            return found.evidence(client.divisor(count) * tree.flatten(observation.update.params), self.sampling)
        if self.sampling < 1:
            raise InvalidCase("PriorAware follows sampled rounds of DP-SGD with one gradient alone; set sampling=1.")
        return torch.stack([self._nearness(observation, client, index) for index in range(len(self.candidates))])

    def __call__(
        self, observation: UpdateObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction:
        del generator, progress
        found = self._with_rest(self.choose([observation]))
        return Reconstruction(found.inputs, found.labels, Outcome.SOLVED, facts={"candidates": len(self.candidates)})

    def _nearness(self, observation: UpdateObservation, client: LocalUpdate, index: int) -> Tensor:
        seen = observation.update.params
        batch = self._with_rest(index)
        expected = client.expected(observation.learner, observation.state, batch, observed=seen)
        return -tree.squared_norm(tree.sub(seen, expected)).detach().double() / 2

    def _with_rest(self, index: int) -> Batch:
        """The private batch if the candidate is the right one, the rest first."""
        one = self.candidates[slice(index, index + 1)]
        if self.rest is None:
            return one
        return Batch(torch.cat([self.rest.inputs, one.inputs]), torch.cat([self.rest.labels, one.labels]))


def _clipped(client: Private, learner: Learner, state: ModelState, batch: Batch) -> Tensor:
    """Each example's clipped gradient as a row."""
    rows = []
    for start in range(0, len(batch), _TOGETHER):
        gradients = per_example_gradients(learner, state, batch[slice(start, start + _TOGETHER)])
        flat = torch.cat([tensor.reshape(len(tensor), -1) for tensor in gradients.values()], dim=1)
        rows.append(flat * clip_factors(flat.square().sum(dim=1, keepdim=True), client.max_grad_norm))
    return torch.cat(rows).detach()
