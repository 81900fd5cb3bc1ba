"""DP-SGD: by hand, by Opacus, and what it guarantees."""

from __future__ import annotations

import builtins
import importlib
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakgauge import params as tree
from leakgauge.data import Text
from leakgauge.defences import DPSGD, Clipping, NoDefence, epsilon
from leakgauge.errors import InvalidCase
from leakgauge.models import BERT, MLP, Compact, ConvNet, build
from leakgauge.protocol import FedAvg, FedSGD, learner_and_state
from leakgauge.protocol.wrappers import Private, mean_of_clipped, per_example_gradients
from leakgauge.randomness import seeded
from leakgauge.training.models import model_for

SHAPE = (3, 9, 9)


@pytest.fixture
def module():
    return build(Compact(width=3), SHAPE, 5, seed=0).double()


def sent(module, batch, defence, local_update=FedSGD(), seed=0):  # noqa: B008
    learner, state = learner_and_state(module)
    return defence(local_update)(learner, state, batch, generator=seeded(seed)).params


@pytest.mark.parametrize("local_update", [FedSGD(), FedAvg(2, 2, 0.1)], ids=repr)
@pytest.mark.parametrize("factory", [Compact(width=3), ConvNet(width=2), MLP((8,))], ids=repr)
def test_without_noise_and_with_a_huge_norm_it_is_the_plain_update(factory, local_update, examples):
    module, batch = build(factory, SHAPE, 5, seed=0), examples(4, SHAPE)
    plain = sent(module, batch, NoDefence(), local_update)
    private = sent(module, batch, DPSGD(1e6, 0.0), local_update)
    assert float(tree.norm(tree.sub(private, plain)) / tree.norm(plain)) < 1e-6


def test_each_gradient_is_that_of_one_example(module, examples):
    batch = examples(4, SHAPE, dtype=torch.float64)
    learner, state = learner_and_state(module)
    each = per_example_gradients(learner, state, batch)
    for index in range(4):
        alone = learner.gradient(state, batch[slice(index, index + 1)])
        for name, tensor in alone.items():
            torch.testing.assert_close(each[name][index], tensor)


