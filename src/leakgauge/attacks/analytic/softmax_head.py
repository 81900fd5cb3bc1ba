"""The input of a classifier without bias, from the shape of the softmax."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from leakgauge.protocol.learner import LossFunction

# The direction of the update that the found input explains; larger means noise, or soft labels.
_TOLERANCE = 1e-2


class SoftmaxExample(NamedTuple):
    """What the update of a softmax classifier gives away about one example."""

    input: Tensor
    delta: Tensor
    """The update's derivative in the logits, a positive multiple of p - e_label."""


def solve_softmax_head(weight: Tensor, bias: Tensor | None, weight_update: Tensor) -> SoftmaxExample | None:
    """The input x of z = W x + b under cross-entropy, from dW alone, however dW is scaled.

    dW = s (p - e_k) x^T has rank one: with u the unit vector along its rows and x = c u, dW u = c s (p - e_k), of which
    only entry k is negative. All others are c s p_i, so log (dW u)_i - b_i = c (W u)_i + constant: c is the slope of a
    line through at least two classes besides k. None with fewer, or where the line does not explain the update.
    """
    u, scores = _orient(weight_update)
    label = int(scores.argmin())
    shift = torch.zeros_like(scores) if bias is None else bias
    others = scores > 0
    along, logs = (weight @ u)[others], scores[others].log() - shift[others]
    # How far a row strays from u is its relative error, the error of its logarithm: large for what rounding swallowed.
    stray = (weight_update - scores[:, None] * u).norm(dim=1)[others] / scores[others]
    share = 1 / (stray.square() + torch.finfo(stray.dtype).eps ** 2)
    share = share / share.sum()
    along_centred, logs_centred = along - (share * along).sum(), logs - (share * logs).sum()
    spread = (share * along_centred.square()).sum()
    if len(along) < 2 or spread <= torch.finfo(spread.dtype).eps * along.square().max():
        return None
    length = (share * along_centred * logs_centred).sum() / spread
    if not length > 0:
        return None
    # Without the label: its p_k - 1 cancels where the network is right and sure, and follows from the others anyway.
    rest = torch.arange(len(scores), device=scores.device) != label
    explained = (weight @ u * length + shift)[rest].softmax(dim=0)
    if (explained / explained.norm() - scores[rest] / scores[rest].norm()).norm() > _TOLERANCE:
        return None
    return SoftmaxExample(length * u, scores / length)


def softmax_label(weight_update: Tensor) -> Tensor | None:
    """The label of one example by the update of a softmax classifier; None for two classes, which mirror each other."""
    _, scores = _orient(weight_update)
    return scores.argmin()[None] if int((scores != 0).sum()) > 2 else None


def _orient(weight_update: Tensor) -> tuple[Tensor, Tensor]:
    """The unit vector u along the rows of a matrix of rank one, and dW u, with the label's entry negative.

    That entry has a sign of its own; where noise has blurred the signs, it is still the largest, as 1 - p_k is the sum
    of the other p_i.
    """
    u = weight_update[weight_update.norm(dim=1).argmax()]
    u = u / u.norm().clamp_min(torch.finfo(u.dtype).tiny)
    scores = weight_update @ u
    up, down = int((scores > 0).sum()), int((scores < 0).sum())
    flip = scores[scores.abs().argmax()] > 0 if (up == 1) == (down == 1) else up == 1
    return (-u, -scores) if flip else (u, scores)


def is_softmax_loss(loss: LossFunction, classes: int, device: torch.device) -> bool:
    """Whether the derivative in the logits points along p - e_label, as for cross-entropy; checked on a few logits."""
    for index in range(3):
        label = (index * 2) % classes
        logits = (torch.arange(classes, device=device).double() * (1.3 + index)).sin()[None].requires_grad_()
        try:
            with torch.enable_grad():
                (derivative,) = torch.autograd.grad(loss(logits, torch.tensor([label], device=device)), logits)
        except Exception:  # a loss of other labels, or of other scores
            return False
        expected = logits.detach().softmax(dim=1)
        expected[0, label] -= 1
        if not torch.allclose(derivative / derivative.norm(), expected / expected.norm(), atol=1e-6):
            return False
    return True
