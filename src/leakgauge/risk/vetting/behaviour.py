"""How the model behaves on the client's own data: losses and gradients unlike those of an honest one."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from leakgauge.protocol.learner import Learner
from leakgauge.protocol.losses import Targets
from leakgauge.risk.vetting.base import Suspicion, Vetted
from leakgauge.types import Batch, ModelState

_SILENT = 1e-6
_FEWEST = 8
"""Own examples from which on a share of them says something."""


def strange_losses(model: Vetted) -> Iterator[Suspicion]:
    """Confidently wrong: a loss far above that of guessing, and hits below it."""
    learner, batch = model.learner, model.batch
    if learner is None or batch is None or learner.targets is not Targets.CLASSES or batch.labels.ndim != 1:
        return
    with torch.no_grad():
        scores = learner.in_mode("eval").scores(model.state, batch.inputs)
    loss = float(torch.nn.functional.cross_entropy(scores.double(), batch.labels.long()))
    hits = int((scores.argmax(dim=1) == batch.labels).sum())
    guessing = math.log(scores.shape[1])
    chance = 1 / scores.shape[1]
    # So few hits by chance in one of a hundred batches at most.
    few = len(batch) >= _FEWEST and hits < chance * len(batch) - 2.3 * math.sqrt(len(batch) * chance * (1 - chance))
    if not math.isfinite(loss) or loss > 4 * guessing or (loss > 1.5 * guessing and (few or hits == 0)):
        yield Suspicion(
            "strange loss",
            "the classifier",
            f"On {len(batch)} examples of your own the loss is {loss:.3g}, where guessing gives {guessing:.3g}, with "
            f"{hits} hits: the model is sure of wrong labels, which makes gradients large.",
        )


def silent_examples(model: Vetted) -> Iterator[Suspicion]:
    """Most examples flow back not at all, so that the others are alone in the update."""
    learner, batch = model.learner, model.batch
    if learner is None or batch is None or len(batch) < _FEWEST or model.head is None:
        return
    sizes = example_gradients(learner.in_mode("eval"), model.state, batch, model.head)
    silent = sizes <= _SILENT * float(sizes.max())
    share = int(silent.sum())
    if bool(sizes.any()) and 2 * share >= len(sizes):
        yield Suspicion(
            "silent examples",
            "below the classifier",
            f"Of {len(sizes)} examples of your own, {share} send no gradient at all below the classifier: the update "
            "is that of the others alone.",
        )


def example_gradients(learner: Learner, state: ModelState, batch: Batch, head: str) -> Tensor:
    """The length of each example's gradient in all that lies below the classifier."""
    sizes = []
    for place in range(min(len(batch), 32)):
        gradient = learner.gradient(state, batch[place : place + 1])
        below = [one for name, one in gradient.items() if not name.startswith(f"{head}.")]
        sizes.append(math.sqrt(sum(float(one.double().square().sum()) for one in below)))
    return torch.tensor(sizes, dtype=torch.float64)
