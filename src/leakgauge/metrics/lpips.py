from __future__ import annotations

import math
import os
from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Literal, final

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import conv2d, max_pool2d

from leakgauge.errors import InvalidFile
from leakgauge.metrics.alignment import Comparison
from leakgauge.metrics.base import Kind, Metric

_ENVIRONMENT = "LEAKGAUGE_WEIGHTS"
_SHIFT = torch.tensor([-0.030, -0.088, -0.188]).view(3, 1, 1)
_SCALE = torch.tensor([0.458, 0.448, 0.450]).view(3, 1, 1)
# Bounds the memory of VGG on large images.
_PAIRS_AT_ONCE = 16


@dataclass(frozen=True)
class LPIPS(Metric, ABC):
    """Learned perceptual distance, version 0.1, 0 for equal images [Zhang et al., 2018].

    Sum over five taps of the spatial mean of w · (f - g)², where f and g are the network's features of the two images,
    each scaled to unit length over channels, and w is a learned weight per channel.

    ``weights`` is a folder with the features of a network and what was learned on them, such as ``alexnet_features``
    and ``lpips_alex_v0.1_lin``, each as ``.safetensors`` or ``.pt``; without it nothing is measured. Grey images count
    as RGB; images with a side below 31 (alex) or 16 (vgg) pixels, or with another number of channels, are not measured.
    """

    network: ClassVar[Literal["alex", "vgg"]]
    low, high, exact = 0.0, math.inf, 0.0
    higher_is_leakier = False
    serves = Kind.IMAGES

    weights: str | None = None

    @property
    def lacks(self) -> str | None:
        return "LPIPS weights; name their folder with --weights" if self.weights is None else None

    def with_weights(self, folder: Path) -> LPIPS:
        """With the weights of a folder, which are read here, so that a missing file shows before the first attack."""
        _load_weights(self.network, str(folder.resolve()))
        return replace(self, weights=str(folder))

    def __call__(self, comparison: Comparison) -> Tensor:
        count, channels, height, width = comparison.originals.shape
        scores = torch.full((count,), torch.nan, dtype=torch.float64)
        too_small = min(height, width) < _NETWORKS[self.network].smallest_side
        if self.weights is None or channels not in (1, 3) or too_small:
            return scores
        weights = _load_weights(self.network, str(Path(self.weights).expanduser().resolve()))
        for rows in comparison.measured.nonzero().flatten().split(_PAIRS_AT_ONCE):
            scores[rows] = self._distance(weights, comparison.originals[rows], comparison.reconstructions[rows])
        return scores

    @torch.no_grad()
    def _distance(self, weights: Mapping[str, Tensor], left: Tensor, right: Tensor) -> Tensor:
        stages = _NETWORKS[self.network].stages
        taps = zip(_features(stages, weights, left), _features(stages, weights, right), strict=True)
        return sum(
            (
                conv2d((a - b).square(), weights[f"lin{index}.model.1.weight"]).double().mean(dim=(1, 2, 3))
                for index, (a, b) in enumerate(taps)
            ),
            start=torch.zeros(len(left), dtype=torch.float64),
        )


@final
@dataclass(frozen=True)
class LPIPSAlex(LPIPS):
    name, title, heading = "lpips_alex", "LPIPS (AlexNet)", "LPIPS\nalex"
    network: ClassVar[Literal["alex", "vgg"]] = "alex"


@final
@dataclass(frozen=True)
class LPIPSVGG(LPIPS):
    name, title = "lpips_vgg", "LPIPS (VGG)"
    network: ClassVar[Literal["alex", "vgg"]] = "vgg"


def find_weights(folder: str | Path | None = None) -> Path | None:
    """The folder of LPIPS weights: the argument, else the environment variable LEAKGAUGE_WEIGHTS, else ``None``."""
    chosen = folder or os.environ.get(_ENVIRONMENT)
    return Path(chosen).expanduser() if chosen else None


@dataclass(frozen=True)
class _Convolution:
    index: int
    inputs: int
    outputs: int
    kernel: int = 3
    stride: int = 1
    padding: int = 1


@dataclass(frozen=True)
class _Stage:
    """Max-pooling of stride 2 (a kernel of 0 is none), then convolutions with ReLU, then a tap."""

    pool: int
    convolutions: tuple[_Convolution, ...]


