"""Huang, Song, Li, Arora 2020: InstaHide - Instance-hiding schemes for private distributed learning. ICML 2020,
arXiv:2010.02772. Tables 2 and 4 and Figures 3, 4, 7 and 8."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from statistics import fmean, stdev

from torch import Tensor

from leakgauge.attacks.encodings.search.crops import Cropping
from leakgauge.data import Cifar10
from leakgauge.defences import DPSGD
from leakgauge.encodings.distributions import STATISTICS
from leakgauge.encodings.schemes import CrossDataset, InsideDataset, Mixup, Scheme
from leakgauge.reproduce.experiment import Published
from leakgauge.reproduce.measures import training as encrypted_training
from leakgauge.reproduce.measures.training import FixedShares, Trains
from leakgauge.reproduce.papers.huang2020 import encodings
from leakgauge.reproduce.papers.huang2020.encodings import Averaging, Distinguishing, Searching
from leakgauge.reproduce.study import Line, Part, Study
from leakgauge.training.disguises import Disguise, Encrypted, NoisyImages

OWN = " (not in the paper)"

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

ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9)

_GUESS = "naming the most frequent class of the test images"
_TRAINING_ASSUMPTIONS = (
    "Encryptions are drawn anew in every epoch; partners and coefficients over the whole training set.",
    "In inference: class probabilities averaged over ten encryptions of a test image, whose partners are other test "
    "images; otherwise plain test images.",
)


def _of_table2(label: str) -> Line:
    own, *others = (Published(mean, spread, "Table 2") for mean, spread in TABLE2[label])
    return Line(label, own, {f"accuracy on {name}": one for name, one in zip(("MNIST", "CIFAR-100"), others)})


def _encrypted(scheme: Scheme, public: Tensor) -> Disguise:
    return Encrypted(scheme, public)


def _both_ways(name: str, scheme: Scheme) -> Part:
    """One training, asked with and without encryption."""
    plain, disguised = f"{name}", f"{name}, in inference"
    return Part(name, (_of_table2(disguised), _of_table2(plain)), Trains(plain, disguised, partial(_encrypted, scheme)))


def _noisy(alpha: float, public: Tensor) -> Disguise:
    del public
    return NoisyImages(alpha)


def _plain(line: Line, trains: Trains) -> Part:
    return Part(line.label, (line,), trains)


def _table2() -> Study:
    mixup, noise = f"Mixup, k=4{OWN}", f"Laplace noise, alpha=0.75{OWN}"
    return Study(
        name="huang2020/table2",
        title="Huang et al. 2020, Table 2: test accuracy on CIFAR-10",
        dataset=Cifar10(),
        parts=(
            _plain(_of_table2("vanilla"), Trains("vanilla", None)),
            _plain(_of_table2("DP-SGD"), Trains("DP-SGD", None, defence=DPSGD())),
            _plain(Line(mixup), Trains(mixup, None, partial(_encrypted, Mixup(4)))),
            _both_ways("inside, k=4", InsideDataset(4)),
            _both_ways("cross, k=4", CrossDataset(4)),
            _both_ways("cross, k=6", CrossDataset(6)),
            _plain(Line(noise), Trains(noise, None, partial(_noisy, 0.75))),
        ),
        metrics=("accuracy",),
        null=_GUESS,
        assumptions=(
            *_TRAINING_ASSUMPTIONS,
            "The paper takes DP-SGD from another one, which trains on features of public images; here it is trained "
            "from scratch, clipped to norm 1 with noise multiplier 1; its epsilon by Renyi accounting is in the row.",
            "Public images are other training images of CIFAR-10 where the paper has patches of ImageNet.",
            "Laplace noise as in Figure 4, of the norm of three quarters of an image, which is what k=4 mixes in.",
        ),
        shrunk=encrypted_training.SHRUNK,
    )


def _figure3() -> Study:
    def one(k: int) -> Part:
        label = f"inside, k={k}, in inference"
        mean, spread = TABLE2[label][0] if label in TABLE2 else (None, None)
        source = "Figure 3, a plot" if mean is None else "Figure 3, as Table 2 prints it"
        return Part(
            label,
            (Line(label, Published(mean, spread, source)),),
            Trains(None, label, partial(_encrypted, InsideDataset(k, 1.0 if k == 1 else 0.65))),
        )

    return Study(
        name="huang2020/figure3",
        title="Huang et al. 2020, Figure 3: test accuracy of inside-dataset InstaHide against k, CIFAR-10",
        dataset=Cifar10(),
        parts=(_plain(_of_table2("vanilla"), Trains("vanilla", None)), *(one(k) for k in range(1, 7))),
        metrics=("accuracy",),
        null=_GUESS,
        assumptions=(
            *_TRAINING_ASSUMPTIONS,
            "The figure is a plot; its text says that k = 4 loses 3.4 points, and that k = 2 is better than k = 1.",
        ),
        shrunk=encrypted_training.SHRUNK,
    )


def _figure4() -> Study:
    said = {0.1: (0.94, "section 5.2: about 94 %"), 0.9: (0.10, "section 5.2: about 10 %")}

    def instahide(alpha: float) -> Part:
        label = f"InstaHide, alpha={alpha}"
        line = Line(label, Published(None, None, "section 5.2: above 90 %"))
        return _plain(line, Trains(label, None, partial(_encrypted, FixedShares(alpha=alpha))))

    def noise(alpha: float) -> Part:
        label = f"Laplace noise, alpha={alpha}"
        mean, source = said.get(alpha, (None, "Figure 4, a plot"))
        return _plain(Line(label, Published(mean, None, source)), Trains(label, None, partial(_noisy, alpha)))

    return Study(
        name="huang2020/figure4",
        title="Huang et al. 2020, Figure 4: InstaHide (k=2) and Laplace noise of the same norm, CIFAR-10",
        dataset=Cifar10(),
        parts=tuple(part for alpha in ALPHAS for part in (instahide(alpha), noise(alpha))),
        metrics=("accuracy",),
        null=_GUESS,
        assumptions=(
            "Encryptions and noise are drawn anew in every epoch.",
            "Both are asked about plain test images; the paper does not say how it asks, and with alpha > 1/2 an "
            "encryption of a test image would hold more of another image.",
            "Norms are those of pixels around the centre of their range; noise is not clipped.",
            "The text says that InstaHide stays above 90 %, and that noise falls from about 94 % to about 10 %.",
        ),
        shrunk=encrypted_training.SHRUNK,
    )


def _figure7() -> Study:
    strong = ("known sets, published", "known sets, less the mean", "known sets, weighted by label")
    weak = ("nearest by SSIM, published", "nearest by cosine", "nearest, whitened")

    def part(name: str, scheme: Scheme, rows: tuple[int, int], *more: str) -> Part:
        sources = dict(zip((strong[0], weak[0]), (f"Figure 7, row {row}: pictures" for row in rows)))
        lines = {
            attack: Line(f"{name}: {attack.removesuffix(', published')}", Published(None, None, sources[attack]))
            if attack in sources
            else Line(f"{name}: {attack}{OWN}")
            for attack in (*strong, *weak, *more)
        }
        return Part(name, tuple(lines.values()), Averaging(scheme, {one: line.label for one, line in lines.items()}))

    return Study(
        name="huang2020/figure7",
        title="Huang et al. 2020, Figure 7: averaging encryptions of the same image, k=6",
        dataset=Cifar10(),
        parts=(
            part("Mixup", encodings.mixup(), (2, 3)),
            part("InstaHide", encodings.instahide(), (4, 5), "nearest by magnitudes, whitened"),
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
        shrunk=encodings.SHRUNK,
        shown=3,
    )


def _figure8() -> Study:
    def part(
        name: str,
        scheme: Scheme,
        printed: Mapping[str, Published],
        own: tuple[str, ...],
        crops: Cropping | None = None,
    ) -> Part:
        lines = {
            attack: Line(f"{name}: {attack.removesuffix(', published')}", published)
            for attack, published in printed.items()
        } | {attack: Line(f"{name}: {attack}{OWN}") for attack in own}
        labels = {attack: line.label for attack, line in lines.items()}
        return Part(name, tuple(lines.values()), Searching(scheme, labels, crops))

    plot = Published(None, None, "Figure 8, a plot")
    mixed = ("inner product, published", "inner product, whitened", "pursuit, whitened")
    masked = ("fourth moment, published", "fourth moment, whitened", "demasked, whitened", "signs and images in turn")
    return Study(
        name="huang2020/figure8",
        title="Huang et al. 2020, Figure 8: hit rate of similarity search for public images, k=6",
        dataset=Cifar10(),
        parts=(
            part("Mixup", encodings.mixup(), {"SSIM, published": plot}, mixed),
            part("InstaHide", encodings.instahide(), {"SSIM, published": plot}, masked),
            part(
                "InstaHide, random crops",
                encodings.instahide(),
                {
                    "SSIM, published": plot,
                    "learned similarity": Published(0.05, None, "section 5.3: around 0.05 at m = sqrt(N)"),
                },
                ("every alignment, Laplacian",),
                crops=Cropping(),
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
        shrunk=encodings.SHRUNK,
        shown=3,
    )


def _table4() -> Study:
    lines = {}
    for name in STATISTICS:
        against_all, against_others = (
            Published(round(fmean(values), 3), round(stdev(values), 3), "Table 4, over its ten images")
            for values in TABLE4[name]
        )
        lines[name] = Line(name, against_all, {"p_other": against_others})
    return Study(
        name="huang2020/table4",
        title="Huang et al. 2020, Table 4: Kolmogorov-Smirnov tests of encryptions of ten images",
        dataset=Cifar10(),
        parts=(
            Part("tests", tuple(lines.values()), Distinguishing({name: line.label for name, line in lines.items()})),
        ),
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


STUDIES = (_table2(), _figure3(), _figure4(), _figure7(), _figure8(), _table4())
