"""A step of Opacus and ours, from the same seed; and a user's set-up, read."""

from __future__ import annotations

import pytest
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from leakgauge import params as tree
from leakgauge.bounds import gaussian_bound
from leakgauge.defences import DPSGD, Pruning, chain
from leakgauge.errors import InvalidCase
from leakgauge.integrations.opacus import from_privacy_engine, without_batch_norm
from leakgauge.models import Compact, ConvNet, build
from leakgauge.protocol import FedSGD, LocalAdam, LocalSGD, learner_and_state
from leakgauge.types import Batch

pytestmark = pytest.mark.filterwarnings("ignore")  # Opacus' own: no secure generator, full backward hooks

SHAPE = (3, 9, 9)
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}


def set_up(examples, dtype=torch.float32, *, poisson=False, model=None, optimiser=None, **options):
    """A user's own training, and what make_private makes of it."""
    data = examples(24, SHAPE, dtype=dtype)
    model = (build(Compact(width=3), SHAPE, 5, seed=0) if model is None else model).to(dtype)
    loader = DataLoader(TensorDataset(data.inputs, data.labels), batch_size=4)
    engine = PrivacyEngine()
    made = engine.make_private(
        module=model,
        optimizer=optimiser(model) if optimiser else torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=loader,
        poisson_sampling=poisson,
        noise_generator=torch.Generator().manual_seed(7),
        **{"noise_multiplier": 1.3, "max_grad_norm": 0.5} | options,
    )
    return engine, *made


def relative(one, other) -> float:
    return float(tree.norm(tree.sub(one, other)) / tree.norm(other))


def named(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in module._module.named_parameters()}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("norm", [0.05, 1.0, 100.0])
@pytest.mark.parametrize("size", [1, 4, 6])
def test_with_the_same_seed_it_is_the_step_that_opacus_makes_whatever_size_the_batch_has(dtype, norm, size, examples):
    _, module, optimizer, _ = set_up(examples, dtype, max_grad_norm=norm)
    batch = examples(size, SHAPE, seed=3, dtype=dtype)  # 4 are expected
    learner, state = learner_and_state(module)
    ours = DPSGD(norm, 1.3, 4)(FedSGD())(learner, state, batch, generator=torch.Generator().manual_seed(7)).params
    cross_entropy(module(batch.inputs), batch.labels).backward()
    optimizer.pre_step()
    theirs = {name: parameter.grad for name, parameter in module._module.named_parameters()}
    assert relative(ours, theirs) <= TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(
    "optimiser",
    [
        lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01),
        lambda model: torch.optim.Adam(model.parameters(), lr=0.01),
    ],
    ids=["sgd", "adam"],
)
def test_a_poisson_batch_of_a_users_own_loader_gives_the_weights_that_his_optimiser_does(dtype, optimiser, examples):
    engine, module, optimizer, loader = set_up(examples, dtype, poisson=True, optimiser=optimiser)
    training = from_privacy_engine(engine, module, optimizer, loader)
    torch.manual_seed(2)
    inputs, labels = next(batch for batch in loader if len(batch[0]) not in (0, 4))
    learner, state = learner_and_state(module)
    client = training.defence(training.client(len(inputs)))
    ours = client(learner, state, Batch(inputs, labels), generator=torch.Generator().manual_seed(7)).params
    before = named(module)
    cross_entropy(module(inputs), labels).backward()
    optimizer.step()
    assert relative(ours, tree.sub(before, named(module))) <= 3 * TOLERANCE[dtype]  # a difference of weights


def test_a_set_up_is_read_and_its_module_unwrapped(examples):
    engine, module, optimizer, loader = set_up(examples, poisson=True)
    for inputs, labels in loader:
        optimizer.zero_grad()
        cross_entropy(module(inputs), labels).backward()
        optimizer.step()
    training = from_privacy_engine(engine, module, optimizer, loader)
    assert training.defence == DPSGD(0.5, 1.3, 4)
    assert training.client(5).learning_rate == 0.1
    assert training.optimiser == LocalSGD()
    assert training.sample_rate == pytest.approx(1 / 6)
    assert training.steps == 6
    assert training.epsilon(accountant="prv") == pytest.approx(engine.get_epsilon(1e-5), rel=1e-9)
    assert list(dict(training.model.named_parameters())) == [name for name, _ in module._module.named_parameters()]


def test_adam_and_a_summed_loss_are_read_as_they_are(examples):
    def adam(model):
        return torch.optim.Adam(model.parameters(), lr=0.002, betas=(0.8, 0.9))

    training = from_privacy_engine(*set_up(examples, optimiser=adam, loss_reduction="sum"))
    assert training.optimiser == LocalAdam(0.8, 0.9)
    assert training.expected_batch_size == 1


