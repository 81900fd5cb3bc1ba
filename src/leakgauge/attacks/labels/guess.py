"""Labels without a look at the update: what any rule has to beat."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from leakgauge.attacks.base import finite_update
from leakgauge.attacks.labels.base import CountRule
from leakgauge.errors import InvalidCase
from leakgauge.protocol.observation import UpdateObservation, known


@dataclass(frozen=True)
class ClassPrior(CountRule):
    """K labels in the proportions of a ``prior``, by default the same for each class; the update tells it nothing.

    Class c gets the whole part of K prior_c; what is left goes, one each, to classes drawn by the fractional parts.
    """

    prior: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.prior is not None and not (min(self.prior, default=-1.0) >= 0 and 0 < sum(self.prior) < float("inf")):
            raise InvalidCase(
                f"ClassPrior needs shares >= 0 of which one at least is positive, got {self.prior}; correct them."
            )

    def estimate(self, observation: UpdateObservation, *, generator: Generator) -> Tensor:
        num_examples = known(observation.num_examples, "num_examples", needed_by=self)
        finite_update(observation)  # refused like by any attack, though nothing is read from it
        classes = observation.learner.num_classes(observation.state, observation.probe)
        prior = torch.tensor(self.prior or (1.0,) * classes, dtype=torch.float64)
        if len(prior) != classes:
            raise InvalidCase(f"The prior has {len(prior)} shares but the model {classes} classes; give one per class.")
        return drawn_counts(num_examples * prior / prior.sum(), generator=generator)


def drawn_counts(expected: Tensor, *, generator: Generator) -> Tensor:
    """The whole part of each expected count, and the remainder drawn by the fractional parts, without repeats."""
    total = int(expected.sum().round())
    whole = (expected + 1e-9).floor()  # 49 * (1 / 49) is less than one
    left = total - int(whole.sum())
    if left > 0:
        whole[torch.multinomial((expected - whole).clamp(min=0), left, generator=generator)] += 1
    return whole