class Branching(torch.nn.Module):
    """Does one thing with bright images and another with dark ones; one of its parameters is a single number."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(0.5))
        self.head = torch.nn.Linear(SHAPE[0] * SHAPE[1] * SHAPE[2], 5)

    def forward(self, images):
        return self.head(self.scale * images.flatten(1) if images.mean() > 0.5 else -images.flatten(1))


def test_examples_of_a_model_that_branches_on_its_values_have_each_their_own_gradient(examples):
    batch = examples(4, SHAPE, dtype=torch.float64)
    means = batch.inputs.mean(dim=(1, 2, 3))
    assert bool((means > 0.5).any())
    assert bool((means < 0.5).any())
    module = Branching().double()
    test_each_gradient_is_that_of_one_example(module, examples)
    brightest = int(means.argmax())
    one = batch[slice(brightest, brightest + 1)]
    clipped, private = sent(module, one, Clipping(1e-2)), sent(module, one, DPSGD(1e-2, 0.0))
    assert float(clipped["scale"].abs()) > 0
    torch.testing.assert_close(private["scale"], clipped["scale"], rtol=1e-3, atol=1e-9)


def test_a_batch_too_large_to_hold_is_taken_in_parts(module, examples):
    batch = examples(21, SHAPE, dtype=torch.float64)
    learner, state = learner_and_state(module)
    whole = mean_of_clipped(per_example_gradients(learner, state, batch), 0.5)
    for name, tensor in sent(module, batch, DPSGD(0.5, 0.0)).items():
        torch.testing.assert_close(tensor, whole[name])


def test_one_example_is_clipped_as_a_whole_update_is(module, examples):
    batch = examples(1, SHAPE, dtype=torch.float64)
    clipped, private = sent(module, batch, Clipping(0.01)), sent(module, batch, DPSGD(0.01, 0.0))
    for name, tensor in clipped.items():
        # Opacus' rule adds 1e-6 to the length.
        torch.testing.assert_close(private[name], tensor, rtol=1e-4, atol=1e-9)


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 999), count=st.integers(1, 6), norm=st.floats(1e-3, 1e3))
def test_no_example_moves_the_mean_by_more_than_its_share(seed, count, norm):
    generator = seeded(seed)
    gradients = {"a": torch.randn(count, 3, 2, generator=generator).double(), "b": torch.randn(count, 4).double()}
    without = tree.map_tensors(lambda stack: stack.index_fill(0, torch.tensor(0), 0.0), gradients)
    moved = tree.norm(tree.sub(mean_of_clipped(gradients, norm), mean_of_clipped(without, norm)))
    assert float(moved) <= norm / count * (1 + 1e-9)


def test_an_example_without_gradient_has_a_finite_derivative():
    leaf = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    mean_of_clipped({"a": leaf}, 1.0)["a"].sum().backward()
    assert leaf.grad.tolist() == [[0.5] * 3] * 2


@pytest.mark.parametrize("local_update", [FedSGD(), FedAvg(1, 4, 0.1)], ids=repr)
def test_the_noise_has_the_size_that_the_accountant_is_told(local_update, module, examples):
    batch = examples(4, SHAPE, dtype=torch.float64)
    noisy = sent(module, batch, DPSGD(0.5, 2.0), local_update)
    noise = tree.flatten(tree.sub(noisy, sent(module, batch, DPSGD(0.5, 0.0), local_update)))
    size = 2.0 * 0.5 / 4 * (0.1 if isinstance(local_update, FedAvg) else 1.0)
    assert float(noise.std()) == pytest.approx(size, rel=5 / (2 * len(noise)) ** 0.5)
    assert abs(float(noise.mean())) < 5 * size / len(noise) ** 0.5


def test_every_local_step_is_private(module, examples):
    # Two steps by hand, the second from where the first led.
    batch = examples(4, SHAPE, dtype=torch.float64)
    learner, state = learner_and_state(module)
    params = dict(state.params)
    for rows in (slice(0, 2), slice(2, 4)):
        at = type(state)(params, state.buffers)
        params = tree.add(params, mean_of_clipped(per_example_gradients(learner, at, batch[rows]), 0.1), scale=-0.5)
    for name, tensor in sent(module, batch, DPSGD(0.1, 0.0), FedAvg(1, 2, 0.5)).items():
        torch.testing.assert_close(tensor, state.params[name] - params[name])


def test_batch_norm_in_train_mode_is_refused_since_examples_meet_in_it(examples, attacked):
    module = build(ConvNet(width=2), SHAPE, 5, seed=0)
    with pytest.raises(InvalidCase, match="BatchNorm mixes the examples"):
        attacked(module, examples(2, SHAPE), defence=DPSGD(), mode="train")
    assert attacked(module, examples(2, SHAPE), defence=DPSGD(), mode="eval").local_update == Private(
        FedSGD(), 1.0, 1.0
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("norm", [0.05, 1.0, 100.0])
def test_it_is_what_opacus_computes(norm, examples):
    grad_sample = importlib.import_module("opacus.grad_sample")
    optimizers = importlib.import_module("opacus.optimizers")
    module, batch = build(Compact(width=3), SHAPE, 5, seed=0).double(), examples(4, SHAPE, dtype=torch.float64)
    learner, state = learner_and_state(module)
    ours = per_example_gradients(learner, state, batch)
    private = sent(module, batch, DPSGD(norm, 0.0))
    theirs = grad_sample.GradSampleModule(module)
    optimiser = optimizers.DPOptimizer(
        torch.optim.SGD(theirs.parameters(), lr=1.0), noise_multiplier=0.0, max_grad_norm=norm, expected_batch_size=4
    )
    torch.nn.functional.cross_entropy(theirs(batch.inputs), batch.labels).backward()
    for name, parameter in theirs._module.named_parameters():
        torch.testing.assert_close(parameter.grad_sample, ours[name], rtol=1e-9, atol=1e-12)
    optimiser.pre_step()
    for name, parameter in theirs._module.named_parameters():
        torch.testing.assert_close(parameter.grad, private[name], rtol=1e-9, atol=1e-15)


@pytest.mark.filterwarnings("ignore")
def test_of_a_text_classifier_it_is_what_opacus_computes():
    # Of embeddings, linear layers and norms; a tied head and embeddings of places it does not serve.
    grad_sample = importlib.import_module("opacus.grad_sample")
    texts = Text()(None)
    model = model_for(texts, BERT(width=16, layers=1, heads=2, kv_heads=2, positions="rotary"), seed=0).double()
    batch = texts.train[torch.arange(3)]
    private = DPSGD(0.05, 0.0)(FedSGD())(*learner_and_state(model), batch, generator=seeded(0)).params
    theirs = grad_sample.GradSampleModule(model)
    torch.nn.functional.cross_entropy(theirs(batch.inputs), batch.labels, reduction="sum").backward()
    each = {name: parameter.grad_sample / len(batch) for name, parameter in theirs._module.named_parameters()}
    for name, tensor in mean_of_clipped(each, 0.05).items():
        torch.testing.assert_close(tensor, private[name], rtol=1e-9, atol=1e-15)


# What it guarantees


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("noise", "rate", "steps", "delta"), [(1.0, 0.01, 1000, 1e-5), (0.8, 0.1, 50, 1e-6), (2.0, 1.0, 3, 1e-5)]
)
def test_epsilon_is_that_of_opacus_engine(noise, rate, steps, delta):
    accountants = importlib.import_module("opacus.accountants")
    accountant = accountants.RDPAccountant()
    for _ in range(steps):
        accountant.step(noise_multiplier=noise, sample_rate=rate)
    assert epsilon(noise, rate, steps, delta) == pytest.approx(accountant.get_epsilon(delta), rel=1e-12)


def test_epsilon_falls_with_noise_and_grows_with_steps_and_rate():
    by_noise = [epsilon(noise, 0.05, 100, 1e-5) for noise in (0.5, 1.0, 2.0, 4.0)]
    assert by_noise == sorted(by_noise, reverse=True)
    assert len(set(by_noise)) == 4
    assert epsilon(1.0, 0.05, 100, 1e-5) < epsilon(1.0, 0.05, 200, 1e-5) < epsilon(1.0, 0.1, 200, 1e-5)


def test_one_full_step_costs_at_most_what_the_gaussian_mechanism_does():
    # Dwork and Roth, 2014, theorem A.1: sigma >= sqrt(2 ln(1.25 / delta)) / epsilon suffices for epsilon < 1.
    delta, wanted = 1e-5, 0.9
    noise = (2 * math.log(1.25 / delta)) ** 0.5 / wanted
    assert epsilon(noise, 1.0, 1, delta) <= wanted


def test_without_noise_nothing_is_guaranteed_and_without_steps_nothing_is_given_away():
    assert epsilon(0.0, 0.1, 1, 1e-5) == math.inf
    assert epsilon(1.0, 0.1, 0, 1e-5) == 0.0


@pytest.mark.parametrize("wrong", [(-1.0, 0.1, 1, 1e-5), (1.0, 0.0, 1, 1e-5), (1.0, 2.0, 1, 1e-5), (1.0, 0.1, 1, 0.0)])
def test_an_accountant_asked_nonsense_says_so(wrong):
    with pytest.raises(InvalidCase, match="epsilon needs"):
        epsilon(*wrong)


def test_without_opacus_the_extra_is_named(monkeypatch):
    genuine = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("opacus"):
            raise ImportError(name)
        return genuine(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InvalidCase, match=r"leakgauge\[dp\]"):
        epsilon(1.0, 0.1, 1, 1e-5)
