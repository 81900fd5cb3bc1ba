"""Zhang et al. 2023: Generative Gradient Inversion via Over-Parameterized Networks in Federated Learning, ICCV: CI-Net.
Tables 4 and 5, and the ablations of Figure 8 and appendix B.1."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from leakgauge.attacks.base import Attack
from leakgauge.attacks.budget import Budget
from leakgauge.attacks.matching import (
    Adam,
    Balanced,
    CosineDecay,
    GradientMatching,
    Leg,
    Pixels,
    Relay,
    SignedAdam,
    TotalVariation,
)
from leakgauge.attacks.recipes import ci_net, tuned_ci_net
from leakgauge.data import Cifar10
from leakgauge.models import ConvMLP, LeNet, ModelFactory, Plain, ResNet
from leakgauge.reproduce.draws import InOrder
from leakgauge.reproduce.measures.updates import Setting, limit
from leakgauge.reproduce.scales import Scale, at_scale
from leakgauge.reproduce.table import Published, Row, Table

_ACTIVATIONS = ("sigmoid", "relu")
_CI_NET, _TUNED = "CI-Net", "CI-Net, sigmoid output, rate 2e-3 falling (not in the paper)"
_USUAL = "pixels, total variation 1e-3 (not in the paper)"
_BALANCED = "pixels, balanced total variation (not in the paper)"
_METRICS = ("psnr", "ssim", "fsim", "psnr_affine")

PUBLISHED: Mapping[str, Mapping[str, Published]] = {
    "table4": {
        "psnr": Published(33.72, 0.05, "Table 4"),
        "ssim": Published(1.00, 0.00, "Table 4"),
        "fsim": Published(1.00, 0.00, "Table 4"),
        "lpips_vgg": Published(0.01, 0.00, "Table 4"),
    },
    "table5": {
        "psnr": Published(34.11, 0.13, "Table 5"),
        "ssim": Published(0.98, 0.01, "Table 5"),
        "fsim": Published(0.99, 0.01, "Table 5"),
        "lpips_vgg": Published(0.02, 0.01, "Table 5"),
    },
}
"""What the tables print of CI-Net, by metric, on sigmoid networks."""

_FIGURE8 = Published(None, None, "Figure 8: curves only")


def usual_pixels(steps: int | None = 2_000) -> GradientMatching:
    """Pixels as one would take them from other papers: signed Adam and a total variation of 1e-3 for every model."""
    return GradientMatching(
        priors=(TotalVariation(1e-3),),
        parametrisation=Pixels(spread=0.25),
        optimiser=SignedAdam(0.1, CosineDecay()),
        budget=Budget(steps=steps),
    )


def balanced_pixels(steps: int | None = 2_000) -> GradientMatching:
    """Pixels with a total variation whose weight follows the matching loss."""
    return replace(usual_pixels(steps), priors=(Balanced(),), optimiser=Adam(0.1, CosineDecay()))


def refined_ci_net(steps: int | None = 2_000) -> Relay:
    """Half the budget on the generator's weights, half on the pixels it has reached."""
    pixels = replace(balanced_pixels(), optimiser=Adam(0.05, CosineDecay()))
    return Relay((Leg(tuned_ci_net(), 1), Leg(pixels, 1)), budget=Budget(steps=steps))


def victim(activation: str, scale: Scale) -> ModelFactory:
    """At full scale the paper's ResNet-18, below it a LeNet with BatchNorm; at scale long two convolutions, on which a
    search settles within minutes."""
    if scale == "full":
        return ResNet(18, 64, activation=activation)
    if scale == "long":
        return Plain(2, 16, activation, batch_norm=True)
    width = at_scale({"smoke": 4, "cpu": 32}, scale)
    return LeNet(activation, convolutions=4, initial_range=None, width=width, batch_norm=True)


def _victim_of_tables(activation: str, scale: Scale) -> ModelFactory:
    """As `victim`, but at scale long with more parameters than 32 images have pixels."""
    return ConvMLP(activation=activation, batch_norm=True) if scale == "long" else victim(activation, scale)


@dataclass(frozen=True)
class _Sizes:
    """Of a table: the batch and the CPU seconds of an attack, by scale, and how many updates meet it for minutes."""

    batches: Mapping[Scale, int]
    seconds: Mapping[Scale, float]
    updates: int = 2


def _setting(
    network: Callable[[str, Scale], ModelFactory], activation: str, attack: Attack, sizes: _Sizes, scale: Scale
) -> Setting:
    return Setting(
        model=network(activation, scale),
        attack=limit(
            attack,
            scale,
            cpu=Budget(seconds=sizes.seconds["cpu"], clock="cpu"),
            long=Budget(seconds=sizes.seconds["long"], clock="cpu"),
        ),
        updates=at_scale({"smoke": 1, "cpu": 2, "long": sizes.updates, "full": 3}, scale),
        batch_size=at_scale(sizes.batches, scale),
        # The released trainer never leaves train mode, so BatchNorm sees the batch on both sides.
        mode="train",
        # From image 100 on, as the rule for total variation was tuned on earlier ones.
        draw=InOrder(at_scale({"smoke": 0, "cpu": 100, "long": 2_000, "full": 0}, scale)),
    )


