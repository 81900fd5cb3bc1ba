"""What attacks on published encodings find, for studies."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from leakgauge.attacks.budget import Budget
from leakgauge.attacks.encodings.demasking.demasker import Demasker, DemaskerTraining, load_demasker
from leakgauge.attacks.encodings.search.base import PublicImageAttack
from leakgauge.attacks.encodings.search.crops import Cropping
from leakgauge.attacks.encodings.search.similarity import SimilarityTraining
from leakgauge.attacks.encodings.views import AsPublished, View
from leakgauge.encodings.distributions import STATISTICS, Difference, compare
from leakgauge.encodings.keys import SeededKeys
from leakgauge.encodings.schemes import CrossDataset, InsideDataset, Mixup, Scheme, apply
from leakgauge.progress import Progress, Tick
from leakgauge.protocol.encoding import Mixing
from leakgauge.randomness import seeded
from leakgauge.reproduce.experiment import Scale
from leakgauge.reproduce.measures.averaging import Averages, average_encryptions
from leakgauge.reproduce.measures.publication import Deployment, Pools
from leakgauge.reproduce.measures.recovery import Recovery
from leakgauge.reproduce.measures.searching import (
    SearchRow,
    attacks_by_similarity,
    attacks_on_instahide,
    attacks_on_mixup,
    search_public_images,
)
from leakgauge.reproduce.result import Measured
from leakgauge.reproduce.study import Bench, Found, data_key, over_seeds
from leakgauge.types import Batch

K = 6
"""Images in an encoding of Figures 7 and 8, two of them private."""


@dataclass(frozen=True)
class Size:
    """How much is published and how long networks are trained, at a scale."""

    private: int
    copies: int
    queries: int
    public: int
    auxiliary: int
    seeds: int
    network: Budget
    widths: tuple[int, ...] = (48, 96, 144, 144)


SIZES: Mapping[Scale, Size] = {
    "smoke": Size(10, 4, 6, public=40, auxiliary=100, seeds=1, network=Budget(steps=2), widths=(4, 4)),
    "cpu": Size(
        50, 50, 50, public=2000, auxiliary=4000, seeds=1, network=Budget(seconds=60, clock="cpu"), widths=(32, 64, 96)
    ),
    "full": Size(50, 50, 50, public=10_000, auxiliary=30_000, seeds=5, network=Budget(steps=20_000)),
}

SHRUNK: Mapping[Scale, str] = {
    "smoke": "10 private and 40 public images, networks trained for two steps: this shows that the code runs.",
    "cpu": "One seed; 2,000 public images instead of 10,000, from the same dataset instead of ImageNet; networks "
    "trained for a minute instead of a GAN on 50,000 examples.",
    "full": "Public images are of the same dataset instead of ImageNet, the demasker a U-Net trained for 20,000 steps.",
}


@dataclass(frozen=True)
class Averaging:
    """Figure 7: the strong and the weak attacker on one scheme; ``labels`` name the rows of the study's attacks."""

    scheme: Scheme
    labels: Mapping[str, str]

    def __call__(self, bench: Bench) -> dict[str, Found]:
        size, pools = SIZES[bench.scale], pools_of(bench)
        view: View = demasker_of(bench, pools) if self.scheme.signed else AsPublished()
        begun = time.perf_counter()
        rows = average_encryptions(
            pools,
            self.scheme,
            {"": view},
            private=size.private,
            copies=size.copies,
            queries=size.queries,
            seeds=_seeds(bench),
            decoys=pools.auxiliary,
            tell=counted(bench, len(self.labels) * size.seeds),
        )
        seconds = (time.perf_counter() - begun) / len(rows)
        by_label = {
            label: [one for one in rows if one.row.attack.removeprefix(", ") == attack]
            for attack, label in self.labels.items()
        }
        return {label: _averaged(own, seconds) for label, own in by_label.items()}