def test_what_is_not_dp_sgd_of_one_norm_is_refused_in_a_sentence(examples):
    engine, module, optimizer, loader = set_up(examples)
    with pytest.raises(InvalidCase, match="not private; pass the one"):
        from_privacy_engine(engine, module, optimizer.original_optimizer, loader)
    layers = len(list(build(Compact(width=3), SHAPE, 5, seed=0).parameters()))
    by_layer = set_up(examples, clipping="per_layer", max_grad_norm=[0.5] * layers)
    with pytest.raises(InvalidCase, match="clipping='flat'"):
        from_privacy_engine(*by_layer)

    def rmsprop(model):
        return torch.optim.RMSprop(model.parameters())

    with pytest.raises(InvalidCase, match="use one of SGD, Adam, AdamW"):
        from_privacy_engine(*set_up(examples, optimiser=rmsprop))


def test_beside_epsilon_stands_what_it_buys(examples):
    training = from_privacy_engine(*set_up(examples))
    rdp, prv = (training.epsilon(100, 1e-5, accountant) for accountant in ("rdp", "prv"))
    assert 0 < prv <= rdp
    assert training.bound(100).at_most == gaussian_bound(1.3, crowd=99, rounds=100, sampling=1 / 6).at_most
    assert f"epsilon {rdp:.3g} (rdp), {prv:.3g} (prv) at delta 1e-05 after 100 steps" in training.words(100)
    assert training.bound(100).words in training.words(100)
    with pytest.raises(InvalidCase, match="choose from rdp, prv, gdp"):
        training.epsilon(1, 1e-5, "moments")


def test_group_norm_stands_in_for_batch_norm_and_the_step_is_then_that_of_opacus(examples):
    model = build(ConvNet(width=8), SHAPE, 5, seed=0).train()
    fixed = without_batch_norm(model)
    assert any(isinstance(layer, nn.BatchNorm2d) for layer in model.modules())
    assert not any(isinstance(layer, nn.BatchNorm2d) for layer in fixed.modules())
    assert any(isinstance(layer, nn.GroupNorm) for layer in fixed.modules())
    assert fixed.training
    _, module, optimizer, _ = set_up(examples, torch.float64, model=fixed)
    batch = examples(4, SHAPE, dtype=torch.float64)
    learner, state = learner_and_state(module, mode="train")
    ours = DPSGD(0.5, 1.3)(FedSGD())(learner, state, batch, generator=torch.Generator().manual_seed(7)).params
    cross_entropy(module(batch.inputs), batch.labels).backward()
    optimizer.pre_step()
    theirs = {name: parameter.grad for name, parameter in module._module.named_parameters()}
    assert relative(ours, theirs) <= 1e-12


def test_an_audit_of_a_set_up_is_of_its_own_step(examples):
    engine, module, optimizer, loader = set_up(examples)
    training = from_privacy_engine(engine, module, optimizer, loader)
    batch = examples(2, SHAPE)
    result = training.audit(cross_entropy, batch, attacks=["linear_layer"], nulls=1)
    private = next(row.defence for row in result.rows if row.defence != "none")
    assert private == "dpsgd:max_grad_norm=0.5,noise_multiplier=1.3,expected_batch_size=4"
    assert result.bounds[private].at_most is not None
    assert "learning_rate=0.1" in result.description["local_update"]


def test_noise_comes_first_in_the_stream_however_the_private_client_is_wrapped(examples):
    batch = examples(2, SHAPE, dtype=torch.float64)
    learner, state = learner_and_state(build(Compact(width=3), SHAPE, 5, seed=0).double())
    clients = [defence(FedSGD()) for defence in (DPSGD(), chain(DPSGD(), Pruning(1.0)))]
    alone, wrapped = (one(learner, state, batch, generator=torch.Generator().manual_seed(7)) for one in clients)
    assert relative(alone.params, wrapped.params) == 0
    again = torch.Generator().manual_seed(7)
    first, second = (clients[0](learner, state, batch, generator=again) for _ in range(2))
    assert relative(first.params, alone.params) == 0
    assert relative(second.params, first.params) > 0.1


@pytest.mark.parametrize("noise", [0.0, 1e-9])
def test_dropout_is_drawn_anew_in_every_step_with_noise_or_without(noise, examples):
    batch = examples(2, SHAPE)
    module = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(243, 5))
    learner, state = learner_and_state(module, mode="train")
    client, generator = DPSGD(1e3, noise)(FedSGD()), torch.Generator().manual_seed(7)
    first, second = (client(learner, state, batch, generator=generator).params for _ in range(2))
    assert relative(first, second) > 0.1
