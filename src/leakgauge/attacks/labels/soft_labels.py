"""The class probabilities that one example was trained with: smoothed, mixed or plain."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from leakgauge.attacks.base import LabelAttack
from leakgauge.attacks.labels.base import Head, mean_gradient
from leakgauge.errors import UnsupportedModel
from leakgauge.progress import Progress, silent
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.types import Outcome, Reconstruction

_LEAST = 1e-8
"""The smallest |p - y| of the largest row that is looked for."""
_STEP = 0.01
"""Of the grid in log |p - y|, along which logits of some tens change by some tenths."""
_VALLEYS = 8
"""Of the grid, for each sign, that are refined."""
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class SoftLabel(LabelAttack):
    """The probabilities y of one example from dW = (p - y) e^T, whether smoothed, mixed or plain [Wang et al., 2024].

    With a bias db = p - y, hence e = dW_c / db_c for every c and y = softmax(W e + b) - db, whatever y is. Without,
    t = p_r - y_r of the largest row r is unknown: e = dW_r / t and y(t) = softmax(W e + b) - t dW dW_r / |dW_r|^2. A
    smoothed label, a mixture of two classes and one class have all but their two largest entries equal, so t in [-1, 1]
    is where the deviation of these vanishes (per |t|, since for t -> 0 it vanishes for any label).
    """

    def restore(self, observation: UpdateObservation, *, generator: Generator) -> Tensor:
        """Class probabilities, 1 x C."""
        del generator
        num_examples = known(observation.num_examples, "num_examples", needed_by=self)
        head = mean_gradient(observation, needed_by=self)
        if num_examples != 1:
            raise UnsupportedModel(
                f"SoftLabel reads the label of one example, but the update mixes {num_examples}; "
                "use a batch of one, or another label attack."
            )
        if not bool((head.weight_update if head.bias_update is None else head.bias_update).any()):
            raise UnsupportedModel(
                "The classifier's update is zero, so no label can be read from it; use an update of a training step."
            )
        found = _without_bias(head) if head.bias_update is None else _with_bias(head, head.bias_update)
        shares = found.clamp(min=0) / found.clamp(min=0).sum()
        return shares[None].to(device=observation.state.device, dtype=observation.state.dtype)

    def __call__(
        self, observation: UpdateObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction:
        try:
            return super().__call__(observation, generator=generator, progress=progress)
        except UnsupportedModel as refusal:
            return Reconstruction(None, None, Outcome.NOT_APPLICABLE, facts={"reason": str(refusal)})


def _with_bias(head: Head, bias_update: Tensor) -> Tensor:
    features = bias_update @ head.weight_update / bias_update.square().sum()  # the least squares of all rows
    return head.probabilities(features[None])[0] - bias_update


def _without_bias(head: Head) -> Tensor:
    if head.num_classes < 5:
        raise UnsupportedModel(
            f"Without a bias SoftLabel needs five classes to know a label by equal entries, got {head.num_classes}; "
            "give the classifier a bias, or use another label attack."
        )
    row = head.weight_update[int(head.weight_update.norm(dim=1).argmax())]
    ratios = head.weight_update @ row / row.square().sum()
    slopes = head.weight @ row
    offsets = 0.0 if head.bias is None else head.bias  # a bias that is not trained

    def labels(gaps: Tensor) -> Tensor:
        """y(t) for each t."""
        return (slopes / gaps[:, None] + offsets).softmax(dim=1) - gaps[:, None] * ratios

    def deviation(gaps: Tensor) -> Tensor:
        # Not its square: a kink at the solution is found to the last digit, a parabola to half of them.
        return labels(gaps).sort(dim=1).values[:, :-2].std(dim=1, unbiased=False) / gaps.abs()

    sizes = torch.arange(math.log(_LEAST), _STEP, _STEP, dtype=torch.float64)
    starts = [(sign, at) for sign in (1.0, -1.0) for at in _valleys(deviation(sign * sizes.exp()))]
    signs = torch.tensor([sign for sign, _ in starts], dtype=torch.float64)
    near = sizes[[at for _, at in starts]]
    gaps = signs * _golden_section(lambda size: deviation(signs * size.exp()), near - _STEP, near + _STEP).exp()
    return labels(gaps[deviation(gaps).argmin()][None])[0]


def _valleys(values: Tensor) -> list[int]:
    """Where the lowest of the local minima are."""
    padded = torch.cat((values[:1], values, values[-1:]))
    low = torch.nonzero((values <= padded[:-2]) & (values <= padded[2:])).flatten()
    return low[values[low].argsort()[:_VALLEYS]].tolist()


def _golden_section(function: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> Tensor:
    """The minimum between each pair of bounds, all at once."""
    for _ in range(70):
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        better = function(left) < function(right)
        low, high = torch.where(better, low, left), torch.where(better, right, high)
    return (low + high) / 2
