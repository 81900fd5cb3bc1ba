"""GIAS [Jeon et al., 2021]."""

from __future__ import annotations

from leakgauge.attacks.matching.attack import GradientMatching
from leakgauge.attacks.matching.control import OnNoise
from leakgauge.attacks.matching.optimisers import Adam, StepDecay
from leakgauge.attacks.matching.parametrisations.generators import GeneratorLatent, TrainedGenerator, WeightsPerImage
from leakgauge.attacks.matching.relay import Leg, Relay
from leakgauge.attacks.recipes.shared import budget_from, total_variation


def gias(
    generator: str | None = None,
    factory: str | None = None,
    latent: int | None = None,
    signed: bool = False,
    tv_weight: float = 1e-4,
    weight_rate: float = 1e-3,
    steps: int | None = 8_000,
    restarts: int = 1,
    seconds: float | None = None,
) -> Relay:
    """Cosine distance and total variation over the latents of a trained generator, then over weights of its own for
    each image; Adam with step decay [Jeon et al., 2021, GIAS].

    ``generator`` is the file of one (see `TrainedGenerator`); without it the network is untrained. An eighth of the
    budget goes to the latents at a rate of 0.1, as of the paper's 1 000 and 7 000 steps; the authors allow 4 restarts.
    Compare with `gias_on_noise`:
    a generator makes likely images of whatever it is fed.
    """
    priors = total_variation(tv_weight)
    latents = GradientMatching(
        priors=priors,
        parametrisation=GeneratorLatent(TrainedGenerator(generator, factory, latent, signed)),
        optimiser=Adam(learning_rate=0.1, schedule=StepDecay()),
        restarts=restarts,
    )
    weights = GradientMatching(
        priors=priors,
        parametrisation=WeightsPerImage(),
        optimiser=Adam(learning_rate=weight_rate, schedule=StepDecay()),
    )
    return Relay((Leg(latents, 1), Leg(weights, 7)), budget=budget_from(steps, seconds))


def gias_on_noise(
    generator: str | None = None,
    factory: str | None = None,
    latent: int | None = None,
    signed: bool = False,
    steps: int | None = 8_000,
    restarts: int = 1,
    seconds: float | None = None,
) -> OnNoise:
    """The control of `gias`: the same attack, fed noise instead of the update."""
    return OnNoise(gias(generator, factory, latent, signed, steps=steps, restarts=restarts, seconds=seconds))
