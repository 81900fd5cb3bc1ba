"""Every attack on Mixup and InstaHide at the scale it is claimed for: searches, clustering, and amid public images.

No table of a paper: the published statistics and recipes are rows beside ours, on the same encodings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from leakgauge.attacks.budget import Budget
from leakgauge.attacks.encodings.clustering.published import PublishedRecipe
from leakgauge.attacks.encodings.demasking import DemaskerTraining
from leakgauge.data import Cifar10
from leakgauge.encodings.crops import Cropping
from leakgauge.encodings.schemes import CrossDataset, Mixup, Scheme
from leakgauge.reproduce.measures.pools import FirstPools
from leakgauge.reproduce.measures.restoring import ClusteringRecovery, Trial
from leakgauge.reproduce.measures.searching import HitShare, SearchHits
from leakgauge.reproduce.scales import Scale, at_scale
from leakgauge.reproduce.table import Row, Table

_DEPTH = 100
"""Answers that a search is asked for."""
_MANY = 10_000
"""Where a scale sets no bound."""


@dataclass(frozen=True)
class StudySize:
    """How many images there are, how many encodings are searched, and how often all is repeated, at a scale.

    A trial publishes at most ``private`` images ``copies`` times each; attacks take at most so many ``rounds``, or
    ``steps`` where they are the published recipe.
    """

    public: int
    auxiliary: int
    queries: int
    seeds: int
    training: DemaskerTraining
    private: int = _MANY
    copies: int = _MANY
    rounds: int = _MANY
    steps: int = _MANY

    @property
    def pools(self) -> FirstPools:
        return FirstPools(self.public, self.auxiliary)

    def shrink(self, trial: Trial) -> Trial:
        """The trial as this scale affords it."""
        attack = trial.attack
        if isinstance(attack, PublishedRecipe):
            attack = replace(attack, steps=min(attack.steps, self.steps))
        else:
            attack = replace(attack, rounds=min(attack.rounds, self.rounds))
        private, copies = min(trial.private, self.private), min(trial.copies, self.copies)
        return replace(trial, private=private, copies=copies, attack=attack)


SIZES: Mapping[Scale, StudySize] = {
    "smoke": StudySize(
        public=110,
        auxiliary=200,
        queries=4,
        seeds=1,
        training=DemaskerTraining(widths=(4, 4), budget=Budget(steps=2)),
        private=6,
        copies=4,
        rounds=1,
        steps=2,
    ),
    "cpu": StudySize(
        10_000, 10_000, queries=200, seeds=3, training=DemaskerTraining(budget=Budget(seconds=92, clock="cpu"))
    ),
    "full": StudySize(20_000, 20_000, queries=1000, seeds=10, training=DemaskerTraining(budget=Budget(steps=20_000))),
}

_SMOKE = "6 private images with 4 encryptions each, a demasker of two steps: this shows that the code runs."
_CPU = "Up to three seeds; other images of CIFAR-10 stand for the public ones."
_FULL = "Ten seeds, more public images, a demasker of 20,000 steps; the public ones are of CIFAR-10."


_SCORES = {
    "found": HitShare("found"),
    f"found_{_DEPTH}": HitShare("found", _DEPTH),
    f"any_{_DEPTH}": HitShare("any", _DEPTH),
}
_ON_MIXUP = (
    "inner product, published",
    "inner product, Laplacian",
    "inner product, whitened",
    "pursuit, whitened",
)
_ON_INSTAHIDE = (
    "fourth moment, published",
    "fourth moment, whitened",
    "not demasked, whitened",
    "demasked, published",
    "demasked, whitened",
    "signs and images in turn",
)


def _masked_scheme(k: int) -> CrossDataset:
    return CrossDataset(k, private=1, least_private=0.0)


def _search(scheme: Scheme, crops: Cropping | None, scale: Scale) -> SearchHits:
    size = at_scale(SIZES, scale)
    # Trying every alignment takes long, so crops are searched for one seed.
    seeds = size.seeds if crops is None else 1
    return SearchHits(scheme, size.pools, size.queries, seeds, size.training, _SCORES, crops)


def _search_rows(name: str, scheme: Scheme, attacks: Sequence[str], crops: Cropping | None = None) -> list[Row]:
    at = partial(_search, scheme, crops)
    return [Row(f"{name}: {attack}", None, at, of=attack) for attack in attacks]


_SEARCH = Table(
    name="instahide/search",
    title="Searches for the public images in encodings of one private image",
    dataset=Cifar10(),
    rows=(
        *(row for k in (4, 6) for row in _search_rows(f"Mixup, k={k}", Mixup(k, public=k - 1), _ON_MIXUP)),
        *(row for k in (4, 6) for row in _search_rows(f"InstaHide, k={k}", _masked_scheme(k), _ON_INSTAHIDE)),
        *_search_rows(
            "Mixup, k=4, random crops",
            Mixup(4, public=3),
            ("inner product, whitened", "every alignment, Laplacian"),
            Cropping(),
        ),
        *_search_rows(
            "InstaHide, k=4, random crops",
            _masked_scheme(4),
            ("fourth moment, whitened", "demasked, whitened", "every alignment, Laplacian"),
            Cropping(),
        ),
    ),
    metrics=("found", "milliseconds", f"found_{_DEPTH}", f"any_{_DEPTH}"),
    null="the same answers asked for the public images of another encoding",
    assumptions=(
        "found: the share of the mixed public images among the first k - 1 answers; found_100: among the first 100;"
        " any_100: the share of encodings with one of them there. An attack that names k - 1 is asked for no more.",
        "Each encoding mixes one private image with k - 1 of the public set. Published: the inner product of images"
        " without their mean and of length one, the fourth moment as it was stated, and signs of the demasker with "
        "the former.",
        "milliseconds are of the processor, for one encoding against the whole public set, after a preparation "
        "whose seconds are in the row, as is the training of the demasker.",
        "Random crops move public images by up to four pixels and mirror half of them before they are mixed; the "
        "attacker has them uncropped. Every alignment: 162 crops of each are tried. One seed.",
        "The ridges and the trust in signs were chosen on mixtures of CIFAR-100, which is in none of these pools.",
    ),
    shrunk={"smoke": _SMOKE, "cpu": f"200 encodings, 10,000 public images. {_CPU}", "full": _FULL},
    shown=3,
)

_RESTORING = (
    "Private images are test images; identification among as many images as the attacker has (10,000 at cpu scale), by "
    "correlation, and in whitened features. psnr_fitted and ssim_fitted come after the best brightness and contrast of "
    "each estimate; psnr without.",
    "recall and precision: of which images are in which encodings. cpu_seconds: of one attack on one core.",
    "Labels of encodings are known. The row says what else was told.",
)
_COMMON: dict[str, Any] = {
    "dataset": Cifar10(),
    "metrics": (
        *("psnr_fitted", "identification_by_correlation", "cpu_seconds", "recall", "precision"),
        *("ssim_fitted", "psnr"),
    ),
    "null": "what came back, scored against other private images that were encrypted the same way",
    "shrunk": {"smoke": _SMOKE, "cpu": _CPU, "full": _FULL},
    "shown": 3,
}

_TOLD = {
    "class counts known": Trial(knows="counts"),
    "n known": Trial(knows="number"),
    "labels only": Trial(knows="labels"),
    "true mixing, an upper bound": Trial(knows="mixing"),
}
_MOVED = {
    "class counts known, 8 bits": "8 bits",
    "class counts known, private images mirrored": "private images mirrored at random",
    "class counts known, private images cropped and mirrored": "private images cropped and mirrored at random",
}


def _restore(trial: Trial, most_seeds: int, scale: Scale) -> ClusteringRecovery:
    size = at_scale(SIZES, scale)
    return ClusteringRecovery(size.shrink(trial), size.pools, min(most_seeds, size.seeds))


def _restoring_rows(trials: Mapping[str, Trial], most_seeds: int = _MANY, prefix: str = "") -> list[Row]:
    return [
        Row(f"{prefix}({one.private}, {one.copies}) {label}", None, partial(_restore, one, most_seeds))
        for label, one in trials.items()
    ]


def _curve(private: int, copies: int = 30, labels: Sequence[str] = ("class counts known", "labels only")) -> list[Row]:
    return _restoring_rows(
        {label: replace(_TOLD[label], private=private, copies=copies) for label in labels}, most_seeds=1
    )


def _across(k: int) -> dict[str, Trial]:
    base = Trial(CrossDataset(k), copies=50, knows="number")
    return {
        "n known": base,
        "labels only": replace(base, knows="labels"),
        "true mixing, an upper bound": replace(base, knows="mixing"),
        "n known, public images cropped and mirrored": replace(
            base, deployment="public images cropped and mirrored at random"
        ),
    }


_CLUSTERING = Table(
    name="instahide/clustering",
    title="Inside-dataset InstaHide, k=4: private images from encodings and labels, (images, encryptions of each)",
    rows=(
        *_restoring_rows(_TOLD),
        *_restoring_rows({name: Trial(knows="counts", deployment=key) for name, key in _MOVED.items()}),
        *_restoring_rows(
            {
                "class counts known, published recipe": Trial(knows="counts", attack=PublishedRecipe()),
                "true mixing, published recipe": Trial(knows="mixing", attack=PublishedRecipe()),
            }
        ),
        *_curve(50),
        *_curve(100),
        *_curve(200, 20, ("labels only",)),
    ),
    assumptions=(
        *_RESTORING,
        "The published recipe has a formula for the similarity where Carlini et al. train a network on a GPU; begun "
        "once and without the signs of neighbours it recovers nothing here even from the true mixing, so it is begun "
        "eight times for every pixel and its signs are restored as ours are.",
        "50 images and more: one seed.",
    ),
    **_COMMON,
)

_CROSS = Table(
    name="instahide/cross",
    title="Cross-dataset InstaHide, two private images in an encoding: private images from encodings and labels",
    rows=tuple(row for k in (4, 6) for row in _restoring_rows(_across(k), prefix=f"k={k}, ")),
    assumptions=(*_RESTORING, "Public images are noise to this attack, which does not search for them."),
    **_COMMON,
)

TABLES = (_SEARCH, _CLUSTERING, _CROSS)
