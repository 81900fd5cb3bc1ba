"""What the label metrics give to somebody who has not seen the update."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import binom

from leakgauge.errors import InvalidCase
from leakgauge.metrics.labels import LabelCounts, LabelExistence, LabelRecall

_NAN = float("nan")


def expected_guess(true_counts: Sequence[int], prior: Sequence[float] | None = None) -> dict[str, float]:
    """Expected score, by metric, of as many labels as there are, drawn independently from ``prior`` (uniform if None).

    Exact: class c is drawn X_c ~ Binomial(K, p_c) times, recall is sum_c E min(n_c, X_c) / K, the share of classes with
    the right count is mean_c P(X_c = n_c), and with the right presence mean_c P(X_c > 0) or P(X_c = 0).

    >>> expected_guess([1, 0])
    {'label_recall': 0.5, 'label_existence': 0.5, 'label_counts': 0.5}
    """
    counts = np.asarray(true_counts, dtype=np.int64)
    classes, total = len(counts), int(counts.sum())
    chances = np.full(classes, 1 / max(classes, 1)) if prior is None else np.asarray(prior, dtype=np.float64)
    if chances.shape != counts.shape or not (chances >= 0).all() or not np.isclose(chances.sum(), 1):
        raise InvalidCase(
            f"A prior over {classes} classes needs as many chances >= 0 with sum 1, got {chances.tolist()[:5]}...; "
            "normalise it."
        )
    if total == 0:
        return dict.fromkeys((LabelRecall.name, LabelExistence.name, LabelCounts.name), _NAN)
    # E min(n, X) = n P(X > n) + E[X; X <= n], and E[X; X <= n] = K p P(Binomial(K - 1, p) <= n - 1).
    hits = counts * binom.sf(counts, total, chances) + total * chances * binom.cdf(counts - 1, total - 1, chances)
    absent = binom.pmf(0, total, chances)
    return {
        LabelRecall.name: float(hits.sum() / total),
        LabelExistence.name: float(np.where(counts > 0, 1 - absent, absent).mean()),
        LabelCounts.name: float(binom.pmf(counts, total, chances).mean()),
    }
