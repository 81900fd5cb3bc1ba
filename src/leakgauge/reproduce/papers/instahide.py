"""Every attack on Mixup and InstaHide at the scale it is claimed for: searches, clustering, and amid public images.

No table of a paper: the published statistics and recipes are rows beside ours, on the same encodings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from leakgauge.attacks.budget import Budget
from leakgauge.attacks.encodings.clustering.published import PublishedRecipe
from leakgauge.attacks.encodings.demasking.demasker import Demasker, DemaskerTraining
from leakgauge.attacks.encodings.search.base import PublicImageAttack
from leakgauge.attacks.encodings.search.crops import Cropping
from leakgauge.attacks.encodings.views import AsPublished
from leakgauge.data import Cifar10
from leakgauge.encodings.schemes import CrossDataset, Mixup, Scheme
from leakgauge.errors import InvalidCase
from leakgauge.reproduce.experiment import Scale
from leakgauge.reproduce.measures.publication import Deployment, Pools
from leakgauge.reproduce.measures.recovery import Recovery
from leakgauge.reproduce.measures.restoring import Clustered, Trial, cluster_encodings, judge_among
from leakgauge.reproduce.measures.searching import (
    SearchRow,
    attacks_by_similarity,
    attacks_on_instahide,
    attacks_on_mixup,
    search_public_images,
)
from leakgauge.reproduce.papers.huang2020.encodings import counted, kept_demasker
from leakgauge.reproduce.result import Measured
from leakgauge.reproduce.study import Bench, Found, Line, Part, Study, over_seeds

_DEPTH = 100
"""Answers that a search is asked for."""
_MANY = 10_000
"""Where a scale sets no bound."""


@dataclass(frozen=True)
class Size:
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

    def of(self, trial: Trial) -> Trial:
        attack = trial.attack
        if isinstance(attack, PublishedRecipe):
            attack = replace(attack, steps=min(attack.steps, self.steps))
        else:
            attack = replace(attack, rounds=min(attack.rounds, self.rounds))
        private, copies = min(trial.private, self.private), min(trial.copies, self.copies)
        return replace(trial, private=private, copies=copies, attack=attack)


SIZES: Mapping[Scale, Size] = {
    "smoke": Size(
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
    "cpu": Size(
        10_000, 10_000, queries=200, seeds=3, training=DemaskerTraining(budget=Budget(seconds=92, clock="cpu"))
    ),
    "full": Size(20_000, 20_000, queries=1000, seeds=10, training=DemaskerTraining(budget=Budget(steps=20_000))),
}

_SMOKE = "6 private images with 4 encryptions each, a demasker of two steps: this shows that the code runs."
_CPU = "Up to three seeds; other images of CIFAR-10 stand for the public ones."
_FULL = "Ten seeds, more public images, a demasker of 20,000 steps; the public ones are of CIFAR-10."


def pools_of(bench: Bench) -> Pools:
    """Test images are private; the first training images are public, the next are the attacker's own."""
    size, train = SIZES[bench.scale], bench.data.train.inputs
    if len(train) < size.public + size.auxiliary:
        raise InvalidCase(
            f"Scale {bench.scale} takes {size.public + size.auxiliary} training images, but there are {len(train)};"
            " add files to --data-root, or choose a smaller scale."
        )
    return Pools(bench.data.test, train[: size.public], train[size.public : size.public + size.auxiliary])


@dataclass(frozen=True)
class Searching:
    """Names the public images in encodings of one private image; ``labels`` are the rows of the attacks."""

    scheme: Scheme
    labels: Mapping[str, str]
    crops: Cropping | None = None
    most_seeds: int = _MANY

    def __call__(self, bench: Bench) -> dict[str, Found]:
        size, pools = SIZES[bench.scale], pools_of(bench)
        demasker = None
        if self.scheme.signed:
            demasker = kept_demasker(bench, size.training, pools.auxiliary, self.scheme.k, "instahide/search")
        attacks = self._attacks(demasker)
        members = self.scheme.public_per_encoding
        rows = search_public_images(
            pools,
            self.scheme,
            {name: attacks[name] for name in self.labels},
            queries=size.queries,
            seeds=_seeds(bench, self.most_seeds),
            depths=(members, _DEPTH),
            deployment=Deployment(public_crops=self.crops),
            tell=counted(bench, len(self.labels)),
        )
        trained = {} if demasker is None else {"demasker": dict(demasker.facts)}
        return {
            label: _searched([row for row in rows if row.attack == name], members, trained)
            for name, label in self.labels.items()
        }

    def _attacks(self, demasker: Demasker | None) -> dict[str, PublicImageAttack]:
        if demasker is None:
            everywhere = attacks_by_similarity(AsPublished(), cropping=self.crops, most=_DEPTH)
            return everywhere | attacks_on_mixup(_DEPTH)
        everywhere = attacks_by_similarity(demasker, cropping=self.crops, most=_DEPTH)
        return everywhere | attacks_on_instahide(demasker, _DEPTH)


