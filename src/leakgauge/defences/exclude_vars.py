"""NVFlare's ExcludeVars: some tensors stay at home."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch import Generator

from leakgauge.errors import InvalidCase
from leakgauge.protocol.local_update import UpdateTransform
from leakgauge.types import ParamTree


@dataclass(frozen=True)
class ExcludeVars(UpdateTransform):
    """Tensors whose names are in ``names``, or in which the regular expression ``pattern`` is found, are not sent.

    NVFlare's filter; like there, nothing is excluded by default. The server keeps what it has of an excluded tensor, so
    here its update is zero. Every other tensor leaves as it is.
    """

    pattern: str = ""
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise InvalidCase(
                f"ExcludeVars(pattern={self.pattern!r}) is no regular expression ({error}); correct it."
            ) from error

    def transform(self, params: ParamTree, *, generator: Generator) -> ParamTree:
        del generator
        return self._without(params)

    def anticipate(self, params: ParamTree, *, observed: ParamTree) -> ParamTree:
        del observed
        return self._without(params)

    def excludes(self, name: str) -> bool:
        """Whether the tensor of this name stays at home."""
        return name in self.names or bool(self.pattern and re.search(self.pattern, name))

    def _without(self, params: ParamTree) -> ParamTree:
        return {name: torch.zeros_like(tensor) if self.excludes(name) else tensor for name, tensor in params.items()}
