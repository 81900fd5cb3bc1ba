"""Labels from the sign of the classifier's update."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from leakgauge.attacks.base import Progress, finite_update, silent
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.types import Outcome, Reconstruction


@dataclass(frozen=True)
class IDLG:
    """The class whose classifier row has a negative update is the label [Zhao et al., 2020].

    With mean cross-entropy the bias update of class i is mean(p_i) - share of i in the batch, negative only for classes
    present. Exact for one example, and for several with distinct labels while the model is not yet confident. Without
    a bias the row sum stands in, which needs non-negative features. Fewer negative classes than examples mean repeats:
    the most negative classes are then counted again, in turn.
    """

    def restore(self, observation: UpdateObservation) -> Tensor:
        num_examples = known(observation.num_examples, "num_examples", needed_by=self)
        head = observation.learner.classifier(observation.state, observation.image_shape)
        update = finite_update(observation)
        name = f"{head}.bias" if f"{head}.bias" in update else f"{head}.weight"
        return labels_from_scores(update[name] if update[name].ndim == 1 else update[name].sum(dim=1), num_examples)

    def __call__(
        self, observation: UpdateObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction:
        del generator, progress
        return Reconstruction(images=None, labels=self.restore(observation), outcome=Outcome.SOLVED)


def labels_from_scores(scores: Tensor, num_examples: int) -> Tensor:
    """The ``num_examples`` most negative classes, repeated in turn when too few are negative.

    >>> labels_from_scores(torch.tensor([0.2, -0.7, 0.9, -0.4]), 2)
    tensor([1, 3])
    >>> labels_from_scores(torch.tensor([0.2, -0.7, 0.9, -0.4]), 3)
    tensor([1, 1, 3])
    """
    order = scores.argsort()
    present = max(1, min(num_examples, int((scores < 0).sum())))
    return order[torch.arange(num_examples, device=scores.device) % present].sort().values
