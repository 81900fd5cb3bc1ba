"""The maps of single images out of what is mixed of them: maps behind a ReLU are sparse, mixtures are not."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from leakgauge.attacks.analytic.sparse_columns import basis_of, sparse_directions

_ROWS = 2_048
"""Entries that are looked at to find the directions."""

_LIVE = 100.0
"""How many times the precision an entry must be, relative to the largest, to be looked at."""

_NEGATIVE = 30.0
"""How many times the precision a map behind a ReLU may be below zero, in the root of its energy."""


def separate(maps: Tensor, *, precision: float, generator: Generator) -> Tensor | None:
    """Maps that are not negative and of unit length, one for each image, out of as many mixtures of them.

    None where the mixtures hold no such maps. ``precision`` is the relative error of the mixtures.
    """
    flat = maps.flatten(1)
    if len(flat) > 1:
        sizes = flat.norm(dim=0)
        order = sizes.argsort()
        # The weakest, where some images are zero and others not; what is zero in all of them tells nothing.
        rows = order[sizes[order] > _LIVE * precision * sizes.amax()][:_ROWS]
        noise = torch.full((len(rows),), precision / flat.shape[1] ** 0.5, dtype=flat.dtype)
        seen = flat[:, rows].mT
        left, values, _ = torch.linalg.svd(seen, full_matrices=False)
        found = sparse_directions(basis_of(left, values, noise), generator)
        if len(found.vectors) < len(flat):
            return None
        columns = (found.basis.rows @ found.vectors.mT) * found.basis.scales[:, None]
        # Coefficients of the mixtures, which give the directions at the other entries too.
        flat = torch.linalg.lstsq(seen, columns).solution.mT @ flat
    flat = flat * flat.sum(dim=1, keepdim=True).sign()
    flat = flat / flat.norm(dim=1, keepdim=True)
    if bool((flat.clamp_max(0).norm(dim=1) > _NEGATIVE * precision).any()):
        return None
    return flat.view_as(maps)
