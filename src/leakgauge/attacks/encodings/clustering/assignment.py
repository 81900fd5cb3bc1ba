"""The private images of each encoding, how much of each and how many there are, from pictures, sizes and labels."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment, linprog
from scipy.sparse import coo_array
from torch import Tensor

from leakgauge.attacks.encodings.algebra.lift import expected
from leakgauge.attacks.labels.base import whole_counts
from leakgauge.errors import InvalidCase, MissingKnowledge

PRESENT = 1e-6
"""Label weight from which a class takes part in an encoding."""
_FORBIDDEN = -1e4
_YES = torch.tensor(True)


@dataclass(frozen=True)
class LabelSimplices:
    """Coefficients, t x n, that agree with labels: >= 0, and in every class they sum to its label weight.

    ``classes`` is the class of each of n images, ``labels`` the weights t x C.
    """

    classes: Tensor
    labels: Tensor

    def project(self, coefficients: Tensor, support: Tensor | None = None) -> Tensor:
        """The nearest coefficients that agree with the labels, and are zero off ``support``."""
        members, place = self._layout()
        allowed = coefficients if support is None else coefficients.masked_fill(~support, _FORBIDDEN)
        padded = torch.cat([allowed, torch.full_like(allowed[:, :1], _FORBIDDEN)], dim=1)
        found = _onto_simplex(padded[:, members], self.labels.to(coefficients))
        return found.flatten(1)[:, place]

    def support(self, coefficients: Tensor, k: int) -> Tensor:
        """The k images of each encoding: the largest of every class in its label, then the largest of the others."""
        members, place = self._layout()
        padded = torch.cat([coefficients, torch.full_like(coefficients[:, :1], _FORBIDDEN)], dim=1)[:, members]
        first = torch.zeros_like(padded, dtype=torch.bool).scatter(2, padded.argmax(dim=2, keepdim=True), True)
        first = (first & (self.labels > PRESENT)[:, :, None]).flatten(1)[:, place]
        order = (coefficients + 10 * first).topk(min(k, coefficients.shape[1]), dim=1)
        return torch.zeros_like(first).scatter(1, order.indices, order.values > PRESENT)

    def _layout(self) -> tuple[Tensor, Tensor]:
        """Images by class, C x m, padded by n; and where in it each image stands."""
        count, classes = len(self.classes), self.labels.shape[1]
        sizes = torch.bincount(self.classes, minlength=classes)
        width = max(1, int(sizes.max()))
        order = self.classes.argsort(stable=True)
        slots = torch.arange(count) - (sizes.cumsum(0) - sizes)[self.classes[order]]
        place = torch.empty_like(order)
        place[order] = self.classes[order] * width + slots
        members = torch.full((classes * width,), count)
        members[place] = torch.arange(count)
        return members.view(classes, width), place


def _onto_simplex(values: Tensor, totals: Tensor) -> Tensor:
    """The nearest points >= 0 whose last dimension sums to ``totals`` [Held et al., 1974]."""
    ordered = values.sort(dim=-1, descending=True).values
    excess = (ordered.cumsum(dim=-1) - totals[..., None]) / torch.arange(1, values.shape[-1] + 1).to(values)
    last = ((ordered > excess).sum(dim=-1, keepdim=True) - 1).clamp_min(0)
    return (values - excess.gather(-1, last)).clamp_min(0)


def fit_coefficients(
    start: Tensor,
    pictures: Tensor,
    sizes: Tensor,
    simplices: LabelSimplices,
    *,
    support: Tensor | None = None,
    turns: int = 3,
    steps: int = 40,
) -> Tensor:
    """Coefficients that agree with the labels and make | |E| - |lam x| | least, from a start: signs and lam by turns.

    The split of a class's weight between two of its images is found here; labels give the sum alone. Each turn is a
    convex problem, solved by accelerated projected gradients for all encodings at once.
    """
    gram = pictures @ pictures.T
    rate = 1 / torch.linalg.matrix_norm(gram, 2).clamp_min(1e-12)
    found = simplices.project(start, support)
    for _ in range(turns):
        target = expected(found @ pictures, sizes) @ pictures.T
        ahead, momentum = found, 1.0
        for _ in range(steps):
            moved = simplices.project(ahead - rate * (ahead @ gram - target), support)
            later = (1 + math.sqrt(1 + 4 * momentum * momentum)) / 2
            ahead = moved + (momentum - 1) / later * (moved - found)
            found, momentum = moved, later
    return found


def flow(costs: Tensor, demand: Tensor, capacity: Tensor) -> Tensor:
    """Which edges, t x n, carry a unit each at the least total cost: encoding t wants ``demand`` images, all different,
    and no image is used above ``capacity``.

    Minimum-cost flow, exact: where each wants one image, as a matching with every image as often as it may be used;
    else its linear programme has whole vertices, and the simplex method ends in one.
    """
    rows, columns = costs.shape
    if int(demand.sum()) > int(capacity.sum()) or int(demand.max()) > columns:
        raise InvalidCase(
            f"{int(demand.sum())} places cannot be filled from {columns} images used {int(capacity.sum())} times in "
            "all; raise the capacity."
        )
    if bool((demand == 1).all()):
        places = torch.repeat_interleave(torch.arange(columns), capacity)
        chosen, matched = linear_sum_assignment(costs.double()[:, places].numpy())
        return torch.zeros(rows, columns, dtype=torch.bool).index_put((torch.from_numpy(chosen), places[matched]), _YES)
    edges = np.arange(rows * columns)
    ones = np.ones(len(edges))
    solved = linprog(
        costs.double().numpy().ravel(),
        A_eq=coo_array((ones, (edges // columns, edges)), shape=(rows, len(edges))).tocsr(),
        b_eq=demand.numpy(),
        A_ub=coo_array((ones, (edges % columns, edges)), shape=(columns, len(edges))).tocsr(),
        b_ub=capacity.numpy(),
        bounds=(0, 1),
        method="highs-ds",
    )
    if solved.x is None:
        raise InvalidCase(f"No assignment meets demand and capacity: {solved.message} Raise the capacity.")
    return torch.from_numpy(solved.x.reshape(rows, columns) > 0.5)


def counts_from_labels(labels: Tensor, num_private: int) -> Tensor:
    """How many private images each class has: n times its share of all label weight, in whole numbers.

    Every image is used equally often, so labels give the counts away up to the fluctuation of coefficients.

    >>> counts_from_labels(torch.tensor([[0.5, 0.5, 0.0], [0.7, 0.3, 0.0], [0.9, 0.1, 0.0]]), 3)
    tensor([2, 1, 0])
    """
    return whole_counts(_shares(labels) * num_private, num_private)


def private_from_labels(labels: Tensor, private_per_encoding: int) -> int:
    """The most likely number n of private images, of those that make whole epochs of the encodings.

    n times the share of a class is a whole number up to the fluctuation of coefficients, whose variance is read off the
    encodings with as many classes as images; a wrong n leaves any remainder as likely as any other.
    """
    total, shares = len(labels), _shares(labels)
    single = (labels > PRESENT).sum(dim=1) == private_per_encoding
    seen = labels[single][labels[single] > PRESENT].double()
    if len(seen) < 2:
        raise MissingKnowledge(
            "No encoding has as many classes as private images, so their number cannot be read from labels; pass "
            "`num_private`."
        )
    relative = max(float(seen.std() / seen.mean()), 1e-3)
    candidates = [n for n in range(max(2, private_per_encoding), total + 1) if total % n == 0]
    return max(candidates, key=lambda n: _evidence(shares * n, relative, total // n * private_per_encoding))


def _shares(labels: Tensor) -> Tensor:
    weights = labels.double().sum(dim=0)
    return weights / weights.sum().clamp_min(PRESENT)


def _evidence(counts: Tensor, relative: float, uses: int) -> float:
    """Log likelihood of the remainders against that of uniform ones."""
    used = counts[counts > 0.1]
    deviation = relative * used.clamp_min(1).sqrt() / math.sqrt(uses)
    remainder = used - used.round()
    normal = torch.distributions.Normal(torch.zeros_like(deviation), deviation)
    # Wrapped to one period: a wide fluctuation says nothing.
    density = sum(normal.log_prob(remainder + shift).exp() for shift in range(-3, 4))
    return float(torch.as_tensor(density).clamp_min(1e-30).log().sum())
