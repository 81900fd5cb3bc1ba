from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from leakgauge.metrics.alignment import Comparison
from leakgauge.metrics.base import Kind, Metric
from leakgauge.space import TokenSpace


@final
@dataclass(frozen=True)
class Identification(Metric):
    """1 if the original is nearer (squared error) to its reconstruction than every distractor, else 0.

    The idea is the image identifiability precision of Yin et al. [2021], here in the inputs themselves and against
    given distractors. A tie is a miss, so a copy of the original among the distractors hides it.

    >>> images = torch.tensor([0.2, 0.9]).view(2, 1, 1, 1)
    >>> distractors = torch.tensor([0.4, 0.5]).view(2, 1, 1, 1)
    >>> Identification()(Comparison(images, torch.full_like(images, 0.25), distractors, torch.zeros(2), None))
    tensor([1., 0.], dtype=torch.float64)
    """

    name, title, heading = "identification", "Identified", "identified"
    serves = Kind.INPUTS
    binary = True

    def __call__(self, comparison: Comparison) -> Tensor:
        scores = torch.full(comparison.originals.shape[:1], torch.nan, dtype=torch.float64)
        if comparison.distractors is None or not _count(comparison):
            return scores
        space, distractors = comparison.space, comparison.distractors.double()
        if isinstance(space, TokenSpace):
            return _rank_texts(space, comparison, scores)
        originals, found = (space.vectors(one.double()) for one in (comparison.originals, comparison.reconstructions))
        shared = None if _per_victim(comparison) else space.vectors(distractors)
        for row in comparison.measured.nonzero().flatten().tolist():
            others = space.vectors(distractors[row]) if shared is None else shared
            own = _distances(found[row], originals[row][None])
            scores[row] = float(own < _distances(found[row], others).min())
        return scores

    def chance(self, comparison: Comparison) -> float:
        """1 / (m + 1): the most that a reconstruction paired without a look at the truth scores on average.

        It presumes that original and distractors are exchangeable. NaN without distractors.
        """
        count = _count(comparison)
        return 1 / (count + 1) if count else float("nan")

    def chance_after_matching(self, comparison: Comparison) -> float:
        """The most that reconstructions independent of the truth score on average once `align` has paired them.

        Pairing looks at the truth: in effect each of k reconstructions chooses among n originals, or each original
        among k reconstructions. The union bound is max(n, k) / (n + m) for distractors shared by all victims and
        max(n, k) / (m + 1) for distractors per victim, at most 1; both equal `chance` for n = k = 1.
        """
        count = _count(comparison)
        if not count or comparison.candidates is None:
            return self.chance(comparison)
        victims = len(comparison.originals)
        return min(1.0, max(victims, comparison.candidates) / (count + (1 if _per_victim(comparison) else victims)))


def _rank_texts(space: TokenSpace, comparison: Comparison, scores: Tensor) -> Tensor:
    """By what the texts have in common: as vectors they would be as long as the vocabulary."""
    assert comparison.distractors is not None
    for row in comparison.measured.nonzero().flatten().tolist():
        others = comparison.distractors[row] if _per_victim(comparison) else comparison.distractors
        compared = torch.cat((comparison.originals[row][None], others.to(comparison.originals)))
        own, *rest = space.distance(comparison.reconstructions[row][None], compared)[0].tolist()
        scores[row] = float(own < min(rest))
    return scores


def _count(comparison: Comparison) -> int:
    distractors = comparison.distractors
    return 0 if distractors is None else distractors.shape[-comparison.originals.ndim]


def _per_victim(comparison: Comparison) -> bool:
    return comparison.distractors is not None and comparison.distractors.ndim > comparison.originals.ndim


def _distances(vector: Tensor, others: Tensor) -> Tensor:
    # The exact mode, pair by pair: equal inputs must give equal distances for a tie to be seen.
    return torch.cdist(vector[None], others, compute_mode="donot_use_mm_for_euclid_dist")
