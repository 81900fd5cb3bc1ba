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
_EXAMPLES, _MOSTLY = 4, 0.75
"""Own examples of a class, and the share of them that one name is given, from which on it is what the class is called.

Names that are drawn at random from ten go round so in one batch of a thousand.
"""


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


def exchanged_classes(model: Vetted) -> Iterator[Suspicion]:
    """Classes that are called by each other's names: the model knows them, and the rows of its head were moved.

    A model that has not learnt yet takes one class for another, and that one for itself: nothing goes round. Classes
    of which there are few examples, or that are not mostly called one thing, do not count.
    """
    learner, batch = model.learner, model.batch
    if learner is None or batch is None or learner.targets is not Targets.CLASSES or batch.labels.ndim != 1:
        return
    named = learner.in_mode("eval").scores(model.state, batch.inputs).argmax(dim=1)
    called: dict[int, tuple[int, int, int]] = {}
    for label in batch.labels.unique().tolist():
        own = named[batch.labels == label]
        name = int(own.mode().values)
        hits = int((own == name).sum())
        if len(own) >= _EXAMPLES and hits >= _MOSTLY * len(own):
            called[int(label)] = (name, hits, len(own))
    round_trip = _cycle({label: name for label, (name, *_) in called.items()})
    if round_trip:
        told = [
            f"{called[one][1]} of {called[one][2]} of class {one} are called {called[one][0]}" for one in round_trip
        ]
        shown = told if len(told) <= 3 else [*told[:2], f"so on through {len(told)} classes"]
        yield Suspicion(
            "permuted head",
            "the classifier",
            f"Of your own examples {', and '.join(shown)}: the classifier knows these classes and has exchanged their "
            "rows, which makes gradients large.",
        )


def _cycle(called: dict[int, int]) -> list[int]:
    """Classes that lead back to where one began, none of them called by its own name; empty where there are none.

    >>> _cycle({1: 2, 2: 5, 5: 1, 3: 3, 4: 3}), _cycle({4: 9, 9: 9, 7: 1})
    ([1, 2, 5], [])
    """
    for first in called:
        path = [first]
        while (after := called.get(path[-1])) is not None and after not in path:
            path.append(after)
        if after == first and len(path) > 1:
            return path
    return []


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
