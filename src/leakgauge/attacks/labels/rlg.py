"""Which classes are present, from the directions of the classifier's update."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import linprog, nnls
from torch import Generator, Tensor

from leakgauge.attacks.labels.base import CountRule, Head, head_of
from leakgauge.attacks.labels.idlg import count_labels, labels_from_scores
from leakgauge.errors import UnsupportedModel
from leakgauge.protocol.observation import UpdateObservation, known

_SURELY = 1e-6
"""More than what rounding adds to a combination of vectors of length one."""


@dataclass(frozen=True)
class RLG(CountRule):
    """Class c is present iff a half-space holds the update's direction q_c and no other class's [Dang et al., 2021].

    dW = D^T E / K with rows p - y in D, so the first K right singular vectors Q of dW^T span D's rows as long as the
    features E are independent: an example of class c is a vector r with r . q_c < 0 <= r . q_j for all j != c. A linear
    program decides whether there is one. Nothing is assumed of the features' signs, nor of the update's scale. For
    distinct labels and K < C - 1 no other class passes, since positive combinations of the present ones' q and one
    other q are all vectors.

    It tells presence, not number: each class found counts once and the rest goes to the most negative updates of them
    in turn (bias, else row sum). K must be less than the number of classes and of features.
    """

    def estimate(self, observation: UpdateObservation, *, generator: Generator) -> Tensor:
        del generator
        num_examples = known(observation.num_examples, "num_examples", needed_by=self)
        head = head_of(observation)
        if num_examples >= min(head.weight.shape):
            raise UnsupportedModel(
                f"RLG needs fewer examples than the classifier has classes and features, got {num_examples} examples, "
                f"{head.num_classes} classes and {head.weight.shape[1]} features; use another label attack."
            )
        directions = class_directions(head, num_examples, precision=torch.finfo(observation.state.dtype).eps)
        scores = head.row_sums if head.bias_update is None else head.bias_update
        found = separable(directions)
        if bool(found.any()):
            scores = torch.where(found, scores / scores.abs().max().clamp(min=1e-300) - 2, 0.0)
        return count_labels(labels_from_scores(scores, num_examples), head.num_classes)


def class_directions(head: Head, num_examples: int, *, precision: float) -> Tensor:
    """The columns q_c of the first K right singular vectors of dW^T, of length one; zero where it is rounding."""
    _, sizes, vectors = torch.linalg.svd(head.weight_update.T, full_matrices=False)
    rounding = precision * max(head.weight.shape)
    rank = int((sizes > rounding * sizes[0]).sum())
    columns = vectors[: min(num_examples, rank)]
    lengths = columns.norm(dim=0)
    seen = lengths > rounding
    return torch.where(seen, columns / torch.where(seen, lengths, 1.0), 0.0)


def separable(directions: Tensor) -> Tensor:
    """For each column q_c of length one or zero: is there an r with r . q_c < 0 <= r . q_j for all j != c?"""
    found = torch.zeros(directions.shape[1], dtype=torch.bool)
    columns = directions.double().T.numpy()
    for index in _candidates(directions):
        signs = np.where(np.arange(len(columns)) == index, 1.0, -1.0)
        # Any negative number does for r . q_c, since r may have any length.
        limits = np.where(signs > 0, -1.0, 0.0)
        nothing = np.zeros(columns.shape[1])
        program = linprog(nothing, A_ub=signs[:, None] * columns, b_ub=limits, bounds=(None, None), method="highs")
        found[index] = program.status == 0
    return found


def _candidates(directions: Tensor) -> list[int]:
    """The classes that need a linear program: one, and those of which its opposite is a positive combination.

    Where these k + 1 combine to every vector of k entries, they do so to any other q_c, which is then not separable.
    """
    seen = torch.nonzero(directions.any(dim=0)).flatten()
    if len(seen) < 2:
        return seen.tolist()
    first, others = seen[0], seen[1:]
    try:
        weights, rest = nnls(directions[:, others].numpy(), -directions[:, first].numpy())
    except RuntimeError:  # it did not converge
        return seen.tolist()
    used = others[torch.from_numpy(weights) > _SURELY]
    if rest > _SURELY or int(torch.linalg.matrix_rank(directions[:, used], rtol=_SURELY)) < len(directions):
        return seen.tolist()
    return [int(first), *used.tolist()]
