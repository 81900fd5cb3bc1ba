"""Wrong proposals are removed by what the gradient as a whole is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice, permutations

import torch
from scipy.optimize import nnls
from torch import Tensor

from leakgauge.attacks.text.last_tokens import as_texts
from leakgauge.attacks.text.prefixes import Prefix
from leakgauge.protocol.fit import fit
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.randomness import seeded
from leakgauge.space import TokenSpace
from leakgauge.types import Batch, Outcome, Reconstruction

_SKETCH = 4096
"""Entries of the gradient that texts are weighed by."""

_ORDERS = 200
"""Orders of the labels that are tried."""


def choose_texts(seen: UpdateObservation, space: TokenSpace, proposed: Sequence[Prefix], count: int) -> list[Prefix]:
    """Those ``count`` of the proposals whose gradients, none of them negative, make up most of the observed one.

    The last tokens are not known yet, so that it is made up roughly.
    """
    if len(proposed) <= count:
        return list(proposed)
    names = list(seen.update.params)
    sizes = [seen.update.params[name].numel() for name in names]
    rows = torch.randint(sum(sizes), (_SKETCH,), generator=seeded(0, "sketch"))

    def sketch(params: dict[str, Tensor]) -> Tensor:
        return torch.cat([params[name].detach().flatten() for name in names]).double().cpu()[rows]

    columns = []
    for prefix in proposed:
        text = as_texts([prefix], space).to(seen.state.device)
        label = torch.zeros(1, dtype=torch.long, device=text.device)
        columns.append(len(prefix) * sketch(seen.learner.gradient(seen.state, Batch(text, label))))
    weights = torch.from_numpy(nnls(torch.stack(columns, dim=1).numpy(), sketch(dict(seen.update.params)).numpy())[0])
    return [proposed[at] for at in sorted(weights.argsort(descending=True)[:count].tolist())]


def order_labels(observation: UpdateObservation, texts: Tensor, labels: Tensor) -> Tensor:
    """The labels in the order in which the client's update of these texts comes nearest to the observed one."""
    if len(labels) != len(texts) or len(labels) == 1:
        return labels
    hidden = replace(observation, labels=None)
    best, least = labels, float("inf")
    for order in islice(dict.fromkeys(permutations(labels.tolist())), _ORDERS):
        mine = labels.new_tensor(order)
        residual = fit(hidden, Reconstruction(texts, mine, Outcome.SOLVED)).residual
        if residual < least:
            best, least = mine, residual
    return best
