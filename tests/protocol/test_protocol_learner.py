"""A learner is the module it was made from, as a pure function of state and batch."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from leakgauge.errors import InvalidCase, UnsupportedModel
from leakgauge.models import MLP, Compact, ConvNet, LeNet, ModelFactory, ResNet, build
from leakgauge.protocol import FedSGD, learner_and_state
from leakgauge.protocol.learner import autograd_gradient, functional_gradient
from leakgauge.randomness import seeded
from leakgauge.types import Batch, ParamTree

SHAPE = (3, 9, 9)
FACTORIES = [Compact(width=3), LeNet(), ConvNet(width=2), ResNet(depth=20, base_width=2), MLP(hidden=(7,))]
BATCH_NORM = [ConvNet(width=2), ResNet(depth=20, base_width=2)]


class Tied(nn.Module):
    """Two layers that share a weight, and two that share a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, 3)
        self.second.weight = self.first.weight
        self.register_buffer("shift", torch.rand(12))
        self.second.register_buffer("shift", self.shift)

    def forward(self, images: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(images.flatten(1)) + self.shift)
        return self.head(torch.tanh(self.second(hidden) * self.second.shift))


def gradient_of_the_module(module: nn.Module, batch: Batch, mode: str) -> dict[str, Tensor]:
    module = copy.deepcopy(module).train(mode == "train")
    trainable = {name: p for name, p in module.named_parameters() if p.requires_grad}
    loss = cross_entropy(module(batch.inputs), batch.labels)
    return dict(zip(trainable, torch.autograd.grad(loss, list(trainable.values()))))


def assert_close(left: ParamTree, right: ParamTree, **tolerance: float) -> None:
    assert list(left) == list(right)
    for name in left:
        torch.testing.assert_close(left[name], right[name], **(tolerance or {"rtol": 1e-10, "atol": 1e-12}))


@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize("factory", FACTORIES, ids=repr)
def test_fedsgd_is_the_gradient_of_the_module_itself(factory: ModelFactory, mode, examples):
    module = build(factory, SHAPE, 5, seed=1).double()
    batch = examples(3, SHAPE, dtype=torch.float64)
    learner, state = learner_and_state(module, mode=mode)
    update = FedSGD()(learner, state, batch, generator=seeded(0))
    assert_close(update.params, gradient_of_the_module(module, batch, mode))


@settings(deadline=None, max_examples=10)
@given(count=st.integers(1, 4), seed=st.integers(0, 99), mode=st.sampled_from(["eval", "train"]))
@pytest.mark.parametrize("factory", FACTORIES, ids=repr)
def test_both_gradient_rules_give_one_gradient(factory, count, seed, mode, examples):
    module = build(factory, SHAPE, 5, seed=seed).double()
    learner, state = learner_and_state(module, mode=mode)
    batch = examples(count, SHAPE, seed=seed, dtype=torch.float64)
    assert_close(autograd_gradient(learner, state, batch), functional_gradient(learner, state, batch))


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_labels_may_be_class_probabilities(mode, examples):
    module = build(Compact(width=3), SHAPE, 5, seed=0).double()
    batch = examples(2, SHAPE, dtype=torch.float64)
    soft = Batch(batch.inputs, torch.eye(5, dtype=torch.float64)[batch.labels])
    learner, state = learner_and_state(module, mode=mode)
    assert_close(learner.gradient(state, soft), learner.gradient(state, batch))


def test_frozen_parameters_are_not_in_the_update(examples):
    module = build(Compact(width=3), SHAPE, 5, seed=0)
    module.conv2.requires_grad_(False)
    module.head.bias.requires_grad_(False)
    batch = examples(2, SHAPE)
    learner, state = learner_and_state(module)
    update = FedSGD()(learner, state, batch, generator=seeded(0)).params
    assert set(update) == {"conv1.weight", "conv1.bias", "conv3.weight", "conv3.bias", "head.weight"}
    assert {"conv2.weight", "conv2.bias", "head.bias"} <= set(state.buffers)
    assert_close(update, gradient_of_the_module(module, batch, "eval"), rtol=1e-5, atol=1e-7)


