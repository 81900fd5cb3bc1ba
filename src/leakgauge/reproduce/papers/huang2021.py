"""Huang, Gupta, Song, Li, Arora 2021: Evaluating Gradient Inversion Attacks and Defenses in Federated Learning,
NeurIPS 2021. Table 5, Figures 4 and 5, and MNIST, from its appendix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from leakgauge.attacks.adaptive import Adaptive, adaptive
from leakgauge.attacks.base import Attack
from leakgauge.attacks.budget import Budget
from leakgauge.attacks.recipes import grad_attack
from leakgauge.catalogue import MODELS
from leakgauge.config import build, build_defence
from leakgauge.data import Cifar10, Mnist
from leakgauge.models import Plain
from leakgauge.reproduce.draws import InOrder
from leakgauge.reproduce.measures.updates import Setting, limit
from leakgauge.reproduce.scales import Scale, at_scale
from leakgauge.reproduce.table import Published, Row, Table
from leakgauge.training import Training
from leakgauge.training.run import TrainingPlan

_METRICS = ("lpips_vgg", "psnr", "ssim", "lpips_alex")
_OURS = ": ours (not in the paper)"


class _Attacker(NamedTuple):
    """Who attacks: what the row is called, the threat model, and the authors' weights of total variation and R_BN."""

    label: str
    threat_model: str
    tv_weight: float
    bn_weight: float


STRONGEST = _Attacker("strongest (BN_exact)", "strongest", 0.1, 5e-3)
REALISTIC = _Attacker("labels known, statistics not (BN_infer)", "informed", 0.05, 1e-3)


def _pruned(p: float) -> str:
    return f"pruning:keep={1 - p:.4g}"


def _defences(shares: Sequence[float], combined: float) -> dict[str, str]:
    """By the paper's name: pruning by these shares, mixing, and mixing with pruning by the ``combined`` one."""
    mixing = {f"{name} k={k}": f"{word}:k={k}" for name, word in _MIXED.items() for k in (4, 6)}
    return {
        "None": "none",
        **{f"GradPrune p={p}": _pruned(p) for p in shares},
        **mixing,
        **{f"GradPrune p={combined} + {name} k=4": f"{word}:k=4+{_pruned(combined)}" for name, word in _MIXED.items()},
    }


_MIXED = {"MixUp": "mixup", "Intra-InstaHide": "instahide"}
DEFENCES = _defences((0.5, 0.7, 0.9, 0.95, 0.99, 0.999), combined=0.9)
"""The columns of Table 5, in its order."""

ACCURACY = (93.37, 93.19, 93.01, 90.57, 89.92, 88.61, 83.58, 92.31, 90.41, 90.04, 88.20, 91.37, 86.10)
TIME = (1.0, *(1.04,) * 6, *(1.06,) * 4, *(1.10,) * 2)
LPIPS: Mapping[tuple[int, _Attacker], Sequence[tuple[float, ...]]] = {
    (16, STRONGEST): (
        (0.41, 0.41, 0.42, 0.46, 0.48, 0.50, 0.55, 0.50, 0.49, 0.69, 0.69, 0.62, 0.73),
        (0.21, 0.22, 0.27, 0.29, 0.30, 0.29, 0.48, 0.31, 0.28, 0.56, 0.56, 0.37, 0.65),
        (0.09, 0.08, 0.07, 0.06, 0.06, 0.06, 0.04, 0.10, 0.10, 0.06, 0.07, 0.10, 0.05),
    ),
    (16, REALISTIC): (
        (0.49, 0.51, 0.48, 0.51, 0.52, 0.56, 0.60, 0.71, 0.71, 0.75, 0.75, 0.74, 0.74),
        (0.30, 0.33, 0.31, 0.33, 0.34, 0.39, 0.44, 0.48, 0.53, 0.65, 0.63, 0.61, 0.63),
        (0.08, 0.09, 0.08, 0.08, 0.07, 0.07, 0.05, 0.08, 0.07, 0.04, 0.05, 0.08, 0.05),
    ),
    (32, STRONGEST): (
        (0.45, 0.46, 0.48, 0.52, 0.54, 0.58, 0.63, 0.50, 0.49, 0.69, 0.69, 0.62, 0.73),
        (0.18, 0.18, 0.22, 0.31, 0.43, 0.48, 0.54, 0.31, 0.28, 0.56, 0.56, 0.37, 0.65),
        (0.11, 0.11, 0.09, 0.07, 0.05, 0.04, 0.04, 0.10, 0.10, 0.06, 0.07, 0.10, 0.05),
    ),
    (32, REALISTIC): (
        (0.48, 0.50, 0.53, 0.53, 0.55, 0.60, 0.63, 0.73, 0.72, 0.76, 0.76, 0.76, 0.77),
        (0.29, 0.32, 0.32, 0.31, 0.40, 0.41, 0.55, 0.63, 0.60, 0.68, 0.63, 0.66, 0.65),
        (0.08, 0.07, 0.07, 0.08, 0.08, 0.06, 0.04, 0.06, 0.06, 0.04, 0.05, 0.06, 0.05),
    ),
}
"""Table 5: average, best and standard deviation over images, one number for each defence."""

