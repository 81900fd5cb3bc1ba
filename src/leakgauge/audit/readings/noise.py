"""What was added on the way: noise, or the rounding of half precision."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from leakgauge.audit.readings.base import RoundReading, Seen
from leakgauge.types import ParamTree

_HALVES = {torch.bfloat16: "bfloat16", torch.float16: "float16"}  # what the first holds, the second mostly does
_EVEN = 1.25
"""Noise is alike in all tensors: their largest and smallest spread differ by no more than this factor."""

_LARGE = 100
"""Entries from which the spread of a tensor is told well enough."""

_TAILS = {"gaussian_noise:std": (3.0, 1.0), "laplace_noise:scale": (6.0, 2**-0.5)}
"""The kurtosis of what may be added, and its parameter over its spread."""


def read_noise(seen: Seen) -> Iterator[RoundReading]:
    """Noise, if what the best inputs so far leave unexplained is alike in all tensors, with the tails that noise has.

    What a wrong reading leaves differs from layer to layer, is mostly small with a few large entries, and is the sum of
    a few outer products, as gradients are.
    """
    if seen.expected is None or not undefended(seen):
        return
    left = [tensor - seen.expected[name] for name, tensor in seen.observed.items() if tensor.numel() >= _LARGE]
    spreads = [float(tensor.double().std()) for tensor in left]
    if not spreads or not 0 < max(spreads) <= _EVEN * min(spreads) or not all(map(_is_shapeless, left)):
        return
    even = torch.cat([tensor.double().flatten() / spread for tensor, spread in zip(left, spreads)])
    kurtosis, spread = float(even.pow(4).mean() / even.square().mean() ** 2), sorted(spreads)[len(spreads) // 2]
    for text, (tails, factor) in _TAILS.items():
        if abs(kurtosis - tails) < 0.25 * tails:
            yield _noisy(seen, f"noise of about {spread:.2g} was added to the update", f"{text}={spread * factor:.3g}")


def read_transport(seen: Seen) -> Iterator[RoundReading]:
    """Weights that travelled in half precision: each entry of the update is rounded as its weight was."""
    if not undefended(seen):
        return
    for kind, name in _HALVES.items():
        if all(_holds(tensor, kind) for tensor in seen.state.params.values()):
            std = _rounding(seen.state.params, kind)
            yield _noisy(seen, f"the weights travelled as {name}", f"gaussian_noise:std={std:.3g}")
            return


def _is_shapeless(tensor: Tensor) -> bool:
    """Whether no direction of a matrix stands out: of noise the largest singular value has a known share."""
    if tensor.ndim < 2:
        return True
    matrix = tensor.double().flatten(1)
    rows, columns = matrix.shape
    noise = (rows**-0.5 + columns**-0.5) ** 2
    return bool(torch.linalg.matrix_norm(matrix, 2) ** 2 <= 2 * noise * matrix.square().sum())


def undefended(seen: Seen) -> bool:
    return seen.recorded.defence in (None, "none")


def _noisy(seen: Seen, words: str, text: str) -> RoundReading:
    return seen.reading.otherwise("noise", words, (("--defence", text),), defence=text)


def _holds(tensor: Tensor, kind: torch.dtype) -> bool:
    """Whether every entry is a number of this precision."""
    return bool(torch.equal(tensor.to(kind).to(tensor.dtype), tensor))


def _rounding(params: ParamTree, kind: torch.dtype) -> float:
    """The spread that rounding leaves in the difference of two weights: each is off by half a unit at the most."""
    flat = torch.cat([tensor.flatten() for tensor in params.values()]).double().abs()
    unit = torch.finfo(kind).eps * 2.0 ** flat.clamp_min(torch.finfo(kind).tiny).log2().floor()
    return float((unit.square().mean() / 6).sqrt())
