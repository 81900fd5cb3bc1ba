"""What a threat model lets through, and what it never does."""

from __future__ import annotations

import dataclasses
from itertools import product

import pytest
import torch
from torch import Tensor, nn

from leakgauge import params as tree
from leakgauge.defences import Chain, Clipping, GaussianNoise, NoDefence, Pruning
from leakgauge.errors import InvalidCase, MissingKnowledge
from leakgauge.models import Compact, ConvNet, ResNet, build
from leakgauge.protocol import (
    THREAT_MODELS,
    BatchNormAccess,
    FedAvg,
    FedSGD,
    ThreatModel,
    Transformed,
    UpdateObservation,
    known,
    learner_and_state,
)
from leakgauge.protocol.facts import Fact, Subject
from leakgauge.protocol.validation import check_batch
from leakgauge.randomness import seeded
from leakgauge.types import Batch

SHAPE = (3, 9, 9)
NOT_EXACT = [name for name, model in THREAT_MODELS.items() if model.batch_norm is not BatchNormAccess.EXACT]
BATCH_NORM = [ConvNet(width=2), ResNet(depth=20, base_width=2)]

# Labels, batch size, algorithm, defence; BatchNorm: as the paper section in each model's `source` says.
DISCLOSES = {
    "honest_but_curious": (False, True, True, True, "inferred"),
    "informed": (True, True, True, True, "inferred"),
    "strongest": (True, True, True, True, "exact"),
    "auxiliary": (False, True, True, True, "inferred"),
    "unaware": (False, True, True, False, "proxy"),
    "update_only": (False, False, False, False, "proxy"),
}


