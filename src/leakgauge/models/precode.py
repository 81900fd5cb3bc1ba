"""A model with a variational bottleneck: a defence that is part of the model."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.nn.modules.dropout import _DropoutNd

from leakgauge.models.base import ModelFactory, Normalisation, check_choice, check_positive
from leakgauge.models.compact import Compact
from leakgauge.models.mlp import MLP
from leakgauge.types import Shape

_BASES: Mapping[str, Callable[[], ModelFactory]] = {"mlp": MLP, "compact": Compact}


class Sampled(_DropoutNd):
    """mu + softplus(s) * N(0, 1) of an input (mu, s); mu alone in eval mode.

    A kind of dropout, so that no attacker has the client's draw: what it can run is the expected network.
    """

    def forward(self, x: Tensor) -> Tensor:
        mean, spread = x.chunk(2, dim=1)
        return mean + softplus(spread) * torch.randn_like(mean) if self.training else mean


@dataclass(frozen=True)
class Precode:
    """Another model with a variational bottleneck of ``size`` features before its head [Scheliga et al., 2022].

    The classifier sees a random code in place of the features, which spoils the gradients of the layers in front of it
    by the same random factor for all of a layer's weights. Not the ratio of a layer's weight to its bias: from a first
    layer that is linear the image is read off as if there were no bottleneck. The paper also adds the code's divergence
    from N(0, 1) to the loss, 1e-3 times; a client's loss here is one of scores and labels, so that term is left out.
    """

    base: str = "mlp"
    size: int = 256

    def __post_init__(self) -> None:
        check_choice("base of Precode", self.base, _BASES)
        check_positive(self, size=self.size)

    def __call__(self, shape: Shape, num_classes: int, *, normalisation: Normalisation | None = None) -> nn.Module:
        plain = _BASES[self.base]()(shape, num_classes, normalisation=normalisation)
        layers = OrderedDict(plain.named_children())
        head = layers.pop("head")
        assert isinstance(head, nn.Linear)
        layers["encode"] = nn.Linear(head.in_features, 2 * self.size)
        layers["sample"] = Sampled()
        layers["decode"] = nn.Linear(self.size, head.in_features)
        layers["head"] = head
        return nn.Sequential(layers)
