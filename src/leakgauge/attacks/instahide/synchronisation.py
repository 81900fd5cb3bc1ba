"""One unknown sign for each pixel of all pictures, restored from the likeness of neighbours."""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree
from torch import Tensor


def synchronised(pictures: Tensor, mean: Tensor | None = None) -> Tensor:
    """Pictures n c h w with the signs of their n-vectors, one per entry, chosen so that neighbours agree.

    Masks hide the sign of a pixel for all pictures at once. Neighbours in the plane and channels of one pixel want one
    sign if their n-vectors correlate; the strongest wishes are granted first, along a maximum spanning tree. That
    leaves pictures or their negatives: ``mean`` c h w, the mean of images of the same kind, decides; without it pixels
    are made negative on average, since photographs are rather dark.
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
    one = torch.cat([first.flatten() for first, _ in neighbours])
    two = torch.cat([second.flatten() for _, second in neighbours])
    values = pictures.detach().cpu().flatten(1).double()
    values = values / values.norm(dim=0).clamp_min(1e-30)
    wishes = (values[:, one] * values[:, two]).sum(dim=0)
    # The heaviest tree as the lightest: costs are positive, since an absent edge is a zero.
    graph = coo_array(((2 - wishes.abs()).numpy(), (one.numpy(), two.numpy())), shape=(index.numel(), index.numel()))
    order, before = breadth_first_order(minimum_spanning_tree(graph.tocsr()), 0, directed=False)
    columns = values.numpy()
    agree = np.einsum("ij,ij->j", columns[:, order[1:]], columns[:, before[order[1:]]]) >= 0
    found = np.ones(index.numel())
    for node, same in zip(order[1:], agree):
        found[node] = found[before[node]] if same else -found[before[node]]
    return torch.as_tensor(found).view(shape).to(pictures)


def _overall(pictures: Tensor, mean: Tensor | None) -> float:
    average = pictures.mean(dim=0)
    evidence = -average.mean() if mean is None else (average * mean.to(average)).sum()
    return -1.0 if float(evidence) < 0 else 1.0
