"""Geiping, Bauermeister, Dröge, Moeller 2020: Inverting Gradients - How easy is it to break privacy in federated
learning? NeurIPS 2020, arXiv:2003.14053. Tables 1 to 3 and Figures 4 to 6."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from leakgauge.attacks.base import Attack
from leakgauge.attacks.budget import Budget
from leakgauge.attacks.federated import MidwayMatching
from leakgauge.attacks.matching import (
    CosineDecay,
    FrozenDifference,
    GradientMatching,
    Pixels,
    SignedAdam,
    StepDecay,
    TotalVariation,
)
from leakgauge.attacks.recipes import (
    best,
    idlg,
    inverting_gradients,
    inverting_gradients_l2,
    inverting_gradients_lbfgs,
    inverting_gradients_no_tv,
)
from leakgauge.data import Cifar10, Cifar100
from leakgauge.models import ConvNet, LeNet, ResNet, lenet_zhu
from leakgauge.protocol.local_update import FedAvg
from leakgauge.reproduce.draws import InOrder
from leakgauge.reproduce.measures.updates import Setting, budget_of, limit
from leakgauge.reproduce.scales import Scale, at_scale
from leakgauge.reproduce.table import Published, Row, Table
from leakgauge.training import Pretrained, Training

_LOCAL_RATE = 1e-4
# The paper's 300 iterations, taken as calls of torch's L-BFGS at its default of 20 evaluations; a step here is one.
_LBFGS_STEPS = 300 * 20

# Rows of the tables, as they are printed here.
_EUCLIDEAN, _PROPOSED, _OURS = "Euclidean + L-BFGS", "proposed", "ours (not in the paper)"
_LENET, _RESNET = "LeNet (Zhu)", "ResNet20-4"
_TABLE3 = "Table 3, appendix B.3"


class _Client(NamedTuple):
    """E epochs over n images in mini-batches of B."""

    epochs: int
    images: int
    minibatch: int

    def __str__(self) -> str:
        return f"E={self.epochs}, n={self.images}, B={self.minibatch}"


PUBLISHED: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "Table 1": {
        f"{_LENET}, untrained: {_EUCLIDEAN}": (46.25, 12.66),
        f"{_LENET}, trained: {_EUCLIDEAN}": (13.24, 5.44),
        f"{_RESNET}, untrained: {_EUCLIDEAN}": (10.29, 5.38),
        f"{_RESNET}, trained: {_EUCLIDEAN}": (6.90, 2.80),
        f"{_LENET}, untrained: {_PROPOSED}": (18.00, 3.33),
        f"{_LENET}, trained: {_PROPOSED}": (18.08, 4.27),
        f"{_RESNET}, untrained: {_PROPOSED}": (19.83, 2.96),
        f"{_RESNET}, trained: {_PROPOSED}": (13.95, 3.38),
    },
    "Table 2": {
        "E=1, n=4, B=2": (16.92, 2.10),
        "E=1, n=8, B=2": (14.66, 1.12),
        "E=1, n=8, B=8": (16.49, 1.02),
        "E=5, n=1, B=1": (25.05, 3.28),
        "E=5, n=8, B=8": (16.58, 0.96),
    },
    _TABLE3: {
        "basic setup": (20.12, 1.02),
        "L2 loss instead of cosine similarity": (15.13, 0.70),
        "without total variation": (19.96, 0.75),
        "L-BFGS instead of Adam": (5.13, 0.50),
    },
    "Figure 4": {
        "ResNet-18, base width 16": (19.02, 2.84),
        "ResNet-18, base width 64": (22.04, 5.89),
        "ResNet-18, base width 128": (22.94, 6.83),
        "ResNet-34": (21.59, 4.49),
        "ResNet-50": (20.98, 5.57),
    },
}
"""Every number that is compared with, PSNR in dB and its spread, by where it is printed."""

_CLIENTS: Mapping[_Client, float] = {
    _Client(1, 4, 2): 1e-6,
    _Client(1, 8, 2): 1e-6,
    _Client(1, 8, 8): 1e-4,
    _Client(5, 1, 1): 1e-4,
    _Client(5, 8, 8): 1e-4,
}
"""The clients of Table 2, each with its weight of total variation [Table 5]."""

_FIGURE4 = {
    **{f"ResNet-18, base width {width}": (18, width) for width in (16, 64, 128)},
    "ResNet-34": (34, 64),
    "ResNet-50": (50, 64),
}
"""Depth and width."""

_FIGURE5 = ((1, 1e-4), (5, 1e-4), (100, 1e-4), (5, 1e-3), (5, 1e-2), (5, 1e-1))
"""Local steps and their rate."""

_TABLE4 = {(_LENET, False): 1e-2, (_LENET, True): 1e-3, (_RESNET, False): 0.0, (_RESNET, True): 1e-2}
"""Weight of total variation by architecture and whether it is trained."""

# Plain SGD at one rate. The authors' schedule and augmentation are not reproduced; the accuracy is in the result.
_LENET_TRAINING: Mapping[Scale, Training] = {
    "smoke": Training(steps=2),
    "cpu": Training(steps=2_000, learning_rate=0.02),
    "long": Training(steps=8_000, batch_size=64, learning_rate=0.05),
    "full": Training(steps=40_000, batch_size=128, learning_rate=0.02),
}
_RESNET_TRAINING: Mapping[Scale, Training | Pretrained] = {
    "smoke": Training(steps=2, batch_size=4),
    "cpu": Training(steps=200, batch_size=16, learning_rate=0.02),
    "long": Pretrained("resnet20-16-cifar10.safetensors", "python benchmarks/resnet20_weights.py"),
    "full": Training(steps=40_000, batch_size=128, learning_rate=0.05),
}

_FRESH = 2_000
"""The first test image at scale long: no recipe was tuned on those from there on."""

_PAPERS_START = "kaiming"
"""The initialisation of the paper's residual networks, which is harder to attack than torch's own."""


def federated_attack(tv_weight: float) -> Attack:
    """The attack on clients of several local steps: as `inverting_gradients`, at ten times its rate [appendix C]."""
    # A rate of 1 in normalised pixels.
    return replace(inverting_gradients(tv_weight), optimiser=SignedAdam(learning_rate=0.25, schedule=StepDecay()))


def midway_attack(client: _Client) -> Attack:
    """Our attack on such clients: one gradient in the middle of their way, at the rate and schedule of `best`."""
    return MidwayMatching(
        GradientMatching(
            priors=(TotalVariation(3e-3 if client.images > 4 else 1e-3),),
            parametrisation=Pixels(spread=0.1),
            optimiser=SignedAdam(0.1, CosineDecay()),
            differentiation=FrozenDifference(),
            budget=Budget(steps=4_800),
        )
    )


def _limit(
    attack: Attack, scale: Scale, *, seconds: float | None = None, steps: int | None = None, long: float | None = None
) -> Attack:
    """On a CPU at most so many of its seconds, or so many steps; at scale long at most so many seconds."""
    own = budget_of(attack)
    most = own and own.steps
    return limit(
        attack,
        scale,
        cpu=Budget(steps=steps or most, seconds=seconds, clock="cpu"),
        long=Budget(steps=most, seconds=long, clock="cpu"),
    )


def _resnet(depth: int, width: int, scale: Scale, *, narrow: int) -> ResNet:
    """The paper's network; ``narrow`` is its width at scale long."""
    if scale in ("smoke", "cpu"):
        return ResNet(depth, max(1, width // 16) if scale == "smoke" else width)
    return ResNet(depth, narrow if scale == "long" else width, initialisation=_PAPERS_START)


def _later(scale: Scale) -> InOrder:
    return InOrder(_FRESH if scale == "long" else 0)


def _first(scale: Scale) -> InOrder:
    """Our recipes were tuned on images below 100; at full scale they are the paper's own."""
    return InOrder(at_scale({"smoke": 0, "cpu": 100, "long": _FRESH, "full": 0}, scale))


def _convnet(scale: Scale, *, several: bool) -> ConvNet | LeNet:
    if scale == "long":
        # A step through it takes a tenth of the time, so that searches through local steps come to an end.
        return LeNet(width=24) if several else lenet_zhu()
    # A quarter of the paper's 64 channels on a CPU where a step through several images or steps takes too long.
    return ConvNet(at_scale({"smoke": 2, "cpu": 16 if several else 64, "full": 64}, scale))


_TABLE1_SECONDS: Mapping[str, tuple[float, float]] = {
    f"{_LENET}: {_EUCLIDEAN}": (20.0, 8.0),
    f"{_LENET}: {_PROPOSED}": (12.0, 12.0),
    f"{_LENET}: {_OURS}": (8.0, 8.0),
    f"{_RESNET}: {_EUCLIDEAN}": (5.0, 5.0),
    f"{_RESNET}: {_PROPOSED}": (10.0, 10.0),
    f"{_RESNET}: {_OURS}": (25.0, 8.0),
}
"""At scale long, of one core for one image of the untrained and of the trained model."""


def _table1(architecture: str, trained: bool, attack_name: str, scale: Scale) -> Setting:
    small = architecture == _LENET
    # The restarts of appendix C.1, fewer where they would leave no time for steps.
    restarts = at_scale({"smoke": 2, "cpu": 1, "full": 16 if small else 8}, scale)
    attacks: Mapping[str, Callable[[], Attack]] = {
        _EUCLIDEAN: lambda: idlg(_LBFGS_STEPS, restarts),
        _PROPOSED: lambda: inverting_gradients(_TABLE4[architecture, trained]),
        _OURS: lambda: best(steps=4_800),
    }
    # Six thousand evaluations of L-BFGS take a minute on LeNet, spent where the paper's number is high.
    slow = small and attack_name == _EUCLIDEAN and not trained
    seconds = 35.0 if not small else 60.0 if slow else 6.0
    long = _TABLE1_SECONDS[f"{architecture}: {attack_name}"][trained]
    training = at_scale(_LENET_TRAINING if small else _RESNET_TRAINING, scale)
    nulls = {"smoke": 1, "cpu": 2 if small and not slow else 1, "long": 2 if small else 1, "full": 10}
    return Setting(
        # The trained one has the width of the weights at hand, the other one that lets our own attack see spans.
        model=lenet_zhu() if small else _resnet(20, 64, scale, narrow=16 if trained else 32),
        attack=_limit(attacks[attack_name](), scale, seconds=seconds, long=long),
        updates=at_scale({"smoke": 1, "cpu": 6 if slow else 12 if small else 3, "long": 5, "full": 100}, scale),
        nulls=nulls[scale],
        training=training if trained else None,
        draw=_first(scale),
    )


def _on_local_steps(client: _Client, tv_weight: float | None, scale: Scale) -> Attack:
    """The paper's attack with its weight of total variation, that of LeNet where that is attacked; ours without one."""
    if tv_weight is None:
        return midway_attack(client)
    return federated_attack(_TABLE4[_LENET, False] if scale == "long" else tv_weight)


def _table2(client: _Client, tv_weight: float | None, scale: Scale) -> Setting:
    return Setting(
        model=_convnet(scale, several=client.images > 1),
        attack=_limit(_on_local_steps(client, tv_weight, scale), scale, seconds=100.0, long=8.0),
        updates=at_scale({"smoke": 1, "cpu": 2, "long": 5, "full": 100}, scale),
        nulls=at_scale({"smoke": 1, "cpu": 1, "full": 10}, scale),
        batch_size=client.images,
        local_update=FedAvg(client.epochs, client.minibatch, _LOCAL_RATE),
        draw=_later(scale),
    )


def _table3(attack: GradientMatching, scale: Scale) -> Setting:
    return Setting(
        model=lenet_zhu() if scale == "long" else _resnet(18, 64, scale, narrow=64),
        attack=_limit(attack, scale, seconds=90.0, long=8.0),
        updates=at_scale({"smoke": 1, "cpu": 2, "long": 5, "full": 10}, scale),
        nulls=at_scale({"smoke": 1, "cpu": 1, "full": 10}, scale),
        training=at_scale(_LENET_TRAINING if scale == "long" else _RESNET_TRAINING, scale),
        draw=_later(scale),
    )


def _figure4(depth: int, width: int, attack: Attack, scale: Scale) -> Setting:
    return Setting(
        model=_resnet(depth, width, scale, narrow=max(4, width // 4)),
        # Equal steps, not equal seconds: otherwise the narrow models would get thirty times the steps of the wide.
        attack=_limit(attack, scale, steps=100, long=10.0),
        updates=at_scale({"smoke": 1, "cpu": 2, "long": 5, "full": 10}, scale),
        nulls=at_scale({"smoke": 1, "cpu": 1, "full": 10}, scale),
        draw=_later(scale),
    )


def _figure5(steps: int, rate: float, tv_weight: float | None, scale: Scale) -> Setting:
    many = steps > 5
    return Setting(
        model=_convnet(scale, several=scale != "long"),
        attack=_limit(
            _on_local_steps(_Client(steps, 1, 1), tv_weight, scale),
            scale,
            seconds=300.0 if many else 60.0,
            long=8.0,
        ),
        updates=at_scale({"smoke": 1, "cpu": 1 if many else 2, "long": 5, "full": 10}, scale),
        nulls=at_scale({"smoke": 1, "cpu": 1, "full": 10}, scale),
        local_update=FedAvg(6 if many and scale == "smoke" else steps, 1, rate),
        draw=_later(scale),
    )


def _figure5_label(steps: int, rate: float) -> str:
    return f"{steps} step{'s' * (steps > 1)}, rate 1e{round(math.log10(rate))}"


def _figure6(scale: Scale) -> Setting:
    return Setting(
        model=LeNet(width=64) if scale == "long" else ResNet(32, at_scale({"smoke": 1, "cpu": 16, "full": 160}, scale)),
        attack=_limit(inverting_gradients(steps=24_000), scale, seconds=600.0, long=75.0),
        updates=1,
        batch_size=at_scale({"smoke": 4, "cpu": 16, "long": 100, "full": 100}, scale),
        training=Training(steps=3_900, batch_size=128, learning_rate=0.05) if scale == "full" else None,
        draw=_later(scale),
    )


def _rows(source: str, settings: Mapping[str, Callable[[Scale], Setting]]) -> tuple[Row, ...]:
    """A row for each setting, with what is published under its label; the rows of our own say that they are."""

    def published(label: str) -> Published | None:
        mean, deviation = PUBLISHED.get(source, {}).get(label, (None, None))
        spread: Any = "standard error" if source == _TABLE3 else "standard deviation"
        return None if _OURS in label else Published(mean, deviation, source, spread)

    return tuple(Row(label, published(label), at) for label, at in settings.items())


_LONG_RESNETS = (
    "At cpu scale residual networks start as torch starts them; at long and full scale by Kaiming's rule, fan out, as "
    "the paper's do, which is harder to attack. At long scale the images are those from 2000 on."
)
_LONG_LENET = (
    "At scale long the net is a LeNet, through whose local steps a search comes to an end within seconds, with the "
    "paper's weight of total variation for it (Table 4); images from 2000 on."
)

TABLES: tuple[Table, ...] = (
    Table(
        name="geiping2020/table1",
        title="Geiping et al. 2020, Table 1: one image from one gradient, against Euclidean distance with L-BFGS",
        dataset=Cifar10(),
        rows=_rows(
            "Table 1",
            {
                f"{architecture}, {'trained' if trained else 'untrained'}: {attack}": partial(
                    _table1, architecture, trained, attack
                )
                for attack in (_EUCLIDEAN, _PROPOSED, _OURS)
                for architecture in (_LENET, _RESNET)
                for trained in (False, True)
            },
        ),
        assumptions=(
            "Our L-BFGS keeps pixels in [0, 1] and searches along the line; the paper's took steps of 1e-4.",
            "Its 300 iterations are taken as calls of torch's L-BFGS, 20 evaluations each: 6000 of our steps.",
            "At cpu scale this baseline has one restart and, on the untrained LeNet, 60 seconds where others have 6.",
            "Models are trained here by plain SGD without augmentation; the paper does not give its schedule.",
            "At cpu scale the images are those from 100 on, at long those from 2000 on, as our recipe was tuned on "
            "earlier ones; at full scale they are the paper's, 0 to 99, and our own row is flattered.",
            f"{_LONG_RESNETS} The trained one has weights of another training, 16 channels wide.",
        ),
    ),
    Table(
        name="geiping2020/table2",
        title="Geiping et al. 2020, Table 2: federated averaging, E epochs over n images in mini-batches of B",
        dataset=Cifar10(),
        rows=_rows(
            "Table 2",
            {
                **{str(client): partial(_table2, client, tv) for client, tv in _CLIENTS.items()},
                **{f"{client}: {_OURS}": partial(_table2, client, None) for client in _CLIENTS},
            },
        ),
        assumptions=(
            "The head of Table 2 names settings that cannot be (1 image, batch size 8); the order is that of Table 5.",
            "The clients' learning rate is not given for this table; 1e-4 as in Figure 5.",
            _LONG_LENET,
            "Rows of our own explain the update by one gradient in the middle of the client's way, which is cheaper "
            "than its steps one by one and, at such a rate, nearly the same.",
            "Images are paired with originals by least squared error; ± is over updates, each the mean of its images.",
        ),
    ),
    Table(
        name="geiping2020/table3",
        title="Geiping et al. 2020, Table 3: ablation on a trained ResNet-18",
        dataset=Cifar10(),
        rows=_rows(
            _TABLE3,
            {
                "basic setup": partial(_table3, inverting_gradients()),
                "L2 loss instead of cosine similarity": partial(_table3, inverting_gradients_l2()),
                "without total variation": partial(_table3, inverting_gradients_no_tv()),
                "L-BFGS instead of Adam": partial(_table3, inverting_gradients_lbfgs()),
            },
        ),
        assumptions=(
            "± is the standard error in the paper, the standard deviation over updates in our column.",
            "At scale long the net is the trained LeNet of Table 1, whose steps are cheap; images from 2000 on.",
            "The number of iterations is not given; 4800 at full scale, as in appendix C.1.",
        ),
    ),
    Table(
        name="geiping2020/figure4",
        title="Geiping et al. 2020, Figure 4: width and depth of the network",
        dataset=Cifar10(),
        rows=_rows(
            "Figure 4",
            {
                **{label: partial(_figure4, *net, inverting_gradients()) for label, net in _FIGURE4.items()},
                **{f"{label}: {_OURS}": partial(_figure4, *net, best(steps=4_800)) for label, net in _FIGURE4.items()},
            },
        ),
        assumptions=(
            "Whether the models are trained is not said; taken as untrained.",
            f"{_LONG_RESNETS} Each is a quarter as wide as in the paper.",
            "The paper's ± is the average standard deviation of one experiment, ours that over images.",
            "The number of iterations is not given; 4800 at full scale, as in appendix C.1.",
        ),
    ),
    Table(
        name="geiping2020/figure5",
        title="Geiping et al. 2020, Figure 5: number of local steps and their learning rate, one image",
        dataset=Cifar10(),
        rows=_rows(
            "Figure 5: PSNR printed in the picture only",
            {
                **{_figure5_label(*at): partial(_figure5, *at, 1e-4) for at in _FIGURE5},
                **{
                    f"{_figure5_label(*at)}: {_OURS}": partial(_figure5, *at, None)
                    for at in _FIGURE5
                    if at in ((5, 1e-4), (100, 1e-4), (5, 1e-1))
                },
            },
        ),
        assumptions=(
            "The text says that 100 steps leave the quality unimpeded and that a rate of 1e-1 is the one failure.",
            "The figure shows one image; the other numbers of steps and rates are chosen here.",
            _LONG_LENET,
            "Rows of our own explain the update by one gradient in the middle of the client's way.",
        ),
    ),
    Table(
        name="geiping2020/figure6",
        title="Geiping et al. 2020, Figure 6: a batch of 100 CIFAR-100 images, ResNet32-10",
        dataset=Cifar100(),
        rows=_rows("Figure 6: no PSNR given", {"batch of images, one gradient": _figure6}),
        assumptions=(
            "The best images are picked by comparison with the originals, as in the paper; those of the null likewise.",
            "No label comes twice.",
            "At scale long the net is a LeNet of 64 channels, untrained, whose steps are cheap; images from 2000 on.",
            "The authors' notebook trains the model for ten epochs, as does full scale; below that it is untrained.",
        ),
        best=5,
    ),
)