@dataclass(frozen=True)
class _Network:
    features: str
    heads: str
    smallest_side: int
    stages: tuple[_Stage, ...]


# The indices are those of torchvision's `features`, which name the tensors in the files.
_NETWORKS: Mapping[str, _Network] = {
    "alex": _Network(
        features="alexnet_features",
        heads="lpips_alex_v0.1_lin",
        smallest_side=31,
        stages=(
            _Stage(0, (_Convolution(0, 3, 64, kernel=11, stride=4, padding=2),)),
            _Stage(3, (_Convolution(3, 64, 192, kernel=5, padding=2),)),
            _Stage(3, (_Convolution(6, 192, 384),)),
            _Stage(0, (_Convolution(8, 384, 256),)),
            _Stage(0, (_Convolution(10, 256, 256),)),
        ),
    ),
    "vgg": _Network(
        features="vgg16_features",
        heads="lpips_vgg_v0.1_lin",
        smallest_side=16,
        stages=(
            _Stage(0, (_Convolution(0, 3, 64), _Convolution(2, 64, 64))),
            _Stage(2, (_Convolution(5, 64, 128), _Convolution(7, 128, 128))),
            _Stage(2, (_Convolution(10, 128, 256), _Convolution(12, 256, 256), _Convolution(14, 256, 256))),
            _Stage(2, (_Convolution(17, 256, 512), _Convolution(19, 512, 512), _Convolution(21, 512, 512))),
            _Stage(2, (_Convolution(24, 512, 512), _Convolution(26, 512, 512), _Convolution(28, 512, 512))),
        ),
    ),
}


def _features(stages: tuple[_Stage, ...], weights: Mapping[str, Tensor], images: Tensor) -> list[Tensor]:
    """Features after each stage, scaled to unit length over channels."""
    flow = (2 * images.float().expand(-1, 3, -1, -1) - 1 - _SHIFT) / _SCALE
    taps = []
    for stage in stages:
        if stage.pool:
            flow = max_pool2d(flow, stage.pool, stride=2)
        for layer in stage.convolutions:
            name = f"features.{layer.index}"
            flow = conv2d(flow, weights[f"{name}.weight"], weights[f"{name}.bias"], layer.stride, layer.padding).relu()
        taps.append(flow / (flow.square().sum(dim=1, keepdim=True).sqrt() + 1e-10))
    return taps


@lru_cache(maxsize=4)
def _load_weights(network: str, folder: str) -> Mapping[str, Tensor]:
    plan = _NETWORKS[network]
    return {
        **_read(Path(folder), plan.features, _feature_shapes(plan)),
        **_read(Path(folder), plan.heads, _head_shapes(plan)),
    }


def _feature_shapes(plan: _Network) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in (layer for stage in plan.stages for layer in stage.convolutions):
        shapes[f"features.{layer.index}.weight"] = (layer.outputs, layer.inputs, layer.kernel, layer.kernel)
        shapes[f"features.{layer.index}.bias"] = (layer.outputs,)
    return shapes


def _head_shapes(plan: _Network) -> dict[str, tuple[int, ...]]:
    return {
        f"lin{index}.model.1.weight": (1, stage.convolutions[-1].outputs, 1, 1)
        for index, stage in enumerate(plan.stages)
    }


def _read(folder: Path, stem: str, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    path = next((path for path in (folder / f"{stem}.safetensors", folder / f"{stem}.pt") if path.is_file()), None)
    if path is None:
        raise InvalidFile(
            f"LPIPS found neither {stem}.safetensors nor {stem}.pt in {folder}; put one of them there, or name the "
            f"folder that holds it with `weights` or {_ENVIRONMENT}."
        )
    try:
        tensors = (
            load_file(path)
            if path.suffix == ".safetensors"
            else torch.load(path, map_location="cpu", weights_only=True)
        )
    except Exception as error:  # a damaged or hostile file fails in many ways, all with the same remedy
        raise InvalidFile(f"{path} is not a readable file of plain tensors; fetch a fresh copy of it.") from error
    for name, shape in shapes.items():
        tensor = tensors.get(name) if isinstance(tensors, dict) else None
        if not isinstance(tensor, Tensor) or tuple(tensor.shape) != shape:
            raise InvalidFile(f"{path} holds no tensor {name!r} shaped {shape}; fetch the file made for LPIPS v0.1.")
    return {name: tensors[name].float() for name in shapes}