@dataclass(frozen=True)
class Searching:
    """Figure 8: similarity search for public images; ``labels`` name the rows of the study's attacks."""

    scheme: Scheme
    labels: Mapping[str, str]
    crops: Cropping | None = None

    def __call__(self, bench: Bench) -> dict[str, Found]:
        size, pools = SIZES[bench.scale], pools_of(bench)
        depth = math.isqrt(len(pools.public))
        rows = search_public_images(
            pools,
            self.scheme,
            {name: attack for name, attack in self._attacks(bench, pools, depth).items() if name in self.labels},
            queries=size.queries,
            seeds=_seeds(bench),
            depths=sorted({1, self.scheme.public_per_encoding, 10, depth}),
            deployment=Deployment(public_crops=self.crops),
            tell=counted(bench, len(self.labels)),
        )
        return {
            label: _searched([one for one in rows if one.attack == attack], depth)
            for attack, label in self.labels.items()
        }

    def _attacks(self, bench: Bench, pools: Pools, most: int) -> dict[str, PublicImageAttack]:
        most = max(most, 10)
        if not self.scheme.signed:
            return attacks_by_similarity(AsPublished(), most=most) | attacks_on_mixup(most)
        demasker = demasker_of(bench, pools)
        if self.crops is None:
            return attacks_by_similarity(demasker.hard(), most=most) | attacks_on_instahide(demasker, most)
        training = SimilarityTraining(view=demasker, cropping=self.crops, budget=SIZES[bench.scale].network)
        learned = training(
            pools.auxiliary,
            self.scheme.k,
            generator=seeded(bench.seed, "similarity"),
            progress=told(bench, "training the similarity"),
        )
        return attacks_by_similarity(demasker.hard(), learned=learned, cropping=self.crops, most=most)


@dataclass(frozen=True)
class Distinguishing:
    """Table 4: Kolmogorov-Smirnov tests of encryptions of ten images; ``labels`` name the rows of the statistics."""

    labels: Mapping[str, str]
    scheme: Scheme = field(default_factory=InsideDataset)

    def __call__(self, bench: Bench) -> dict[str, Found]:
        images, copies, singles, partners = _TESTS[bench.scale]
        begun = time.perf_counter()
        encodings = _encryptions(bench, self.scheme, images, copies, partners)
        bench.watch.step("testing", 0.5)
        found = compare(encodings, singles=singles, generator=seeded(bench.seed, "tests"))
        shuffled = encodings.flatten(0, 1)[torch.randperm(images * copies, generator=seeded(bench.seed, "null"))]
        null = compare(shuffled.view_as(encodings), singles=singles, generator=seeded(bench.seed, "tests"))
        seconds = (time.perf_counter() - begun) / len(STATISTICS)
        setting = {"scheme": repr(self.scheme), "images": images, "encryptions": copies, "tested_alone": singles}
        return {
            label: Found(_tested(found, name), _tested(null, name), seconds, setting)
            for name, label in self.labels.items()
        }


_TESTS: Mapping[Scale, tuple[int, int, int, int]] = {
    "smoke": (3, 12, 4, 20),
    "cpu": (10, 400, 50, 1000),
    "full": (10, 400, 50, 50_000),
}
"""Images tested, encryptions of each, how many of them are tested alone, and images to mix with."""


def pools_of(bench: Bench) -> Pools:
    """Private, public and auxiliary images: disjoint parts of the training images, in a random order."""
    size, train = SIZES[bench.scale], bench.data.train
    order = torch.randperm(len(train), generator=seeded(bench.seed, "pools"))
    # Of fewer images than asked for, the attacker's own are the ones that are missing.
    private, public, auxiliary = order[:-1].tensor_split((4 * size.private, 4 * size.private + size.public))
    return Pools(train[private], train.inputs[public], train.inputs[auxiliary[: size.auxiliary]])


def demasker_of(bench: Bench, pools: Pools) -> Demasker:
    """The demasker for mixtures of ``K`` images; trained once, and kept for the other parts."""
    size = SIZES[bench.scale]
    training = DemaskerTraining(widths=size.widths, budget=size.network)
    return kept_demasker(bench, training, pools.auxiliary, K)


def kept_demasker(bench: Bench, training: DemaskerTraining, auxiliary: Tensor, k: int, *words: str) -> Demasker:
    """A demasker for mixtures of k images, read if its training was kept; ``words`` say which auxiliary images."""
    path = bench.folder / f"{data_key((repr(training), str(k), *words), bench.data, bench.seed)}.safetensors"
    if not path.is_file():
        progress = told(bench, "training the demasker")
        training(auxiliary, k, generator=seeded(bench.seed, "demasker"), progress=progress).save(path)
    return load_demasker(path)