@dataclass(frozen=True)
class Restoring:
    """Restores private images from all encodings together; a row for every trial, by its label."""

    trials: Mapping[str, Trial]
    most_seeds: int = _MANY

    def __call__(self, bench: Bench) -> dict[str, Found]:
        size, pools = SIZES[bench.scale], pools_of(bench)
        seeds = _seeds(bench, self.most_seeds)
        judge, tell = judge_among(pools.auxiliary), counted(bench, len(self.trials) * len(seeds))
        found = {}
        for label, trial in self.trials.items():
            runs = []
            for seed in seeds:
                tell(label)
                runs.append(cluster_encodings(pools, size.of(trial), seed=seed, judge=judge))
            found[label] = _restored(runs)
        return found


def _seeds(bench: Bench, most: int) -> range:
    return range(bench.seed, bench.seed + min(most, SIZES[bench.scale].seeds))


def _searched(rows: Sequence[SearchRow], members: int, trained: Mapping[str, object]) -> Found:
    first = rows[0]

    def of(tables: Sequence[Mapping[int, float]], most: int) -> Measured:
        # An attack that names fewer than m images is not credited with more.
        return over_seeds([table[max(depth for depth in table if depth <= most)] for table in tables], first.queries)

    def scores(found: Sequence[Mapping[int, float]], anything: Sequence[Mapping[int, float]]) -> dict[str, Measured]:
        return {
            "found": of(found, members),
            f"found_{_DEPTH}": of(found, _DEPTH),
            f"any_{_DEPTH}": of(anything, _DEPTH),
        }

    ours = scores([one.found for one in rows], [one.any_found for one in rows])
    ours["milliseconds"] = over_seeds([one.milliseconds for one in rows], first.queries)
    setting = {
        "scheme": first.scheme,
        "deployment": first.deployment,
        "public_images": first.candidates,
        "queries": first.queries,
        "seconds_of_preparation": first.preparation,
        **trained,
    }
    null = scores([one.found_null for one in rows], [one.any_null for one in rows])
    seconds = first.preparation + sum(one.milliseconds * one.queries / 1000 for one in rows)
    return Found(ours, null, seconds, setting, first.given)


def _restored(runs: Sequence[Clustered]) -> Found:
    rows, trial, images = [one.row for one in runs], runs[0].row.trial, len(runs[0].originals)

    def of(recovered: Sequence[Recovery]) -> dict[str, Measured]:
        named = {
            "psnr_fitted": [one.psnr_fitted for one in recovered],
            "identification_by_correlation": [one.identification_by_correlation for one in recovered],
            "ssim_fitted": [one.ssim_fitted for one in recovered],
            "psnr": [one.psnr for one in recovered],
            "identification_whitened": [one.identification_whitened for one in recovered],
        }
        return {name: over_seeds(values, images) for name, values in named.items()}

    ours, null = of([row.recovery for row in rows]), of([row.null for row in rows])
    ours["recall"] = over_seeds([row.recall for row in rows], images)
    ours["precision"] = over_seeds([row.precision for row in rows], images)
    ours["cpu_seconds"] = over_seeds([row.seconds for row in rows], images)
    null["recall"] = over_seeds([row.recall_null for row in rows], images)
    null["precision"] = over_seeds([row.precision_null for row in rows], images)
    setting = {
        "scheme": repr(trial.scheme),
        "attack": repr(trial.attack),
        "deployment": trial.deployment,
        "told": trial.knows,
        "private_images": trial.private,
        "encryptions_of_each": trial.copies,
        "images_believed_in": [row.found for row in rows],
        "residual": [row.residual for row in rows],
    }
    seconds = sum(row.seconds for row in rows)
    return Found(ours, null, seconds, setting, rows[0].given, runs[0].originals, runs[0].estimates)


