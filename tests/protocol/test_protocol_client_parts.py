"""Augmentation, partial sharing and half-precision transport: parts of a client, and attacked as what was sent."""

from __future__ import annotations

import pytest
import torch

from leakgauge.attacks.recipes import best, quasi_newton
from leakgauge.config import build_client
from leakgauge.errors import InvalidCase
from leakgauge.models import Compact, ConvNet
from leakgauge.models import build as build_model
from leakgauge.protocol import FedAvg, FedSGD, learner_and_state
from leakgauge.protocol.client_parts import Augmentation, Sharing, Transport
from leakgauge.randomness import seeded

SHAPE = (3, 8, 8)


def augmented(part, batch, *, seed=0):
    learner, state = learner_and_state(build_model(Compact(), SHAPE, 5, seed=1))
    return part(FedSGD()).send(learner, state, batch, generator=seeded(seed, "client"))


def test_an_augmentation_of_nothing_trains_on_the_batch_itself(examples):
    batch = examples(3, SHAPE)
    assert torch.equal(augmented(Augmentation(), batch).encoding.batch.inputs, batch.inputs)


def test_a_flip_is_the_mirror_and_a_crop_a_shift_with_black(examples):
    batch = examples(4, SHAPE)
    assert torch.equal(augmented(Augmentation(flip=1.0), batch).encoding.batch.inputs, batch.inputs.flip(-1))
    shifted = augmented(Augmentation(crop=2), batch).encoding.batch.inputs
    places = [(down, right) for down in range(-2, 3) for right in range(-2, 3)]
    for image, original in zip(shifted, batch.inputs):
        padded = torch.nn.functional.pad(original, (2, 2, 2, 2))
        windows = [padded[:, 2 + down : 10 + down, 2 + right : 10 + right] for down, right in places]
        assert any(torch.equal(image, window) for window in windows)


def test_colours_stay_pixels_and_draws_come_from_the_generator(examples):
    batch, part = examples(3, SHAPE), Augmentation(0.5, 2, 0.4)
    one, two, other = (augmented(part, batch, seed=seed).encoding.batch.inputs for seed in (0, 0, 1))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    assert 0 <= float(one.min()) <= float(one.max()) <= 1


def test_the_update_is_that_of_what_was_trained_on(examples):
    batch = examples(2, SHAPE)
    sent = augmented(Augmentation(0.5, 1, 0.2), batch)
    learner, state = learner_and_state(build_model(Compact(), SHAPE, 5, seed=1))
    for name, tensor in FedSGD().compute(learner, state, sent.encoding.batch).items():
        assert torch.equal(sent.update.params[name], tensor)


def test_every_epoch_has_a_version_of_its_own(examples):
    """As a loader does: two epochs are two steps, each on what was drawn for it."""
    module, batch = build_model(Compact(), SHAPE, 5, seed=1).double(), examples(3, SHAPE, dtype=torch.float64)
    learner, state = learner_and_state(module)
    part = Augmentation(0.5, 2, 0.2)
    client = part(FedAvg(2, 2, 0.1))
    assert torch.equal(client.encode(learner, state, batch, generator=seeded(0)).batch.inputs, batch.inputs)
    sent = client.run(learner, state, batch, generator=seeded(0, "client"))
    generator, optimiser = seeded(0, "client"), torch.optim.SGD(module.parameters(), 0.1)
    seen = []
    for _ in range(2):
        for rows in (slice(0, 2), slice(2, 3)):
            drawn = part.encode(learner, state, batch[rows], generator=generator).batch
            seen.append(drawn.inputs)
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(module(drawn.inputs), drawn.labels).backward()
            optimiser.step()
    assert not torch.equal(seen[0], seen[2])
    for name, parameter in module.named_parameters():
        assert torch.allclose(sent[name], state.params[name] - parameter.detach(), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("attack", [best(steps=3), quasi_newton(steps=3)], ids=["best", "quasi_newton"])
@pytest.mark.parametrize("client", [FedSGD(), FedAvg(2, 1, 0.1)], ids=repr)
def test_a_partial_update_is_attacked_through_what_was_shared(attack, client, examples, attacked):
    module, batch = build_model(ConvNet(width=2), (3, 9, 9), 5, seed=1), examples(2, (3, 9, 9))
    seen = attacked(module, batch, local_update=Sharing(without=("norm*", "head.*"))(client))
    assert seen.update.params.keys() < seen.state.params.keys()
    expected = seen.local_update.expected(seen.learner, seen.state, batch, observed=seen.update.params)
    assert expected.keys() == seen.update.params.keys()
    assert all(torch.allclose(expected[name], tensor) for name, tensor in seen.update.params.items())
    assert attack(seen, generator=seeded(0)).inputs.shape == batch.inputs.shape


@pytest.mark.parametrize(("dtype", "digits"), [("float16", 2**-11), ("bfloat16", 2**-8)])
def test_what_is_sent_in_half_precision_is_rounded_and_no_more(dtype, digits, examples, attacked):
    module, batch = build_model(Compact(), SHAPE, 5, seed=1), examples(2, SHAPE)
    plain = attacked(module, batch).update.params
    seen = attacked(module, batch, local_update=Transport(dtype)(FedSGD()))
    for name, tensor in seen.update.params.items():
        assert tensor.dtype == torch.float32
        assert torch.all((tensor - plain[name]).abs() <= digits * plain[name].abs() + 2**-24)
    assert any(not torch.equal(tensor, plain[name]) for name, tensor in seen.update.params.items())


def test_a_client_is_read_part_by_part():
    words = (
        "fedavg:epochs=2,momentum=0.9+augmentation:flip=0.5,crop=2+sharing:without=['head.*']+transport:dtype=bfloat16"
    )
    client = build_client(words)
    assert client.transform == Transport("bfloat16")
    assert client.inner.transform == Sharing(without=("head.*",))
    assert client.inner.inner.transform == Augmentation(0.5, 2, every_epoch=True)
    assert client.inner.inner.inner.epochs == 2


@pytest.mark.parametrize(
    "words",
    [
        "fedsgd+augmentation:flip=2",
        "fedsgd+augmentation:crop=-1",
        "fedsgd+transport:dtype=int8",
        "fedsgd+pruning",
        "augmentation",
    ],
)
def test_parts_that_make_no_sense_are_refused(words):
    with pytest.raises(InvalidCase):
        build_client(words)


def test_a_client_that_shares_nothing_is_refused(examples, attacked):
    with pytest.raises(InvalidCase, match="nothing is shared"):
        attacked(build_model(Compact(), SHAPE, 5, seed=1), examples(1), local_update=Sharing(("no.*",))(FedSGD()))