def test_a_module_without_trainable_parameters_is_refused():
    with pytest.raises(InvalidCase, match="no trainable parameter"):
        learner_and_state(nn.Linear(2, 2).requires_grad_(False))


def test_a_model_that_cuts_its_loss_off_is_refused(examples):
    class Cut(nn.Linear):
        def forward(self, images: Tensor) -> Tensor:
            return super().forward(images.flatten(1)).detach()

    learner, state = learner_and_state(Cut(12, 5))
    with pytest.raises(UnsupportedModel, match="no trainable parameter"):
        FedSGD()(learner, state, examples(1, (3, 2, 2)), generator=seeded(0))


def test_tied_weights_stay_tied(examples):
    module = Tied().double()
    batch = examples(2, (3, 2, 2), 3, dtype=torch.float64)
    learner, state = learner_and_state(module)
    assert "second.weight" not in state.params
    for gradient in (autograd_gradient, functional_gradient):
        assert_close(gradient(learner, state, batch), gradient_of_the_module(module, batch, "eval"))


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_instance_norm_with_running_statistics_computes_as_the_module_does(mode, examples, bits):
    layers = nn.InstanceNorm2d(3, affine=True, track_running_stats=True), nn.Flatten(), nn.Linear(192, 5)
    module = nn.Sequential(*layers).double().train(mode == "train")
    module[0].running_mean.uniform_()
    batch = examples(2, dtype=torch.float64)
    learner, state = learner_and_state(module, mode=mode)
    before = bits(state)
    assert_close(learner.gradient(state, batch), gradient_of_the_module(module, batch, mode))
    assert bits(state) == before


@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize("factory", FACTORIES, ids=repr)
def test_splitting_a_module_neither_keeps_nor_changes_it(factory, mode, bits):
    module = build(factory, SHAPE, 5, seed=0).train()
    before = bits(module)
    learner, state = learner_and_state(module, mode=mode)
    assert bits(module) == before
    assert all(tensor.is_meta for tensor in (*learner.module.parameters(), *learner.module.buffers()))
    with torch.no_grad():
        sent = bits(state)
        for tensor in (*module.parameters(), *module.buffers()):
            tensor.add_(1)
    assert bits(state) == sent


@pytest.mark.parametrize("factory", BATCH_NORM, ids=repr)
def test_train_mode_leaves_the_running_statistics_as_they_were_sent(factory, examples, bits):
    learner, state = learner_and_state(build(factory, SHAPE, 5, seed=0), mode="train")
    before = bits(state, learner.module)
    learner.gradient(state, examples(3, SHAPE))
    learner.batch_statistics(state, examples(3, SHAPE).inputs)
    assert bits(state, learner.module) == before


def test_a_layer_that_writes_its_buffers_writes_to_a_copy_in_train_mode(examples, bits):
    class Counting(nn.Linear):
        def __init__(self) -> None:
            super().__init__(12, 3)
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, images: Tensor) -> Tensor:
            self.seen += len(images)
            return super().forward(images.flatten(1)) + self.seen

    learner, state = learner_and_state(Counting(), mode="train")
    before = bits(state)
    batch = examples(2, (3, 2, 2), 3)
    assert_close(learner.gradient(state, batch), learner.gradient(state, batch), rtol=0, atol=0)
    assert bits(state) == before


@pytest.mark.parametrize("factory", BATCH_NORM, ids=repr)
def test_batch_statistics_are_those_of_forward_hooks_on_the_module(factory, examples):
    module = build(factory, SHAPE, 5, seed=0).double().train()
    batch = examples(3, SHAPE, dtype=torch.float64)
    learner, state = learner_and_state(module, mode="train")
    seen: dict[str, Tensor] = {}
    for name, layer in module.named_modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.register_forward_hook(lambda _, inputs, __, name=name: seen.__setitem__(name, inputs[0].detach()))
    module(batch.inputs)
    statistics = learner.batch_statistics(state, batch.inputs)
    assert_close(statistics.mean, {name: x.mean((0, 2, 3)) for name, x in seen.items()})
    assert_close(statistics.variance, {name: x.var((0, 2, 3), correction=0) for name, x in seen.items()})


