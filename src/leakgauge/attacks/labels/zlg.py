"""Counts from the mean probabilities that the model gives to other images."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Generator, Tensor

from leakgauge.attacks.labels.base import CountRule, mean_gradient
from leakgauge.attacks.labels.stand_ins import Source, check_source, stand_ins
from leakgauge.protocol.observation import UpdateObservation, known


@dataclass(frozen=True)
class ZLG(CountRule):
    """Counts n = K (pbar - db), with the mean probabilities of other images for the private ones [Geng et al., 2021].

    Exact as far as pbar is. Without a bias, db_c is taken as sum_m dW_cm / obar, where obar is the other images' mean
    feature mass sum_m e_m. They are ``dummies`` images of noise, or for ``source="auxiliary"`` (ZLG+) images of the
    same kind, whose labels play no part.
    """

    source: Source = "dummy"
    dummies: int = 64

    def __post_init__(self) -> None:
        check_source(self, self.source, ("dummy", "auxiliary"), self.dummies)

    def estimate(self, observation: UpdateObservation, *, generator: Generator) -> Tensor:
        num_examples = known(observation.num_examples, "num_examples", needed_by=self)
        head = mean_gradient(observation, needed_by=self)
        others = stand_ins(observation, self.source, dummies=self.dummies, generator=generator, needed_by=self)
        bias_update = head.bias_update
        if bias_update is None:
            # Where no feature fires, the row sums are zero too, and only the model's own leaning is left.
            bias_update = head.row_sums / (float(others.mass.mean()) or float("inf"))
        return num_examples * (head.probabilities(others.features).mean(dim=0) - bias_update)
