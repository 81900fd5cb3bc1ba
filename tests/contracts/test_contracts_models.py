"""What every model of the catalogue must satisfy, whatever its architecture."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

import leakgauge.models
from leakgauge.catalogue import MODELS
from leakgauge.models import (
    BERT,
    GPT,
    MLP,
    VGG,
    Compact,
    ConvMLP,
    ConvNet,
    LeNet,
    LeNet5,
    ModelFactory,
    Normalisation,
    Plain,
    Precode,
    QuickResNet,
    ResNet,
    build,
    fcn3,
    lenet_zhu,
    resnet20_4,
)

SMALL: tuple[ModelFactory, ...] = (
    LeNet(),
    LeNet(convolutions=3, activation="tanh", initial_range=None),
    LeNet(width=5, batch_norm=True),
    ConvNet(width=2),
    ConvNet(width=2, padding="circular", activation="softplus"),
    ResNet(depth=18, base_width=2),
    ResNet(depth=20, base_width=2, padding="circular", activation="silu"),
    ResNet(depth=50, base_width=1),
    MLP(hidden=(7, 5)),
    MLP(hidden=(), bias=False),
    Compact(width=3),
    Plain(convolutions=3, width=3),
    Plain(convolutions=2, width=3, batch_norm=True),
    ConvMLP(width=3, hidden=(7, 5), batch_norm=True),
    LeNet5(),
    LeNet5(activation="elu", batch_norm=True, bias=False),
    QuickResNet(width=2),
    QuickResNet(width=2, activation="gelu"),
    VGG(depth=11, width=2, hidden=()),
    VGG(depth=16, width=2, hidden=(6,), batch_norm=True, activation="gelu"),
)
every_model = pytest.mark.parametrize("factory", SMALL, ids=repr)


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    # On layers this small, threads that wait for each other on a busy machine cost five times the work.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_every_kind_of_model_in_the_catalogue_is_among_those_tested_here():
    tested = {type(factory) for factory in SMALL} | {Precode, BERT, GPT}  # which draws, or take texts; see tests/models
    assert {type(make()) for make in MODELS.values()} == tested


@every_model
@settings(max_examples=5, deadline=None)
@given(
    channels=st.integers(1, 4),
    height=st.integers(0, 12),
    width=st.integers(0, 12),
    num_classes=st.integers(2, 12),
    examples=st.integers(1, 3),
)
def test_any_image_from_the_smallest_on_gives_one_logit_per_class(
    factory, channels, height, width, num_classes, examples
):
    smallest = 12 if isinstance(factory, LeNet5) else 9
    height, width = smallest + height, smallest + width
    # The meta device follows the shapes through every layer without computing.
    with torch.device("meta"):
        module = build(factory, (channels, height, width), num_classes, seed=0).eval()
        assert module(torch.rand(examples, channels, height, width)).shape == (examples, num_classes)


@pytest.mark.parametrize(
    "factory", [LeNet(), MLP((3,)), Compact(2), ResNet(18, 2), ResNet(20, 2, padding="circular"), VGG(11, 2)], ids=repr
)
def test_where_no_pool_must_run_a_single_pixel_is_enough(factory):
    assert build(factory, (1, 1, 1), 2, seed=0).eval()(torch.rand(1, 1, 1, 1)).shape == (1, 2)


DEFAULTS = (LeNet(), LeNet5(), ConvNet(), ResNet(), VGG(), MLP(), Compact(), fcn3(), lenet_zhu(), resnet20_4())


@pytest.mark.parametrize("factory", [*SMALL, *DEFAULTS], ids=repr)
def test_repr_evaluates_back_to_the_same_configuration(factory):
    restored = eval(repr(factory), vars(leakgauge.models))  # noqa: S307 - the theorem is about eval, the text is ours
    assert restored == factory
    assert hash(restored) == hash(factory)


@every_model
def test_the_same_seed_gives_the_same_weights_and_another_seed_others(factory):
    first, again, other = (build(factory, (3, 12, 12), 4, seed=seed) for seed in (5, 5, 6))
    assert all(torch.equal(left, right) for left, right in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.head.weight, other.head.weight)


@every_model
def test_building_leaves_the_global_generator_untouched(factory):
    before = torch.random.get_rng_state()
    build(factory, (3, 12, 12), 4, seed=5)
    assert torch.equal(torch.random.get_rng_state(), before)


@every_model
def test_calling_the_factory_draws_from_the_global_generator(factory):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        module = factory((3, 12, 12), 4)
    assert torch.equal(module.head.weight, build(factory, (3, 12, 12), 4, seed=5).head.weight)


@every_model
def test_a_model_fed_pixels_equals_its_body_fed_normalised_pixels(factory):
    mean, std = (0.1, 0.4, 0.9), (0.2, 0.3, 0.5)
    module = build(factory, (3, 12, 12), 4, seed=0, normalisation=Normalisation(mean, std)).double().eval()
    pixels = torch.rand(2, 3, 12, 12, dtype=torch.float64, generator=seeded(1))
    by_hand = (pixels - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    torch.testing.assert_close(module(pixels), module[1:](by_hand))


@every_model
def test_no_layer_works_in_place(factory):
    module = build(factory, (3, 12, 12), 4, seed=0).double()
    assert not any(getattr(layer, "inplace", False) for layer in module.modules())
    pixels = torch.rand(2, 3, 12, 12, dtype=torch.float64, generator=seeded(1))
    before = pixels.clone()
    module(pixels)
    assert torch.equal(pixels, before)


@every_model
def test_every_parameter_belongs_to_a_layer_that_runs_exactly_once(factory):
    module = build(factory, (3, 12, 12), 4, seed=0).double()
    calls: list[nn.Module] = []
    leaves = [layer for layer in module.modules() if not list(layer.children())]
    for layer in leaves:
        layer.register_forward_hook(lambda layer, args, output: calls.append(layer))
    module(torch.rand(2, 3, 12, 12, dtype=torch.float64))
    assert sorted(map(id, calls)) == sorted(map(id, leaves))


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@every_model
def test_the_derivative_of_a_gradient_matching_loss_equals_a_finite_difference(factory, training):
    module = build(factory, (2, 12, 12), 3, seed=0).double().train(training)
    params = {name: tensor.detach().requires_grad_() for name, tensor in module.named_parameters()}
    labels = torch.tensor([0, 2])

    def matching_loss(images: Tensor) -> Tensor:
        # Train-mode BatchNorm writes to its buffers, hence fresh copies at each call.
        buffers = {name: tensor.clone() for name, tensor in module.named_buffers()}
        loss = cross_entropy(functional_call(module, (params, buffers), (images,)), labels)
        gradient = torch.autograd.grad(loss, list(params.values()), create_graph=True)
        return torch.stack([tensor.square().sum() for tensor in gradient]).sum()

    images = torch.rand(2, 2, 12, 12, dtype=torch.float64, generator=seeded(1)).requires_grad_()
    direction = torch.randn(images.shape, dtype=torch.float64, generator=seeded(2))
    (derivative,) = torch.autograd.grad(matching_loss(images), images)
    assert torch.isfinite(derivative).all()
    # Small enough that no ReLU or max-pool changes side at these seeds.
    step = 1e-7
    slope = (matching_loss(images + step * direction) - matching_loss(images - step * direction)) / (2 * step)
    torch.testing.assert_close((derivative * direction).sum(), slope, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("image_shape", [(1, 28, 28), (3, 32, 32), (3, 64, 64)], ids=str)
@pytest.mark.parametrize("factory", DEFAULTS, ids=repr)
def test_every_model_serves_1000_classes_grey_and_larger_images(factory, image_shape):
    with torch.device("meta"):
        module = build(factory, image_shape, 1000, seed=0)
        assert module(torch.rand(2, *image_shape)).shape == (2, 1000)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
