"""CI-Net [Zhang et al., 2023], and ours after it."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from leakgauge.attacks.matching.attack import GradientMatching
from leakgauge.attacks.matching.objectives import Cosine
from leakgauge.attacks.matching.optimisers import ConstantRate, CosineDecay, SignedAdam
from leakgauge.attacks.matching.parametrisations.generators import GeneratorWeights, UntrainedGenerator
from leakgauge.attacks.matching.parametrisations.generators.untrained import Normalisation, Output, Upsampling
from leakgauge.attacks.recipes.shared import budget_from


def ci_net(
    width: Literal["code", "paper"] = "code",
    channels: int | None = None,
    upsampling: Upsampling = "nearest",
    normalisation: Normalisation = "spectral",
    output: Output = "tanh",
    learning_rate: float = 1e-3,
    checkpointed: bool = False,
    steps: int | None = 2_000,
    restarts: int = 1,
    seconds: float | None = None,
) -> GradientMatching:
    """Cosine distance, no prior, signed Adam at a constant rate on the weights of an untrained over-parameterised
    generator, labels restored [Zhang et al., 2023, CI-Net, Algorithm 1].

    Algorithm 1 prints the squared distance; the authors' code has the cosine, tanh and 2 000 steps for CIFAR-10. Both
    rules for the ``width`` are theirs (see `GeneratorWeights`); ``channels`` takes their place. The other options are
    for the ablations of Figure 8.
    """
    return GradientMatching(
        objective=Cosine(),
        parametrisation=GeneratorWeights(
            UntrainedGenerator(upsampling=upsampling, normalisation=normalisation, output=output),
            width=width if channels is None else channels,
            checkpointed=checkpointed,
        ),
        optimiser=SignedAdam(learning_rate=learning_rate, schedule=ConstantRate()),
        restarts=restarts,
        budget=budget_from(steps, seconds),
    )


def tuned_ci_net(steps: int | None = 2_000, seconds: float | None = None) -> GradientMatching:
    """`ci_net` with pixels kept in [0, 1] by a sigmoid and a rate that starts at 2e-3 and falls like a cosine.

    Ours: within minutes it gets further than the constant rate of the paper.
    """
    return replace(ci_net(output="sigmoid", steps=steps, seconds=seconds), optimiser=SignedAdam(2e-3, CosineDecay()))
