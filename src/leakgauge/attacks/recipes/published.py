"""Published attacks, and our own recipe, as named compositions of parts.

Everywhere ``steps`` is the paper's number unless given, and ``seconds``, where given, takes its place: schedules then
run on the time that is spent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, TypeVar

from leakgauge.attacks.budget import Budget
from leakgauge.attacks.labels.idlg import IDLG
from leakgauge.attacks.matching.attack import GradientMatching
from leakgauge.attacks.matching.control import OnNoise
from leakgauge.attacks.matching.generators import (
    GeneratorFeatures,
    GeneratorLatent,
    GeneratorWeights,
    TrainedGenerator,
    UntrainedGenerator,
    WeightsPerImage,
)
from leakgauge.attacks.matching.generators.untrained import Normalisation, Output, Upsampling
from leakgauge.attacks.matching.objectives import Cosine, Euclidean, Objective, Stepwise
from leakgauge.attacks.matching.optimisers import (
    LBFGS,
    Adam,
    Constant,
    CosineDecay,
    Langevin,
    Optimiser,
    QuantisedSign,
    SignedAdam,
    StepDecay,
    WarmUp,
)
from leakgauge.attacks.matching.parametrisations import Pixels
from leakgauge.attacks.matching.priors import (
    AnisotropicTotalVariation,
    BatchNormStatistics,
    GroupConsistency,
    PixelNorm,
    Prior,
    Starting,
    TotalVariation,
)
from leakgauge.attacks.matching.relay import Leg, Relay
from leakgauge.attacks.matching.unknowns import FreeLabels
from leakgauge.errors import InvalidCase

T = TypeVar("T")

# The papers work in normalised pixels, LeakGauge in [0, 1]: at a standard deviation of 0.25 a unit there is 0.25 here.
_UNIT = 0.25

_OBJECTIVES: Mapping[str, Objective] = {"cosine": Cosine(), "l2": Euclidean()}
_OPTIMISERS: Mapping[str, Optimiser] = {
    "signed_adam": SignedAdam(learning_rate=0.1 * _UNIT, schedule=StepDecay()),
    "lbfgs": LBFGS(),
}


def dlg(steps: int | None = 300, restarts: int = 16, seconds: float | None = None) -> GradientMatching:
    """Euclidean distance, no prior, L-BFGS, labels found along with the images, from N(0, 1) [Zhu et al., 2019].

    16 restarts as Geiping et al. [2020, appendix C] allow it. Ours keeps pixels in [0, 1], where theirs are free,
    counts the distance relative to the update's length and searches along the line, so that no learning rate is needed;
    a step is one evaluation, where theirs makes up to 20. Labels that the threat model gives are taken as given.
    """
    return GradientMatching(
        objective=Euclidean(),
        parametrisation=Pixels(spread=_UNIT),
        optimiser=LBFGS(),
        labels=FreeLabels(),
        restarts=restarts,
        budget=_budget(steps, seconds),
    )


def idlg(steps: int | None = 300, restarts: int = 1, seconds: float | None = None) -> GradientMatching:
    """`dlg` with the label read off the update [Zhao et al., 2020]; Geiping et al. [2020] give it 8 to 16 restarts."""
    return GradientMatching(
        objective=Euclidean(),
        parametrisation=Pixels(spread=_UNIT),
        optimiser=LBFGS(),
        labels=IDLG(),
        restarts=restarts,
        budget=_budget(steps, seconds),
    )


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
        priors=_total_variation(tv_weight),
        parametrisation=Pixels(mean=0.5, spread=_UNIT),
        optimiser=_choice(_OPTIMISERS, optimiser, "optimiser"),
        budget=_budget(steps, seconds),
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


def grad_inversion(
    seeds: int = 8,
    tv_weight: float = 1e-3,
    norm_weight: float = 1e-5,
    bn_weight: float = 1.0,
    group_weight: float = 0.1,
    steps: int | None = 20_000,
    seconds: float | None = None,
) -> GradientMatching:
    """Euclidean distance, total variation, pixel norm, BatchNorm statistics, consistency of several seeds; Adam with
    warm-up, cosine decay and Langevin noise [Yin et al., 2021].

    The paper minimises 1e-3 sum_l |g_l(x) - g_l|_2 + 1e-4 TV + 1e-6 |x| + 0.1 R_BN + 0.01 R_group. Here the distance is
    relative, |g(x) - g|^2 / |g|^2, about 1 at the start, where theirs is about 1e-3 sum_l |g_l|; that sum is of order
    100 for batches of eight on convolutional networks with BatchNorm in train mode, so their weights are divided by
    0.1. Those of terms in pixels are then taken from normalised pixels to [0, 1]. Registration is by translation, and
    labels are restored by the attack's own rule, not by theirs.
    """
    return GradientMatching(
        objective=Euclidean(),
        priors=(
            *_total_variation(tv_weight),
            PixelNorm(norm_weight / _UNIT**2),
            BatchNormStatistics(bn_weight),
            GroupConsistency(group_weight / _UNIT, after=0.25),
        ),
        parametrisation=Pixels(mean=0.5, spread=_UNIT),
        # 50 of 20 000 steps to warm up.
        optimiser=Langevin(learning_rate=0.1 * _UNIT, schedule=WarmUp(share=0.0025), noise=0.2),
        restarts=seeds,
        budget=_budget(steps, seconds),
    )


def grad_attack(
    tv_weight: float = 0.1,
    bn_weight: float = 5e-3,
    norm_weight: float = 0.0,
    steps: int | None = 10_000,
    restarts: int = 1,
    seconds: float | None = None,
) -> GradientMatching:
    """Cosine distance, total variation, BatchNorm statistics and pixel norm; signed Adam [Huang et al., 2021, Eq. 3].

    Hidden labels are found along with the images. The default weights are the authors' against an attacker who has the
    exact statistics (BN_exact); without them theirs are 0.05 and 1e-3. Their terms in pixels are taken from normalised
    pixels to [0, 1], as in `inverting_gradients`, from which the optimiser and its decay are.
    """
    return GradientMatching(
        objective=Cosine(),
        priors=(
            *_total_variation(tv_weight),
            *((BatchNormStatistics(bn_weight),) if bn_weight else ()),
            *((PixelNorm(norm_weight / _UNIT**2),) if norm_weight else ()),
        ),
        parametrisation=Pixels(mean=0.5, spread=_UNIT),
        optimiser=SignedAdam(learning_rate=0.1 * _UNIT, schedule=StepDecay()),
        labels=FreeLabels(),
        restarts=restarts,
        budget=_budget(steps, seconds),
    )


def stepwise(
    tv_weight: float = 5e-3,
    bn_weight: float = 1e-4,
    steps: int | None = 15_000,
    restarts: int = 1,
    seconds: float | None = None,
) -> GradientMatching:
    """Cosine over late layers first, then earlier ones, quantised signs, priors late [Ye et al., 2024, HFGradInv].

    Total variation joins at 3 000 of 15 000 steps, BatchNorm statistics (first layer times 1.3) at 5 000. The authors
    add ten of 110 tensors every 500 steps and never match the first 25; here shares of the budget and of the tensors
    stand for these numbers, and in the end all tensors count. The learning rate decays as in `inverting_gradients`.
    Labels are restored by the attack's own rule, not by theirs, which needs other data.
    """
    return GradientMatching(
        objective=Stepwise(Cosine(), first=0.1, stages=8, until=4 / 15),
        priors=(
            *(Starting(prior, after=0.2) for prior in _total_variation(tv_weight)),
            Starting(BatchNormStatistics(bn_weight, first=1.3), after=1 / 3),
        ),
        parametrisation=Pixels(mean=0.5, spread=_UNIT),
        optimiser=QuantisedSign(learning_rate=0.1 * _UNIT, schedule=StepDecay()),
        restarts=restarts,
        budget=_budget(steps, seconds),
    )


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
        optimiser=SignedAdam(learning_rate=learning_rate, schedule=Constant()),
        restarts=restarts,
        budget=_budget(steps, seconds),
    )


def tuned_ci_net(steps: int | None = 2_000, seconds: float | None = None) -> GradientMatching:
    """`ci_net` with pixels kept in [0, 1] by a sigmoid and a rate that starts at 2e-3 and falls like a cosine.

    Ours: within minutes it gets further than the constant rate of the paper.
    """
    return replace(ci_net(output="sigmoid", steps=steps, seconds=seconds), optimiser=SignedAdam(2e-3, CosineDecay()))


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
    priors = _total_variation(tv_weight)
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
    return Relay((Leg(latents, 1), Leg(weights, 7)), budget=_budget(steps, seconds))


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
    priors = (*_total_variation(tv_weight), PixelNorm(norm_weight / _UNIT**2))
    optimiser = Adam(learning_rate=0.1, schedule=StepDecay())
    latents = GeneratorLatent(TrainedGenerator(generator, factory, latent, signed))
    first = GradientMatching(priors=priors, parametrisation=latents, optimiser=optimiser, restarts=restarts)
    later = (replace(first, parametrisation=GeneratorFeatures(stage, radius)) for stage in range(1, stages + 1))
    return Relay(tuple(Leg(one, 1) for one in (first, *later)), kept="closest", budget=_budget(steps, seconds))


def quasi_newton(
    tv_weight: float = 1e-3, steps: int | None = 600, restarts: int = 1, seconds: float | None = None
) -> GradientMatching:
    """Cosine distance and smooth total variation, minimised by L-BFGS on the pixel box: strongest on smooth models."""
    return GradientMatching(
        objective=Cosine(),
        priors=(TotalVariation(tv_weight),),
        parametrisation=Pixels(spread=0.1),
        optimiser=LBFGS(),
        restarts=restarts,
        budget=_budget(steps, seconds),
    )


def quasi_newton_smooth(
    tv_weight: float = 0.5, steps: int | None = 300, restarts: int = 1, seconds: float | None = None
) -> GradientMatching:
    """`quasi_newton` with a strong prior: less detail from a clean update, but it sees through noise and pruning."""
    return quasi_newton(tv_weight, steps, restarts, seconds)


def _budget(steps: int | None, seconds: float | None) -> Budget:
    return Budget(steps=steps) if seconds is None else Budget(seconds=seconds)


def _total_variation(weight: float) -> tuple[Prior, ...]:
    """The papers' form, its weight taken from normalised pixels; none for a weight of 0."""
    return (AnisotropicTotalVariation(weight / _UNIT),) if weight else ()


def _choice(table: Mapping[str, T], name: str, option: str) -> T:
    if name not in table:
        raise InvalidCase(f"There is no {option} {name!r} for inverting_gradients; choose from {', '.join(table)}.")
    return table[name]
