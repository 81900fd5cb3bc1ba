"""What holds for every defence of the catalogue."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, fields
from functools import partial
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import leakgauge.defences
from leakgauge.attacks.matching import Cosine
from leakgauge.catalogue import DEFENCES
from leakgauge.config import build, build_defence
from leakgauge.defences import (
    DPSGD,
    Chain,
    Clipping,
    GaussianNoise,
    LaplaceNoise,
    MixUp,
    NoDefence,
    Pruning,
    SecureAggregation,
    Soteria,
    chain,
)
from leakgauge.errors import InvalidCase
from leakgauge.models import Compact
from leakgauge.models import build as build_model
from leakgauge.protocol import FedAvg, FedSGD, learner_and_state
from leakgauge.protocol.clients import transforms
from leakgauge.randomness import seeded

SHAPE = (3, 9, 9)
PLAIN = FedSGD()
LEARNER, STATE = learner_and_state(build_model(Compact(width=3), SHAPE, 5, seed=0).double())

# The options at which each defence does nothing; a new defence has to state its own.
ZERO_STRENGTH = {
    "none": "none",
    "pruning": "pruning:keep=1",
    "gaussian_noise": "gaussian_noise:std=0",
    "laplace_noise": "laplace_noise:scale=0",
    "clipping": "clipping:max_norm=inf",
    "mixup": "mixup:k=1,largest=1",
    "instahide": "instahide:k=1,largest=1,flip=0",
    "instahide_cross": "instahide_cross:k=1,largest=1,flip=0",
    "soteria": "soteria:percentile=0",
    "dpsgd": "dpsgd:max_grad_norm=inf,noise_multiplier=0",
    "secure_aggregation": "secure_aggregation:clients=1",
    "percentile_privacy": "percentile_privacy:percentile=0,gamma=inf",
    "svt_privacy": "svt_privacy:fraction=1,epsilon=inf,noise_var=inf,gamma=1e9,tau=0,replace=False",
    "exclude_vars": "exclude_vars:pattern=''",
    "fixed_clipping": "fixed_clipping:clipping_norm=inf",
    "adaptive_clipping": "adaptive_clipping:initial_clipping_norm=inf",
    "local_dp": "local_dp:clipping_norm=inf,epsilon=inf",
}
# Options under which each changes an update of the small model above; ditto.
STRONG = {
    "none": "none",
    "pruning": "pruning:keep=0.3",
    "gaussian_noise": "gaussian_noise:std=0.1",
    "laplace_noise": "laplace_noise:scale=0.1",
    "clipping": "clipping:max_norm=0.01",
    "mixup": "mixup:k=2",
    "instahide": "instahide:k=2",
    "instahide_cross": "instahide_cross:k=2",
    "soteria": "soteria:percentile=50",
    "dpsgd": "dpsgd:max_grad_norm=0.1,noise_multiplier=0.5",
    "secure_aggregation": "secure_aggregation:clients=2",
    "percentile_privacy": "percentile_privacy:percentile=50,gamma=0.01",
    "svt_privacy": "svt_privacy:fraction=0.5,noise_var=1,gamma=0.1",
    "exclude_vars": "exclude_vars:pattern=head",
    "fixed_clipping": "fixed_clipping:clipping_norm=0.01",
    "adaptive_clipping": "adaptive_clipping:rounds=30",
    "local_dp": "local_dp:clipping_norm=0.1,sensitivity=0.1",
}
# The mean of two gradients is the gradient of the mean loss; aggregation shows where a client makes several steps.
SHOWS = {"secure_aggregation": FedAvg(2, 1, 0.1)}
BAD = {
    "pruning": ["keep=0", "keep=-0.1", "keep=1.5", "keep=inf", "keep='all'"],
    "gaussian_noise": ["std=-1", "std=inf", "std='loud'"],
    "laplace_noise": ["scale=-1", "scale=inf", "scale=None"],
    "clipping": ["max_norm=0", "max_norm=-1", "max_norm=True"],
    "mixup": ["k=0", "k=2.0", "largest=0.25", "largest=1.5"],
    "instahide": ["k=0", "largest=0.25", "flip=-0.1", "flip=2"],
    "instahide_cross": ["private=0", "private=2.0", "least_private=2.0", "largest=0.25", "flip=2"],
    "soteria": ["percentile=-1", "percentile=101", "layer=3"],
    "dpsgd": [
        "max_grad_norm=0",
        "max_grad_norm=inf",
        "noise_multiplier=-1",
        "noise_multiplier=inf",
        "expected_batch_size=0",
    ],
    "secure_aggregation": ["clients=0", "clients=2.0"],
    "percentile_privacy": ["percentile=-1", "percentile=101", "gamma=0"],
    "svt_privacy": [
        "fraction=0",
        "fraction=2",
        "epsilon=0",
        "noise_var=0",
        "gamma=inf",
        "tau=-1",
        "replace=1",
        "early=1",
    ],
    "exclude_vars": ["pattern='('", "pattern=3"],
    "fixed_clipping": ["clipping_norm=0", "clipping_norm=-1"],
    "adaptive_clipping": ["initial_clipping_norm=0", "clipped=2", "rounds=-1", "clip_norm_lr=-1"],
    "local_dp": ["clipping_norm=0", "sensitivity=-1", "epsilon=0", "delta=0", "delta=1"],
}
# Defences whose client trains on an encoding, which is what an informed attacker predicts the update of.
ENCODING = [name for name in DEFENCES if any(t.mixes for t in transforms(build_defence(STRONG[name])(PLAIN)))]
NAMESPACE = {**vars(leakgauge.defences), "inf": float("inf")}
MEMBERS = [build(DEFENCES, text, kind="defence") for text in STRONG.values()]


@pytest.fixture(scope="module")
def batch(examples):
    return examples(2, SHAPE, dtype=torch.float64)


def sent(defence, batch, *, seed=0, local_update=PLAIN):
    return defence(local_update)(LEARNER, STATE, batch, generator=seeded(seed)).params


def expected(defence, batch, observed, local_update=PLAIN):
    return defence(local_update).expected(LEARNER, STATE, batch, observed=observed)


def equal(left, right) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_every_defence_states_when_it_is_weak_and_strong():
    assert ZERO_STRENGTH.keys() == STRONG.keys() == DEFENCES.keys()


@pytest.mark.parametrize("local_update", [FedSGD(), FedAvg(2, 1, 0.1)], ids=repr)
@pytest.mark.parametrize("name", DEFENCES)
def test_zero_strength_is_the_identity(name, local_update, batch):
    defence = build_defence(ZERO_STRENGTH[name])
    plain = sent(NoDefence(), batch, local_update=local_update)
    assert equal(sent(defence, batch, local_update=local_update), plain)
    assert equal(expected(defence, batch, plain, local_update), plain)


@pytest.mark.parametrize("nothing", [NoDefence(), Chain(()), chain(), chain(NoDefence(), Chain(()))], ids=repr)
def test_a_chain_of_none_is_the_identity(nothing, batch):
    assert nothing(FedSGD()) == FedSGD()
    assert equal(sent(nothing, batch), sent(NoDefence(), batch))


@pytest.mark.parametrize("name", [name for name in DEFENCES if name != "none"])
def test_the_attacked_update_passed_through_the_defence(name, batch):
    local_update = SHOWS.get(name, PLAIN)
    plain = sent(NoDefence(), batch, local_update=local_update)
    assert not equal(sent(build_defence(STRONG[name]), batch, local_update=local_update), plain)


@pytest.mark.parametrize("name", DEFENCES)
def test_a_defence_is_a_function_of_its_generator(name, batch):
    defence = build_defence(STRONG[name])
    assert equal(sent(defence, batch, seed=3), sent(defence, batch, seed=3))


@pytest.mark.parametrize("name", DEFENCES)
def test_a_defence_keeps_names_shapes_and_types(name, batch):
    update = sent(build_defence(STRONG[name]), batch)
    assert {n: (t.shape, t.dtype) for n, t in update.items()} == {
        n: (t.shape, t.dtype) for n, t in STATE.params.items()
    }


@pytest.mark.parametrize("name", DEFENCES)
def test_a_defence_touches_neither_batch_nor_state(name, batch, bits):
    before = bits(batch, STATE, LEARNER.module)
    update = sent(build_defence(STRONG[name]), batch)
    expected(build_defence(STRONG[name]), batch, update)
    assert bits(batch, STATE, LEARNER.module) == before


@settings(deadline=None, max_examples=20)
@given(parts=st.lists(st.sampled_from(MEMBERS), min_size=3, max_size=3))
def test_chaining_is_associative(parts, examples):
    a, b, c = parts
    batch = examples(8, SHAPE, dtype=torch.float64)  # enough for two to mix behind two aggregations
    left, right = chain(chain(a, b), c), chain(a, chain(b, c))
    assert left == right == chain(a, b, c)
    assert equal(sent(left, batch), sent(Chain((Chain((a, b)), c)), batch))
    assert equal(sent(left, batch), sent(Chain((a, Chain((b, c)))), batch))
    assert equal(sent(left, batch), sent(lambda update: c(b(a(update))), batch))


def test_the_first_of_a_chain_is_applied_first(batch):
    # Pruning keeps a share of each tensor, so noise before it cannot fill the zeros, noise after it does.
    pruned_last, pruned_first = chain(GaussianNoise(0.1), Pruning(0.3)), chain(Pruning(0.3), GaussianNoise(0.1))
    assert any(bool((tensor == 0).any()) for tensor in sent(pruned_last, batch).values())
    assert not any(bool((tensor == 0).any()) for tensor in sent(pruned_first, batch).values())
    assert chain(Clipping(1.0), Pruning(0.5)) == build_defence("clipping:max_norm=1+pruning:keep=0.5")


DETERMINISTIC = [Pruning(0.3), Pruning(0.01), Clipping(0.01), Clipping(100.0), NoDefence()]
ALSO_DETERMINISTIC = [Soteria(percentile=50.0), Soteria("head", 20.0), DPSGD(0.01, 0.0), SecureAggregation(2)]


@pytest.mark.parametrize("local_update", [FedSGD(), FedAvg(2, 1, 0.1)], ids=repr)
@pytest.mark.parametrize(("first", "second"), list(product(DETERMINISTIC, repeat=2)), ids=repr)
def test_an_adaptive_attacker_predicts_a_deterministic_defence_exactly(first, second, local_update, batch):
    defence = chain(first, second)
    observed = sent(defence, batch, local_update=local_update)
    predicted = expected(defence, batch, observed, local_update)
    for name in observed:
        torch.testing.assert_close(predicted[name], observed[name], rtol=1e-12, atol=0)


@pytest.mark.parametrize("local_update", [FedSGD(), FedAvg(2, 1, 0.1)], ids=repr)
@pytest.mark.parametrize("defence", ALSO_DETERMINISTIC, ids=repr)
def test_so_it_does_for_those_that_look_at_the_batch(defence, local_update, batch):
    observed = sent(defence, batch, local_update=local_update)
    for name, tensor in expected(defence, batch, observed, local_update).items():
        torch.testing.assert_close(tensor, observed[name], rtol=1e-12, atol=1e-15)


# Pruning after clipping after pruning: the length that was clipped is of entries no longer visible, the angle is not.
@settings(deadline=None, max_examples=30)
@given(parts=st.lists(st.sampled_from(DETERMINISTIC), max_size=4))
def test_an_adaptive_attacker_predicts_the_direction_of_any_deterministic_chain(parts, batch):
    observed = sent(chain(*parts), batch)
    assert abs(float(Cosine()(expected(chain(*parts), batch, observed), observed))) < 1e-12


@pytest.mark.parametrize("name", ENCODING)
def test_what_an_adaptive_attacker_predicts_of_the_encoding_is_what_is_sent(name, batch):
    defended = build_defence(STRONG[name])(PLAIN)
    generator = seeded(0)
    torch.randint(2**62, (), generator=generator)  # the draw that seeds the client's dropout
    encoding = defended.encode(LEARNER, STATE, batch, generator=generator).batch
    assert not torch.equal(encoding.inputs, batch.inputs)
    assert equal(defended.expected(LEARNER, STATE, encoding, observed={}), sent(build_defence(STRONG[name]), batch))


@pytest.mark.parametrize("name", [name for name in DEFENCES if name not in ENCODING])
def test_what_an_adaptive_attacker_predicts_is_the_mean_of_what_is_sent(name, batch):
    # The seeds are fixed; among a thousand entries, six standard errors of a mean of 100 leave room for its own noise.
    defence = build_defence(STRONG[name])
    draws = [sent(defence, batch, seed=seed) for seed in range(100)]
    predicted = expected(defence, batch, draws[0])
    for tensor_name, tensor in predicted.items():
        sample = torch.stack([draw[tensor_name] for draw in draws])
        # Of draws that show as much as the one that is seen: which entries are hidden may be drawn as well.
        alike = (sample != 0) == (sample[0] != 0)
        count = alike.sum(dim=0)
        mean = (sample * alike).sum(dim=0) / count
        deviation = (((sample - mean).square() * alike).sum(dim=0) / (count - 1).clamp_min(1)).sqrt()
        assert bool(((mean - tensor).abs() <= 6 * deviation / count.sqrt() + 1e-12)[count > 10].all())
        assert bool((count > 10).any())


@pytest.mark.parametrize("name", DEFENCES)
def test_the_prediction_is_differentiable_in_the_images(name, batch):
    observed = sent(build_defence(STRONG[name]), batch)
    images = batch.inputs.clone().requires_grad_()
    predicted = expected(build_defence(STRONG[name]), type(batch)(images, batch.labels), observed)
    (gradient,) = torch.autograd.grad(sum(tensor.square().sum() for tensor in predicted.values()), images)
    assert bool((gradient != 0).any())
    assert bool(torch.isfinite(gradient).all())


@pytest.mark.parametrize("defence", [*MEMBERS, Chain(tuple(MEMBERS)), Clipping(float("inf"))], ids=repr)
def test_a_defence_is_its_own_configuration(defence):
    assert eval(repr(defence), NAMESPACE) == defence  # noqa: S307
    assert pickle.loads(pickle.dumps(defence)) == defence  # noqa: S301
    assert hash(defence) == hash(eval(repr(defence), NAMESPACE))  # noqa: S307
    with pytest.raises(FrozenInstanceError):
        setattr(defence, fields(defence)[0].name if fields(defence) else "strength", 1)


@pytest.mark.parametrize("text", [f"{name}:{option}" for name, options in BAD.items() for option in options])
def test_an_option_that_makes_no_sense_is_refused_by_name(text):
    with pytest.raises(InvalidCase, match=text.partition(":")[2].partition("=")[0]) as refusal:
        build_defence(text)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "defence", [Pruning, GaussianNoise, LaplaceNoise, Clipping, DPSGD, partial(Soteria, None), partial(MixUp, 2)]
)
def test_nan_is_no_strength(defence):
    with pytest.raises(InvalidCase):
        defence(float("nan"))
