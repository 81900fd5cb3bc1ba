"""What attacks on encryptions reach: Figures 7 and 8, and the tests of Table 4."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import isqrt
from statistics import fmean, stdev

from leakgauge.attacks.budget import Budget
from leakgauge.attacks.encodings.demasking import DemaskerTraining
from leakgauge.data import Cifar10
from leakgauge.encodings.crops import Cropping
from leakgauge.encodings.distributions import STATISTICS
from leakgauge.encodings.schemes import CrossDataset, Mixup, Scheme
from leakgauge.reproduce.measures.averaging import AveragingRecovery
from leakgauge.reproduce.measures.distributions import DistributionTests
from leakgauge.reproduce.measures.pools import RandomPools
from leakgauge.reproduce.measures.searching import LEARNED, HitShare, SearchHits
from leakgauge.reproduce.scales import Scale, at_scale
from leakgauge.reproduce.table import Measure, Published, Row, Table

OWN = " (not in the paper)"

TABLE4 = {
    "mean": (
        (0.49, 0.53, 0.54, 0.49, 0.51, 0.44, 0.45, 0.46, 0.53, 0.44),
        (0.49, 0.52, 0.53, 0.48, 0.51, 0.43, 0.45, 0.46, 0.53, 0.44),
    ),
    "std": (
        (0.54, 0.49, 0.55, 0.49, 0.50, 0.52, 0.48, 0.50, 0.53, 0.37),
        (0.54, 0.49, 0.55, 0.49, 0.50, 0.51, 0.48, 0.49, 0.53, 0.37),
    ),
    "total variation": (
        (0.54, 0.49, 0.55, 0.49, 0.50, 0.52, 0.48, 0.50, 0.53, 0.38),
        (0.54, 0.49, 0.55, 0.49, 0.50, 0.51, 0.47, 0.49, 0.53, 0.37),
    ),
    "location 1": (
        (0.61, 0.65, 0.61, 0.48, 0.60, 0.66, 0.62, 0.75, 0.60, 0.66),
        (0.61, 0.65, 0.61, 0.48, 0.60, 0.66, 0.62, 0.76, 0.60, 0.67),
    ),
    "location 2": (
        (0.58, 0.56, 0.68, 0.40, 0.72, 0.69, 0.52, 0.69, 0.67, 0.65),
        (0.58, 0.56, 0.68, 0.41, 0.72, 0.69, 0.52, 0.69, 0.67, 0.65),
    ),
    "location 3": (
        (0.61, 0.61, 0.69, 0.70, 0.66, 0.52, 0.64, 0.63, 0.54, 0.67),
        (0.61, 0.61, 0.69, 0.70, 0.66, 0.52, 0.65, 0.63, 0.54, 0.67),
    ),
    "location 4": (
        (0.59, 0.74, 0.58, 0.70, 0.50, 0.60, 0.67, 0.73, 0.59, 0.65),
        (0.59, 0.74, 0.58, 0.70, 0.50, 0.59, 0.66, 0.73, 0.59, 0.65),
    ),
}
"""Mean p-values of the ten images, against all encryptions and against those of other images."""


@dataclass(frozen=True)
class AttackSize:
    """How much is published and how long networks are trained, at a scale."""

    private: int
    copies: int
    queries: int
    public: int
    auxiliary: int
    seeds: int
    network: Budget
    widths: tuple[int, ...] = (48, 96, 144, 144)

    @property
    def pools(self) -> RandomPools:
        return RandomPools(4 * self.private, self.public, self.auxiliary)

    @property
    def demasker(self) -> DemaskerTraining:
        return DemaskerTraining(widths=self.widths, budget=self.network)


SIZES: Mapping[Scale, AttackSize] = {
    "smoke": AttackSize(10, 4, 6, public=40, auxiliary=100, seeds=1, network=Budget(steps=2), widths=(4, 4)),
    "cpu": AttackSize(
        50, 50, 50, public=2000, auxiliary=4000, seeds=1, network=Budget(seconds=60, clock="cpu"), widths=(32, 64, 96)
    ),
    "full": AttackSize(50, 50, 50, public=10_000, auxiliary=30_000, seeds=5, network=Budget(steps=20_000)),
}

_LESS_PUBLISHED: Mapping[Scale, str] = {
    "smoke": "10 private and 40 public images, networks trained for two steps: this shows that the code runs.",
    "cpu": "One seed; 2,000 public images instead of 10,000, from the same dataset instead of ImageNet; networks "
    "trained for a minute instead of a GAN on 50,000 examples.",
    "full": "Public images are of the same dataset instead of ImageNet, the demasker a U-Net trained for 20,000 steps.",
}

_TESTS: Mapping[Scale, DistributionTests] = {
    "smoke": DistributionTests(images=3, encryptions=12, alone=4, partners=20),
    "cpu": DistributionTests(images=10, encryptions=400, alone=50, partners=1000),
    "full": DistributionTests(images=10, encryptions=400, alone=50, partners=50_000),
}

_K = 6
_MIXUP, _INSTAHIDE = Mixup(_K, public=_K - 2), CrossDataset(_K)
"""Of Figures 7 and 8: two of six images are private; Mixup is cross-dataset InstaHide without its mask."""


def _attack_rows(
    name: str, at: Callable[[Scale], Measure], printed: Mapping[str, Published], *own: str
) -> tuple[Row, ...]:
    """Rows of attacks on the same encodings: those that the paper has, then our own."""
    return (
        *(
            Row(f"{name}: {attack.removesuffix(', published')}", published, at, of=attack)
            for attack, published in printed.items()
        ),
        *(Row(f"{name}: {attack}{OWN}", None, at, of=attack) for attack in own),
    )


def _average(scheme: Scheme, scale: Scale) -> Measure:
    size = at_scale(SIZES, scale)
    return AveragingRecovery(scheme, size.pools, size.private, size.copies, size.queries, size.seeds, size.demasker)


def _of_figure7(name: str, scheme: Scheme, strong: int, weak: int, *more: str) -> tuple[Row, ...]:
    at, pictures = partial(_average, scheme), "Figure 7, row {}: pictures"
    known = {"known sets, published": Published(None, None, pictures.format(strong))}
    nearest = {"nearest by SSIM, published": Published(None, None, pictures.format(weak))}
    return (
        *_attack_rows(name, at, known, "known sets, less the mean", "known sets, weighted by label"),
        *_attack_rows(name, at, nearest, "nearest by cosine", "nearest, whitened", *more),
    )


_FIGURE7 = Table(
    name="huang2020/figure7",
    title="Huang et al. 2020, Figure 7: averaging encryptions of the same image, k=6",
    dataset=Cifar10(),
    rows=(
        *_of_figure7("Mixup", _MIXUP, 2, 3),
        *_of_figure7("InstaHide", _INSTAHIDE, 4, 5, "nearest by magnitudes, whitened"),
    ),
    metrics=("psnr_fitted", "ssim_fitted", "identification_whitened", "precision"),
    null="the same estimates scored against another private image; for precision, all other encodings",
    assumptions=(
        "The figure shows pictures; ours are in the sheet beside the numbers.",
        "PSNR and SSIM are fitted by the best brightness and contrast of each estimate; identification is in "
        "whitened features among images of the same dataset that were not mixed.",
        "Precision: the share of encodings taken for neighbours that hold a private image of the one asked about.",
        "Two of the six images are private, as in Figure 8.",
    ),
    shrunk=_LESS_PUBLISHED,
    shown=3,
)


def _search(scheme: Scheme, crops: Cropping | None, scale: Scale) -> Measure:
    size = at_scale(SIZES, scale)
    depths = {"hit_rate": isqrt(size.public), "hit_rate_1": 1, "hit_rate_10": 10}
    return SearchHits(
        scheme,
        size.pools,
        size.queries,
        size.seeds,
        size.demasker,
        {name: HitShare("any", depth) for name, depth in depths.items()},
        crops,
        hard=True,
        similarity=size.network,
    )


_PLOT = {"SSIM, published": Published(None, None, "Figure 8, a plot")}
_LEARNED = {LEARNED: Published(0.05, None, "section 5.3: around 0.05 at m = sqrt(N)")}

_FIGURE8 = Table(
    name="huang2020/figure8",
    title="Huang et al. 2020, Figure 8: hit rate of similarity search for public images, k=6",
    dataset=Cifar10(),
    rows=(
        *_attack_rows(
            "Mixup",
            partial(_search, _MIXUP, None),
            _PLOT,
            "inner product, published",
            "inner product, whitened",
            "pursuit, whitened",
        ),
        *_attack_rows(
            "InstaHide",
            partial(_search, _INSTAHIDE, None),
            _PLOT,
            "fourth moment, published",
            "fourth moment, whitened",
            "demasked, whitened",
            "signs and images in turn",
        ),
        *_attack_rows(
            "InstaHide, random crops",
            partial(_search, _INSTAHIDE, Cropping()),
            _PLOT | _LEARNED,
            "every alignment, Laplacian",
        ),
    ),
    metrics=("hit_rate", "hit_rate_1", "hit_rate_10"),
    null="the same answers asked for the public images of another encoding",
    assumptions=(
        "Hit rate: the share of encodings with at least one of their public images among the first m answers, "
        "m = sqrt(N), 1 and 10.",
        "Crops are moved by up to four pixels and mirrored; the learned score is a small Siamese network, not VGG.",
        "An attack that names only as many images as were mixed in is not asked for more.",
    ),
    shrunk=_LESS_PUBLISHED,
    shown=3,
)


def _of_table4(statistic: str) -> Row:
    against_all, against_others = (
        Published(round(fmean(values), 3), round(stdev(values), 3), "Table 4, over its ten images")
        for values in TABLE4[statistic]
    )
    return Row(statistic, against_all, lambda scale: at_scale(_TESTS, scale), {"p_other": against_others}, of=statistic)


_TABLE4 = Table(
    name="huang2020/table4",
    title="Huang et al. 2020, Table 4: Kolmogorov-Smirnov tests of encryptions of ten images",
    dataset=Cifar10(),
    rows=tuple(map(_of_table4, STATISTICS)),
    metrics=("p_all", "p_other", "p_together", "distance"),
    null="the same tests with the encryptions dealt out to the images at random",
    assumptions=(
        "The table's ten rows are ten random images; here stand their mean and standard deviation.",
        "p_all and p_other test one encryption at a time, as published, which can hardly tell anything from "
        "anything; p_together tests all encryptions of an image at once against those of the others.",
        "Encryptions are inside-dataset with k = 4; the paper does not say which it tests.",
    ),
    shrunk={
        "smoke": "3 images with 12 encryptions each: this shows that the code runs.",
        "cpu": "Mixed with 1,000 training images instead of 50,000; otherwise as published.",
    },
    shown=3,
)

TABLES = (_FIGURE7, _FIGURE8, _TABLE4)
