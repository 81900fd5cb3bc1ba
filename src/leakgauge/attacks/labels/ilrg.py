"""Counts from a linear system in class-wise embeddings."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from leakgauge.attacks.labels.alternating import with_bias
from leakgauge.attacks.labels.base import CountRule, Head, as_labels, mean_gradient
from leakgauge.protocol.observation import UpdateObservation, known

_LEAST = 1e-12
"""Of a bias update's largest entry: below it the quotient dW_c / db_c is rounding and no embedding."""


@dataclass(frozen=True)
class ILRG(CountRule):
    """Solve for the counts n that explain the bias update, given each class's mean embedding [Ma et al., 2023].

    Row c of dW is dominated by the examples of class c, so e_c = dW_c / db_c, and P_c = softmax(W e_c + b) is what the
    model says of them. Then sum_j n_j P_ji - n_i = K db_i and sum_j n_j = K: C + 1 equations, solved by least squares.
    ``uniform`` is the paper's baseline, P = 1 / C; ``simplified`` its smaller system, in which only the classes with
    db_c < 0, taken as those present, have an equation and a count. With ``one_by_one`` each count is rounded for
    itself, as the paper scores them, and there may be more or fewer labels than examples.

    Without a bias, db is the row sum of dW over the feature mass of random inputs (`with_bias`). That mass cannot join
    the unknowns: both sides of the C equations sum to zero over i, so one of them is idle.
    """

    uniform: bool = False
    simplified: bool = False
    one_by_one: bool = False

    def restore(self, observation: UpdateObservation, *, generator: Generator) -> Tensor:
        if not self.one_by_one:
            return super().restore(observation, generator=generator)
        counts = self.estimate(observation, generator=generator).round().clamp(min=0).long()
        # More than there are examples is no count at all [the authors' code].
        counts[counts > known(observation.num_examples, "num_examples", needed_by=self)] = 0
        return as_labels(counts, observation)

    def estimate(self, observation: UpdateObservation, *, generator: Generator) -> Tensor:
        num_examples = known(observation.num_examples, "num_examples", needed_by=self)
        head = with_bias(observation, mean_gradient(observation, needed_by=self), num_examples, generator=generator)
        assert head.bias_update is not None
        probabilities, bias_update = self._probabilities(head, head.bias_update), head.bias_update
        if not self.simplified or not (present := bias_update < 0).any():
            return solve_counts(probabilities, bias_update, num_examples)
        counts = torch.zeros_like(bias_update)
        counts[present] = solve_counts(probabilities[present][:, present], bias_update[present], num_examples)
        return counts

    def _probabilities(self, head: Head, bias_update: Tensor) -> Tensor:
        """Row j: what the model says of the examples of class j."""
        if self.uniform:
            return torch.full((head.num_classes,) * 2, 1 / head.num_classes, dtype=torch.float64)
        return head.probabilities(class_embeddings(head, bias_update))


def class_embeddings(head: Head, bias_update: Tensor) -> Tensor:
    """dW_c / db_c per class; zero where db_c is."""
    usable = bias_update.abs() > _LEAST * bias_update.abs().max()
    return torch.where(usable, head.weight_update.T / torch.where(usable, bias_update, 1.0), 0.0).T


def solve_counts(probabilities: Tensor, bias_update: Tensor, num_examples: int) -> Tensor:
    """Least squares of [1; P^T - I] n = [K; K db]."""
    classes = len(bias_update)
    matrix = torch.cat((torch.ones(1, classes, dtype=torch.float64), probabilities.T - torch.eye(classes)))
    wanted = num_examples * torch.cat((torch.ones(1, dtype=torch.float64), bias_update))
    return torch.linalg.lstsq(matrix, wanted[:, None]).solution[:, 0]
