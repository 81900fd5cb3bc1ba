"""Published weights of a ResNet-20 compute the same in ours."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from leakgauge.models import ResNet, build
from resnet20_weights import MEAN, STD, converted


def published(seed):
    """Random weights under the names of published checkpoints."""
    generator = torch.Generator().manual_seed(seed)
    state = {}

    def layer(conv, norm, outgoing, incoming):
        state[f"{conv}.weight"] = torch.randn(outgoing, incoming, 3, 3, generator=generator) / incoming**0.5 / 3
        for part in ("weight", "running_var"):
            state[f"{norm}.{part}"] = 0.5 + torch.rand(outgoing, generator=generator)
        for part in ("bias", "running_mean"):
            state[f"{norm}.{part}"] = torch.randn(outgoing, generator=generator)

    layer("conv1", "bn1", 16, 3)
    for stage, width in enumerate((16, 32, 64), 1):
        for block in range(3):
            name = f"layer{stage}.{block}"
            layer(f"{name}.conv1", f"{name}.bn1", width, width // 2 if stage > 1 and block == 0 else width)
            layer(f"{name}.conv2", f"{name}.bn2", width, width)
    state["linear.weight"], state["linear.bias"] = torch.randn(10, 64, generator=generator), torch.zeros(10)
    return state


def normed(x, state, norm):
    parts = (state[f"{norm}.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
    return functional.batch_norm(x, *parts)


def computed(images, state):
    """He et al. 2016, option A: shortcuts take every second pixel and add empty channels."""
    x = (images - torch.tensor(MEAN).view(-1, 1, 1)) / torch.tensor(STD).view(-1, 1, 1)
    x = normed(functional.conv2d(x, state["conv1.weight"], padding=1), state, "bn1").relu()
    for stage in (1, 2, 3):
        for block in range(3):
            name, half = f"layer{stage}.{block}", stage > 1 and block == 0
            stride = 2 if half else 1
            y = functional.conv2d(x, state[f"{name}.conv1.weight"], stride=stride, padding=1)
            y = normed(y, state, f"{name}.bn1").relu()
            y = normed(functional.conv2d(y, state[f"{name}.conv2.weight"], padding=1), state, f"{name}.bn2")
            empty = x.shape[1] // 2
            x = (y + (functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, empty, empty)) if half else x)).relu()
    return functional.linear(x.mean((2, 3)), state["linear.weight"], state["linear.bias"])


def test_the_converted_network_computes_what_the_published_one_does():
    state, images = published(0), torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    module: nn.Module = build(ResNet(20, 16), (3, 32, 32), 10, seed=5).eval()
    module.load_state_dict(converted(state))
    with torch.no_grad():
        torch.testing.assert_close(module(images), computed(images, state), rtol=1e-4, atol=1e-4)
