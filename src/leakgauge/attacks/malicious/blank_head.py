"""What a classifier gives away whose rows are all equal: every class is predicted alike, so labels sort the inputs."""

from __future__ import annotations

import torch
from torch import Tensor

from leakgauge.attacks.analytic.linear_layer import recover_input


def head_inputs(weight_update: Tensor, bias_update: Tensor, labels: Tensor, num_examples: int) -> Tensor | str:
    """The inputs of the classifier, one row per label, or the reason why they cannot be told apart.

    With all rows equal, dW_c = mean_t (p_t - [y_t = c]) x_t and db_c alike, where p_t does not depend on c; against an
    absent class a, (dW_c - dW_a) / (db_c - db_a) is the mean of x_t over y_t = c: exact for distinct labels, whatever
    factor the client puts on its update. One example needs neither equal rows nor its label.

    >>> x, y, absent = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0]), torch.tensor([4.0, 7.0]) / 6
    >>> dW, db = torch.stack((absent - x / 2, absent, absent - y / 2)), torch.tensor([-1 / 6, 1 / 3, -1 / 6])
    >>> head_inputs(dW, db, torch.tensor([0, 2]), 2)
    tensor([[1., 2.],
            [3., 5.]])
    """
    if num_examples == 1:
        found = recover_input(weight_update, bias_update)
        return "the bias update of the classifier is zero" if found is None else found[None]
    if labels.ndim != 1:
        return "several images with class probabilities for labels are not told apart"
    absent = torch.ones(len(bias_update), dtype=torch.bool, device=bias_update.device)
    absent[labels.long()] = False
    if not bool(absent.any()):
        return "every class is present, so no row is left to compare with"
    slope = bias_update - bias_update[absent].mean()
    labels = labels.long()[slope[labels.long()] != 0]
    if len(labels) == 0:
        return "the bias update of the classifier is zero"
    return (weight_update - weight_update[absent].mean(dim=0))[labels] / slope[labels, None]


def head_labels(bias_update: Tensor, num_examples: int) -> Tensor:
    """The labels, repeats included: db_c is proportional to 1/C - n_c/n, and largest for an absent class.

    >>> head_labels(torch.tensor([-0.5, 0.25, 0.0, 0.25]), 4)
    tensor([0, 0, 0, 2])
    """
    counts = num_examples / len(bias_update) * (1 - bias_update / bias_update.max())
    labels = []
    for _ in range(num_examples):
        labels.append(int(counts.nan_to_num(0, 0, 0).argmax()))
        counts[labels[-1]] -= 1
    return torch.tensor(sorted(labels), device=bias_update.device)
