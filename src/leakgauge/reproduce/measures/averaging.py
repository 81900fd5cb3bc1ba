"""What averaging the encryptions of one image recovers of it [Huang et al., 2020, Figure 7]."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from leakgauge.attacks.encodings.algebra.whitening import AsPublished, Magnitudes, UnitLength, View, Whitened
from leakgauge.attacks.encodings.clustering.averaging import AverageOfKnownSets, AverageOfNearest
from leakgauge.attacks.encodings.demasking import DemaskerTraining
from leakgauge.attacks.encodings.search.similarity import structurally_similar
from leakgauge.encodings.schemes import Scheme
from leakgauge.progress import Progress, Tick, silent
from leakgauge.protocol.encoding import EncodingObservation
from leakgauge.reproduce.measures.pools import Pools, PoolSource, Publication, keep_demasker, publish
from leakgauge.reproduce.measures.recovery import Judge, Recovery, over_seeds
from leakgauge.reproduce.table import Bench, Found, Measure, Measured
from leakgauge.types import Reconstruction

_NAN = float("nan")
_NEIGHBOURS = 5


@dataclass(frozen=True)
class Averages:
    """Estimates by one attacker on one seed's encodings, and the private images they are of.

    ``null`` scores the same estimates against images they are not of. ``precision`` is the share of neighbours that
    have a private image in common with the encoding asked about, ``precision_null`` that of all other encodings; NaN
    for the attacker who knows the sets.
    """

    attack: str
    originals: Tensor
    estimates: Tensor
    recovery: Recovery
    null: Recovery
    precision: float
    precision_null: float
    given: tuple[str, ...]


def average_encryptions(
    pools: Pools,
    scheme: Scheme,
    view: View,
    *,
    private: int = 50,
    copies: int = 50,
    queries: int = 50,
    seeds: Sequence[int] = (0,),
    decoys: Tensor | None = None,
    progress: Progress = silent,
) -> list[Averages]:
    """Strong and weak attackers, as published and as strong as they can be, on a view of the encodings.

    ``decoys`` default to the public images.
    """
    judge = Judge(pools.public if decoys is None else decoys, Whitened().fit(pools.auxiliary))
    results = []
    for number, seed in enumerate(seeds):
        progress(Tick(number, number / len(seeds)))
        publication = publish(scheme, pools, private, seed=seed, copies=copies)
        seen = _viewed(publication.observation, view)
        asked = torch.arange(min(queries, len(seen.encoded)))
        for attack, found in (_strong(publication, seen) | _weak(publication, seen, asked)).items():
            originals = publication.private.inputs[found.targets]
            unrelated = publication.private.inputs[(found.targets + private // 2) % private]
            results.append(
                Averages(
                    attack,
                    originals,
                    found.estimates,
                    recovery=judge(found.estimates, originals),
                    null=judge(found.estimates, unrelated),
                    precision=found.precision,
                    precision_null=found.chance,
                    given=(f"k = {scheme.k}", *found.given),
                )
            )
    return results


@dataclass(frozen=True)
class AveragingRecovery(Measure):
    """What the attackers of these names recover; of masked encodings with signs by a demasker."""

    scheme: Scheme
    pools: PoolSource
    private: int
    copies: int
    queries: int
    seeds: int
    demasker: DemaskerTraining

    def planned(self) -> dict[str, Any]:
        return {"scheme": self.scheme, "private_images": self.private, "encryptions_of_each": self.copies}

    def __call__(self, bench: Bench, names: Sequence[str]) -> dict[str, Found]:
        pools = self.pools(bench)
        view: View = AsPublished()
        if self.scheme.signed:
            view = keep_demasker(bench, self.demasker, self.pools, self.scheme.k)
        begun = time.perf_counter()
        rows = average_encryptions(
            pools,
            self.scheme,
            view,
            private=self.private,
            copies=self.copies,
            queries=self.queries,
            seeds=range(bench.seed, bench.seed + self.seeds),
            decoys=pools.auxiliary,
            progress=bench.begin("attacking"),
        )
        seconds = (time.perf_counter() - begun) / len(rows)
        return {name: self._found([one for one in rows if one.attack == name], seconds) for name in names}

    def _found(self, rows: Sequence[Averages], seconds: float) -> Found:
        images, names = len(rows[0].estimates), ("psnr_fitted", "ssim_fitted", "identification_whitened")
        ours = over_seeds([one.recovery for one in rows], names, images)
        null = over_seeds([one.null for one in rows], names, images)
        ours["precision"] = Measured.over_seeds([one.precision for one in rows], images)
        null["precision"] = Measured.over_seeds([one.precision_null for one in rows], images)
        pictures = rows[0].originals, rows[0].estimates
        return Found.of(ours, null, seconds, self.described(), rows[0].given, pictures)


@dataclass(frozen=True)
class _Found:
    estimates: Tensor
    targets: Tensor
    precision: float
    chance: float
    given: tuple[str, ...]


def _viewed(observation: EncodingObservation, view: View) -> EncodingObservation:
    """The observation as it looks once the view has been taken of it, which may be costly, so once."""
    encoded = replace(observation.encoded, images=view.encodings(observation.encoded.images))
    auxiliary = None if observation.auxiliary is None else view.images(observation.auxiliary)
    return replace(observation, encoded=encoded, auxiliary=auxiliary)


def _strong(publication: Publication, seen: EncodingObservation) -> dict[str, _Found]:
    sets, labels = "which encodings encrypt the same image", "the labels of the encodings"
    attacks = {
        "known sets, published": (AverageOfKnownSets(weighted=False, contrast=False), (sets,)),
        "known sets, less the mean": (AverageOfKnownSets(weighted=False), (sets,)),
        "known sets, weighted by label": (AverageOfKnownSets(), (sets, labels)),
    }
    everyone = torch.arange(len(publication.private))
    return {
        name: _Found(_images(attack(seen, sets=publication.anchors)), everyone, _NAN, _NAN, given)
        for name, (attack, given) in attacks.items()
    }


def _weak(publication: Publication, seen: EncodingObservation, asked: Tensor) -> dict[str, _Found]:
    published = AverageOfNearest(neighbours=_NEIGHBOURS, contrast=False)
    cosine = AverageOfNearest(features=UnitLength(), neighbours=_NEIGHBOURS)
    whitened = AverageOfNearest(features=Whitened(), neighbours=_NEIGHBOURS)
    attacks = {
        "nearest by SSIM, published": (published, structurally_similar(seen.encoded.images, asked, _NEIGHBOURS)),
        "nearest by cosine": (cosine, cosine.similar(seen, asked)),
        "nearest, whitened": (whitened, whitened.similar(seen, asked)),
    }
    if seen.signed:
        # The mask leaves magnitudes whole, so they find better neighbours than guessed signs do.
        similar = AverageOfNearest(Magnitudes(), Whitened(), _NEIGHBOURS).similar(publication.observation, asked)
        attacks["nearest by magnitudes, whitened"] = (whitened, similar)
    # The truth is the private image that an encoding holds most of; nothing is chosen by its outcome.
    own = slice(0, seen.private_per_encoding)
    most = publication.mixing.coefficients[asked, own].argmax(dim=1, keepdim=True)
    targets = publication.mixing.indices[asked, own].gather(1, most)[:, 0]
    shared = _shared(publication)
    chance = float(shared[asked].double().sum() / (len(asked) * (len(shared) - 1)))
    return {
        name: _Found(
            _images(attack(seen, queries=asked, nearest=similar)),
            targets,
            float(shared[asked[:, None], similar].double().mean()),
            chance,
            ("auxiliary images of the same kind",),
        )
        for name, (attack, similar) in attacks.items()
    }


def _images(found: Reconstruction) -> Tensor:
    assert found.inputs is not None
    return found.inputs


def _shared(publication: Publication) -> Tensor:
    """Whether two encodings have a private image in common, encodings x encodings, none with itself."""
    own = publication.mixing.indices[:, : publication.observation.private_per_encoding]
    held = torch.zeros(len(own), len(publication.private)).scatter_(1, own, 1.0)
    return (held @ held.mT > 0).fill_diagonal_(False)
