"""Many starts on rows of a table, asked together: where they agree, the cell is likely right [Vero et al., 2023]."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from scipy.optimize import linear_sum_assignment
from torch import Generator, Tensor

from leakgauge.attacks.base import Answered, SteppedAttack, Stepper, StepperAround, finite_update
from leakgauge.attacks.budget import Around
from leakgauge.attacks.matching.attack import GradientMatching
from leakgauge.attacks.matching.parametrisations import ColumnLogits, Columns
from leakgauge.attacks.matching.search import Search
from leakgauge.errors import InvalidCase
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.space import Continuous, TableSpace
from leakgauge.types import Outcome, Reconstruction

_UNIFORM = 1 / math.sqrt(12)
"""The standard deviation of a guess between the ends of a column."""


@dataclass(frozen=True)
class PooledRows(SteppedAttack, Around):
    """All restarts of an attack on rows, their rows paired with those of the best start, and each cell by the many.

    A number is the median over the starts, a category the one with the largest mean probability. How sure it is of a
    cell: one minus the entropy of that mean over the largest possible, or the spread of the numbers over that of a
    guess. Half of the starts, those with the higher losses, have no say.
    """

    attack: GradientMatching

    def __post_init__(self) -> None:
        if not isinstance(self.attack.parametrisation, Columns):
            raise InvalidCase("PooledRows pools the columns of tables; give its attack the parametrisation Columns().")

    def search(self, observations: Sequence[UpdateObservation], *, generator: Generator) -> Stepper:
        for observation in observations:
            finite_update(observation)
            known(observation.num_examples, "num_examples", needed_by=self)
            known(observation.local_update, "local_update", needed_by=self)
        space = observations[0].space
        if not isinstance(space, TableSpace):
            reason = {"reason": f"columns of tables are searched, and this model takes {space.kinds}"}
            return Answered([Reconstruction(None, None, Outcome.NOT_APPLICABLE, facts=reason)] * len(observations))
        return PooledSearch(self.attack.search(observations, generator=generator))


class PooledSearch(StepperAround):
    """The search of all starts; what they found is pooled in the end."""

    inner: Search

    def __init__(self, inner: Search) -> None:
        super().__init__(inner)
        coordinates = inner.unknowns.coordinates
        assert isinstance(coordinates, ColumnLogits)
        self.coordinates = coordinates

    def results(self) -> list[Reconstruction]:
        found = []
        for index, one in enumerate(self.inner.results()):
            if one.inputs is None:
                found.append(one)
                continue
            rows = slice(index * self.inner.restarts, (index + 1) * self.inner.restarts)
            losses = self.inner.lowest[rows]
            kept = losses.argsort()[: max(1, (len(losses) + 1) // 2)]
            with torch.no_grad():
                shares = self.coordinates.shares(self.inner.best[rows][kept]).double()
            pooled, confidence = pool(self.coordinates.space, pair_with_first(shares, one.labels))
            inputs = self.coordinates.space.decode(pooled.to(one.inputs))
            facts = {**one.facts, "starts pooled": len(kept)}
            found.append(replace(one, inputs=inputs, confidence=confidence.to(one.inputs), facts=facts))
        return found


def pair_with_first(shares: Tensor, labels: Tensor | None) -> Tensor:
    """Starts x rows x entries, the rows of each start in the order of the first's; labels are paired only alike.

    >>> pair_with_first(torch.tensor([[[0.0], [1.0]], [[0.9], [0.2]]]), None)[1].flatten()
    tensor([0.2000, 0.9000])
    """
    first, paired = shares[0], [shares[0]]
    apart = 0.0 if labels is None else (labels[:, None] != labels[None]).double() * (first.shape[-1] + 1.0)
    for own in shares[1:]:
        cost = torch.cdist(first, own).square() + apart
        paired.append(own[torch.as_tensor(linear_sum_assignment(cost.numpy())[1])])
    return torch.stack(paired)


def pool(space: TableSpace, shares: Tensor) -> tuple[Tensor, Tensor]:
    """The relaxed rows that most starts mean, and how sure they are of each entry."""
    values, sure = [], []
    for column, block in zip(space.columns, space.blocks(shares), strict=True):
        if isinstance(column, Continuous):
            values.append(block.quantile(0.5, dim=0))
            sure.append((1 - block.std(dim=0, correction=0) / _UNIFORM).clamp(0, 1))
        else:
            mean = block.mean(dim=0)
            entropy = torch.special.entr(mean).sum(dim=-1, keepdim=True) / math.log(column.width)
            values.append(mean)
            sure.append((1 - entropy).clamp(0, 1).expand_as(mean))
    return torch.cat(values, dim=-1), torch.cat(sure, dim=-1)