def _rows(name: str, sizes: _Sizes, steps: int) -> tuple[Row, ...]:
    attacks: Mapping[str, Callable[[int], Attack]] = {
        _CI_NET: lambda steps: ci_net(steps=steps),
        _TUNED: tuned_ci_net,
        _USUAL: usual_pixels,
        _BALANCED: balanced_pixels,
    }
    rows = []
    for activation in _ACTIVATIONS:
        for label, attack in attacks.items():
            printed = PUBLISHED[name] if (activation, label) == ("sigmoid", _CI_NET) else {}
            at = partial(_setting, _victim_of_tables, activation, attack(steps), sizes)
            # Minutes an attack go to the paper's activation, and to the stronger of the two rivals.
            left_out: frozenset[Scale] = frozenset({"long"} if activation == "relu" or label == _USUAL else ())
            rows.append(Row.printed(f"{activation}: {label}", printed, "psnr", at, left_out=left_out))
    return tuple(rows)


def _ablation(label: str, attack: GradientMatching) -> Row:
    sizes = _Sizes({"smoke": 2, "cpu": 8, "full": 64}, {"cpu": 40.0, "long": 30.0})
    return Row(label, _FIGURE8, partial(_setting, victim, "sigmoid", attack, sizes))


AFFINE = (
    "psnr_affine is after the best gain and offset per channel: BatchNorm in train mode hides contrast and brightness."
)
_LABELS = "Labels are restored from the update, as in Algorithm 1; the released code is given them."
_SMALLER = (
    "At cpu scale the victim is a LeNet with BatchNorm and 32 channels instead of ResNet-18, and the batch is smaller;"
)
_NOTES = (
    "Sigmoid and ReLU stand side by side; the paper has sigmoid only, and others report that ReLU fails.",
    _LABELS,
    f"{_SMALLER} at scale long it has two convolutions of 64 channels with stride 2 and a hidden layer of 512 units, "
    "2.1 million parameters, and images are from 2000 on; sigmoid alone. A net of two convolutions of 16 channels has "
    "43,802, fewer than 16 images have pixels.",
    AFFINE,
    "Balanced total variation never sees the truth: its weight is a share of the matching loss of the moment.",
    "The authors pair each reconstruction with its best original; here each original has one partner.",
    "LPIPS (VGG) is in the file as published; it is measured by audits that are given its weights.",
)
_COMMON: dict[str, Any] = {
    "dataset": Cifar10(),
    "metrics": _METRICS,
    "shown": len(_METRICS),
    "threat_model": "honest_but_curious",
}

TABLES: tuple[Table, ...] = (
    Table(
        name="cinet/table4",
        title="Zhang et al. 2023 (CI-Net), Table 4: a batch of 64 CIFAR-10 images",
        rows=_rows(
            "table4",
            _Sizes({"smoke": 2, "cpu": 16, "full": 64}, {"cpu": 60.0, "long": 120.0}, updates=5),
            steps=2_000,
        ),
        assumptions=(
            "The same table prints GIAS: PSNR 16.06, SSIM 0.87, FSIM 0.94, LPIPS 0.04; it needs a generator, so it is "
            "no row here but an experiment of its own, cinet/gias.",
            *_NOTES,
        ),
        **_COMMON,
    ),
    Table(
        name="cinet/table5",
        title="Zhang et al. 2023 (CI-Net), Table 5: a batch of 256 CIFAR-10 images",
        rows=_rows(
            "table5",
            _Sizes({"smoke": 4, "cpu": 32, "full": 256}, {"cpu": 120.0, "long": 180.0}),
            steps=150_000,
        ),
        assumptions=("The paper runs 150 000 rounds, and so does full scale.", *_NOTES),
        **_COMMON,
    ),
    Table(
        name="cinet/figure8",
        title="Zhang et al. 2023 (CI-Net), Figure 8 and appendix B.1: what the generator is made of",
        rows=(
            _ablation("as proposed: nearest up-sampling, spectral norm", ci_net()),
            _ablation("bilinear up-sampling", ci_net(upsampling="bilinear")),
            _ablation("transposed convolutions", ci_net(upsampling="transposed")),
            _ablation("pixel norm", ci_net(normalisation="pixel")),
            _ablation("neither norm", ci_net(normalisation="none")),
            *(_ablation(f"{channels} channels", ci_net(channels=channels)) for channels in (8, 16, 64, 128)),
        ),
        assumptions=(
            "The figure shows curves of the interpolation; the other rows ablate what appendix B.1 says in words.",
            "BatchNorm stays in every row.",
            "The batch of the figure is not given; 64 at full scale.",
            _LABELS,
            f"{_SMALLER} at scale long it is a net of two convolutions of 16 channels, on which a search settles, and "
            "images are from 2000 on.",
            AFFINE,
        ),
        **_COMMON,
    ),
)