def mixup() -> Mixup:
    """Mixup as cross-dataset InstaHide without its mask."""
    return Mixup(K, public=K - 2)


def instahide() -> CrossDataset:
    return CrossDataset(K)


def _seeds(bench: Bench) -> range:
    return range(bench.seed, bench.seed + SIZES[bench.scale].seeds)


def counted(bench: Bench, total: int) -> Callable[[str], None]:
    """Tells the watch that one of ``total`` attacks more has begun."""
    done = 0

    def tell(name: str) -> None:
        nonlocal done
        del name
        bench.watch.step("attacking", min(1.0, done / total))
        done += 1

    return tell


def told(bench: Bench, what: str) -> Progress:
    """Tells the watch how far an attack or a training is."""

    def tell(tick: Tick) -> None:
        bench.watch.step(what, tick.fraction)

    return tell


def _averaged(rows: Sequence[Averages], seconds: float) -> Found:
    first = rows[0].row
    images = len(rows[0].estimates)

    def of(recovered: Sequence[Recovery]) -> dict[str, Measured]:
        return {
            "psnr_fitted": over_seeds([one.psnr_fitted for one in recovered], images),
            "ssim_fitted": over_seeds([one.ssim_fitted for one in recovered], images),
            "identification_whitened": over_seeds([one.identification_whitened for one in recovered], images),
        }

    ours, null = of([one.row.recovery for one in rows]), of([one.row.null for one in rows])
    ours["precision"] = over_seeds([one.row.precision for one in rows], images)
    null["precision"] = over_seeds([one.row.precision_null for one in rows], images)
    setting = {"scheme": first.scheme, "private_images": first.private, "encryptions_of_each": first.copies}
    return Found(ours, null, seconds, setting, first.given, rows[0].originals, rows[0].estimates)


def _searched(rows: Sequence[SearchRow], depth: int) -> Found:
    first = rows[0]
    depths = {"hit_rate": depth, "hit_rate_1": 1, "hit_rate_10": 10}

    def of(tables: Sequence[Mapping[int, float]]) -> dict[str, Measured]:
        # An attack that names fewer than m images is not credited with more.
        return {
            name: over_seeds([table[max(one for one in table if one <= most)] for table in tables], first.queries)
            for name, most in depths.items()
        }

    return Found(
        ours=of([one.any_found for one in rows]),
        null=of([one.any_null for one in rows]),
        seconds=sum(one.preparation + one.milliseconds * one.queries / 1000 for one in rows),
        setting={
            "scheme": first.scheme,
            "deployment": first.deployment,
            "public_images": first.candidates,
            "m": depth,
            "milliseconds_per_encoding": sum(one.milliseconds for one in rows) / len(rows),
        },
        given=first.given,
    )


def _tested(found: Sequence[Difference], statistic: str) -> dict[str, Measured]:
    own = [one for one in found if one.statistic == statistic]
    return {
        "p_all": over_seeds([one.alone_all for one in own], 1),
        "p_other": over_seeds([one.alone_other for one in own], 1),
        "p_together": over_seeds([one.together for one in own], 1),
        "distance": over_seeds([one.distance for one in own], 1),
    }


def _encryptions(bench: Bench, scheme: Scheme, images: int, copies: int, partners: int) -> Tensor:
    """Encryptions of the first images, images x copies c h w; what they are mixed with comes from all."""
    generator = seeded(bench.seed, "encryptions")
    order = torch.randperm(len(bench.data.train), generator=generator)[:partners]
    private, keys = bench.data.train[order], SeededKeys(generator)
    drawn = [scheme.draw(len(private), 0, keys=keys) for _ in range(copies)]
    mixing = Mixing(
        torch.cat([one.coefficients[:images] for one in drawn]),
        torch.cat([one.indices[:images] for one in drawn]),
        scheme.signed,
    )
    labelled = Batch(private.inputs, private.labels)
    encoded, _ = apply(scheme, mixing, labelled, classes=bench.data.num_classes, keys=keys)
    return encoded.images.unflatten(0, (copies, images)).transpose(0, 1)
