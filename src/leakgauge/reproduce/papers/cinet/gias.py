"""GIAS and GIFD with a generator that is trained here, each beside itself on noise: what is the client's, what the
generator's? Table 4 of Zhang et al. 2023 (CI-Net) prints GIAS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from leakgauge.attacks.base import SteppedAttack
from leakgauge.attacks.budget import Budget
from leakgauge.attacks.matching import OnNoise
from leakgauge.attacks.recipes import gias, gifd
from leakgauge.data import Cifar10
from leakgauge.generative import GeneratorTrainingPlan
from leakgauge.reproduce.draws import InOrder
from leakgauge.reproduce.generators import WithGenerator
from leakgauge.reproduce.measures.updates import Setting, limit
from leakgauge.reproduce.papers.cinet.tables import AFFINE, victim
from leakgauge.reproduce.scales import Scale, at_scale
from leakgauge.reproduce.table import Published, Row, Table

PUBLISHED: Mapping[str, Published] = {
    "psnr": Published(16.06, 0.38, "Table 4"),
    "ssim": Published(0.87, 0.01, "Table 4"),
    "fsim": Published(0.94, 0.01, "Table 4"),
    "lpips_vgg": Published(0.04, 0.01, "Table 4"),
}
"""What the table prints of GIAS, for a batch of 64."""

SECONDS: Mapping[int, float] = {4: 20.0, 8: 30.0}
"""Of CPU time for one attack, by the size of the batch."""

STEPS: Mapping[Scale, int] = {"smoke": 2, "cpu": 6_000, "full": 100_000}
"""Of training the generator; at cpu scale some eight minutes of one core."""

_ATTACKS: Mapping[str, Callable[[], SteppedAttack]] = {
    "GIAS": gias,
    "GIAS on noise": lambda: OnNoise(gias()),
    "GIFD": gifd,
    "GIFD on noise": lambda: OnNoise(gifd()),
}
_METRICS = ("psnr", "ssim", "fsim", "psnr_affine")


def _setting(activation: str, batch_size: int, attack: Callable[[], SteppedAttack], scale: Scale) -> Setting:
    return Setting(
        model=victim(activation, scale),
        attack=WithGenerator(
            limit(attack(), scale, cpu=Budget(seconds=SECONDS[batch_size], clock="cpu")),
            width=4 if scale == "smoke" else 16 if scale in ("cpu", "long") else 64,
            training=GeneratorTrainingPlan(at_scale(STEPS, scale)),
        ),
        updates=at_scale({"smoke": 1, "cpu": 2, "long": 1, "full": 2}, scale),
        batch_size=2 if scale == "smoke" else batch_size,
        mode="train",
        draw=InOrder(at_scale({"smoke": 0, "cpu": 100, "long": 2_000, "full": 100}, scale)),
    )


def _rows() -> tuple[Row, ...]:
    rows = []
    for activation in ("sigmoid", "relu"):
        for batch_size in SECONDS:
            for label, attack in _ATTACKS.items():
                printed = PUBLISHED if (activation, batch_size, label) == ("sigmoid", 8, "GIAS") else {}
                at = partial(_setting, activation, batch_size, attack)
                # As in Tables 4 and 5, which have the paper's activation alone at that scale.
                left_out: frozenset[Scale] = frozenset({"long"} if activation == "relu" else ())
                rows.append(
                    Row.printed(f"{activation}, batch {batch_size}: {label}", printed, "psnr", at, left_out=left_out)
                )
    return tuple(rows)


TABLES: tuple[Table, ...] = (
    Table(
        name="cinet/gias",
        title="GIAS and GIFD with a generator trained here, each beside itself on noise (Zhang et al. 2023, Table 4)",
        dataset=Cifar10(),
        rows=_rows(),
        assumptions=(
            "The generator is a small DCGAN, trained by the experiment itself on the dataset's training images, which "
            f"the attacker is taken to hold: {STEPS['cpu']} steps and width 16 at cpu scale. Updates are of test "
            "images.",
            "On noise: the same attack, generator and budget, fed Gaussian noise of the update's length. What it "
            "scores is the generator's own; only what is above it came from the client.",
            f"CPU seconds an attack: {', '.join(f'{own:g} at batch {size}' for size, own in SECONDS.items())}; labels "
            "are known.",
            "The published numbers are of a batch of 64 and of a generator that the table does not describe; at cpu "
            "scale the victim is a LeNet with 32 channels and BatchNorm in train mode, at scale long a net of two "
            "convolutions of 16 channels, which gives its batches away; one update, of images from 2000 on.",
            AFFINE,
        ),
        metrics=_METRICS,
        shown=len(_METRICS),
    ),
)
