"""Whether encryptions of an image can be told from those of others by a test of their distribution."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from leakgauge.encodings.distributions import STATISTICS, Difference, compare
from leakgauge.encodings.keys import SeededKeys
from leakgauge.encodings.schemes import InsideDataset, Scheme, apply
from leakgauge.progress import Tick
from leakgauge.protocol.encoding import Mixing
from leakgauge.randomness import seeded
from leakgauge.reproduce.table import Bench, Found, Measure, Measured
from leakgauge.types import Batch


@dataclass(frozen=True)
class DistributionTests(Measure):
    """Kolmogorov-Smirnov tests of ``encryptions`` of each of some images, ``alone`` of them one at a time.

    They are mixed with ``partners`` at most. The names of rows are those of statistics.
    """

    images: int
    encryptions: int
    alone: int
    partners: int
    scheme: Scheme = field(default_factory=InsideDataset)

    def planned(self) -> dict[str, Any]:
        return {
            "scheme": self.scheme,
            "images": self.images,
            "encryptions": self.encryptions,
            "tested_alone": self.alone,
        }

    def __call__(self, bench: Bench, names: Sequence[str]) -> dict[str, Found]:
        begun = time.perf_counter()
        encodings = self._encrypt(bench)
        bench.begin("testing")(Tick(0, 0.5))
        found = compare(encodings, singles=self.alone, generator=seeded(bench.seed, "tests"))
        order = torch.randperm(self.images * self.encryptions, generator=seeded(bench.seed, "null"))
        shuffled = encodings.flatten(0, 1)[order].view_as(encodings)
        null = compare(shuffled, singles=self.alone, generator=seeded(bench.seed, "tests"))
        seconds = (time.perf_counter() - begun) / len(STATISTICS)
        return {
            name: Found.of(_measured(found, name), _measured(null, name), seconds, self.described()) for name in names
        }

    def _encrypt(self, bench: Bench) -> Tensor:
        """Encryptions of the first images, images x encryptions c h w; what they are mixed with comes from all."""
        generator = seeded(bench.seed, "encryptions")
        order = torch.randperm(len(bench.data.train), generator=generator)[: self.partners]
        private, keys = bench.data.train[order], SeededKeys(generator)
        drawn = [self.scheme.draw(len(private), 0, keys=keys) for _ in range(self.encryptions)]
        mixing = Mixing(
            torch.cat([one.coefficients[: self.images] for one in drawn]),
            torch.cat([one.indices[: self.images] for one in drawn]),
            self.scheme.signed,
        )
        labelled = Batch(private.inputs, private.labels)
        encoded, _ = apply(self.scheme, mixing, labelled, classes=bench.data.num_classes, keys=keys)
        return encoded.images.unflatten(0, (self.encryptions, self.images)).transpose(0, 1)


def _measured(found: Sequence[Difference], statistic: str) -> dict[str, Measured]:
    own = [one for one in found if one.statistic == statistic]
    named = {
        "p_all": [one.alone_all for one in own],
        "p_other": [one.alone_other for one in own],
        "p_together": [one.together for one in own],
        "distance": [one.distance for one in own],
    }
    return {name: Measured.over_seeds(values, 1) for name, values in named.items()}
