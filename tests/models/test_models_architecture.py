"""Each architecture is the published one: counted, and checked by the property it is used for."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from leakgauge.models import MLP, Compact, ConvNet, LeNet, ModelFactory, ResNet, build, fcn3, lenet_zhu, resnet20_4
from leakgauge.types import ImageShape

CIFAR: ImageShape = (3, 32, 32)
MNIST: ImageShape = (1, 28, 28)


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    # On layers this small, threads that wait for each other on a busy machine cost five times the work.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def parameters(factory: ModelFactory, image_shape: ImageShape = CIFAR, num_classes: int = 10) -> int:
    # The meta device counts without filling 58 million weights.
    with torch.device("meta"):
        return sum(tensor.numel() for tensor in factory(image_shape, num_classes).parameters())


# The counts that the public CIFAR implementations of He et al. (2016) print; depth 152 is not published in this form.
@pytest.mark.parametrize(("depth", "published"), [(18, 11_173_962), (34, 21_282_122), (50, 23_520_842)])
def test_resnet_on_cifar10_has_the_published_number_of_parameters(depth, published):
    assert parameters(ResNet(depth)) == published


@pytest.mark.parametrize(("depth", "layers"), [(18, 18), (20, 20), (32, 32), (34, 34), (50, 50), (152, 152)])
def test_resnet_depth_counts_the_layers_on_the_longest_path(depth, layers):
    with torch.device("meta"):
        module = ResNet(depth, base_width=1)(CIFAR, 10)
    weighted = [name for name, layer in module.named_modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    assert sum("shortcut" not in name for name in weighted) == layers


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


def test_lenet_zhu_has_three_convolutions():
    assert lenet_zhu() == LeNet(activation="sigmoid", convolutions=3, initial_range=0.5)


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


def convnet_before_its_first_pool(padding: str) -> tuple[nn.Module, torch.Tensor]:
    module = build(ConvNet(width=2, padding=padding), (3, 12, 10), 5, seed=0).double().eval()
    names = [name for name, _ in module.named_children()]
    return module[: names.index("pool6")], torch.rand(2, 3, 12, 10, dtype=torch.float64)


def roll(images: torch.Tensor, down: int, right: int) -> torch.Tensor:
    return torch.roll(images, (down, right), dims=(-2, -1))
