"""How well models learn from encryptions: Table 2 and Figures 3 and 4."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from leakgauge.data import Cifar10
from leakgauge.defences import DPSGD, Defence, NoDefence
from leakgauge.encodings.crops import Cropping
from leakgauge.encodings.keys import KeySource
from leakgauge.encodings.schemes import CrossDataset, InsideDataset, Scheme
from leakgauge.models import Compact, QuickResNet, ResNet
from leakgauge.protocol.encoding import Mixing
from leakgauge.reproduce.measures.disguised_accuracy import DISGUISED, PLAIN, DisguisedAccuracy, Work
from leakgauge.reproduce.scales import Scale
from leakgauge.reproduce.table import Measure, Published, Row, Table
from leakgauge.schedules import CosineDecay, StepDecay, WarmUp
from leakgauge.training import Recipe
from leakgauge.training.disguises import Disguise, NoisyImages, Undisguised

TABLE2: Mapping[str, tuple[tuple[float, float | None], ...]] = {
    "vanilla": ((0.948, 0.001), (0.995, 0.001), (0.779, 0.002)),
    "DP-SGD": ((0.720, None), (0.981, None)),
    "inside, k=4, in inference": ((0.914, 0.002), (0.982, 0.002), (0.732, 0.002)),
    "inside, k=4": ((0.912, 0.002), (0.982, 0.003), (0.731, 0.003)),
    "cross, k=4, in inference": ((0.903, 0.002), (0.981, 0.002), (0.728, 0.003)),
    "cross, k=4": ((0.907, 0.002), (0.978, 0.002), (0.732, 0.002)),
    "cross, k=6, in inference": ((0.896, 0.003), (0.974, 0.002), (0.721, 0.002)),
    "cross, k=6": ((0.898, 0.003), (0.973, 0.001), (0.719, 0.003)),
}
"""Mean and standard deviation of test accuracy over five runs, on CIFAR-10, MNIST and CIFAR-100 in this order."""

ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9)

_QUICK = Recipe(64, 0.05, WarmUp(CosineDecay(), 0.1), epochs=40, weight_decay=5e-4)
"""The learning rate rises and falls once, so that a training of any length ends."""

WORK: Mapping[Scale, Work] = {
    "smoke": Work(Compact(width=4), Recipe(14, 0.02, CosineDecay(), steps=3), private=56, public=56, tested=28, runs=1),
    "cpu": Work(
        QuickResNet(16),
        replace(_QUICK, epochs=4),
        private=None,
        public=5000,
        tested=2000,
        runs=1,
        signless=QuickResNet(16, signless=True),
        moved=Cropping(margin=0),
        photographs="imagenet_sample",
    ),
    "long": Work(
        QuickResNet(32),
        _QUICK,
        private=None,
        public=5000,
        tested=4000,
        runs=1,
        signless=QuickResNet(32, signless=True),
        moved=Cropping(margin=4),
        photographs="imagenet_sample",
    ),
    "full": Work(
        ResNet(depth=18),
        Recipe(128, 0.1, StepDecay((0.5, 0.75)), epochs=200),
        private=None,
        public=10_000,
        tested=None,
        runs=5,
    ),
}

_OF_SINGLE_GRADIENTS = Work(
    Compact(width=16), Recipe(64, 0.05, CosineDecay(), steps=600), private=5000, public=5000, tested=1000, runs=1
)
"""DP-SGD on a CPU: the gradient of every single image is clipped, and with BatchNorm there is none."""

_AS_MUCH = (
    "the paper has 200 epochs of ResNet-18. All training images that are at hand (20,000 are in two of the five files, "
    "of 50,000), mirrored at random, at scale long also moved by up to four pixels, until the learning rate has fallen "
    "to zero. One run instead of five, so that the spread is over test images. Where a mask flips signs the network "
    "takes sizes alone, so that it need not learn that signs say nothing. DP-SGD: 5,000 images, 600 steps of 64, a "
    "network of three convolutions of 16 channels without BatchNorm, 1,000 test images."
)

_TRAINED_LESS: Mapping[Scale, str] = {
    "smoke": "56 training images, three steps, one run: this shows that the code runs.",
    "cpu": "{} epochs of a residual network of seven convolutions, 16 channels wide, 2,000 test images; {}".format(
        WORK["cpu"].recipe.epochs, _AS_MUCH
    ),
    "long": "{} epochs of a residual network of seven convolutions, 32 channels wide, 4,000 test images; {}".format(
        WORK["long"].recipe.epochs, _AS_MUCH
    ),
    "full": "Without the augmentation by crops and mirroring that is usual on CIFAR-10, which the paper does not speak "
    "of.",
}


@dataclass(frozen=True)
class FixedShares(Scheme):
    """sigma o ((1 - alpha) x_i + alpha x_j) [Huang et al., 2020, section 5.2]."""

    k: int = 2
    largest: float = 1.0
    alpha: float = 0.5

    @property
    def private_per_encoding(self) -> int:
        return self.k

    def draw(self, num_private: int, num_public: int, *, keys: KeySource) -> Mixing:
        drawn = super().draw(num_private, num_public, keys=keys)
        shares = torch.tensor([1 - self.alpha, self.alpha], dtype=torch.float64)
        return drawn._replace(coefficients=shares.expand(num_private, 2).contiguous())


_COMMON: dict[str, Any] = {
    "dataset": Cifar10(),
    "metrics": ("accuracy",),
    "null": "naming the most frequent class of the test images",
    "shrunk": _TRAINED_LESS,
}
_TRAINING_ASSUMPTIONS = (
    "Encryptions are drawn anew in every epoch; partners and coefficients over the whole training set.",
    "In inference: class probabilities averaged over ten encryptions of a test image, whose partners are other test "
    "images; otherwise plain test images.",
)


def _row(
    label: str,
    published: Published | None,
    disguise: Disguise | Scheme | None = None,
    asked: str = PLAIN,
    defence: Defence | None = None,
) -> Row:
    def at(scale: Scale) -> Measure:
        work = _OF_SINGLE_GRADIENTS if defence is not None and scale in ("cpu", "long") else WORK[scale]
        return DisguisedAccuracy(work, disguise or Undisguised(), defence or NoDefence())

    return Row(label, published, at, of=asked)


def _of_table2(label: str, disguise: Scheme | None = None, asked: str = PLAIN, defence: Defence | None = None) -> Row:
    own, *others = (Published(mean, spread, "Table 2") for mean, spread in TABLE2[label])
    also = {f"accuracy on {name}": one for name, one in zip(("MNIST", "CIFAR-100"), others)}
    return replace(_row(label, own, disguise, asked, defence), also=also)


def _both_ways(name: str, scheme: Scheme) -> tuple[Row, Row]:
    """One training, asked with and without encryption."""
    return _of_table2(f"{name}, in inference", scheme, DISGUISED), _of_table2(name, scheme)


_TABLE2 = Table(
    name="huang2020/table2",
    title="Huang et al. 2020, Table 2: test accuracy on CIFAR-10",
    rows=(
        _of_table2("vanilla"),
        _of_table2("DP-SGD", defence=DPSGD()),
        *_both_ways("inside, k=4", InsideDataset(4)),
        *_both_ways("cross, k=4", CrossDataset(4)),
        *_both_ways("cross, k=6", CrossDataset(6)),
    ),
    assumptions=(
        *_TRAINING_ASSUMPTIONS,
        "The paper takes DP-SGD from another one, which trains on features of public images; here it is trained "
        "from scratch, clipped to norm 1 with noise multiplier 1; its epsilon by Renyi accounting is in the row.",
        "Public images are patches of photographs with more than 40 SIFT key points, as in the paper, where there are "
        "at hand, and other training images of CIFAR-10 otherwise; the row says which.",
    ),
    **_COMMON,
)


def _of_figure3(k: int) -> Row:
    label = f"inside, k={k}, in inference"
    mean, spread = TABLE2[label][0] if label in TABLE2 else (None, None)
    source = "Figure 3, a plot" if mean is None else "Figure 3, as Table 2 prints it"
    scheme = InsideDataset(k, 1.0 if k == 1 else 0.65)
    return _row(label, Published(mean, spread, source), scheme, DISGUISED)


_FIGURE3 = Table(
    name="huang2020/figure3",
    title="Huang et al. 2020, Figure 3: test accuracy of inside-dataset InstaHide against k, CIFAR-10",
    rows=(_of_table2("vanilla"), *map(_of_figure3, range(1, 7))),
    assumptions=(
        *_TRAINING_ASSUMPTIONS,
        "The figure is a plot; its text says that k = 4 loses 3.4 points, and that k = 2 is better than k = 1.",
    ),
    **_COMMON,
)


def _of_figure4(alpha: float) -> tuple[Row, Row]:
    said = {0.1: (0.94, "section 5.2: about 94 %"), 0.9: (0.10, "section 5.2: about 10 %")}
    mean, source = said.get(alpha, (None, "Figure 4, a plot"))
    above = Published(None, None, "section 5.2: above 90 %")
    return (
        _row(f"InstaHide, alpha={alpha}", above, FixedShares(alpha=min(alpha, round(1 - alpha, 9)))),
        _row(f"Laplace noise, alpha={alpha}", Published(mean, None, source), NoisyImages(alpha)),
    )


_FIGURE4 = Table(
    name="huang2020/figure4",
    title="Huang et al. 2020, Figure 4: InstaHide (k=2) and Laplace noise of the same norm, CIFAR-10",
    rows=tuple(row for alpha in ALPHAS for row in _of_figure4(alpha)),
    assumptions=(
        "Encryptions and noise are drawn anew in every epoch.",
        "Both are asked about plain test images; the paper does not say how it asks, and with alpha > 1/2 an "
        "encryption of a test image would hold more of another image.",
        "Norms are those of pixels around the centre of their range; noise is not clipped.",
        "Two images that a permutation pairs at random, with shares 1 - alpha and alpha, have the same law, labels "
        "included, if the shares are exchanged: rows above a half are those below it, and that accuracy stays up to "
        "alpha = 0.9 says no more than that it does up to a half. Laplace noise has no such symmetry.",
        "The text says that InstaHide stays above 90 %, and that noise falls from about 94 % to about 10 %.",
    ),
    **_COMMON,
)

TABLES = (_TABLE2, _FIGURE3, _FIGURE4)
