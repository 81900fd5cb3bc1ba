"""The client's algorithm against the loop that everybody writes."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from leakgauge import params as tree
from leakgauge.errors import InvalidCase
from leakgauge.models import Compact, ConvNet, build
from leakgauge.protocol import FedAvg, FedSGD, learner_and_state
from leakgauge.randomness import seeded
from leakgauge.types import Batch

SHAPE = (3, 9, 9)
FACTORIES = [Compact(width=3), ConvNet(width=2)]


def trained(module: nn.Module, batch: Batch, algorithm: FedAvg, mode: str) -> nn.Module:
    """The obvious loop: ``torch.optim.SGD`` on a copy, over the batch in its order."""
    module = copy.deepcopy(module).train(mode == "train")
    optimiser = torch.optim.SGD(module.parameters(), lr=algorithm.learning_rate)
    for _ in range(algorithm.epochs):
        for images, labels in zip(
            batch.inputs.split(algorithm.batch_size), batch.labels.split(algorithm.batch_size), strict=True
        ):
            optimiser.zero_grad()
            cross_entropy(module(images), labels).backward()
            optimiser.step()
    return module


def moved(before: nn.Module, after: nn.Module) -> dict[str, Tensor]:
    later = dict(after.named_parameters())
    return {name: (p - later[name]).detach() for name, p in before.named_parameters()}


# Ragged last batches included: 5 examples in mini-batches of 1 to 6. In train mode BatchNorm still has a 3 x 3 map.
@settings(deadline=None, max_examples=12)
@given(
    count=st.integers(1, 5),
    epochs=st.integers(1, 3),
    batch_size=st.integers(1, 6),
    learning_rate=st.floats(1e-4, 0.5),
    seed=st.integers(0, 99),
)
@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize("factory", FACTORIES, ids=repr)
def test_fedavg_is_a_loop_of_torch_sgd(factory, mode, count, epochs, batch_size, learning_rate, seed, examples):
    module = build(factory, SHAPE, 5, seed=seed).double()
    batch = examples(count, SHAPE, seed=seed, dtype=torch.float64)
    algorithm = FedAvg(epochs, batch_size, learning_rate)
    learner, state = learner_and_state(module, mode=mode)
    update = algorithm(learner, state, batch, generator=seeded(0)).params
    expected = moved(module, trained(module, batch, algorithm, mode))
    for name, tensor in update.items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-7, atol=1e-11)


@settings(deadline=None, max_examples=20)
@given(count=st.integers(1, 4), learning_rate=st.floats(1e-6, 10), mode=st.sampled_from(["eval", "train"]))
def test_fedavg_of_one_full_batch_step_is_the_learning_rate_times_fedsgd(count, learning_rate, mode, examples):
    learner, state = learner_and_state(build(ConvNet(width=2), SHAPE, 5, seed=0).double(), mode=mode)
    batch = examples(count, SHAPE, dtype=torch.float64)
    step = FedAvg(1, count, learning_rate)(learner, state, batch, generator=seeded(0)).params
    gradient = FedSGD()(learner, state, batch, generator=seeded(0)).params
    # w - (w - lr g) rounds at the size of w, not of lr g.
    for name in step:
        torch.testing.assert_close(step[name], learning_rate * gradient[name], rtol=1e-9, atol=1e-15)


@settings(deadline=None, max_examples=10)
@given(epochs=st.integers(1, 4), batch_size=st.integers(1, 4), mode=st.sampled_from(["eval", "train"]))
def test_fedavg_with_zero_learning_rate_sends_nothing(epochs, batch_size, mode, examples):
    learner, state = learner_and_state(build(ConvNet(width=2), SHAPE, 5, seed=0), mode=mode)
    update = FedAvg(epochs, batch_size, 0.0)(learner, state, examples(3, SHAPE), generator=seeded(0))
    assert tree.norm(update.params) == 0.0


@pytest.mark.parametrize("algorithm", [FedSGD(), FedAvg(2, 2, 0.1)], ids=repr)
def test_subtracting_the_update_lowers_the_loss(algorithm, examples):
    # The sign of a pseudo-gradient: parameters before minus parameters after.
    learner, state = learner_and_state(build(Compact(width=3), SHAPE, 5, seed=0))
    batch = examples(4, SHAPE)
    update = algorithm(learner, state, batch, generator=seeded(0)).params
    after = tree.add(state.params, update, scale=-0.1)
    assert learner.objective(after, state.buffers, batch) < learner.objective(state.params, state.buffers, batch)


@pytest.mark.parametrize("algorithm", [FedSGD(), FedAvg(2, 2, 0.1)], ids=repr)
@pytest.mark.parametrize("mode", ["eval", "train"])
def test_what_the_attacker_predicts_for_the_true_batch_is_what_the_client_sent(algorithm, mode, examples):
    learner, state = learner_and_state(build(ConvNet(width=2), SHAPE, 5, seed=0).double(), mode=mode)
    batch = examples(3, SHAPE, dtype=torch.float64)
    sent = algorithm(learner, state, batch, generator=seeded(0)).params
    expected = algorithm.expected(learner, state, batch, observed=sent)
    assert all(torch.equal(sent[name], expected[name]) for name in sent)


def test_an_update_carries_no_graph(examples):
    learner, state = learner_and_state(build(Compact(width=3), SHAPE, 5, seed=0))
    batch = examples(2, SHAPE)
    images = batch.inputs.requires_grad_()
    update = FedAvg(2, 1, 0.1)(learner, state, Batch(images, batch.labels), generator=seeded(0))
    assert not any(tensor.requires_grad for tensor in update.params.values())


def test_an_empty_batch_is_refused(examples):
    learner, state = learner_and_state(build(Compact(width=3), SHAPE, 5, seed=0))
    with pytest.raises(InvalidCase, match="empty"):
        FedSGD()(learner, state, examples(2, SHAPE)[slice(0, 0)], generator=seeded(0))


@pytest.mark.parametrize(
    "options",
    [
        {"epochs": 0},
        {"batch_size": 0},
        {"learning_rate": -0.1},
        {"learning_rate": float("nan")},
        {"learning_rate": float("inf")},
    ],
    ids=str,
)
def test_fedavg_refuses_an_option_that_makes_no_sense(options):
    with pytest.raises(InvalidCase, match=next(iter(options))):
        FedAvg(**options)


def test_a_batch_has_one_label_per_image():
    with pytest.raises(InvalidCase, match="2 inputs but 3 labels"):
        Batch(torch.rand(2, 3, 4, 4), torch.zeros(3, dtype=torch.long))
    with pytest.raises(InvalidCase, match="batch dimension"):
        Batch(torch.rand(4), torch.tensor(0))


@pytest.mark.parametrize(
    ("client", "examples_there"), [(FedAvg(epochs=10**9), 1), (FedAvg(batch_size=1), 2**20), (FedAvg(epochs=10**18), 8)]
)
def test_a_client_of_more_steps_than_anybody_makes_is_refused_at_once(client, examples_there):
    with pytest.raises(InvalidCase, match="at most"):
        client.steps(examples_there)


def test_the_client_itself_refuses_steps_without_end(examples):
    with pytest.raises(InvalidCase, match="at most"):
        next(FedAvg(epochs=10**9, shuffle=True)._drawn_steps(examples(2), torch.Generator()))
