"""How many of the public images in encodings an attacker names, beside what guessing would name."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from leakgauge.attacks.budget import Budget
from leakgauge.attacks.encodings.algebra.whitening import (
    AsPublished,
    HighPass,
    Laplacian,
    Magnitudes,
    Undemasked,
    UnitLength,
    View,
    Whitened,
)
from leakgauge.attacks.encodings.demasking import Demasker, DemaskerTraining
from leakgauge.attacks.encodings.search.crops import AlignedSearch
from leakgauge.attacks.encodings.search.phase_retrieval import PhaseRetrieval
from leakgauge.attacks.encodings.search.public_search import PublicImageAttack, PublicPursuit, PublicSearch
from leakgauge.attacks.encodings.search.similarity import LearnedSimilarity, SimilarityTraining, StructuralSearch
from leakgauge.attacks.encodings.search.statistics import Correlation, FourthMoment, MatchedFilter, whitened_squares
from leakgauge.encodings.crops import Cropping
from leakgauge.encodings.schemes import Scheme
from leakgauge.metrics.public_found import hit_members
from leakgauge.progress import Progress, Tick, silent
from leakgauge.randomness import seeded
from leakgauge.reproduce.measures.pools import Deployment, Pools, PoolSource, keep_demasker, publish
from leakgauge.reproduce.table import Bench, Found, Measure, Measured

LEARNED = "learned similarity"


@dataclass(frozen=True)
class SearchRow:
    """One attack on one seed's encodings. Tables are by depth m; ``null`` ones ask for another encoding's images.

    ``found`` is the share of mixed public images among the first m answers, ``any_found`` the share of encodings with
    at least one there (the hit rate of Huang et al., 2020, Figure 8). ``preparation`` is in seconds and paid once,
    ``milliseconds`` are for each encoding, both of the processor. ``given`` is what the attacker was told beyond the
    encodings.
    """

    attack: str
    seed: int
    found: Mapping[int, float]
    found_null: Mapping[int, float]
    any_found: Mapping[int, float]
    any_null: Mapping[int, float]
    preparation: float
    milliseconds: float
    given: tuple[str, ...]


def search_public_images(
    pools: Pools,
    scheme: Scheme,
    attacks: Mapping[str, PublicImageAttack[Any]],
    *,
    queries: int = 200,
    seeds: Sequence[int] = (0,),
    depths: Sequence[int] | None = None,
    deployment: Deployment | None = None,
    progress: Progress = silent,
) -> list[SearchRow]:
    """A row for every attack and seed; an attack is prepared once, since only the encodings differ between seeds."""
    deployment = deployment or Deployment()
    depths = depths or (scheme.public_per_encoding, 20, 100)
    published = {seed: publish(scheme, pools, queries, seed=seed, deployment=deployment) for seed in seeds}
    rows = []
    for number, (name, attack) in enumerate(attacks.items()):
        progress(Tick(number, number / len(attacks)))
        begun = time.process_time()
        finder = attack.prepare(published[seeds[0]].observation, generator=seeded(seeds[0], "attack"))
        preparation = time.process_time() - begun
        for seed, publication in published.items():
            begun = time.process_time()
            answers = finder(publication.observation.encoded.images).indices
            seconds = time.process_time() - begun
            found, any_found = _shares(answers, publication.members, depths)
            found_null, any_null = _shares(answers, publication.members.roll(1, dims=0), depths)
            rows.append(
                SearchRow(
                    name,
                    seed,
                    found,
                    found_null,
                    any_found,
                    any_null,
                    preparation=preparation,
                    milliseconds=1000 * seconds / queries,
                    given=given_to_search(pools, scheme, deployment),
                )
            )
    return rows


def _shares(answers: Tensor, members: Tensor, depths: Sequence[int]) -> tuple[dict[int, float], dict[int, float]]:
    """Of members among the first answers, and of encodings with one of theirs there, by depth."""
    hits = {depth: hit_members(answers[:, :depth], members) for depth in depths if depth <= answers.shape[1]}
    each = {depth: float(hit.double().mean()) for depth, hit in hits.items()}
    return each, {depth: float(hit.any(dim=1).double().mean()) for depth, hit in hits.items()}


def given_to_search(pools: Pools, scheme: Scheme, deployment: Deployment) -> tuple[str, ...]:
    """What the attacker of a search is told, in words."""
    aligned = "uncropped" if deployment.public_crops is not None else "in the alignment that was mixed"
    return (
        f"k = {scheme.k}",
        f"the {len(pools.public)} public images, {aligned}",
        f"{len(pools.auxiliary)} auxiliary images of the same kind",
    )


def attacks_on_mixup(most: int = 100) -> dict[str, PublicImageAttack[Any]]:
    """The published statistic, and those that allow for real images being alike."""
    return {
        "inner product, published": PublicSearch(Correlation(UnitLength()), most),
        "inner product, high-pass": PublicSearch(Correlation(HighPass()), most),
        "inner product, Laplacian": PublicSearch(Correlation(Laplacian()), most),
        "inner product, whitened": PublicSearch(Correlation(Whitened()), most),
        "pursuit, whitened": PublicPursuit(Correlation(Whitened())),
    }


def attacks_on_instahide(demasker: Demasker | None = None, most: int = 100) -> dict[str, PublicImageAttack[Any]]:
    """Squares and magnitudes, which need no signs, and with a demasker everything that Mixup falls to."""
    attacks: dict[str, PublicImageAttack[Any]] = {
        "fourth moment, published": PublicSearch(FourthMoment(), most),
        "fourth moment, whitened": PublicSearch(whitened_squares(), most),
        "not demasked, whitened": PublicSearch(Correlation(Whitened(), Undemasked()), most),
        "magnitudes on both sides, whitened": PublicSearch(Correlation(Whitened(), Magnitudes()), most),
        "signs and images in turn": PhaseRetrieval(),
    }
    if demasker is None:
        return attacks
    return attacks | {
        "demasked, published": PublicSearch(Correlation(UnitLength(), demasker.hard()), most),
        "demasked, whitened": PublicSearch(Correlation(Whitened(), demasker, "absolute cosine"), most),
        "demasked, matched filter": PublicSearch(MatchedFilter(demasker, score="absolute cosine"), most),
    }


def attacks_by_similarity(
    view: View, *, learned: LearnedSimilarity | None = None, cropping: Cropping | None = None, most: int = 100
) -> dict[str, PublicImageAttack[Any]]:
    """SSIM and a learned score as published, and for random crops the search that tries every alignment."""
    attacks: dict[str, PublicImageAttack[Any]] = {"SSIM, published": StructuralSearch(view, most)}
    if learned is not None:
        attacks[LEARNED] = PublicSearch(learned, most)
    if cropping is not None:
        attacks["every alignment, Laplacian"] = AlignedSearch(Correlation(Laplacian(), view), cropping, most)
    return attacks


@dataclass(frozen=True)
class HitShare:
    """The share of public images "found" among the first answers, or of encodings with "any" of theirs there.

    ``depth`` is how many answers count; None for as many as there are public images in an encoding.
    """

    kind: Literal["found", "any"]
    depth: int | None = None


@dataclass(frozen=True)
class SearchHits(Measure):
    """Which of the public images in encodings the attacks of these names find; ``scores`` are metrics of the table.

    ``hard``: views by the demasker take its signs as certain. ``similarity`` is the work on learning one.
    """

    scheme: Scheme
    pools: PoolSource
    queries: int
    seeds: int
    demasker: DemaskerTraining
    scores: Mapping[str, HitShare]
    crops: Cropping | None = None
    hard: bool = False
    similarity: Budget | None = None

    def planned(self) -> dict[str, Any]:
        deployment = Deployment(public_crops=self.crops)
        return {"scheme": self.scheme, "deployment": deployment, "queries": self.queries}

    def __call__(self, bench: Bench, names: Sequence[str]) -> dict[str, Found]:
        pools, members = self.pools(bench), self.scheme.public_per_encoding
        demasker = keep_demasker(bench, self.demasker, self.pools, self.scheme.k) if self.scheme.signed else None
        attacks = self._attacks(bench, pools, demasker, names)
        rows = search_public_images(
            pools,
            self.scheme,
            {name: attacks[name] for name in names},
            queries=self.queries,
            seeds=range(bench.seed, bench.seed + self.seeds),
            depths=sorted({members, *(score.depth or members for score in self.scores.values())}),
            deployment=Deployment(public_crops=self.crops),
            progress=bench.begin("attacking"),
        )
        trained = {} if demasker is None else {"demasker": dict(demasker.facts)}
        public = len(pools.public)
        return {name: self._found([row for row in rows if row.attack == name], public, trained) for name in names}

    def _attacks(
        self, bench: Bench, pools: Pools, demasker: Demasker | None, names: Sequence[str]
    ) -> dict[str, PublicImageAttack[Any]]:
        most = max(score.depth or 0 for score in self.scores.values())
        learned = None
        if LEARNED in names and demasker is not None and self.crops is not None and self.similarity is not None:
            training = SimilarityTraining(view=demasker, cropping=self.crops, budget=self.similarity)
            progress, generator = bench.begin("training the similarity"), seeded(bench.seed, "similarity")
            learned = training(pools.auxiliary, self.scheme.k, generator=generator, progress=progress)
        view: View = AsPublished() if demasker is None else demasker.hard() if self.hard else demasker
        everywhere = attacks_by_similarity(view, learned=learned, cropping=self.crops, most=most)
        return everywhere | (attacks_on_mixup(most) if demasker is None else attacks_on_instahide(demasker, most))

    def _found(self, rows: Sequence[SearchRow], public: int, trained: Mapping[str, object]) -> Found:
        first, members = rows[0], self.scheme.public_per_encoding

        def of(tables: Mapping[str, Sequence[Mapping[int, float]]]) -> dict[str, Measured]:
            found = {}
            for name, score in self.scores.items():
                most = score.depth or members
                # An attack that names fewer than m images is not credited with more.
                values = [table[max(depth for depth in table if depth <= most)] for table in tables[score.kind]]
                found[name] = Measured.over_seeds(values, self.queries)
            return found

        ours = of({"found": [one.found for one in rows], "any": [one.any_found for one in rows]})
        null = of({"found": [one.found_null for one in rows], "any": [one.any_null for one in rows]})
        ours["milliseconds"] = Measured.over_seeds([one.milliseconds for one in rows], self.queries)
        seconds = first.preparation + sum(one.milliseconds * self.queries / 1000 for one in rows)
        setting = self.described() | {"public_images": public, "seconds_of_preparation": first.preparation, **trained}
        return Found.of(ours, null, seconds, setting, first.given)
