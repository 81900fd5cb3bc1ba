"""What is vetted, and what is found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from leakgauge.attacks.malicious.guessed_images import guess_images
from leakgauge.protocol.learner import Learner
from leakgauge.randomness import seeded
from leakgauge.space import ImageSpace, InputSpace
from leakgauge.types import Batch, ModelState

_PROBES = 96
_OWN = 256
"""Own examples that are looked at, at most."""


@dataclass(frozen=True)
class Suspicion:
    """One construction that an honest model has no use for: its kind, where it is, and the evidence in a sentence."""

    kind: str
    where: str
    sentence: str


class AffineRows(NamedTuple):
    """The weights of a layer as rows, one for each output, with their biases, None where there are none."""

    name: str
    rows: Tensor
    bias: Tensor | None
    convolution: bool


@dataclass(frozen=True)
class Vetted:
    """A model as a client receives it. ``learner`` is None where the weights alone are known.

    ``reference`` are the weights of the round before, ``batch`` some data of the client's own.
    """

    state: ModelState
    learner: Learner | None = None
    space: InputSpace | None = None
    reference: Mapping[str, Tensor] = field(default_factory=dict)
    batch: Batch | None = None

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        return {**self.state.params, **self.state.buffers}

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        """What is multiplied with or added: no running statistics, no counters."""
        statistics = ("running_mean", "running_var", "num_batches_tracked")
        return {
            name: tensor
            for name, tensor in self.tensors.items()
            if tensor.is_floating_point() and not name.endswith(statistics)
        }

    def affine(self) -> Iterator[AffineRows]:
        """Every matrix and kernel that has at least two rows of two entries."""
        for name, tensor in self.weights.items():
            if tensor.ndim < 2 or len(tensor) < 2 or tensor[0].numel() < 2:
                continue
            bias = self.weights.get(f"{name.removesuffix('weight')}bias") if name.endswith("weight") else None
            rows = tensor.detach().double().flatten(1)
            own = None if bias is None or bias.shape != (len(rows),) else bias.detach().double()
            yield AffineRows(name, rows, own, tensor.ndim == 4)

    @cached_property
    def probes(self) -> Tensor | None:
        """Inputs of no one, random fields like photographs; None without a model, or for what is no image."""
        if self.learner is None or not isinstance(self.space, ImageSpace):
            return None
        images = guess_images(self.space.shape, _PROBES, seeded(0, "vetting"))
        return images.to(self.state.device, self.state.dtype)

    @cached_property
    def layer_inputs(self) -> dict[str, Tensor]:
        """What flows into each layer, in the order of execution; empty where the model cannot be run on probes."""
        return self._flowing(self.probes)

    @cached_property
    def own_layer_inputs(self) -> dict[str, Tensor]:
        """The same of the client's own data."""
        return self._flowing(None if self.batch is None else self.batch.inputs[:_OWN])

    def _flowing(self, inputs: Tensor | None) -> dict[str, Tensor]:
        if self.learner is None or inputs is None:
            return {}
        with torch.no_grad():
            return self.learner.in_mode("eval").layer_inputs(self.state, inputs, nn.Module)

    def layer(self, name: str) -> nn.Module:
        assert self.learner is not None
        return self.learner.module.get_submodule(name)

    @cached_property
    def head(self) -> str | None:
        """The classifier: the layer whose output is the model's; without a model, the last matrix of the weights."""
        if self.learner is not None and self.space is not None:
            try:
                return self.learner.in_mode("eval").classifier(self.state, self.space.probe(2, self.state))
            except Exception:  # a model without one, or one that fails on a probe
                return None
        matrices = [name for name, tensor in self.weights.items() if tensor.ndim == 2 and name.endswith(".weight")]
        return matrices[-1].removesuffix(".weight") if matrices else None


@dataclass(frozen=True)
class VettedModel:
    """All that was found, and what could not be looked at, each in a sentence."""

    suspicions: tuple[Suspicion, ...]
    unchecked: tuple[str, ...]

    @property
    def suspicious(self) -> bool:
        return bool(self.suspicions)

    def to_dict(self) -> dict[str, Any]:
        return {"suspicious": self.suspicious, "unchecked": list(self.unchecked)}
