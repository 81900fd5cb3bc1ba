"""Weights of the CIFAR ResNet-20 as it is commonly published, for `leakgauge reproduce --weights` and `--state`.

    python benchmarks/resnet20_weights.py CHECKPOINT --out FOLDER/resnet20-16-cifar10.safetensors

Published ones [He et al., 2016, option A] have shortcuts that take every second pixel and fill up with empty channels;
ours are 1x1 convolutions, which do the same here with weights of zero and one. So the network computes the same, and
its update has those convolutions besides. The images are normalised as such checkpoints expect them.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from leakgauge.files import write_tensors
from leakgauge.models import ResNet, build
from leakgauge.protocol.weight_files import read_weights

WIDTH, CLASSES = 16, 10
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def converted(published: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state of our ResNet-20 that computes what a published one does."""
    module = build(ResNet(20, WIDTH), (3, 32, 32), CLASSES, seed=0)
    state = module.state_dict()
    for name, tensor in published.items():
        state[_named(name)].copy_(tensor)
    for stage in (2, 3):
        _pass_on(state, f"stage{stage}.block1.shortcut")
    state["normalise.mean"].copy_(torch.tensor(MEAN).reshape(-1, 1, 1))
    state["normalise.std"].copy_(torch.tensor(STD).reshape(-1, 1, 1))
    return state


def _named(name: str) -> str:
    """A published name as ours: layer2.0.bn1.weight is stage2.block1.norm1.weight."""
    parts = name.split(".")
    if parts[0] == "linear":
        return ".".join(["head", *parts[1:]])
    if not parts[0].startswith("layer"):
        return ".".join([{"conv1": "conv", "bn1": "norm"}[parts[0]], *parts[1:]])
    layer, block, part, *rest = parts
    return ".".join([layer.replace("layer", "stage"), f"block{int(block) + 1}", part.replace("bn", "norm"), *rest])


def _pass_on(state: dict[str, Tensor], shortcut: str) -> None:
    """Make a 1x1 convolution and its BatchNorm hand every channel on, with as many empty ones on both sides."""
    weight, epsilon = state[f"{shortcut}.conv.weight"], torch.nn.BatchNorm2d(1).eps
    incoming = weight.shape[1]
    weight.zero_()
    weight[incoming // 2 : incoming // 2 + incoming, :, 0, 0] = torch.eye(incoming)
    state[f"{shortcut}.norm.running_var"].fill_(1 - epsilon)
    state[f"{shortcut}.norm.running_mean"].zero_()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    write_tensors(options.out, converted(read_weights(options.checkpoint)), {"model": repr(ResNet(20, WIDTH))})


if __name__ == "__main__":
    main()
