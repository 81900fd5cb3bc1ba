"""CI-Net's claim where batches of 16 to 64 do come back: images no two of which share a class.

Of an untrained network the cotangents of two images of one class are all but equal, and so only their sum is seen. Ten
classes make that of any batch beyond ten images, and a search that ends there says nothing about its search space.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from leakgauge.attacks.base import Attack
from leakgauge.attacks.budget import Budget
from leakgauge.attacks.recipes import quasi_newton, tuned_ci_net
from leakgauge.data import Cifar100
from leakgauge.models import LeNet
from leakgauge.reproduce.draws import InOrder
from leakgauge.reproduce.measures.updates import Setting, limit
from leakgauge.reproduce.papers.cinet.tables import AFFINE, balanced_pixels
from leakgauge.reproduce.scales import Scale, at_scale
from leakgauge.reproduce.table import Row, Table

ATTACKS: Mapping[str, Callable[[], Attack]] = {
    "CI-Net": tuned_ci_net,
    "pixels, balanced": balanced_pixels,
    "pixels, L-BFGS": quasi_newton,
}
SECONDS: Mapping[int, float] = {16: 40.0, 32: 80.0, 64: 160.0}
"""Of CPU time for one attack at scale long, by the size of the batch."""
_METRICS = ("psnr", "psnr_affine", "ssim")


def _setting(batch_size: int, attack: Callable[[], Attack], scale: Scale) -> Setting:
    seconds = SECONDS[batch_size]
    return Setting(
        model=LeNet(
            convolutions=2,
            initial_range=None,
            width=at_scale({"smoke": 2, "cpu": 32, "full": 64}, scale),
            batch_norm=True,
        ),
        attack=limit(
            attack(),
            scale,
            cpu=Budget(seconds=seconds / 4, clock="cpu"),
            long=Budget(seconds=seconds, clock="cpu"),
            full=Budget(steps=10_000),
        ),
        updates=at_scale({"smoke": 1, "cpu": 1, "long": 3, "full": 10}, scale),
        batch_size=2 if scale == "smoke" else batch_size,
        mode="train",
        draw=InOrder(at_scale({"smoke": 0, "cpu": 2_000, "long": 2_000, "full": 2_000}, scale)),
    )


TABLES = (
    Table(
        name="cinet/distinct",
        title="CI-Net beside pixel-space matching on batches in which no class comes twice (ours, not in the paper)",
        dataset=Cifar100(),
        rows=tuple(
            Row(f"batch {size}: {label}", None, partial(_setting, size, attack), group=f"batch {size}", arm=label)
            for size in SECONDS
            for label, attack in ATTACKS.items()
        ),
        assumptions=(
            f"CPU seconds an attack: {', '.join(f'{own:g} at batch {size}' for size, own in SECONDS.items())}, a "
            "quarter of it at cpu scale; images from 2000 on.",
            "An untrained sigmoid net of two 5x5 convolutions, 32 channels wide, with BatchNorm in train mode: 233,092 "
            "parameters, and a batch of 64 has 196,608 pixels.",
            "CIFAR-100, so that a batch of 64 has 64 classes, where the paper's has ten: of two images of one class an "
            "untrained network's update tells hardly more than the sum.",
            "Labels are known, so that only the search space differs. CI-Net has a sigmoid output and a rate of 2e-3 "
            "that falls like a cosine.",
            "L-BFGS has a total variation of 1e-3: of 1e-2, 1e-3 and 1e-5 it was the best on a batch of tuning images.",
            AFFINE,
        ),
        metrics=_METRICS,
        shown=len(_METRICS),
    ),
)
