"""Small architectures as users write them: what the tests differentiate and ``gallery.py`` attacks and times.

Each is written from its paper's description, at the size of a CIFAR image and of a few ten thousand parameters, in the
spelling its users prefer: some as modules, some as functions, some with parameters of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

CLASSES = 10


def _conv(inputs: int, outputs: int, size: int = 3, stride: int = 1, groups: int = 1, act: str = "relu") -> nn.Module:
    activation = {
        "relu": nn.ReLU(inplace=True),
        "relu6": nn.ReLU6(inplace=True),
        "silu": nn.SiLU(),
        "none": nn.Identity(),
    }
    layer = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), activation[act])


class PaddedBlock(nn.Module):
    """A residual block whose shortcut slices every other pixel and pads the channels [He et al., 2016, option A]."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.stride, self.pad = stride, outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        if self.stride != 1 or self.pad:
            x = functional.pad(
                x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.pad // 2, self.pad - self.pad // 2)
            )
        out += x
        return functional.relu(out)


class ProjectedBlock(nn.Module):
    """A residual block with a convolution on its shortcut [ibid., option B]."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(_conv(inputs, outputs, 3, stride), _conv(outputs, outputs, act="none"))
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else _conv(inputs, outputs, 1, stride, act="none")

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class Staged(nn.Module):
    """A stem, blocks, the mean over the image and a linear head."""

    def __init__(self, stem: nn.Module, blocks: list[nn.Module], features: int) -> None:
        super().__init__()
        self.stem, self.blocks, self.head = stem, nn.Sequential(*blocks), nn.Linear(features, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)).mean(dim=(2, 3)))


def resnet_padded() -> nn.Module:
    return Staged(_conv(3, 16), [PaddedBlock(16, 16, 1), PaddedBlock(16, 32, 2), PaddedBlock(32, 64, 2)], 64)


def resnet_projected() -> nn.Module:
    return Staged(_conv(3, 16), [ProjectedBlock(16, 16, 1), ProjectedBlock(16, 32, 2), ProjectedBlock(32, 64, 2)], 64)


class DenseLayer(nn.Module):
    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.conv(functional.relu(self.norm(x)))], 1)


def densenet() -> nn.Module:
    """[Huang et al., 2017]"""
    blocks: list[nn.Module] = [DenseLayer(16 + 12 * k, 12) for k in range(3)]
    blocks += [nn.Conv2d(52, 26, 1), nn.AvgPool2d(2), *(DenseLayer(26 + 12 * k, 12) for k in range(3))]
    return Staged(nn.Conv2d(3, 16, 3, padding=1), [*blocks, nn.BatchNorm2d(62), nn.ReLU()], 62)


class InceptionBlock(nn.Module):
    """Parallel branches side by side [Szegedy et al., 2015]."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.one, self.three = _conv(inputs, 16, 1), nn.Sequential(_conv(inputs, 12, 1), _conv(12, 16))
        self.five, self.pooled = nn.Sequential(_conv(inputs, 8, 1), _conv(8, 8, 5)), _conv(inputs, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        pooled = functional.max_pool2d(x, 3, stride=1, padding=1)
        return torch.cat((self.one(x), self.three(x), self.five(x), self.pooled(pooled)), dim=1)


def inception() -> nn.Module:
    return Staged(_conv(3, 16), [InceptionBlock(16), nn.MaxPool2d(2), InceptionBlock(48)], 48)


class Inverted(nn.Module):
    """An inverted residual, with squeeze and excitation if asked for [Sandler et al., 2018; Howard et al., 2019]."""

    def __init__(
        self, inputs: int, outputs: int, stride: int, act: Callable[[], nn.Module], gate: nn.Module | None
    ) -> None:
        super().__init__()
        hidden = 4 * inputs
        self.expand = nn.Sequential(nn.Conv2d(inputs, hidden, 1, bias=False), nn.BatchNorm2d(hidden), act())
        self.depthwise = nn.Sequential(
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False), nn.BatchNorm2d(hidden), act()
        )
        self.project = nn.Sequential(nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.gate, self.same = gate, stride == 1 and inputs == outputs
        if gate is not None:
            self.squeeze, self.excite = nn.Conv2d(hidden, hidden // 4, 1), nn.Conv2d(hidden // 4, hidden, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.depthwise(self.expand(x))
        if self.gate is not None:
            pooled = functional.adaptive_avg_pool2d(y, 1)
            y = y * self.gate(self.excite(functional.relu(self.squeeze(pooled))))
        y = self.project(y)
        return x + y if self.same else y


def _inverted(stem: nn.Module, act: Callable[[], nn.Module], gate: Callable[[], nn.Module] | None) -> nn.Module:
    shapes = ((16, 16, 1), (16, 24, 2), (24, 24, 1), (24, 32, 2))
    blocks: list[nn.Module] = [Inverted(*shape, act, None if gate is None else gate()) for shape in shapes]
    return Staged(stem, [*blocks, nn.Conv2d(32, 64, 1), act()], 64)


def mobilenet_v2() -> nn.Module:
    return _inverted(_conv(3, 16, act="relu6"), nn.ReLU6, None)


def mobilenet_v3() -> nn.Module:
    stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.Hardswish())
    return _inverted(stem, nn.Hardswish, nn.Hardsigmoid)


def efficientnet() -> nn.Module:
    """[Tan and Le, 2019]"""
    return _inverted(_conv(3, 16, act="silu"), nn.SiLU, nn.Sigmoid)


class ShuffleUnit(nn.Module):
    """Half the channels pass, half are convolved, then all are shuffled [Ma et al., 2018]."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.branch = nn.Sequential(
            _conv(half, half, 1), _conv(half, half, groups=half, act="none"), _conv(half, half, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, dim=1)
        x = torch.cat((left, self.branch(right)), dim=1)
        count, channels, height, width = x.shape
        return x.view(count, 2, channels // 2, height, width).transpose(1, 2).reshape(count, channels, height, width)


def shufflenet() -> nn.Module:
    blocks = [ShuffleUnit(32), ShuffleUnit(32), _conv(32, 64, stride=2), ShuffleUnit(64), ShuffleUnit(64)]
    return Staged(_conv(3, 32, stride=2), blocks, 64)


class Fire(nn.Module):
    """[Iandola et al., 2016]"""

    def __init__(self, inputs: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeezed, 1)
        self.one, self.three = nn.Conv2d(squeezed, expanded, 1), nn.Conv2d(squeezed, expanded, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.squeeze(x), inplace=True)
        return torch.cat([functional.relu(self.one(x), inplace=True), functional.relu(self.three(x), inplace=True)], 1)


class SqueezeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, ceil_mode=True), Fire(32, 12, 24),
            Fire(48, 12, 24), nn.MaxPool2d(3, 2, ceil_mode=True), Fire(48, 16, 32),
        )  # fmt: skip
        self.classifier = nn.Sequential(nn.Dropout(0.5), nn.Conv2d(64, CLASSES, 1), nn.AdaptiveAvgPool2d((1, 1)))

    def forward(self, x: Tensor) -> Tensor:
        return torch.flatten(self.classifier(self.features(x)), 1)


class ConvNeXtBlock(nn.Module):
    """[Liu et al., 2022]"""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(0.1 * torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(functional.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


def convnext() -> nn.Module:
    blocks = [ConvNeXtBlock(32), ConvNeXtBlock(32), nn.Conv2d(32, 64, 2, 2), ConvNeXtBlock(64)]
    return Staged(nn.Conv2d(3, 32, 4, 4), blocks, 64)


class RegNetBlock(nn.Module):
    """Grouped convolutions between pointwise ones, with squeeze and excitation [Radosavovic et al., 2020]."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.a, self.b = _conv(inputs, outputs, 1), _conv(outputs, outputs, 3, stride, groups=outputs // 8)
        self.squeeze = nn.Sequential(nn.Conv2d(outputs, 8, 1), nn.ReLU(), nn.Conv2d(8, outputs, 1), nn.Sigmoid())
        self.c = _conv(outputs, outputs, 1, act="none")
        self.shortcut = _conv(inputs, outputs, 1, stride, act="none")

    def forward(self, x: Tensor) -> Tensor:
        y = self.b(self.a(x))
        y = self.c(y * self.squeeze(y.mean((2, 3), keepdim=True)))
        return functional.relu(y + self.shortcut(x))


def regnet() -> nn.Module:
    return Staged(_conv(3, 16), [RegNetBlock(16, 32, 2), RegNetBlock(32, 64, 2)], 64)


class EncoderBlock(nn.Module):
    """Attention and a perceptron, with ``nn.MultiheadAttention`` or with ``scaled_dot_product_attention``."""

    def __init__(self, width: int, heads: int, *, module: bool) -> None:
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        if module:
            self.attention: nn.MultiheadAttention | None = nn.MultiheadAttention(width, heads, batch_first=True)
        else:
            self.attention, self.qkv, self.out = None, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        if self.attention is not None:
            x = x + self.attention(y, y, y, need_weights=False)[0]
        else:
            count, tokens, width = y.shape
            split = self.qkv(y).reshape(count, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
            query, key, value = split.unbind(0)
            seen = functional.scaled_dot_product_attention(query, key, value)
            x = x + self.out(seen.transpose(1, 2).reshape(count, tokens, width))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """[Dosovitskiy et al., 2021]"""

    def __init__(self, *, module: bool, width: int = 48, patch: int = 4, depth: int = 2) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(0.02 * torch.randn(1, 1 + (32 // patch) ** 2, width))
        self.blocks = nn.ModuleList([EncoderBlock(width, 4, module=module) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def vit_module() -> nn.Module:
    return ViT(module=True)


def vit_function() -> nn.Module:
    return ViT(module=False)


def vit_wide() -> nn.Module:
    """With more channels than it has patches, or a patch has pixels."""
    torch.manual_seed(0)
    return ViT(module=True, width=80)


class MixerBlock(nn.Module):
    """[Tolstikhin et al., 2021]"""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.channels = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 48, 4, 4)
        self.blocks = nn.Sequential(MixerBlock(64, 48), MixerBlock(64, 48))
        self.norm, self.head = nn.LayerNorm(48), nn.Linear(48, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.embed(x).flatten(2).transpose(1, 2))).mean(dim=1))


class UNetEncoder(nn.Module):
    """Down, up and across again, and what is found at each resolution [Ronneberger et al., 2015]."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = _conv(3, 16), _conv(16, 32), _conv(32, 32)
        self.up, self.merged, self.head = nn.ConvTranspose2d(32, 16, 2, 2), _conv(48, 32), nn.Linear(48, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        one = self.one(x)
        two = self.two(functional.max_pool2d(one, 2))
        low = functional.interpolate(self.three(functional.avg_pool2d(two, 2)), scale_factor=2, mode="bilinear")
        merged = self.merged(torch.cat([two, self.up(functional.avg_pool2d(low, 2))], dim=1))
        return self.head(torch.cat([merged.mean((2, 3)), one.mean((2, 3))], dim=1))


class RowsLSTM(nn.Module):
    """The rows of the image one after another [Hochreiter and Schmidhuber, 1997]."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(96, 48, batch_first=True), nn.Linear(48, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.permute(0, 2, 1, 3).flatten(2)
        return self.head(self.lstm(rows)[0][:, -1])


def _normed(norm: Callable[[int], nn.Module]) -> nn.Module:
    blocks: list[nn.Module] = []
    for inputs, outputs in ((16, 32), (32, 32), (32, 64)):
        blocks += [nn.Conv2d(inputs, outputs, 3, padding=1), norm(outputs), nn.LeakyReLU(0.1), nn.AvgPool2d(2)]
    return Staged(nn.Conv2d(3, 16, 3, padding=1), blocks, 64)


def group_normed() -> nn.Module:
    """[Wu and He, 2018]"""
    return _normed(lambda channels: nn.GroupNorm(4, channels))


def instance_normed() -> nn.Module:
    """[Ulyanov et al., 2016]"""
    return _normed(lambda channels: nn.InstanceNorm2d(channels, affine=True))


def frozen_backbone() -> nn.Module:
    """A backbone that stays as it is, and a small network that is trained on its features."""
    backbone = nn.Sequential(nn.Conv2d(3, 24, 3, padding=1), nn.GELU(), nn.Conv2d(24, 24, 3, 2, 1), nn.GELU())
    for parameter in backbone.parameters():
        parameter.requires_grad_(False)
    return nn.Sequential(backbone, nn.Conv2d(24, 16, 3, 2, 1), nn.GELU(), nn.Flatten(), nn.Linear(1024, CLASSES))


class LoRA(nn.Module):
    """A frozen linear layer and a trained correction of low rank [Hu et al., 2022]."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, layer.in_features) / math.sqrt(layer.in_features))
        self.up = nn.Parameter(0.1 * torch.randn(layer.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + x @ self.down.T @ self.up.T


def lora() -> nn.Module:
    first, second = LoRA(nn.Linear(3072, 64), 16), LoRA(nn.Linear(64, 64), 16)
    return nn.Sequential(nn.Flatten(), first, nn.GELU(), second, nn.GELU(), nn.Linear(64, CLASSES))


class TwoHeads(nn.Module):
    """Two heads whose scores are weighed by a trained number."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 5, 2, 2), nn.SELU(), nn.Conv2d(16, 16, 5, 2, 2), nn.SELU(), nn.Flatten()
        )
        self.first, self.second = nn.Linear(1024, CLASSES), nn.Linear(1024, CLASSES)
        self.share = nn.Parameter(torch.tensor(0.3))

    def forward(self, x: Tensor) -> Tensor:
        features = self.body(x)
        return self.first(features) + self.share * torch.tanh(self.second(features))


class Tied(nn.Module):
    """One convolution used three times, and an embedding that is also the head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.conv = nn.Conv2d(3, 16, 4, 4), nn.Conv2d(16, 16, 3, padding=1)
        self.lift = nn.Linear(1024, 32)
        self.classes = nn.Embedding(CLASSES, 32)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for _ in range(3):
            x = x + torch.tanh(self.conv(x))
        return functional.linear(self.lift(x.flatten(1)), self.classes.weight)


class Functional(nn.Module):
    """Parameters and functions only: patches by ``unfold``, mixed by ``einsum``."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Parameter(torch.randn(48, 48) / 7)
        self.mixing = nn.Parameter(torch.randn(64, 64) / 8)
        self.gain = nn.Parameter(torch.ones(48))
        self.weight, self.bias = nn.Parameter(torch.randn(CLASSES, 48) / 7), nn.Parameter(torch.zeros(CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        tokens = functional.unfold(x, 4, stride=4).transpose(1, 2)
        tokens = functional.softplus(torch.einsum("ntd,de->nte", tokens, self.patches))
        tokens = tokens + torch.einsum("ntd,ts->nsd", tokens, self.mixing)
        tokens = self.gain * tokens * torch.rsqrt(tokens.pow(2).mean(-1, keepdim=True) + 1e-6)
        return tokens.mean(1) @ self.weight.T + self.bias


ARCHITECTURES: Mapping[str, Callable[[], nn.Module]] = {
    "resnet, padded shortcuts": resnet_padded,
    "resnet, projected shortcuts": resnet_projected,
    "densenet": densenet,
    "inception": inception,
    "mobilenet v2": mobilenet_v2,
    "mobilenet v3": mobilenet_v3,
    "efficientnet": efficientnet,
    "shufflenet": shufflenet,
    "squeezenet": SqueezeNet,
    "convnext": convnext,
    "regnet": regnet,
    "vit, MultiheadAttention": vit_module,
    "vit, scaled_dot_product_attention": vit_function,
    "mlp-mixer": Mixer,
    "u-net encoder": UNetEncoder,
    "lstm over rows": RowsLSTM,
    "group norm": group_normed,
    "instance norm": instance_normed,
    "frozen backbone": frozen_backbone,
    "lora": lora,
    "two heads": TwoHeads,
    "tied weights": Tied,
    "functional only": Functional,
}

CONVOLUTIONAL = frozenset(
    {
        "resnet, padded shortcuts", "resnet, projected shortcuts", "densenet", "inception", "mobilenet v2",
        "mobilenet v3", "efficientnet", "shufflenet", "squeezenet", "convnext", "regnet", "u-net encoder", "group norm",
        "instance norm", "frozen backbone",
    }
)  # fmt: skip
TRANSFORMERS = frozenset({"vit, MultiheadAttention", "vit, scaled_dot_product_attention"})


class Normalised(nn.Module):
    """Pixels to about zero mean and unit deviation, as the transforms of a data loader would, and then the model."""

    mean: Tensor
    std: Tensor

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("mean", torch.full((3, 1, 1), 0.5))
        self.register_buffer("std", torch.full((3, 1, 1), 0.25))

    def forward(self, x: Tensor) -> Tensor:
        return self.model((x - self.mean) / self.std)


def build(name: str) -> nn.Module:
    """The architecture with weights of its own, in eval mode."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return Normalised(ARCHITECTURES[name]()).eval()
