"""GIFD [Fang et al., 2023]."""

from __future__ import annotations

from dataclasses import replace

from leakgauge.attacks.matching.attack import GradientMatching
from leakgauge.attacks.matching.optimisers import Adam, StepDecay
from leakgauge.attacks.matching.parametrisations.generators import GeneratorFeatures, GeneratorLatent, TrainedGenerator
from leakgauge.attacks.matching.priors import PixelNorm
from leakgauge.attacks.matching.relay import Leg, Relay
from leakgauge.attacks.recipes.shared import UNIT, budget_from, total_variation


def gifd(
    generator: str | None = None,
    factory: str | None = None,
    latent: int | None = None,
    signed: bool = False,
    stages: int = 2,
    radius: float = 0.05,
    tv_weight: float = 1e-4,
    norm_weight: float = 1e-6,
    steps: int | None = 3_000,
    restarts: int = 1,
    seconds: float | None = None,
) -> Relay:
    """Latents first, then what enters each later stage of the generator within an l1 ball, equally long each; the
    stage whose update comes closest is returned [Fang et al., 2023, GIFD].

    ``radius`` is per feature (see `GeneratorFeatures`), where theirs is for a whole map of BigGAN. The control is
    `OnNoise(gifd(...))`.
    """
    priors = (*total_variation(tv_weight), PixelNorm(norm_weight / UNIT**2))
    optimiser = Adam(learning_rate=0.1, schedule=StepDecay())
    latents = GeneratorLatent(TrainedGenerator(generator, factory, latent, signed))
    first = GradientMatching(priors=priors, parametrisation=latents, optimiser=optimiser, restarts=restarts)
    later = (replace(first, parametrisation=GeneratorFeatures(stage, radius)) for stage in range(1, stages + 1))
    return Relay(tuple(Leg(one, 1) for one in (first, *later)), kept="closest", budget=budget_from(steps, seconds))
