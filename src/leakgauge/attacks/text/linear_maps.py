"""What every trained linear map of a language model reads, found by what the model computes and not by names.

A map multiplies its reads with a parameter, or with a part of one. Adapters are maps like any other: the first matrix
of LoRA reads what the frozen projection reads, the second one reads the product.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from leakgauge.protocol.learner import Learner
from leakgauge.protocol.second_derivatives import uncompiled
from leakgauge.types import ModelState, ParamTree

_PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default)

_CHUNK = 1 << 13
"""Tokens that a model is run on at once."""


@dataclass(frozen=True)
class ReadingMap:
    """A product with ``weight``, or with the part of it from ``offset`` on: inputs x outputs in these strides."""

    weight: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    number: int
    """Its place among all products of one run."""
    places_first: bool = False
    """Whether it is given the first tokens of all texts before the second ones, as torch's own attention is."""

    def texts_first(self, values: Tensor) -> Tensor:
        """What it was given or made, n l outputs as they lie in memory, with each text in one row."""
        texts, length = values.shape[:2]
        return values.reshape(length, texts, -1).transpose(0, 1) if self.places_first else values

    def gradient(self, update: ParamTree) -> Tensor:
        """Of the map, outputs x inputs, in float64: its rows are sums of what the map read."""
        whole = update[self.weight].detach().contiguous()
        return whole.as_strided(self.shape, self.stride, self.offset).mT.double()


class Reads(NamedTuple):
    """What a map read at each token of each text, n l inputs."""

    map: ReadingMap
    values: Tensor


class Products(NamedTuple):
    """What every map, by its number, made of each token, n l outputs, and the factors of all products of many matrices
    at once."""

    made: dict[int, Tensor]
    batched: list[tuple[Tensor, Tensor]]


class _Enough(Exception):
    """All that was asked for has been read."""


class _Recorder(TorchDispatchMode):
    """Notes the factors of every product of as many rows as there are tokens with a part of a parameter; ``whole``,
    also what came of it, and the factors of all products of many matrices at once."""

    def __init__(self, params: ParamTree, rows: int, until: int | None = None, whole: bool = False) -> None:
        super().__init__()
        self.holders = {tensor.untyped_storage().data_ptr(): (name, tensor) for name, tensor in params.items()}
        self.rows, self.until, self.whole = rows, until, whole
        self.found: list[tuple[ReadingMap, Tensor]] = []
        self.embedded: set[str] = set()
        self.made: list[Tensor] = []
        self.batched: list[tuple[Tensor, Tensor]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        if func in _PRODUCTS:
            left, right = args[-2:]
            holder = self.holders.get(right.untyped_storage().data_ptr())
            if holder is not None and right.ndim == 3 and right.stride(0) == 0:
                left, right = left.flatten(0, 1), right[0]  # one matrix for all
            if holder is not None and right.ndim == 2 and len(left) == self.rows:
                name, whole = holder
                offset = right.storage_offset() - whole.storage_offset()
                place = ReadingMap(name, tuple(right.shape), tuple(right.stride()), offset, len(self.found))
                self.found.append((place, left))
                if place.number == self.until:
                    raise _Enough
        elif func is torch.ops.aten.embedding.default:
            holder = self.holders.get(args[0].untyped_storage().data_ptr())
            self.embedded |= set() if holder is None else {holder[0]}
        result = func(*args, **(kwargs or {}))
        if self.whole and len(self.found) > len(self.made):
            self.made.append(result)
        elif self.whole and func is torch.ops.aten.bmm.default:
            self.batched.append(args[:2])
        return result


@contextmanager
def _readable() -> Iterator[None]:
    """A model in its plain operations: fused ones would hide their products."""
    fused = torch.backends.mha.get_fastpath_enabled()
    try:
        torch.backends.mha.set_fastpath_enabled(False)
        with torch.no_grad(), uncompiled(), sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)


def run(learner: Learner, state: ModelState, tokens: Tensor, until: int | None = None) -> tuple[list[Reads], set[str]]:
    """What every map reads on these texts, up to the product ``until``; and the parameters that embed."""
    recorder = _Recorder(state.params, tokens.numel(), until)
    with _readable(), recorder, suppress(_Enough):
        learner.logits(state.params, state.buffers, tokens)
    return [Reads(at, left.view(*tokens.shape, -1)) for at, left in recorder.found], recorder.embedded


def products(learner: Learner, state: ModelState, tokens: Tensor) -> Products:
    """All products of a run on texts, n l."""
    recorder = _Recorder(state.params, tokens.numel(), whole=True)
    with _readable(), recorder:
        learner.logits(state.params, state.buffers, tokens)
    made = {number: one.view(*tokens.shape, -1) for number, one in enumerate(recorder.made)}
    return Products(made, recorder.batched)


@dataclass(frozen=True)
class MapReader:
    """A model that is run on many texts of one length, no further than to the maps that are asked about."""

    learner: Learner
    state: ModelState

    def at(self, maps: Sequence[ReadingMap], tokens: Tensor, places: slice = slice(None)) -> list[Tensor]:
        """What each map reads at these places of each text, n places inputs."""
        last = max(one.number for one in maps)
        size = max(1, _CHUNK // tokens.shape[1])
        parts = []
        for chunk in tokens.split(size):
            found = {one.map.number: one.values for one in run(self.learner, self.state, chunk, last)[0]}
            parts.append([one.texts_first(found[one.number])[:, places].clone() for one in maps])
        return [torch.cat(part) for part in zip(*parts, strict=True)]