def hooked_statistics(module: nn.Module, images: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Mean and biased variance of every BatchNorm input, seen by hooks while the module itself trains."""
    module = module.train()
    seen: dict[str, tuple[Tensor, Tensor]] = {}

    def hook(name: str):
        def note(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            values = inputs[0].detach().transpose(0, 1).flatten(1)
            seen[name] = (values.mean(dim=1), values.var(dim=1, correction=0))

        return note

    handles = [
        layer.register_forward_pre_hook(hook(name))
        for name, layer in module.named_modules()
        if isinstance(layer, nn.BatchNorm2d)
    ]
    module(images)
    for handle in handles:
        handle.remove()
    return seen


@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize("name", THREAT_MODELS)
def test_a_threat_model_discloses_what_it_says_and_nothing_else(name, mode, examples, attacked):
    labels, count, algorithm, defence, batch_norm = DISCLOSES[name]
    module, batch = build(ConvNet(width=2), SHAPE, 5, seed=0), examples(3, SHAPE)
    plain, pruning = FedAvg(1, 2, 0.1), Pruning(0.5)
    seen = attacked(module, batch, threat_model=name, local_update=plain, defence=pruning, mode=mode)
    assert (seen.labels is not None) is labels
    assert seen.num_examples == (3 if count else None)
    assert seen.local_update == ((Transformed(plain, pruning) if defence else plain) if algorithm else None)
    assert seen.batch_norm.access.value == batch_norm
    assert (seen.batch_norm.statistics is not None) is (batch_norm == "exact" and mode == "train")
    assert seen.space.shape == SHAPE
    assert seen.update.batch_statistics is None
    if labels:
        assert torch.equal(seen.labels, batch.labels)


@pytest.mark.parametrize(
    ("client", "access", "attacker"),
    [
        ("train", BatchNormAccess.PROXY, "eval"),
        ("train", BatchNormAccess.INFERRED, "train"),
        ("train", BatchNormAccess.EXACT, "train"),
        *(("eval", access, "eval") for access in BatchNormAccess),
    ],
)
def test_the_attacker_runs_in_the_mode_its_knowledge_allows(client, access, attacker, examples, attacked):
    threat_model = dataclasses.replace(THREAT_MODELS["informed"], batch_norm=access)
    module = build(ConvNet(width=2), SHAPE, 5, seed=0)
    seen = attacked(module, examples(3, SHAPE), threat_model=threat_model, mode=client)
    assert seen.learner.mode == attacker
    assert seen.learner.module.training is (attacker == "train")


@pytest.mark.parametrize("factory", BATCH_NORM, ids=repr)
@pytest.mark.parametrize("name", NOT_EXACT)
def test_without_exact_access_only_the_update_depends_on_the_private_batch(
    name, factory, examples, attacked, reachable
):
    one, two = examples(3, SHAPE, seed=1), examples(3, SHAPE, seed=2)
    module = build(factory, SHAPE, 5, seed=0)
    seen = [
        reachable(attacked(module, batch, threat_model=name, local_update=FedAvg(1, 3, 0.1), mode="train"))
        for batch in (one, two)
    ]
    assert seen[0].keys() == seen[1].keys()
    for path, tensor in seen[0].items():
        other = seen[1][path]
        if path.startswith("update.params."):
            # A convolution bias before BatchNorm has no gradient but rounding; every other tensor must differ.
            assert not torch.equal(tensor, other) or tensor.abs().max() < 1e-6
        elif path == "labels":
            assert torch.equal(tensor, one.labels)
        elif tensor.is_meta:
            assert tensor.shape == other.shape
        else:
            assert torch.equal(tensor, other), path
    assert ("labels" in seen[0]) is THREAT_MODELS[name].labels


@pytest.mark.parametrize("factory", BATCH_NORM, ids=repr)
@pytest.mark.parametrize("name", NOT_EXACT)
def test_without_exact_access_no_tensor_holds_a_statistic_of_the_private_batch(
    name, factory, examples, attacked, reachable
):
    batch = examples(3, SHAPE)
    module = build(factory, SHAPE, 5, seed=0)
    seen = [
        tensor
        for tensor in reachable(attacked(module, batch, threat_model=name, mode="train")).values()
        if not tensor.is_meta and tensor.is_floating_point()
    ]
    # The statistics, and what they would have become in the running averages (momentum 0.1).
    for mean, variance in hooked_statistics(module, batch.inputs).values():
        unbiased = variance * 9 / 8
        for secret in (mean, variance, variance.sqrt(), unbiased, 0.1 * mean, 0.9 + 0.1 * variance):
            for tensor in seen:
                assert tensor.shape != secret.shape or not torch.allclose(tensor, secret, rtol=1e-4, atol=0)


@pytest.mark.parametrize("factory", BATCH_NORM, ids=repr)
def test_exact_access_discloses_what_hooks_on_the_module_see(factory, examples, attacked):
    batch = examples(3, SHAPE, dtype=torch.float64)
    module = build(factory, SHAPE, 5, seed=0).double()
    statistics = attacked(module, batch, threat_model="strongest", mode="train").batch_norm.statistics
    expected = hooked_statistics(module, batch.inputs)
    assert statistics.mean.keys() == statistics.variance.keys() == expected.keys()
    for name, (mean, variance) in expected.items():
        torch.testing.assert_close(statistics.mean[name], mean, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(statistics.variance[name], variance, rtol=1e-10, atol=1e-12)


def field_is_hidden(fact: str, seen: UpdateObservation, defended: Transformed) -> bool:
    return {
        "model": seen.learner is None or seen.state is None,
        "update": seen.update is None,
        "input space": seen.space is None,
        "batch size": seen.num_examples is None,
        "labels": seen.labels is None,
        "local hyper-parameters": seen.local_update is None,
        "defence": seen.local_update != defended,
        "BatchNorm statistics": seen.batch_norm.statistics is None,
        "auxiliary data": seen.auxiliary is None,
    }[fact]


@pytest.mark.parametrize("name", THREAT_MODELS)
def test_the_ledger_says_hidden_exactly_when_the_observation_lacks_the_fact(name, examples, attacked):
    module = build(ConvNet(width=2), SHAPE, 5, seed=0)
    learner, _ = learner_and_state(module, mode="train")
    seen = attacked(
        module,
        examples(3, SHAPE),
        threat_model=name,
        defence=Pruning(0.5),
        mode="train",
        auxiliary=examples(4, SHAPE, seed=1),
    )
    ledger = THREAT_MODELS[name].ledger(learner, defence="pruning")
    # Images of its own are so rare an advantage that only an attacker who has it is said to.
    assert len({fact.name for fact in ledger}) == len(ledger) == 8 + THREAT_MODELS[name].auxiliary
    for fact in ledger:
        assert fact.disclosed is not field_is_hidden(fact.name, seen, Transformed(FedSGD(), Pruning(0.5))), fact
        assert fact.detail
        assert "\n" not in fact.detail


@pytest.mark.parametrize(
    ("labels", "num_examples", "local_hyperparameters", "access"),
    list(product([False, True], [False, True], [False, True], BatchNormAccess)),
)
def test_the_ledger_of_any_threat_model_agrees_with_what_it_discloses(
    labels, num_examples, local_hyperparameters, access, examples, attacked
):
    # A server that knows the client's algorithm or not; the defence is part of the algorithm.
    threat_model = ThreatModel(
        "any", "this test", labels, num_examples, local_hyperparameters, local_hyperparameters, access
    )
    module = build(ConvNet(width=2), SHAPE, 5, seed=0)
    learner, _ = learner_and_state(module, mode="train")
    seen = attacked(module, examples(2, SHAPE), threat_model=threat_model, defence=Pruning(0.5), mode="train")
    for fact in threat_model.ledger(learner):
        assert fact.disclosed is not field_is_hidden(fact.name, seen, Transformed(FedSGD(), Pruning(0.5))), fact


@pytest.mark.parametrize("access", BatchNormAccess)
def test_the_ledger_knows_models_and_clients_without_batch_statistics(access):
    threat_model = dataclasses.replace(THREAT_MODELS["informed"], batch_norm=access)
    bare, _ = learner_and_state(build(Compact(width=3), SHAPE, 5, seed=0), mode="train")
    still, _ = learner_and_state(build(ConvNet(width=2), SHAPE, 5, seed=0), mode="eval")
    assert threat_model.ledger(bare)[-1] == Fact(Subject.BATCH_NORM, False, "the model has none")
    assert threat_model.ledger(still)[-1].disclosed
    assert "running statistics the server sent" in threat_model.ledger(still)[-1].detail


@pytest.mark.parametrize("defence", [NoDefence(), Chain((Clipping(0.1), GaussianNoise(0.1)))], ids=repr)
@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize("name", THREAT_MODELS)
def test_a_round_leaves_module_and_batch_bit_identical(name, mode, defence, examples, attacked, bits):
    module = build(ConvNet(width=2), SHAPE, 5, seed=0).train()
    batch = examples(3, SHAPE)
    before = bits(module, batch)
    for local_update in (FedSGD(), FedAvg(2, 2, 0.1)):
        attacked(module, batch, threat_model=name, defence=defence, local_update=local_update, mode=mode)
    assert bits(module, batch) == before


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_a_round_is_a_function_of_its_generator(mode, examples, attacked, bits):
    module, batch = build(ConvNet(width=2), SHAPE, 5, seed=0), examples(3, SHAPE)
    once, again, other = (
        attacked(module, batch, defence=GaussianNoise(0.1), mode=mode, seed=seed) for seed in (0, 0, 1)
    )
    assert bits(once.update) == bits(again.update)
    assert bits(once.update) != bits(other.update)


def test_the_observed_update_is_the_output_of_the_defence(examples, attacked):
    module, batch = build(Compact(width=3), SHAPE, 5, seed=0), examples(3, SHAPE)
    plain = attacked(module, batch).update.params
    for defence in (Pruning(0.3), Clipping(0.01), GaussianNoise(0.1)):
        sent = attacked(module, batch, defence=defence).update.params
        generator = seeded(0, "client")
        torch.randint(2**62, (), generator=generator)  # the draw that seeds the client's dropout
        expected = defence.transform(plain, generator=generator)
        assert tree.norm(tree.sub(sent, plain)) > 0
        assert all(torch.equal(sent[name], expected[name]) for name in plain)


def test_a_hidden_fact_is_named_together_with_who_needs_it():
    assert known(3, "num_examples", needed_by=FedSGD()) == 3
    with pytest.raises(MissingKnowledge, match=r"^FedSGD needs `num_examples`, which the threat model hides"):
        known(None, "num_examples", needed_by=FedSGD())


@pytest.mark.parametrize(
    ("batch", "complaint"),
    [
        (Batch(torch.rand(0, *SHAPE), torch.zeros(0, dtype=torch.long)), "empty"),
        (Batch(torch.rand(2, 27), torch.zeros(2, dtype=torch.long)), "n c h w"),
        (Batch(torch.rand(2, *SHAPE) * 255, torch.zeros(2, dtype=torch.long)), r"\[0, 1\]"),
        (Batch(torch.rand(2, *SHAPE) - 1, torch.zeros(2, dtype=torch.long)), r"\[0, 1\]"),
        (Batch(torch.full((2, *SHAPE), float("nan")), torch.zeros(2, dtype=torch.long)), r"\[0, 1\]"),
        (Batch(torch.rand(2, 4, 9, 9), torch.zeros(2, dtype=torch.long)), "4 x 9 x 9"),
        (Batch(torch.rand(2, *SHAPE), torch.tensor([0, 5])), "0 to 5.*5 classes"),
        (Batch(torch.rand(2, *SHAPE), torch.tensor([-1, 0])), "-1 to 0"),
        (Batch(torch.rand(2, *SHAPE), torch.tensor([0.0, 1.0])), "float32"),
        (Batch(torch.rand(2, *SHAPE), torch.tensor([0, 1], dtype=torch.int32)), "int32"),
        (Batch(torch.rand(2, *SHAPE), torch.rand(2, 4)), "n x 5"),
        (Batch(torch.rand(2, *SHAPE), torch.full((2, 5), float("nan"))), "n x 5"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused_in_one_sentence(batch, complaint):
    learner, state = learner_and_state(build(Compact(width=3), SHAPE, 5, seed=0))
    with pytest.raises(InvalidCase, match=complaint) as refusal:
        check_batch(learner, state, batch)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("labels", [torch.tensor([0, 4]), torch.tensor([0, 4]).byte(), torch.full((2, 5), 0.2)])
def test_a_batch_that_fits_tells_the_number_of_classes(labels):
    learner, state = learner_and_state(build(Compact(width=3), SHAPE, 5, seed=0))
    assert check_batch(learner, state, Batch(torch.rand(2, *SHAPE), labels)) == 5
