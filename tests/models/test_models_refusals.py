"""A wrong configuration is refused in one sentence that names the cause and the remedy."""

from __future__ import annotations

import pytest
from torch import nn

from leakgauge.errors import InvalidCase
from leakgauge.models import ACTIVATIONS, MLP, VGG, Compact, ConvNet, LeNet, LeNet5, Plain, ResNet, build
from leakgauge.models.base import make_activation


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_is_a_fresh_layer_that_does_not_work_in_place(name):
    layer = make_activation(name)
    assert isinstance(layer, nn.Module)
    assert layer is not make_activation(name)
    assert not getattr(layer, "inplace", False)


@pytest.mark.parametrize("model", [LeNet, LeNet5, ConvNet, ResNet, VGG, MLP, Compact])
def test_a_misspelt_activation_is_corrected(model):
    with pytest.raises(InvalidCase, match=r"There is no activation 'sigmod'; did you mean 'sigmoid'\?"):
        model(activation="sigmod")


def test_an_activation_like_no_other_gets_the_list():
    with pytest.raises(InvalidCase, match=r"choose one of 'relu', 'leaky_relu', .*'silu'"):
        Compact(activation="maxout")


@pytest.mark.parametrize("model", [ConvNet, ResNet])
def test_a_misspelt_padding_is_corrected(model):
    with pytest.raises(InvalidCase, match=r"There is no padding 'circle'; did you mean 'circular'\?"):
        model(padding="circle")


def test_an_unknown_depth_gets_the_list():
    depths = "8, 18, 20, 32, 34, 50, 101, 152"
    with pytest.raises(InvalidCase, match=f"There is no ResNet of depth 19; choose one of {depths}"):
        ResNet(depth=19)
    with pytest.raises(InvalidCase, match="There is no VGG of depth 34; choose one of 11, 13, 16, 19"):
        VGG(depth=34)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: ConvNet(width=0), "width"),
        (lambda: ResNet(base_width=-1), "base_width"),
        (lambda: Compact(width=1.5), "width"),
        (lambda: Plain(width=0), "width"),
        (lambda: Plain(convolutions=0), "convolutions"),
        (lambda: MLP(hidden=(4, 0)), "hidden"),
        (lambda: LeNet(convolutions=0), "convolutions"),
        (lambda: VGG(width=0), "width"),
        (lambda: VGG(hidden=(4, 0)), "hidden"),
    ],
)
def test_a_size_that_is_no_positive_whole_number_is_refused(make, field):
    with pytest.raises(InvalidCase, match=f"`{field}` to be a positive whole number"):
        make()


@pytest.mark.parametrize("initial_range", [0.0, -0.5, float("nan")])
def test_an_initial_range_that_is_not_positive_is_refused(initial_range):
    with pytest.raises(InvalidCase, match="pass None for torch's default"):
        LeNet(initial_range=initial_range)


@pytest.mark.parametrize("dropout", [-0.1, 1.0, float("nan")])
@pytest.mark.parametrize("model", [LeNet5, VGG])
def test_a_dropout_that_is_no_share_is_refused(model, dropout):
    with pytest.raises(InvalidCase, match=r"a share of at least 0 and below 1, got .*; pass 0 to drop none"):
        model(dropout=dropout)


def test_vgg_refuses_dropout_where_it_has_no_hidden_layer():
    with pytest.raises(InvalidCase, match="hidden layers give but has none; pass `hidden` or no `dropout`"):
        VGG(hidden=(), dropout=0.5)


@pytest.mark.parametrize("image_shape", [(3, 11, 32), (3, 32, 11)])
def test_lenet5_refuses_images_that_its_pools_would_consume(image_shape):
    with pytest.raises(InvalidCase, match=r"LeNet5 pools and so needs at least 12 x 12 pixels, got (11 x 32|32 x 11)"):
        build(LeNet5(), image_shape, 10, seed=0)


@pytest.mark.parametrize("image_shape", [(3, 8, 32), (3, 32, 8)])
def test_convnet_refuses_images_that_its_pools_would_consume(image_shape):
    with pytest.raises(InvalidCase, match=r"needs at least 9 x 9 pixels, got (8 x 32|32 x 8); enlarge the images"):
        build(ConvNet(2), image_shape, 10, seed=0)


@pytest.mark.parametrize(
    "factory", [LeNet(), LeNet5(), ConvNet(2), ResNet(18, 2), VGG(11, 2), MLP((3,)), Compact(2)], ids=repr
)
def test_a_task_without_pixels_or_without_a_choice_is_refused(factory):
    with pytest.raises(InvalidCase, match="pass the shape of one image"):
        build(factory, (0, 16, 16), 10, seed=0)
    with pytest.raises(InvalidCase, match="pass the shape of one image"):
        build(factory, (16, 16), 10, seed=0)
    with pytest.raises(InvalidCase, match="at least two classes"):
        build(factory, (3, 16, 16), 1, seed=0)
