"""Each architecture is the published one: counted, and checked by the property it is used for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from leakgauge.models import (
    MLP,
    VGG,
    Compact,
    ConvMLP,
    ConvNet,
    LeNet,
    LeNet5,
    ModelFactory,
    Plain,
    ResNet,
    build,
    fcn3,
    lenet_zhu,
    resnet20_4,
)
from leakgauge.types import Shape

CIFAR: Shape = (3, 32, 32)
MNIST: Shape = (1, 28, 28)


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    # On layers this small, threads that wait for each other on a busy machine cost five times the work.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def parameters(factory: ModelFactory, image_shape: Shape = CIFAR, num_classes: int = 10) -> int:
    # The meta device counts without filling 58 million weights.
    with torch.device("meta"):
        return sum(tensor.numel() for tensor in factory(image_shape, num_classes).parameters())


# The counts that the public CIFAR implementations of He et al. (2016) print; depth 152 is not published in this form.
@pytest.mark.parametrize(
    ("depth", "published"), [(18, 11_173_962), (34, 21_282_122), (50, 23_520_842), (101, 42_512_970)]
)
def test_resnet_on_cifar10_has_the_published_number_of_parameters(depth, published):
    assert parameters(ResNet(depth)) == published


@pytest.mark.parametrize("depth", [8, 18, 20, 32, 34, 50, 101, 152])
def test_resnet_depth_counts_the_layers_on_the_longest_path(depth):
    with torch.device("meta"):
        module = ResNet(depth, base_width=1)(CIFAR, 10)
    weighted = [name for name, layer in module.named_modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    assert sum("shortcut" not in name for name in weighted) == depth


def test_resnet_20_4_has_the_count_of_its_three_stages():
    def block(incoming: int, width: int) -> int:
        projection = incoming * width + 2 * width if incoming != width else 0
        return 9 * incoming * width + 9 * width * width + 4 * width + projection

    stem = 9 * 3 * 64 + 2 * 64
    stages = 3 * block(64, 64) + block(64, 128) + 2 * block(128, 128) + block(128, 256) + 2 * block(256, 256)
    assert parameters(resnet20_4()) == stem + stages + 256 * 10 + 10


@pytest.mark.parametrize("width", [3, 64])
def test_convnet_has_the_count_of_its_eight_layers(width):
    sizes = [3, width, 2 * width, 2 * width, *[4 * width] * 5]
    convolutions = sum(9 * incoming * outgoing + outgoing for incoming, outgoing in pairwise(sizes))
    norms = sum(2 * outgoing for outgoing in sizes[1:])
    assert parameters(ConvNet(width)) == convolutions + norms + 36 * width * 10 + 10


def test_convnet_64_on_cifar10_has_2904970_parameters():
    # By hand: weights 1728 + 73728 + 147456 + 294912 + 4 * 589824, biases and BatchNorm 3 * 1600, head 23050.
    assert parameters(ConvNet(64)) == 2_904_970


@pytest.mark.parametrize("convolutions", [3, 4])
def test_lenet_has_the_count_of_its_convolutions_and_768_features(convolutions):
    # Strides 2 and 2 leave 12 channels of 8 x 8 pixels: the 768 in the authors' code.
    expected = (25 * 3 * 12 + 12) + (convolutions - 1) * (25 * 12 * 12 + 12) + 768 * 10 + 10
    assert parameters(LeNet(convolutions=convolutions)) == expected


def test_a_wider_lenet_with_batch_norm_has_two_more_numbers_per_channel():
    wide, plain = LeNet(convolutions=4, width=32, batch_norm=True), LeNet(convolutions=4, width=32)
    assert parameters(wide) == parameters(plain) + 4 * 2 * 32
    module = build(LeNet(batch_norm=True), (3, 8, 8), 10, seed=0)
    assert torch.equal(module.norm1.weight, torch.ones(12))  # the range is for convolutions and the head


def test_lenet_zhu_has_three_convolutions():
    assert lenet_zhu() == LeNet(activation="sigmoid", convolutions=3, initial_range=0.5)


# The 60 000 of LeCun et al. (1998) with every map of the second convolution joined to every map of the first, as today.
@pytest.mark.parametrize(
    ("image_shape", "count"), [(MNIST, 61_706), ((1, 32, 32), 61_706), (CIFAR, 62_006)], ids=["28", "32", "colour"]
)
def test_lenet5_has_the_published_number_of_parameters(image_shape, count):
    assert parameters(LeNet5(), image_shape) == count


def test_lenet5_has_the_shapes_of_lecun_et_al_fig_2_on_28_pixels_and_on_32():
    for side in (28, 32):
        sizes = {name: shape[1:] for name, shape in output_shapes(LeNet5(), (1, side, side)).items()}
        maps = [(6, 28, 28), (6, 14, 14), (16, 10, 10), (16, 5, 5)]
        assert [sizes[name] for name in ("conv1", "pool1", "conv2", "pool2")] == maps
        assert [sizes[name] for name in ("linear1", "linear2", "head")] == [(120,), (84,), (10,)]


# The counts that the public CIFAR implementations of Simonyan & Zisserman (2015) print: BatchNorm and one linear layer.
@pytest.mark.parametrize(("depth", "published"), [(11, 9_231_114), (13, 9_416_010), (16, 14_728_266), (19, 20_040_522)])
def test_vgg_on_cifar10_has_the_published_number_of_parameters(depth, published):
    assert parameters(VGG(depth, hidden=(), batch_norm=True)) == published


# 133, 133, 138 and 144 million in the paper's table 2; to the unit in torchvision's.
@pytest.mark.parametrize(
    ("depth", "published"), [(11, 132_863_336), (13, 133_047_848), (16, 138_357_544), (19, 143_667_240)]
)
def test_vgg_on_imagenet_has_the_published_number_of_parameters(depth, published):
    assert parameters(VGG(depth, hidden=(4096, 4096)), (3, 224, 224), 1000) == published


@pytest.mark.parametrize("depth", [11, 13, 16, 19])
def test_vgg_depth_counts_its_weighted_layers(depth):
    with torch.device("meta"):
        module = VGG(depth, width=1)(CIFAR, 10)
    assert sum(isinstance(layer, nn.Conv2d | nn.Linear) for layer in module) == depth


def test_vgg_halves_the_image_five_times_as_long_as_there_are_two_pixels():
    for side, pools, left in ((224, 5, 7), (64, 5, 2), (32, 5, 1), (16, 4, 1), (9, 3, 1), (1, 0, 1)):
        shapes = output_shapes(VGG(11, width=1), (3, side, side))
        assert sum(name.startswith("pool") for name in shapes) == pools
        assert shapes["flatten"] == (2, 8 * left * left)


@pytest.mark.parametrize(("make", "norms"), [(LeNet5, 2), (VGG, 13)])
def test_batch_norm_follows_each_convolution_when_asked_for(make, norms):
    for asked in (False, True):
        with torch.device("meta"):
            layers = list(make(batch_norm=asked)(CIFAR, 10))
        kinds = [type(after) for before, after in pairwise(layers) if isinstance(before, nn.Conv2d)]
        assert kinds == [nn.BatchNorm2d if asked else nn.ReLU] * norms
        assert sum(isinstance(layer, nn.BatchNorm2d) for layer in layers) == norms * asked


@pytest.mark.parametrize(
    ("factory", "sites"),
    [(LeNet5(dropout=0.3), ["linear1", "linear2", "head"]), (VGG(11, width=1, dropout=0.3), ["linear2", "head"])],
    ids=["LeNet5", "VGG"],
)
def test_dropout_feeds_the_linear_layers_when_asked_for(factory, sites):
    with torch.device("meta"):
        layers, plain = list(factory(CIFAR, 10).named_children()), type(factory)()(CIFAR, 10)
    fed = [after for (_, before), (after, _) in pairwise(layers) if isinstance(before, nn.Dropout)]
    assert fed == sites
    assert {layer.p for _, layer in layers if isinstance(layer, nn.Dropout)} == {0.3}
    assert not any(isinstance(layer, nn.Dropout) for layer in plain)


@pytest.mark.parametrize("make", [LeNet5, partial(VGG, 11, 1)])
def test_without_bias_the_head_alone_has_none(make):
    with torch.device("meta"):
        module = make(bias=False)(CIFAR, 10)
    names = {name for name, _ in module.named_parameters()}
    assert "head.bias" not in names
    assert {name.removesuffix("weight") + "bias" for name in names if "weight" in name} - names == {"head.bias"}


@pytest.mark.parametrize("factory", [LeNet5(), VGG(11, width=16)], ids=repr)
def test_convolutions_start_with_variance_two_over_fan_out(factory):
    for layer in build(factory, CIFAR, 10, seed=0):
        if isinstance(layer, nn.Conv2d):
            fan_out = layer.out_channels * layer.weight[0, 0].numel()
            n = layer.weight.numel()
            # The variance of n normal draws is off by sqrt(2 / n), three times that at most.
            assert layer.weight.var().item() * fan_out / 2 == pytest.approx(1, abs=3 * (2 / n) ** 0.5)


@pytest.mark.parametrize(
    "factory",
    [
        LeNet5(),
        LeNet5(activation="sigmoid", bias=False),
        LeNet5(batch_norm=True),
        VGG(11, width=8),
        VGG(16, width=8, hidden=(), batch_norm=True),
        VGG(19, width=8),
    ],
    ids=repr,
)
def test_no_parameter_of_an_untrained_network_is_without_gradient(factory):
    module = build(factory, CIFAR, 10, seed=0).eval()
    loss = cross_entropy(module(torch.rand(4, *CIFAR, generator=torch.Generator().manual_seed(1))), torch.arange(4))
    norms = torch.stack([gradient.norm() for gradient in torch.autograd.grad(loss, list(module.parameters()))])
    assert norms.min() > 1e-5 * norms.max()


def test_only_the_start_of_he_et_al_lets_the_image_reach_the_gradient_of_a_deep_vgg():
    def change_between_images(reset: bool) -> float:
        module = build(VGG(19, width=4), CIFAR, 10, seed=0)
        if reset:
            torch.manual_seed(0)
            for layer in module:
                if isinstance(layer, nn.Conv2d):
                    layer.reset_parameters()
        gradients = []
        for image in torch.rand(2, 1, *CIFAR, generator=torch.Generator().manual_seed(1)):
            loss = cross_entropy(module(image), torch.tensor([1]))
            gradients.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))]))
        return float((gradients[0] - gradients[1]).norm() / gradients[0].norm())

    assert change_between_images(True) < 1e-3
    assert change_between_images(False) > 1e-2


def test_fcn3_on_mnist_has_the_shapes_of_ma_et_al_table_2():
    shapes = [tuple(layer.weight.shape) for layer in build(fcn3(), MNIST, 10, seed=0) if isinstance(layer, nn.Linear)]
    assert shapes == [(300, 784), (300, 300), (10, 300)]


def test_mlp_without_bias_has_none_anywhere():
    assert parameters(MLP((5,), bias=False), MNIST) == 784 * 5 + 5 * 10


def test_mlp_from_a_list_equals_mlp_from_a_tuple():
    assert MLP(hidden=[8, 4]) == MLP(hidden=(8, 4))


def test_compact_has_the_count_of_its_three_convolutions_and_two_strides():
    width = 32
    convolutions = (9 * 3 * width + width) + 2 * (9 * width * width + width)
    assert parameters(Compact(width)) == convolutions + width * 8 * 8 * 10 + 10


def test_lenet_starts_uniform_in_its_initial_range():
    for parameter in build(LeNet(initial_range=0.5), CIFAR, 10, seed=0).parameters():
        assert parameter.abs().max() <= 0.5
    weight = build(LeNet(initial_range=0.5), CIFAR, 10, seed=0).conv2.weight
    # A uniform variable on [-r, r] has standard deviation r / sqrt(3).
    assert weight.std().item() == pytest.approx(0.5 / 3**0.5, rel=0.03)


def test_lenet_without_initial_range_starts_as_torch_does():
    weight = build(LeNet(initial_range=None), CIFAR, 10, seed=0).conv2.weight
    # torch's default for convolutions is uniform within 1 / sqrt(fan in).
    assert weight.abs().max() <= (25 * 12) ** -0.5


def test_only_the_wide_start_makes_the_gradient_of_a_sigmoid_lenet_depend_on_the_image():
    def change_between_images(initial_range: float | None) -> float:
        module = build(LeNet(convolutions=3, initial_range=initial_range), CIFAR, 10, seed=0)
        gradients = []
        for image in torch.rand(2, 1, *CIFAR, generator=torch.Generator().manual_seed(1)):
            loss = cross_entropy(module(image), torch.tensor([1]))
            gradients.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))]))
        return float((gradients[0] - gradients[1]).norm() / gradients[0].norm())

    assert change_between_images(None) < 0.05
    assert change_between_images(0.5) > 0.3


def test_circular_padding_makes_the_layers_before_the_first_pool_translation_equivariant():
    body, images = convnet_before_its_first_pool("circular")
    torch.testing.assert_close(body(roll(images, 3, 5)), roll(body(images), 3, 5))


def test_zero_padding_breaks_translation_equivariance():
    body, images = convnet_before_its_first_pool("zeros")
    assert not torch.allclose(body(roll(images, 3, 5)), roll(body(images), 3, 5), rtol=1e-2)


@pytest.mark.parametrize("depth", [18, 50])
def test_circular_resnet_cannot_tell_images_shifted_by_its_total_stride(depth):
    module = build(ResNet(depth, base_width=2, padding="circular"), (3, 16, 16), 5, seed=0).double().eval()
    images = torch.rand(2, 3, 16, 16, dtype=torch.float64)
    torch.testing.assert_close(module(roll(images, 8, -8)), module(images))


def output_shapes(factory: ModelFactory, image_shape: Shape) -> dict[str, tuple[int, ...]]:
    """What each layer gives for two images, without computing it."""
    with torch.device("meta"):
        x, shapes = torch.rand(2, *image_shape), {}
        for name, layer in factory(image_shape, 10).named_children():
            x = layer(x)
            shapes[name] = tuple(x.shape)
    return shapes


def convnet_before_its_first_pool(padding: str) -> tuple[nn.Module, torch.Tensor]:
    module = build(ConvNet(width=2, padding=padding), (3, 12, 10), 5, seed=0).double().eval()
    names = [name for name, _ in module.named_children()]
    return module[: names.index("pool6")], torch.rand(2, 3, 12, 10, dtype=torch.float64)


def roll(images: torch.Tensor, down: int, right: int) -> torch.Tensor:
    return torch.roll(images, (down, right), dims=(-2, -1))


@pytest.mark.parametrize("hidden", [(), (16,), (16, 7)])
def test_conv_mlp_has_the_count_of_its_convolutions_and_of_every_linear_layer(hidden):
    width, sizes = 6, (6 * 8 * 8, *hidden, 10)
    convolutions = 3 * width * 9 + width + width * width * 9 + width
    linear = sum(before * after + after for before, after in pairwise(sizes))
    assert parameters(ConvMLP(2, width, list(hidden))) == convolutions + linear


def test_plain_has_the_count_of_its_five_convolutions_and_two_strides():
    width = 3
    convolutions = (3 * width + 4 * width * width) * 9 + 5 * width
    assert parameters(Plain(5, width)) == convolutions + width * 8 * 8 * 10 + 10


@pytest.mark.parametrize("depth", [8, 50])
def test_a_resnet_without_batchnorm_has_biases_instead(depth):
    module = ResNet(depth, base_width=2, batch_norm=False)((3, 16, 16), 5)
    assert not any(isinstance(part, nn.BatchNorm2d) for part in module.modules())
    assert all(part.bias is not None for part in module.modules() if isinstance(part, nn.Conv2d))
    plain = ResNet(depth, base_width=2)((3, 16, 16), 5)
    assert all(part.bias is None for part in plain.modules() if isinstance(part, nn.Conv2d))
