"""One unknown sign for each pixel of all pictures, restored from the likeness of neighbours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree
from torch import Tensor


def synchronise(pictures: Tensor, mean: Tensor | None = None) -> Tensor:
    """Pictures n c h w with the signs of their n-vectors, one per entry, chosen so that neighbours agree.

    Masks hide the sign of a pixel for all pictures at once. Neighbours in the plane and channels of one pixel want one
    sign if their n-vectors correlate; the strongest wishes are granted first, along a maximum spanning tree. That
    leaves pictures or their negatives: ``mean`` c h w, the mean of images of the same kind, decides; without it
    `like_photographs`.
    """
    smooth = pictures * signs(pictures)
    return smooth * _overall(smooth, mean)


def signs(pictures: Tensor) -> Tensor:
    """Signs c h w for pictures n c h w, along the maximum spanning tree of |correlation|."""
    shape = pictures.shape[1:]
    index = torch.arange(shape.numel()).view(shape)
    neighbours = [(index[1:], index[:-1]), (index[:, 1:], index[:, :-1]), (index[:, :, 1:], index[:, :, :-1])]
    if shape[0] > 2:
        neighbours.append((index[2:], index[:-2]))
    values = pictures.detach().flatten(1).double()
    return along_tree(values / values.norm(dim=0).clamp_min(1e-30), neighbours).view(shape).to(pictures)


def along_tree(values: Tensor, neighbours: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Signs of the columns of values n x d that make neighbours alike: the maximum spanning tree of |inner product|."""
    one = torch.cat([first.flatten() for first, _ in neighbours]).numpy()
    two = torch.cat([second.flatten() for _, second in neighbours]).numpy()
    columns = values.detach().cpu().double().numpy()
    products = np.einsum("ij,ij->j", columns[:, one], columns[:, two])
    # The heaviest tree as the lightest: costs are positive, since an absent edge is a zero.
    costs = np.abs(products).max(initial=0.0) + 1 - np.abs(products)
    graph = coo_array((costs, (one, two)), shape=(columns.shape[1],) * 2)
    order, before = breadth_first_order(minimum_spanning_tree(graph.tocsr()), 0, directed=False)
    agree = np.einsum("ij,ij->j", columns[:, order[1:]], columns[:, before[order[1:]]]) >= 0
    found = np.ones(columns.shape[1])
    for node, same in zip(order[1:], agree):
        found[node] = found[before[node]] if same else -found[before[node]]
    return torch.as_tensor(found)


def like_photographs(pictures: Tensor) -> float:
    """How much more pictures n c h w in [-1, 1] are like photographs than their negatives are; odd in the pictures.

    Photographs are rather dark, lit from above and, where they have three channels, warm: red exceeds blue.
    """
    average = pictures.mean(dim=0)
    upper, lower = average.tensor_split(2, dim=1)
    evidence = -float(average.mean())
    if lower.numel() and upper.numel():
        evidence += float(upper.mean() - lower.mean())
    if len(average) == 3:
        evidence += float(average[0].mean() - average[2].mean())
    return evidence


def _overall(pictures: Tensor, mean: Tensor | None) -> float:
    average = pictures.mean(dim=0)
    evidence = like_photographs(pictures) if mean is None else float((average * mean.to(average)).sum())
    return -1.0 if evidence < 0 else 1.0
