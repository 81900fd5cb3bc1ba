"""Counts and class embeddings in turn, each from the other: for trained models, where one row of dW mixes classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from leakgauge.attacks.labels.base import CountRule, Head, midway_gradient
from leakgauge.attacks.labels.stand_ins import dummy_features
from leakgauge.protocol.observation import UpdateObservation, known

_DAMPING = 0.5
_FEWEST = 0.5
"""An embedding is a sum over examples divided by their number; below half an example it would be rounding."""
_LONGEST = 3.0
"""Embeddings are cut at this multiple of the batch's mean."""
_SETTLED = 1e-3


class ClassModel(NamedTuple):
    """``counts`` of C classes, and for each the ``embeddings`` (C x m) that its examples are taken to share."""

    counts: Tensor
    embeddings: Tensor


@dataclass(frozen=True)
class Alternating(CountRule):
    """Explain the head's update by one embedding e_j per class and n_j examples of it, improving both in turn.

    If class j has n_j examples that the model sees as e_j, with P_j = softmax(W e_j + b), then

        K dW_i = sum_j n_j P_ji e_j - n_i e_i        K db_i = sum_j n_j P_ji - n_i.

    iLRG neglects the first sum when it reads e_i off row i, which fails on a trained model: there P_ii is no longer
    small, and other classes leave as much in row i as its own. Here the sum is computed from the embeddings and counts
    at hand and moved to the other side, for e_i and then for n_i, half of the way in each of at most ``rounds``. The
    start is the mean embedding of the batch, read off all rows with db_i < 0 together, for every class.
    """

    rounds: int = 30

    def estimate(self, observation: UpdateObservation, *, generator: Generator) -> Tensor:
        num_examples = known(observation.num_examples, "num_examples", needed_by=self)
        head = with_bias(observation, midway_gradient(observation, needed_by=self), num_examples, generator=generator)
        return self.solve(head, num_examples).counts

    def solve(self, head: Head, num_examples: int) -> ClassModel:
        """For a head whose bias update is known or was stood in for."""
        assert head.bias_update is not None
        typical = mean_embedding(head)
        counts = _scaled(num_examples * (head.probabilities(typical[None])[0] - head.bias_update), num_examples)
        model = ClassModel(counts, typical.expand(head.num_classes, -1))
        for _ in range(self.rounds):
            before, model = model, improve(model, head, num_examples, longest=_LONGEST * float(typical.norm()))
            if float((model.counts - before.counts).abs().max()) < _SETTLED:
                break
        return model


def improve(model: ClassModel, head: Head, num_examples: int, *, longest: float) -> ClassModel:
    """One round. A model that explains the update is left as it is."""
    assert head.bias_update is not None
    counts, embeddings = model
    # Classes without examples have no say, and leave the products small.
    present = counts > 0
    share, held = counts[present, None] * head.probabilities(embeddings[present]), embeddings[present]
    found = (share.T @ held - num_examples * head.weight_update) / counts.clamp(min=_FEWEST)[:, None]
    embeddings = _DAMPING * _cut(found, longest) + (1 - _DAMPING) * embeddings
    share = counts[present, None] * head.probabilities(embeddings[present])
    found = share.sum(dim=0) - num_examples * head.bias_update
    return ClassModel(_scaled(_DAMPING * found.clamp(min=0) + (1 - _DAMPING) * counts, num_examples), embeddings)


def with_bias(observation: UpdateObservation, head: Head, num_examples: int, *, generator: Generator) -> Head:
    """A head without bias gets the bias update that its row sums suggest: those over the feature mass of noise."""
    if head.bias_update is not None:
        return head
    mass = float(dummy_features(observation, num_examples, generator=generator).sum(dim=1).mean())
    return head._replace(bias_update=head.row_sums / (mass or float("inf")))  # where none fires, the sums are zero too


def mean_embedding(head: Head) -> Tensor:
    """sum dW_i / sum db_i over the rows with db_i < 0: what the examples of the classes present have in common."""
    assert head.bias_update is not None
    present = head.bias_update < 0
    if not present.any():
        return torch.zeros_like(head.weight_update[0])
    return head.weight_update[present].sum(dim=0) / head.bias_update[present].sum()


def _cut(embeddings: Tensor, longest: float) -> Tensor:
    length = embeddings.norm(dim=1).clamp(min=torch.finfo(torch.float64).tiny)
    return embeddings * (longest / length).clamp(max=1)[:, None]


def _scaled(counts: Tensor, total: int) -> Tensor:
    positive = counts.clamp(min=0)
    return positive * (total / positive.sum()) if positive.sum() > 0 else torch.full_like(counts, total / len(counts))
