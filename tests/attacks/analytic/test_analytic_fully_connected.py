"""One image through fully connected layers with and without bias, and the input of each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, multi_margin_loss, one_hot

from leakgauge.attacks.analytic import FullyConnected, LinearLayer, read_layers
from leakgauge.attacks.analytic.fully_connected import is_softmax_loss, softmax_label, solve_softmax_head
from leakgauge.attacks.analytic.structure import links, preimage, sites, slope
from leakgauge.defences import Clipping, GaussianNoise, NoDefence
from leakgauge.errors import InvalidCase, InvalidUpdate, MissingKnowledge
from leakgauge.models import MLP, Compact, ConvNet, LeNet, Normalisation, ResNet, build
from leakgauge.models.base import ACTIVATIONS
from leakgauge.protocol import FedAvg, Federation, FedSGD, learner_and_state, simulate_round
from leakgauge.protocol.threat_model import THREAT_MODELS
from leakgauge.randomness import seeded
from leakgauge.types import Batch, Outcome, Reconstruction

SHAPE = (1, 4, 4)
PIXELS = 16


def layer_inputs(seen):
    """What the update says flowed into each layer."""
    return {name: reading.input.to(seen.state.dtype) for name, reading in read_layers(seen)[0].items()}


def attack(seen) -> Reconstruction:
    return FullyConnected()(seen, generator=seeded(0))


def cascade(
    widths: list[int],
    biases: list[bool],
    activation: str | Callable[[], nn.Module],
    *,
    classes: int = 5,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> nn.Module:
    """Linear layers of these widths, each with its bias or without, with the activation between them."""
    make = ACTIVATIONS[activation] if isinstance(activation, str) else activation
    layers: list[nn.Module] = [nn.Flatten()]
    sizes = [PIXELS, *widths, classes]
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        for index, bias in enumerate(biases):
            layers += [nn.Linear(sizes[index], sizes[index + 1], bias=bias), make()]
    return nn.Sequential(*layers[:-1]).to(dtype)


def double(count: int = 1, *, seed: int = 0, classes: int = 5) -> Batch:
    generator = seeded(seed, "pictures")
    images = torch.rand(count, *SHAPE, generator=generator, dtype=torch.float64)
    return Batch(images, torch.randint(classes, (count,), generator=generator))


def truth(seen, batch: Batch) -> dict[str, Tensor]:
    """What really flowed into the linear layers."""
    with torch.no_grad():
        inputs = seen.learner.layer_inputs(seen.state, batch.inputs, nn.Linear)
    return {name: value[0] for name, value in inputs.items()}


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    widths=st.lists(st.integers(6, 20), max_size=3),
    biases=st.lists(st.booleans(), min_size=4, max_size=4),
    activation=st.sampled_from(["relu", "sigmoid", "tanh", "leaky_relu", "elu", "softplus"]),
    defence=st.sampled_from([NoDefence(), Clipping(1e-3)]),
    local_update=st.sampled_from([FedSGD(), FedAvg(1, 1, 0.5)]),
)
def test_every_layer_of_every_cascade_is_exact_in_float64(
    seed, widths, biases, activation, defence, local_update, attacked
):
    batch = double(seed=seed)
    module = cascade(widths, biases[: len(widths) + 1], activation, seed=seed)
    seen = attacked(
        module, batch, threat_model="honest_but_curious", defence=defence, local_update=local_update, seed=seed
    )
    # A layer whose units are all dead has no update to read; every other layer of the network has one.
    assume(all(tensor.any() for tensor in seen.update.params.values()))
    found = attack(seen)
    assert found.outcome is Outcome.SOLVED
    torch.testing.assert_close(found.inputs, batch.inputs, rtol=0, atol=1e-8)
    assert torch.equal(found.labels, batch.labels)
    inputs = layer_inputs(seen)
    expected = truth(seen, batch)
    assert list(inputs) == list(expected)
    for name in inputs:
        torch.testing.assert_close(inputs[name], expected[name], rtol=0, atol=1e-8)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_of_the_catalogue_is_passed_in_float32(activation, bias, attacked):
    batch = double()
    batch = Batch(batch.inputs.float(), batch.labels)
    # Only the classifier may have a bias: everything before it is reached through the activation.
    module = cascade([20, 16, 12], [False, False, False, bias], activation, dtype=torch.float32)
    found = attack(attacked(module, batch, threat_model="honest_but_curious"))
    assert found.inputs.dtype == torch.float32
    torch.testing.assert_close(found.inputs, batch.inputs, rtol=0, atol=1e-4)
    assert torch.equal(found.labels, batch.labels)
    start = "7 by its bias" if bias else "7 by its softmax"
    assert found.facts["route"] == f"{start}, then back to 5, then back to 3, then back to 1"
    assert found.facts["disagreement"] < 1e-4


@pytest.mark.parametrize("seed", range(5))
def test_what_subtracting_weights_rounds_off_a_confident_softmax_does_little_harm(seed, attacked):
    batch = double(seed=seed)
    batch = Batch(batch.inputs.float(), batch.labels)
    module = cascade([12], [False, False], "tanh", seed=seed, dtype=torch.float32)
    with torch.no_grad():
        module[-1].weight.mul_(20)
    found = attack(attacked(module, batch, threat_model="honest_but_curious", local_update=FedAvg(1, 1, 0.01)))
    torch.testing.assert_close(found.inputs, batch.inputs, rtol=0, atol=1e-3)


def test_an_activation_that_works_in_place_is_passed_too(attacked):
    batch = double()
    module = cascade([12, 10], [False, False, True], lambda: nn.LeakyReLU(0.1, inplace=True))
    torch.testing.assert_close(attack(attacked(module, batch)).inputs, batch.inputs, rtol=0, atol=1e-10)


def test_the_normalisation_is_undone(examples, attacked):
    batch = examples(1, (3, 4, 4), dtype=torch.float64)
    normalisation = Normalisation((0.1, 0.5, 0.9), (0.3, 0.1, 2.0))
    module = build(MLP(hidden=(12,), bias=False), (3, 4, 4), 5, seed=0, normalisation=normalisation).double()
    torch.testing.assert_close(attack(attacked(module, batch)).inputs, batch.inputs, rtol=0, atol=1e-10)


def test_the_update_of_another_image_gives_the_other_image(attacked):
    mine, other = double(seed=1), double(seed=2)
    module = cascade([12], [False, False], "tanh")
    found = attack(attacked(module, other)).inputs
    torch.testing.assert_close(found, other.inputs, rtol=0, atol=1e-10)
    assert float((found - mine.inputs).abs().max()) > 0.1


def test_where_the_image_faces_a_bias_the_two_attacks_are_one(attacked):
    batch = double()
    module = cascade([8], [True, True], "relu")
    for local_update in (FedSGD(), FedAvg(5, 1, 0.1)):
        seen = attacked(module, batch, local_update=local_update)
        found = attack(seen)
        assert torch.equal(found.inputs, LinearLayer()(seen, generator=seeded(0)).inputs)
        assert found.facts == {"layer": "1", "route": "1 by its bias"}


def test_a_black_image_is_black(attacked):
    # Then the update of the weights is zero, but that of the bias is not.
    batch = Batch(torch.zeros(1, *SHAPE, dtype=torch.float64), torch.tensor([2]))
    found = attack(attacked(cascade([8], [True, False], "sigmoid"), batch))
    assert torch.equal(found.inputs, batch.inputs)


def test_noise_shows_as_disagreement_between_the_layers(attacked):
    module = cascade([12, 8], [False, False, True], "tanh")
    clean = attack(attacked(module, double()))
    noisy = attack(attacked(module, double(), defence=GaussianNoise(1e-3)))
    assert clean.facts["disagreement"] < 1e-12 < 1e-4 < noisy.facts["disagreement"]


# The input of layers elsewhere in a network.


@pytest.mark.parametrize(
    ("factory", "mode"),
    [(ConvNet(width=2), "eval"), (ConvNet(width=2), "train"), (LeNet(), "eval"), (ResNet(20, base_width=2), "train")],
    ids=repr,
)
def test_what_a_head_with_bias_receives_from_convolutions_is_exact(factory, mode, examples, attacked):
    batch = examples(1, (3, 9, 9), dtype=torch.float64)
    seen = attacked(build(factory, (3, 9, 9), 5, seed=0).double(), batch, mode=mode)
    inputs, expected = layer_inputs(seen), truth(seen, batch)
    assert list(inputs) == list(expected) == ["head"]
    torch.testing.assert_close(inputs["head"], expected["head"], rtol=0, atol=1e-10)


class Tail(nn.Module):
    """A convolution, then three linear layers without bias, written with functions and in place."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3)
        self.norm = nn.BatchNorm1d(10)
        self.drop = nn.Dropout(0.5)
        self.one = nn.Linear(12, 10, bias=False)
        self.two = nn.Linear(10, 9, bias=False)
        self.three = nn.Linear(9, 5, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        features = self.conv(images).tanh()
        features = torch.tanh_(self.norm(self.one(features.view(features.size(0), -1))))
        features = self.two(input=self.drop(features)) * 2 + 1
        features.relu_()
        return self.three(features)


def test_the_cascade_behind_a_convolution_is_exact_without_a_bias(attacked):
    batch = double()
    module = Tail().double()
    nn.init.uniform_(module.norm.running_mean)
    nn.init.uniform_(module.norm.running_var, 1, 2)
    seen = attacked(module, batch)
    inputs, reasons = layer_inputs(seen), read_layers(seen)[1]
    expected: dict[str, Tensor] = {}
    for name in ("one", "two", "three"):
        module.get_submodule(name).register_forward_pre_hook(
            lambda _, args, kwargs, name=name: expected.update({name: (args or [kwargs["input"]])[0][0]}),
            with_kwargs=True,
        )
    with torch.no_grad():
        module.eval()(batch.inputs)
    assert reasons == {}
    assert list(inputs) == ["one", "two", "three"]
    for name in inputs:
        torch.testing.assert_close(inputs[name], expected[name], rtol=0, atol=1e-9)
    assert attack(seen).outcome is Outcome.NOT_APPLICABLE


def test_a_layer_behind_a_known_one_is_known_whatever_the_loss(attacked):
    def squares(logits: Tensor, labels: Tensor) -> Tensor:
        return (logits - one_hot(labels, logits.shape[1])).square().sum()

    batch = double()
    learner, state = learner_and_state(cascade([9, 8], [True, False, False], "gelu"), squares)
    seen = simulate_round(
        Federation(learner, state),
        batch,
        threat_model=THREAT_MODELS["informed"],
        defence=NoDefence(),
        generator=seeded(0),
    )
    readings, reasons = read_layers(seen)
    assert reasons == {}
    assert [reading.route for reading in readings.values()] == ["1 by its bias", "forward from 1", "forward from 3"]
    for name, value in truth(seen, batch).items():
        torch.testing.assert_close(readings[name].input, value, rtol=0, atol=1e-10)


def test_after_several_local_steps_only_what_stood_still_is_read(attacked):
    batch = double()
    wide = nn.Sequential(nn.Flatten(), nn.Linear(PIXELS, 9), nn.Unflatten(1, (1, 9)), nn.Softmax(2), nn.Flatten())
    module = nn.Sequential(*wide, nn.Linear(9, 5)).double()
    seen = attacked(module, batch, local_update=FedAvg(4, 1, 0.3))
    readings, reasons = read_layers(seen)
    assert list(readings) == ["1"]
    torch.testing.assert_close(readings["1"].input, batch.inputs.flatten(), rtol=0, atol=1e-10)
    assert reasons == {
        "5": "5 can be read from a single gradient step only, which "
        "FedAvg(epochs=4, batch_size=1, learning_rate=0.3, shuffle=False) is not"
    }
    with pytest.raises(MissingKnowledge, match=r"^DenseLayers needs `local_update`"):
        read_layers(replace(seen, local_update=None))


def test_layers_are_read_for_one_image_only(attacked):
    seen = attacked(cascade([], [True], "relu"), double(2))
    with pytest.raises(InvalidCase, match="mixes 2 images"):
        layer_inputs(seen)
    seen.update.params["1.bias"][0] = float("nan")
    with pytest.raises(InvalidUpdate):
        layer_inputs(seen)


# Where nothing can be read.


class Shaped(nn.Module):
    """Two linear layers without bias, joined in a way of one's own."""

    def __init__(self, forward: Callable[[Shaped, Tensor], Tensor], *, bias: bool = False) -> None:
        super().__init__()
        self.one = nn.Linear(PIXELS, PIXELS, bias=bias)
        self.two = nn.Linear(PIXELS, 5, bias=bias)
        self.rule = forward

    def forward(self, images: Tensor) -> Tensor:
        return self.rule(self, images.flatten(1))


def skip(self: Shaped, x: Tensor) -> Tensor:
    return self.two(x + self.one(x).tanh())


def used_twice(self: Shaped, x: Tensor) -> Tensor:
    return self.two(self.one(self.one(x)).tanh())


def branch(self: Shaped, x: Tensor) -> Tensor:
    return self.two(self.one(x).tanh()) + self.one(x).sum(dim=1, keepdim=True)


def mixed(self: Shaped, x: Tensor) -> Tensor:
    return self.two(self.one(x).softmax(dim=1))


def permuted(self: Shaped, x: Tensor) -> Tensor:
    return self.two(self.one(x).relu().flip(1))


def untraceable(self: Shaped, x: Tensor) -> Tensor:
    return self.two(self.one(x).tanh()) if float(x.sum()) > -1 else x


class Forked(nn.Module):
    """Two heads with bias share the features, so the derivative in these is a sum over both."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(PIXELS, 8, bias=False)
        self.two, self.three = nn.Linear(8, 5), nn.Linear(8, 5)

    def forward(self, images: Tensor) -> Tensor:
        features = self.one(images.flatten(1)).tanh()
        return self.two(features) + self.three(features)


class Tied(nn.Module):
    """The second layer reuses the weight of the first."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(PIXELS, PIXELS), nn.Linear(PIXELS, PIXELS)
        self.two.weight = self.one.weight

    def forward(self, images: Tensor) -> Tensor:
        return self.two(self.one(images.flatten(1)).tanh())


def dead() -> nn.Module:
    """Every hidden unit is off, so the first layer has no update."""
    module = cascade([6], [False, True], "relu")
    with torch.no_grad():
        module[1].weight.fill_(-1)
    return module


def frozen() -> nn.Module:
    module = cascade([6, 6], [False, False, True], "tanh")
    module[3].weight.requires_grad_(False)
    return module


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "a convolution comes first": (
        lambda: nn.Sequential(build(Compact(width=3), SHAPE, 5, seed=0)),
        "no trained linear layer receives the image itself",
    ),
    "a skip connection": (lambda: Shaped(skip), "one has no bias, and what follows it is not elementwise"),
    "a second use of the output": (lambda: Shaped(branch), "no trained linear layer receives the image"),
    "a layer that runs twice": (lambda: Shaped(used_twice), "no trained linear layer receives the image"),
    "a layer that runs twice, with bias": (lambda: Shaped(used_twice, bias=True), "no trained linear layer"),
    "two layers behind": (Forked, "one has no bias, and what follows it is not elementwise"),
    "tied weights": (Tied, "no trained linear layer receives the image"),
    "units that mix": (lambda: Shaped(mixed), "one has no bias, and what follows it is not elementwise"),
    "units that change places": (lambda: Shaped(permuted), "one has no bias, and what follows it is not elementwise"),
    "a forward that cannot be traced": (lambda: Shaped(untraceable), "one has no bias, and what follows it is not"),
    "dead units": (dead, "the update of 1 is zero"),
    "a frozen layer on the way": (frozen, "the weights of 3 are not trained"),
    "two classes": (lambda: cascade([6], [False, False], "tanh", classes=2), "three or more classes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_where_the_propositions_do_not_hold_the_attack_says_why(name, attacked):
    make, reason = REFUSED[name]
    found = attack(attacked(make().double(), double(classes=2)))
    assert (found.inputs, found.labels, found.outcome) == (None, None, Outcome.NOT_APPLICABLE)
    assert reason in found.facts["reason"]


def test_a_forward_that_cannot_be_traced_still_gives_away_what_its_biases_tell(attacked):
    batch = double()
    seen = attacked(Shaped(untraceable, bias=True).double(), batch)
    inputs, expected = layer_inputs(seen), truth(seen, batch)
    assert list(inputs) == ["one", "two"]
    for name in inputs:
        torch.testing.assert_close(inputs[name], expected[name], rtol=0, atol=1e-10)


def test_several_images_are_refused(attacked):
    found = attack(attacked(cascade([6], [False, True], "tanh"), double(2)))
    assert found.facts["reason"] == "the update mixes several images"


def test_a_cascade_asks_for_a_single_known_step_and_a_facing_bias_does_not(attacked):
    batch = double()
    several = FedAvg(3, 1, 0.1)
    for bias in (True, False):
        seen = attacked(cascade([6], [bias, True], "tanh"), batch, local_update=several)
        blind = replace(seen, local_update=None)
        if bias:
            torch.testing.assert_close(attack(seen).inputs, batch.inputs, rtol=0, atol=1e-10)
            torch.testing.assert_close(attack(blind).inputs, batch.inputs, rtol=0, atol=1e-10)
        else:
            assert "single gradient step" in attack(seen).facts["reason"]
            with pytest.raises(MissingKnowledge, match=r"^FullyConnected needs `local_update`"):
                attack(blind)


def test_an_active_dropout_on_the_way_is_refused_and_an_inactive_one_is_not(attacked):
    batch = double()

    def module(bias: bool) -> nn.Module:
        return nn.Sequential(
            nn.Flatten(), nn.Linear(PIXELS, 12, bias=bias), nn.Dropout(0.5), nn.Tanh(), nn.Linear(12, 5)
        ).double()

    torch.testing.assert_close(attack(attacked(module(False), batch)).inputs, batch.inputs, rtol=0, atol=1e-10)
    assert attack(attacked(module(False), batch, mode="train")).facts["reason"] == (
        "dropout between 1 and 4 is active and its mask is secret"
    )
    # Proposition D.1 asks nothing of what follows.
    torch.testing.assert_close(
        attack(attacked(module(True), batch, mode="train")).inputs, batch.inputs, rtol=0, atol=1e-10
    )


def test_soft_labels_are_noticed_at_a_classifier_without_bias(attacked):
    probabilities = torch.tensor([[0.4, 0.3, 0.2, 0.05, 0.05]], dtype=torch.float64)
    found = attack(attacked(cascade([8], [False, False], "tanh"), Batch(double().inputs, probabilities)))
    assert "one label" in found.facts["reason"]


# The parts.


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_preimage_is_the_input_or_says_that_there_are_several(name):
    activation = ACTIVATIONS[name]()
    y = torch.linspace(-4, 4, 41, dtype=torch.float64) + 1e-3
    found = preimage(activation, activation(y))
    unique = torch.ones_like(y, dtype=torch.bool) if name not in ("relu", "gelu", "silu") else y > 0
    assert torch.equal(found.isnan(), ~unique)
    torch.testing.assert_close(found[unique], y[unique], rtol=0, atol=1e-12)


def test_a_falling_activation_and_one_without_the_value_are_told_apart():
    values = torch.tensor([3.0, -0.5], dtype=torch.float64)
    torch.testing.assert_close(preimage(lambda y: 1 - 2 * y, values), (1 - values) / 2, rtol=0, atol=1e-12)
    assert bool(preimage(torch.sigmoid, torch.tensor([1.5, 1.0, 0.0], dtype=torch.float64)).isnan().all())


def test_on_a_plateau_between_two_slopes_there_is_no_single_preimage():
    found = preimage(nn.Softshrink(0.5), torch.tensor([0.0, 1.0, -1.0], dtype=torch.float64))
    assert bool(found[0].isnan())
    torch.testing.assert_close(found[1:], torch.tensor([1.5, -1.5], dtype=torch.float64), rtol=0, atol=1e-12)


def test_the_slope_is_the_derivative_of_each_unit():
    y = torch.linspace(-2, 2, 9, dtype=torch.float64)
    torch.testing.assert_close(slope(torch.tanh, y), 1 - y.tanh().square(), rtol=0, atol=1e-12)


@settings(deadline=None, max_examples=100)
@example(seed=129, classes=3, features=4, scale=1e-6, biased=False, confidence=20.0)  # p_k rounds to 1
@given(
    seed=st.integers(0, 10_000),
    classes=st.integers(3, 12),
    features=st.integers(1, 20),
    scale=st.sampled_from([1e-6, 1.0, 1e3]),
    biased=st.booleans(),
    confidence=st.sampled_from([0.1, 1.0, 20.0]),
)
def test_a_softmax_head_without_bias_gives_its_input_and_its_label_away(
    seed, classes, features, scale, biased, confidence
):
    generator = seeded(seed)
    W = confidence * torch.randn(classes, features, generator=generator, dtype=torch.float64)
    x = torch.randn(features, generator=generator, dtype=torch.float64)
    b = torch.randn(classes, generator=generator, dtype=torch.float64) if biased else None
    label = int(torch.randint(classes, (), generator=generator))
    delta = (W @ x if b is None else W @ x + b).softmax(dim=0)
    delta[label] = -delta[torch.arange(classes) != label].sum()
    assume(int((delta > 1e-290).sum()) > 1 and float(x.abs().max()) > 0.1)  # or too many classes have underflowed
    update = scale * delta[:, None] * x
    head = solve_softmax_head(W, b, update)
    torch.testing.assert_close(head.input, x, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(head.delta, scale * delta, rtol=1e-6, atol=1e-9 * scale)
    assert softmax_label(update).tolist() == [label]


@pytest.mark.parametrize("margin", [5.0, 15.0, 30.0])
def test_a_network_that_is_right_and_sure_still_gives_its_image_away(margin, attacked):
    # 1 - p_k falls to 1e-13 and loses its digits; the rows of the other classes keep theirs.
    batch = double()
    module = cascade([12], [False, False], "tanh")
    with torch.no_grad():
        hidden = module[:-1](batch.inputs)[0]
        module[-1].weight[batch.labels] += margin * hidden / hidden.square().sum()
        assert 1 - float(module(batch.inputs).softmax(dim=1)[0, batch.labels]) < 10 * 2.0**-margin
    found = attack(attacked(module, batch, threat_model="honest_but_curious"))
    torch.testing.assert_close(found.inputs, batch.inputs, rtol=0, atol=1e-8)
    assert torch.equal(found.labels, batch.labels)


def test_a_head_whose_update_is_zero_or_of_two_classes_stays_closed():
    W = torch.randn(4, 3, generator=seeded(0), dtype=torch.float64)
    assert solve_softmax_head(W, None, torch.zeros_like(W)) is None
    assert softmax_label(torch.zeros_like(W)) is None
    two = torch.tensor([[1.0, 2.0, 3.0], [-1.0, -2.0, -3.0]], dtype=torch.float64)
    assert solve_softmax_head(W[:2], None, two) is None
    assert softmax_label(two) is None
    # All classes alike: the length of the input changes nothing.
    alike = W[:1].expand(4, 3)
    assert solve_softmax_head(alike, None, torch.tensor([[-3.0], [1.0], [1.0], [1.0]]).double() * W[0]) is None


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (cross_entropy, True),
        (lambda logits, labels: 0.5 * cross_entropy(logits, labels, reduction="sum"), True),
        (lambda logits, labels: cross_entropy(logits, labels, label_smoothing=0.1), False),
        (multi_margin_loss, False),
        (binary_cross_entropy_with_logits, False),
    ],
)
def test_a_loss_is_recognised_by_its_derivative(loss, expected):
    assert is_softmax_loss(loss, 5, torch.device("cpu")) is expected


def test_links_and_sites_name_the_layers_in_order_of_execution():
    learner, state = learner_and_state(Tail())
    found = links(learner, state)
    assert {name: (link.to, link.dropout) for name, link in found.items()} == {
        "one": ("two", True),
        "two": ("three", False),
    }
    rows = torch.tensor([[-1.0, 0.0, 1.0] * 3], dtype=torch.float64)
    assert torch.equal(found["two"].activation(rows), (2 * rows + 1).relu())
    assert torch.equal(rows, torch.tensor([[-1.0, 0.0, 1.0] * 3], dtype=torch.float64))
    seen = sites(learner, state, torch.zeros(2, *SHAPE))
    assert [(name, site.moves) for name, site in seen.items()] == [("one", True), ("two", True), ("three", True)]
