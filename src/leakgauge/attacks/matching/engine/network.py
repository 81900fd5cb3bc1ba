"""A network as a list of layers that read and write numbered slots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from torch import Tensor
from torch.utils import _pytree as pytree

from leakgauge.attacks.matching.engine.layers import Layer
from leakgauge.attacks.matching.engine.layers.operations import Held, Hole, Operation

_ALONE = Hole(0)


class NetworkStep(NamedTuple):
    """A layer, the slots it reads and the slot it writes; slot 0 holds the images."""

    layer: Layer
    inputs: tuple[int, ...]
    output: int


@dataclass(frozen=True)
class Network:
    """Steps in order; ``outputs`` are the slots of what the model returns, in the places of its ``result``."""

    steps: tuple[NetworkStep, ...]
    outputs: tuple[int, ...]
    trained: tuple[str, ...]
    result: Any = _ALONE
    constants: tuple[tuple[str, Operation | Tensor], ...] = ()
    """Tensors that neither images nor training move: made once for a state, in this order."""
    seen: frozenset[int] = frozenset()
    """Slots that depend on the images."""
    learnt: frozenset[int] = frozenset()
    """Slots that depend on trained parameters."""
    shared: frozenset[str] = frozenset()
    """Parameters that several layers use."""

    def readers(self) -> Counter[int]:
        """How many steps read each slot."""
        return Counter(self._reads)

    @cached_property
    def moved(self) -> tuple[int, ...]:
        """The steps whose result moves with the parameters, by their numbers."""
        return tuple(index for index, step in enumerate(self.steps) if step.output in self.learnt)

    @cached_property
    def still(self) -> frozenset[int]:
        """The slots such steps read that stay where they are, the images among them."""
        return frozenset(slot for index in self.moved for slot in self.steps[index].inputs) - self.learnt

    @cached_property
    def _reads(self) -> Counter[int]:
        return Counter(slot for step in self.steps for slot in step.inputs)

    def with_constants(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The tensors of a state, and the constants that follow from them."""
        if not self.constants:
            return tensors
        held: dict[str, Any] = dict(tensors)
        for name, made in self.constants:
            held[name] = made.bind(held)() if isinstance(made, Operation) else made
        return held

    def assemble(self, scores: tuple[Tensor, ...], tensors: Mapping[str, Tensor]) -> Any:
        """What the model returns, from its tensors."""
        if self.result == _ALONE:
            return scores[0]

        def fill(leaf: Any) -> Any:
            if isinstance(leaf, Hole):
                return scores[leaf.number]
            return tensors[leaf.name] if isinstance(leaf, Held) else leaf

        return pytree.tree_map(fill, self.result, is_leaf=lambda leaf: isinstance(leaf, Hole | Held))
