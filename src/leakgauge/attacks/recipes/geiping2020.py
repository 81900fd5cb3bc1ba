"""Inverting gradients [Geiping et al., 2020]."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

from leakgauge.attacks.federated.local_step_search import LocalStepSearch
from leakgauge.attacks.matching import GradientMatching, Pixels
from leakgauge.attacks.matching.objectives import Cosine, Euclidean, Objective
from leakgauge.attacks.matching.optimisers import LBFGS, Optimiser, SignedAdam, StepDecay
from leakgauge.attacks.recipes.second_order import quasi_newton
from leakgauge.attacks.recipes.shared import UNIT, budget_from, total_variation
from leakgauge.errors import InvalidCase

T = TypeVar("T")
OptimiserName = Literal["signed_adam", "lbfgs"]

_OBJECTIVES: Mapping[str, Objective] = {"cosine": Cosine(), "l2": Euclidean()}
_OPTIMISERS: Mapping[str, Optimiser[Any]] = {
    "signed_adam": SignedAdam(learning_rate=0.1 * UNIT, schedule=StepDecay()),
    "lbfgs": LBFGS(),
}


def inverting_gradients(
    tv_weight: float = 1e-2,
    steps: int | None = 4_800,
    restarts: int = 1,
    seconds: float | None = None,
    objective: Literal["cosine", "l2"] = "cosine",
    optimiser: Literal["signed_adam", "lbfgs"] = "signed_adam",
) -> GradientMatching:
    """Cosine distance, total variation, signed Adam with step decay [Geiping et al., 2020, Eq. 4 and appendix C].

    ``objective`` and ``optimiser`` are for the ablation of Table 3. The paper weighs total variation by 0 to 1e-2 from
    case to case [ibid., Tables 4 and 5].
    """
    return GradientMatching(
        objective=_choice(_OBJECTIVES, objective, "objective"),
        priors=total_variation(tv_weight),
        parametrisation=Pixels(mean=0.5, spread=UNIT),
        optimiser=_choice(_OPTIMISERS, optimiser, "optimiser"),
        budget=budget_from(steps, seconds),
        restarts=restarts,
    )


def inverting_gradients_l2(
    tv_weight: float = 1e-2, steps: int | None = 4_800, restarts: int = 1, seconds: float | None = None
) -> GradientMatching:
    """`inverting_gradients` with the (relative) Euclidean distance instead of the cosine [ibid., Table 3]."""
    return inverting_gradients(tv_weight, steps, restarts, seconds, objective="l2")


def inverting_gradients_no_tv(
    steps: int | None = 4_800, restarts: int = 1, seconds: float | None = None
) -> GradientMatching:
    """`inverting_gradients` without total variation [ibid., Table 3]."""
    return inverting_gradients(0.0, steps, restarts, seconds)


def inverting_gradients_lbfgs(
    tv_weight: float = 1e-2, steps: int | None = 4_800, restarts: int = 1, seconds: float | None = None
) -> GradientMatching:
    """`inverting_gradients` with L-BFGS instead of signed Adam [ibid., Table 3].

    Theirs takes steps of a fixed length (learning rate 1e-4) and stays near its start; ours searches along the line.
    """
    return inverting_gradients(tv_weight, steps, restarts, seconds, optimiser="lbfgs")


def _choice(table: Mapping[str, T], name: str, option: str) -> T:
    if name not in table:
        raise InvalidCase(f"There is no {option} {name!r} for inverting_gradients; choose from {', '.join(table)}.")
    return table[name]


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
        matching_by(optimiser, tv_weight, steps, restarts, seconds),
        epochs=epochs,
        share=share,
        batch_size=batch_size,
        learning_rate=learning_rate,
    )
    return attack if seconds is None else attack.with_budget(attack.attack.budget)


_FOR_FEDAVG: Mapping[str, Callable[..., GradientMatching]] = {"signed_adam": inverting_gradients, "lbfgs": quasi_newton}


def matching_by(
    optimiser: str, tv_weight: float, steps: int | None, restarts: int, seconds: float | None
) -> GradientMatching:
    """The matching inside an attack on FedAvg: "lbfgs" is the strongest on smooth models, "signed_adam" holds on those
    with ReLU and max-pools."""
    if optimiser not in _FOR_FEDAVG:
        raise InvalidCase(
            f"There is no optimiser {optimiser!r} for attacks on FedAvg; choose from {', '.join(_FOR_FEDAVG)}."
        )
    return _FOR_FEDAVG[optimiser](tv_weight=tv_weight, steps=steps, restarts=restarts, seconds=seconds)