def _search() -> Study:
    def part(name: str, scheme: Scheme, attacks: Sequence[str], crops: Cropping | None = None) -> Part:
        labels = {attack: f"{name}: {attack}" for attack in attacks}
        measure = Searching(scheme, labels, crops, most_seeds=_MANY if crops is None else 1)
        return Part(name, tuple(map(Line, labels.values())), measure)

    def masked(k: int) -> CrossDataset:
        return CrossDataset(k, private=1, least_private=0.0)

    mixup = (
        "inner product, published",
        "inner product, Laplacian",
        "inner product, whitened",
        "pursuit, whitened",
    )
    instahide = (
        "fourth moment, published",
        "fourth moment, whitened",
        "not demasked, whitened",
        "demasked, published",
        "demasked, whitened",
        "signs and images in turn",
    )
    return Study(
        name="instahide/search",
        title="Searches for the public images in encodings of one private image",
        dataset=Cifar10(),
        parts=(
            *(part(f"Mixup, k={k}", Mixup(k, public=k - 1), mixup) for k in (4, 6)),
            *(part(f"InstaHide, k={k}", masked(k), instahide) for k in (4, 6)),
            part(
                "Mixup, k=4, random crops",
                Mixup(4, public=3),
                ("inner product, whitened", "every alignment, Laplacian"),
                Cropping(),
            ),
            part(
                "InstaHide, k=4, random crops",
                masked(4),
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
_UNRELATED = "what came back, scored against other private images that were encrypted the same way"


def _clustering() -> Study:
    told = {
        "class counts known": Trial(knows="counts"),
        "n known": Trial(knows="number"),
        "labels only": Trial(knows="labels"),
        "true mixing, an upper bound": Trial(knows="mixing"),
    }
    moved = {
        "class counts known, 8 bits": "8 bits",
        "class counts known, private images mirrored": "private images mirrored at random",
        "class counts known, private images cropped and mirrored": "private images cropped and mirrored at random",
    }
    recipe = {"class counts known, published recipe": Trial(knows="counts", attack=PublishedRecipe())}

    def part(name: str, trials: Mapping[str, Trial], seeds: int = _MANY) -> Part:
        labelled = {f"({one.private}, {one.copies}) {label}": one for label, one in trials.items()}
        return Part(name, tuple(map(Line, labelled)), Restoring(labelled, seeds))

    def curve(private: int, copies: int = 30, labels: Sequence[str] = ("class counts known", "labels only")) -> Part:
        trials = {label: replace(told[label], private=private, copies=copies) for label in labels}
        return part(f"{private} images", trials, seeds=1)

    return Study(
        name="instahide/clustering",
        title="Inside-dataset InstaHide, k=4: private images from encodings and labels, (images, encryptions of each)",
        dataset=Cifar10(),
        parts=(
            part("knowledge", told),
            part("deployments", {name: Trial(knows="counts", deployment=key) for name, key in moved.items()}),
            part("published recipe", recipe),
            curve(50),
            curve(100),
            curve(200, 20, ("labels only",)),
        ),
        metrics=(
            *("psnr_fitted", "identification_by_correlation", "cpu_seconds", "recall", "precision"),
            *("ssim_fitted", "psnr"),
        ),
        null=_UNRELATED,
        assumptions=(
            *_RESTORING,
            "The published recipe has a formula for the similarity where Carlini et al. train a network on a GPU.",
            "50 images and more: one seed.",
        ),
        shrunk={"smoke": _SMOKE, "cpu": _CPU, "full": _FULL},
        shown=3,
    )


def _cross() -> Study:
    def part(k: int) -> Part:
        base = Trial(CrossDataset(k), copies=50, knows="number")
        trials = {
            "n known": base,
            "labels only": replace(base, knows="labels"),
            "true mixing, an upper bound": replace(base, knows="mixing"),
            "n known, public images cropped and mirrored": replace(
                base, deployment="public images cropped and mirrored at random"
            ),
        }
        labelled = {f"k={k}, (30, 50) {label}": trial for label, trial in trials.items()}
        return Part(f"k={k}", tuple(map(Line, labelled)), Restoring(labelled))

    return Study(
        name="instahide/cross",
        title="Cross-dataset InstaHide, two private images in an encoding: private images from encodings and labels",
        dataset=Cifar10(),
        parts=(part(4), part(6)),
        metrics=(
            *("psnr_fitted", "identification_by_correlation", "cpu_seconds", "recall", "precision"),
            *("ssim_fitted", "psnr"),
        ),
        null=_UNRELATED,
        assumptions=(*_RESTORING, "Public images are noise to this attack, which does not search for them."),
        shrunk={"smoke": _SMOKE, "cpu": _CPU, "full": _FULL},
        shown=3,
    )


STUDIES = (_search(), _clustering(), _cross())
