"""Attacks on FedAvg updates as named compositions of parts.

``optimiser`` chooses how the images move: "lbfgs" (`quasi_newton`) is the strongest on smooth models, "signed_adam"
(`inverting_gradients`) holds on those with ReLU and max-pools. ``seconds``, where given, takes the place of ``steps``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from leakgauge.attacks.federated.epoch_copies import EpochCopies, PermutationInvariant
from leakgauge.attacks.federated.local_step_search import LocalStepSearch
from leakgauge.attacks.federated.midway_matching import MidwayMatching
from leakgauge.attacks.federated.surrogate_matching import SurrogateMatching
from leakgauge.attacks.matching.attack import GradientMatching
from leakgauge.attacks.recipes.published import inverting_gradients, quasi_newton
from leakgauge.errors import InvalidCase

OptimiserName = Literal["signed_adam", "lbfgs"]

_INNER: Mapping[str, Callable[..., GradientMatching]] = {"signed_adam": inverting_gradients, "lbfgs": quasi_newton}


def surrogate(
    tv_weight: float = 1e-3,
    steps: int | None = 1000,
    restarts: int = 1,
    seconds: float | None = None,
    optimiser: OptimiserName = "signed_adam",
) -> SurrogateMatching:
    """One gradient on the client's way, found along with the images; no hyper-parameters needed [Zhu et al., 2023].

    Cosine distance, total variation and a step decay at 3/8, 5/8 and 7/8, as published. The published Adam sees signs
    here, and moves the position at the rate of the pixels, not at its own.
    """
    return SurrogateMatching(_inner(optimiser, tv_weight, steps, restarts, seconds))


def midway(
    tv_weight: float = 1e-3,
    steps: int | None = 1000,
    restarts: int = 1,
    seconds: float | None = None,
    optimiser: OptimiserName = "signed_adam",
) -> MidwayMatching:
    """The gradient in the middle of the client's way: as `surrogate`, with the position fixed and steps cheaper."""
    return MidwayMatching(_inner(optimiser, tv_weight, steps, restarts, seconds))


def epoch_copies(
    tv_weight: float = 1e-3,
    tie: float = 1.0,
    steps: int | None = 600,
    restarts: int = 1,
    seconds: float | None = None,
    optimiser: OptimiserName = "signed_adam",
) -> EpochCopies:
    """A copy of the batch per epoch, for clients that shuffle; ``tie`` is the weight of what holds the copies together.

    After Dimitrov et al. [2022], who weigh the layers; here the cosine counts all alike.
    """
    return EpochCopies(_inner(optimiser, tv_weight, steps, restarts, seconds), PermutationInvariant(tie))


def local_step_search(
    epochs: tuple[int, ...] = (1, 2, 5, 10),
    share: float = 0.15,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    tv_weight: float = 1e-3,
    steps: int | None = 600,
    restarts: int = 1,
    seconds: float | None = None,
    optimiser: OptimiserName = "signed_adam",
) -> LocalStepSearch:
    """The number of local epochs by trying; the rest as disclosed or given [Geiping et al., 2020, B.1, footnote 2].

    With ``seconds``, trials and full run together keep to them.
    """
    attack = LocalStepSearch(
        _inner(optimiser, tv_weight, steps, restarts, seconds),
        epochs=epochs,
        share=share,
        batch_size=batch_size,
        learning_rate=learning_rate,
    )
    return attack if seconds is None else attack.with_budget(attack.attack.budget)


def _inner(
    optimiser: str, tv_weight: float, steps: int | None, restarts: int, seconds: float | None
) -> GradientMatching:
    if optimiser not in _INNER:
        raise InvalidCase(
            f"There is no optimiser {optimiser!r} for attacks on FedAvg; choose from {', '.join(_INNER)}."
        )
    return _INNER[optimiser](tv_weight=tv_weight, steps=steps, restarts=restarts, seconds=seconds)
