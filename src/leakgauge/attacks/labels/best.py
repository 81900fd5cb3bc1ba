"""The rule to use when none is asked for."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Generator, Tensor

from leakgauge.attacks.labels.alternating import Alternating
from leakgauge.attacks.labels.base import CountRule, head_of, sharpen
from leakgauge.attacks.labels.class_gradients import ClassGradients
from leakgauge.attacks.labels.head_matching import HeadMatching
from leakgauge.attacks.labels.idlg import IDLG
from leakgauge.errors import MissingKnowledge, UnsupportedModel
from leakgauge.protocol.losses import Targets
from leakgauge.protocol.observation import UpdateObservation, known


@dataclass(frozen=True)
class BestLabels(CountRule):
    """`Alternating`, and `HeadMatching` where that leaves doubt; iDLG's signs where the update's scale is unknown.

    One example is always named by its sign in the bias, which neither scaling nor pruning changes. Where the scores are
    not those of a linear layer that is trained, `ClassGradients`.

    There is doubt if a count is further than ``doubt`` from a whole number, as counts that explain the update are
    whole. ``work`` is the number of products K m C up to which a step of head matching is made at all; at the default a
    batch takes some ten seconds at most. `leakgauge reproduce ma2023/methods` compares the rules.
    """

    doubt: float = 0.15
    work: float = 3e7

    def estimate(self, observation: UpdateObservation, *, generator: Generator) -> Tensor:
        num_examples = known(observation.num_examples, "num_examples", needed_by=self)
        try:
            head = head_of(observation)
        except UnsupportedModel:
            if observation.learner.targets not in (Targets.CLASSES, Targets.OWN):
                raise
            return ClassGradients().estimate(observation, generator=generator)
        if num_examples == 1 and head.bias_update is not None:
            return IDLG().estimate(observation, generator=generator)
        rows, features = head.weight.shape
        cheap = num_examples * rows * features <= self.work
        try:
            counts = Alternating().estimate(observation, generator=generator)
        except MissingKnowledge:
            return IDLG().estimate(observation, generator=generator)
        sharp = sharpen(counts, observation.learner.loss, num_examples)
        certain = float((sharp - sharp.round()).abs().max()) <= self.doubt
        return counts if certain or not cheap else HeadMatching().estimate(observation, generator=generator)


def best() -> BestLabels:
    """The strongest rule for labels that we know: `BestLabels`."""
    return BestLabels()
