"""Ours: what the spans of gradients give away, by search and, where patches overlap, by linear algebra."""

from __future__ import annotations

from leakgauge.attacks.budget import Budget
from leakgauge.attacks.feature_maps import FeatureMaps
from leakgauge.attacks.matching import TotalVariation
from leakgauge.attacks.span import SpanMatching


def span_matching(
    tv_weight: float = 1e-4, starts: int = 3, steps: int | None = None, seconds: float | None = None
) -> SpanMatching:
    """Images whose layer inputs lie in the span of the gradient: exact on wide networks; without a budget, a minute."""
    return SpanMatching(
        priors=(TotalVariation(tv_weight),) if tv_weight else (),
        starts=starts,
        budget=_budget(steps, seconds),
    )


def feature_maps(steps: int | None = None, seconds: float | None = None) -> FeatureMaps:
    """The maps of a late convolution in closed form, then those before it, then the images; trained networks too."""
    return FeatureMaps(budget=_budget(steps, seconds))


def _budget(steps: int | None, seconds: float | None) -> Budget:
    return Budget(steps=steps, seconds=60.0 if steps is None and seconds is None else seconds)