_NO_NUMBER = "Table 2 of the main text: batch size 1 is not in the appendix, which is what was read"

# The network, the steps and the images that each scale affords; the paper has ResNet-18, 10 000 steps and 50 images.
_SMALL = "plain:convolutions=3,width=16,activation=gelu,batch_norm=True"
_MODEL: Mapping[Scale, str] = {
    "smoke": _SMALL.replace("16", "2"),
    "cpu": _SMALL,
    "long": "plain:convolutions=2,width=32,activation=gelu,batch_norm=True",
    "full": "resnet:depth=18",
}
_OF_BATCHES: Mapping[Scale, str] = {**_MODEL, "long": "conv_mlp:activation=gelu,batch_norm=True"}
"""In Table 5, whose batches of 32 have more pixels than the small network of scale long has parameters."""
_CPU_STEPS: Mapping[int, int] = {1: 100, 16: 60, 32: 40}
_LONG_STEPS = 250
"""By batch size; at scale long the same for all."""
_VICTIM: Mapping[Scale, Training] = {
    "smoke": Training(steps=2, batch_size=4),
    "cpu": Training(steps=100, batch_size=32, learning_rate=0.02),
    "full": Training(steps=780, batch_size=128, learning_rate=0.1),
}
_FIRST: Mapping[Scale, int] = {"smoke": 0, "cpu": 100, "long": 2_000, "full": 0}
"""The first test image: on a CPU from 100 or 2000 on, as our own recipe was tuned on earlier ones."""


def _limit(attack: Attack, scale: Scale, cpu_steps: int, long_steps: int | None = None) -> Attack:
    budgets = {"cpu": cpu_steps, "long": long_steps or cpu_steps, "full": 10_000}
    return limit(attack, scale, **{name: Budget(steps=steps, clock="cpu") for name, steps in budgets.items()})