def dropping() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Dropout(0.5), nn.Linear(192, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 5)
    )


def test_dropout_is_a_function_of_the_generator(examples, bits):
    learner, state = learner_and_state(dropping(), mode="train")
    once, again, other = (FedSGD()(learner, state, examples(4), generator=seeded(seed)) for seed in (0, 0, 1))
    assert bits(once) == bits(again)
    assert bits(once) != bits(other)


def test_the_statistics_are_of_the_pass_that_gave_the_update(examples):
    # BatchNorm without affine feeds the head, so its input's moments fix the head's input up to the dropout after it.
    module = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.BatchNorm1d(192, affine=False), nn.Linear(192, 5)).double()
    learner, state = learner_and_state(module, mode="train")
    batch = examples(1, dtype=torch.float64)
    # The same example three times under three masks: a pixel dropped in all three has mean zero and no gradient.
    batch = Batch(batch.inputs.expand(3, -1, -1, -1), batch.labels.expand(3))
    update = FedSGD()(learner, state, batch, generator=seeded(0))
    assert update.batch_statistics is not None
    silent = update.batch_statistics.mean["2"] == 0
    assert 0 < silent.sum() < 192
    assert bool((update.params["3.weight"][:, silent] == 0).all())


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_a_clients_run_leaves_the_global_stream_alone(mode, examples):
    learner, state = learner_and_state(dropping(), mode=mode)
    before = torch.get_rng_state()
    FedSGD()(learner, state, examples(4), generator=seeded(0))
    assert torch.equal(torch.get_rng_state(), before)


def test_the_attackers_network_has_no_dropout(examples):
    learner, state = learner_and_state(dropping(), mode="train")
    batch = examples(4)
    bare = learner.without_dropout()
    assert torch.equal(
        bare.logits(state.params, state.buffers, batch.inputs), bare.logits(state.params, state.buffers, batch.inputs)
    )


def test_a_network_without_dropout_is_shared_and_not_copied():
    learner, _ = learner_and_state(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), mode="train")
    bare = learner.without_dropout()
    assert bare.module is learner.module
    assert not bare.dropout
    dropped, _ = learner_and_state(dropping(), mode="train")
    assert dropped.without_dropout().module is not dropped.module


class DropsInFunctions(nn.Module):
    """Dropout where no layer stands for it: as a function, and within attention."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, images: Tensor) -> Tensor:
        tokens = nn.functional.dropout(images.flatten(2), 0.5, self.training)
        tokens = self.attention(tokens, tokens, tokens, need_weights=False)[0]
        tokens = nn.functional.scaled_dot_product_attention(
            tokens, tokens, tokens, dropout_p=0.5 if self.training else 0.0
        )
        return self.head(nn.functional.dropout1d(tokens, p=0.5, training=self.training).mean(dim=1))


def test_the_attackers_network_has_no_dropout_in_functions_either():
    torch.manual_seed(0)
    module = DropsInFunctions()
    images = torch.rand(2, 3, 2, 4, generator=seeded(0))
    learner, state = learner_and_state(module, mode="train")
    bare = learner.without_dropout()
    before = torch.get_rng_state()
    logits = bare.logits(state.params, state.buffers, images)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.allclose(logits, module.eval()(images))
    assert not torch.allclose(learner.logits(state.params, state.buffers, images), logits)


def test_the_classifier_is_the_linear_layer_that_gives_the_logits():
    for factory in FACTORIES:
        learner, state = learner_and_state(build(factory, SHAPE, 5, seed=0))
        assert learner.classifier(state, torch.rand(2, *SHAPE)) == "head"
        assert learner.num_classes(state, torch.rand(2, *SHAPE)) == 5
    learner, state = learner_and_state(nn.Sequential(nn.Flatten(), nn.Linear(12, 3), nn.Softplus()))
    with pytest.raises(UnsupportedModel, match=r"nn\.Linear"):
        learner.classifier(state, torch.rand(2, 3, 2, 2))