def _table5(defence: str, batch_size: int, attacker: _Attacker, ours: bool, scale: Scale) -> Setting:
    model = at_scale(_MODEL if batch_size == 1 else _OF_BATCHES, scale)
    attack = adaptive(steps=1) if ours else Adaptive(grad_attack(attacker.tv_weight, attacker.bn_weight))
    size = min(batch_size, at_scale({"smoke": 2, "cpu": 32, "full": 32}, scale))
    return Setting(
        model=build(MODELS, model, kind="model"),
        attack=_limit(attack, scale, _CPU_STEPS[batch_size], _LONG_STEPS),
        updates=at_scale(
            {
                "smoke": 1,
                "cpu": 3 if size == 1 else 1,
                # Three updates of 16 are about the paper's 50 images; elsewhere one has to do.
                "long": 5 if size == 1 else 3 if size == 16 and attacker is STRONGEST and not ours else 1,
                "full": max(1, 50 // size),
            },
            scale,
        ),
        nulls=at_scale({"smoke": 1, "cpu": 1, "full": max(1, 10 // size)}, scale),
        batch_size=size,
        mode="train",
        training=None if scale == "long" else at_scale(_VICTIM, scale),
        draw=InOrder(at_scale(_FIRST, scale)),
        defence=build_defence(defence),
        threat_model=attacker.threat_model,
        utility=None if scale == "long" else _utility(model, defence, scale),
    )


def _utility(model: str, defence: str, scale: Scale) -> TrainingPlan:
    if scale == "full":
        # A lower rate for p = 0.99 and 0.999 [A.1].
        rate = 0.02 if defence in (_pruned(0.99), _pruned(0.999)) else None
        return TrainingPlan(model=model, defence=defence, recipe="huang2021", learning_rate=rate)
    steps, size = (3, 6) if scale == "smoke" else (250, 32)
    return TrainingPlan(model=model, defence=defence, steps=steps, batch_size=size)


def _published(index: int, batch_size: int, attacker: _Attacker) -> Published:
    if (batch_size, attacker) not in LPIPS:
        return Published(None, None, _NO_NUMBER)
    mean, best, deviation = (line[index] for line in LPIPS[batch_size, attacker])
    return Published(mean, deviation, "Table 5", best=best)


def _table5_rows() -> list[Row]:
    rows = []
    for index, (name, defence) in enumerate(DEFENCES.items()):
        costs = {
            "accuracy": Published(round(ACCURACY[index] / 100, 4), None, "Table 5"),
            "time": Published(TIME[index], None, "Table 5"),
        }
        for batch_size, attacker in ((1, STRONGEST), *LPIPS):
            group = f"batch {batch_size}, {attacker.label}"
            label = f"{name}, {group}"
            published = _published(index, batch_size, attacker)
            at, ours = (partial(_table5, defence, batch_size, attacker, own) for own in (False, True))
            rows.append(Row(label, published, at, costs, group))
            if attacker is STRONGEST and batch_size < 32:
                rows.append(Row(label + _OURS, None, ours, costs, group + _OURS, published))
    return rows


def _sweep(batch_size: int, attacker: _Attacker, scale: Scale) -> Setting:
    """One image under BN_exact, or a batch under BN_infer, attacked with the weights of a figure's panel."""
    size = min(batch_size, at_scale({"smoke": 2, "cpu": 16, "full": 16}, scale))
    return Setting(
        model=build(MODELS, at_scale(_MODEL, scale), kind="model"),
        attack=_limit(grad_attack(attacker.tv_weight, attacker.bn_weight), scale, 100, _LONG_STEPS),
        updates=at_scale({"smoke": 1, "cpu": 4 if size == 1 else 1, "long": 5 if size == 1 else 2, "full": 1}, scale),
        nulls=1,
        batch_size=size,
        mode="train",
        training=None if scale == "long" else at_scale(_VICTIM, scale),
        draw=InOrder(at_scale(_FIRST, scale)),
        threat_model=attacker.threat_model,
    )


MNIST = _defences((0.5, 0.7, 0.9, 0.95, 0.99, 0.999, 0.9999), combined=0.99)


def _mnist(defence: str, ours: bool, scale: Scale) -> Setting:
    attack = adaptive(steps=1) if ours else Adaptive(grad_attack(STRONGEST.tv_weight, 0.0))
    return Setting(
        model=Plain(width=at_scale({"smoke": 2, "cpu": 16, "full": 32}, scale)),
        attack=_limit(attack, scale, 100),
        updates=at_scale({"smoke": 1, "cpu": 4, "full": 50}, scale),
        nulls=at_scale({"smoke": 1, "cpu": 1, "full": 10}, scale),
        mode="train",
        training=at_scale(_VICTIM, scale),
        draw=InOrder(at_scale(_FIRST, scale)),
        defence=build_defence(defence),
        threat_model="strongest",
    )


_COMMON: dict[str, Any] = {
    "dataset": Cifar10(),
    "metrics": _METRICS,
    "shown": 2,
    "best": 1,
    "per_image": True,
    "threat_model": "strongest",
}
_SMALLER = (
    "At cpu scale the network has three convolutions with BatchNorm and GELU, 16 channels wide, instead of ResNet-18, "
    "and an attack has 40 to 100 steps instead of 10 000: orders may show, levels cannot be those of the paper. At "
    "scale long it has two, 32 channels wide, untrained, which give images away within the 250 steps of an attack."
)
_NOTES = (
    "Steps, the weights 0.1 and 5e-3 (strongest) or 0.05 and 1e-3, the state of the model and which LPIPS (here VGG) "
    "are not in the appendix; steps and weights are those of the authors' code, the state is that after two epochs, or "
    "after 100 steps of 32 at cpu scale.",
    "Client in train mode. Images are paired with originals exclusively by least squared error; s.d. and best are over "
    "images; of LPIPS lower means more leakage, and best is the lowest.",
)
_MIXING = (
    "Mixed images are decoded from one update; the paper decodes 20 epochs of them together, which tells more about "
    "InstaHide.",
    "A batch of fewer images than are mixed is one of encodings that mix in the client's further images, which are not "
    "scored.",
)

TABLES: tuple[Table, ...] = (
    Table(
        name="huang2021/table5",
        title="Huang et al. 2021, Table 5: what defences cost and what they let through",
        rows=tuple(_table5_rows()),
        assumptions=(
            _SMALLER,
            *_NOTES,
            *_MIXING,
            "The attacker matches on the entries that pruning left; whether the paper's did is not said.",
            "At scale long accuracy is not measured.",
            "At scale long batches meet two convolutions of 64 channels with stride 2 and a hidden layer of 512 units: "
            "2.1 million parameters. The small one has 92,202, fewer than 32 images have pixels, and gave little.",
            "At scale long pruning by p = 0.99 leaves 21,000 numbers of an update of 16 images with 49,152 values; of "
            "ResNet-18 it leaves 110,000.",
            "At cpu scale accuracy is after 250 steps of 32 at a rate of 0.02, not 200 epochs; on 2000 test images.",
        ),
        **_COMMON,
    ),
    Table(
        name="huang2021/figure4",
        title="Huang et al. 2021, Figure 4: weight of total variation, one image, BN_exact",
        rows=tuple(
            Row(
                f"alpha_TV={weight:g}",
                Published(None, None, "Figure 4: pictures only"),
                partial(_sweep, 1, STRONGEST._replace(tv_weight=weight)),
            )
            for weight in (0.0, 1e-3, 5e-3, 1e-2, 5e-2, 1e-1, 5e-1)
        ),
        assumptions=(
            'The figure shows pictures alone; its caption says that 1e-2 "gives the best reconstruction".',
            _SMALLER,
            *_NOTES,
        ),
        **_COMMON,
    ),
    Table(
        name="huang2021/figure5",
        title="Huang et al. 2021, Figure 5: weight of the BatchNorm statistics, batch of 16, BN_infer",
        rows=tuple(
            Row(
                f"alpha_BN={weight:g}",
                Published(None, None, "Figure 5: pictures only"),
                partial(_sweep, 16, REALISTIC._replace(bn_weight=weight)),
            )
            for weight in (0.0, 5e-4, 1e-3, 5e-3, 1e-2)
        ),
        assumptions=(
            'The figure shows pictures alone; its caption says that 1e-3 "gives the best reconstruction" (of alpha_TV, '
            "taken as a slip for alpha_BN).",
            _SMALLER,
            *_NOTES,
        ),
        **_COMMON,
    ),
    Table(
        name="huang2021/mnist",
        title="Huang et al. 2021, Figure 8: MNIST, a 6-layer ConvNet without BatchNorm, one image",
        rows=tuple(
            Row(
                name + (_OURS if ours else ""),
                None if ours else Published(None, None, "Figure 8: pictures only"),
                partial(_mnist, defence, ours),
            )
            for name, defence in MNIST.items()
            for ours in (False, True)
        ),
        assumptions=(
            "The paper shows pictures alone. Its text: pruning may have to reach p = 0.9999; MixUp does not suffice, "
            "and with p = 0.99 digits are still highly recognisable; InstaHide is a bit better, and with p = 0.99 "
            "digits are almost unrecognisable.",
            "The network is not described further: here five 3x3 convolutions, two of them with stride 2, and a linear "
            "layer, 32 channels wide (16 at cpu scale, where an attack has 100 steps instead of 10 000).",
            *_NOTES,
            *_MIXING,
        ),
        **(_COMMON | {"dataset": Mnist()}),
    ),
)
