"""Counts of labels: rounded to the nearest batch, exact where the system holds, and right on trained heads as well."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

import leakgauge
from leakgauge.attacks.budget import Budget
from leakgauge.attacks.labels import (
    IDLG,
    ILRG,
    LLG,
    RLG,
    ZLG,
    Alternating,
    BestLabels,
    ClassPrior,
    HeadMatching,
    MinRow,
    SoftLabel,
)
from leakgauge.attacks.labels.alternating import ClassModel, improve, mean_embedding
from leakgauge.attacks.labels.base import Head, head_of, mean_gradient, whole_counts
from leakgauge.attacks.labels.head_matching import _Problem
from leakgauge.attacks.labels.ilrg import solve_counts
from leakgauge.attacks.labels.stand_ins import dummy_features
from leakgauge.attacks.matching import GradientMatching
from leakgauge.defences import Chain, Clipping, GaussianNoise, LaplaceNoise, Pruning
from leakgauge.errors import InvalidCase, MissingKnowledge, UnsupportedModel
from leakgauge.models import MLP, ConvNet, build
from leakgauge.protocol import FedAvg, FedSGD
from leakgauge.protocol.local_update import PlainUpdate
from leakgauge.randomness import seeded
from leakgauge.types import Batch, Outcome

SHAPE = (1, 6, 6)
# `BestLabels` without its second, slower rule, and that rule cut short.
OURS = [
    ILRG(),
    ILRG(uniform=True),
    ILRG(simplified=True),
    Alternating(),
    HeadMatching(starts=(5,), steps=10),
    BestLabels(work=0),
]
EVERY = [*OURS, IDLG(), MinRow(), RLG(), LLG(), LLG("dummy"), LLG("auxiliary"), ZLG(), ZLG("auxiliary"), ClassPrior()]
seeds = st.integers(0, 10_000)


def network(classes: int, *, seed: int = 0, bias: bool = True, activation: str = "relu", width: int = 24) -> nn.Module:
    return build(MLP(hidden=(width,), activation=activation, bias=bias), SHAPE, classes, seed=seed).double()


class Head01(nn.Sequential):
    """A classifier and nothing else: its features are the pixels, or with ``signed`` the pixels less a quarter."""

    def __init__(self, weight: Tensor, *, bias: bool = True, signed: bool = False) -> None:
        layers = (nn.Flatten(), nn.Linear(weight.shape[1], len(weight), bias=bias))
        super().__init__(*layers)
        self.double()
        self.shift = 0.25 if signed else 0.0
        with torch.no_grad():
            self[1].weight[:] = weight
            if bias:
                self[1].bias.zero_()

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images - self.shift)


def as_images(features: Tensor) -> Tensor:
    return features[:, None, None, :]


def prototypes(classes: int, features: int, seed: int) -> Tensor:
    generator = seeded(seed, "prototypes")
    size, fires = (torch.rand(classes, features, generator=generator, dtype=torch.float64) for _ in range(2))
    return size * (fires < 0.4)


def trained(classes: int, features: int, count: int, *, seed: int, sharp: float, bias: bool = True, signed=False):
    """A head that looks for what its classes have apart, as training makes it, and a batch of their noisy examples."""
    centres = prototypes(classes, features, seed)
    module = Head01(sharp * (centres - centres.mean(dim=0)), bias=bias, signed=signed)
    generator = seeded(seed, "batch")
    labels = torch.randint(classes, (count,), generator=generator)
    noise = torch.randn(count, features, generator=generator, dtype=torch.float64)
    return module, Batch(as_images((centres[labels] + 0.2 * noise).clamp(0, 1)), labels)


def restored(rule, seen, *, seed: int = 0) -> list[int]:
    return rule.restore(seen, generator=seeded(seed)).tolist()


def recall(rule, seen, batch: Batch) -> float:
    return (Counter(restored(rule, seen)) & Counter(batch.labels.tolist())).total() / len(batch)


def with_head_update(seen, weight: Tensor | None, bias: Tensor | None):
    """The observation with another update of the classifier."""
    name = seen.learner.classifier(seen.state, seen.probe)
    changed = {f"{name}.weight": weight, f"{name}.bias": bias}
    params = dict(seen.update.params) | {key: value for key, value in changed.items() if value is not None}
    return replace(seen, update=replace(seen.update, params=params))


# Rounding


def batches(classes: int, total: int) -> list[tuple[int, ...]]:
    return [counts for counts in product(range(total + 1), repeat=classes) if sum(counts) == total]


@settings(deadline=None, max_examples=150)
@given(
    estimate=st.lists(st.one_of(st.floats(-12, 12), st.sampled_from([0.5, 1.5, -1e6, 1e6])), min_size=1, max_size=4),
    total=st.integers(0, 5),
)
def test_whole_counts_are_the_nearest_of_all_batches(estimate, total):
    found, wanted = whole_counts(torch.tensor(estimate), total), torch.tensor(estimate, dtype=torch.float64)
    every = torch.tensor(batches(len(estimate), total), dtype=torch.float64)
    # Less what all have in common, so that large estimates do not hide a difference.
    costs = (every.square() - 2 * every * wanted).sum(dim=1)
    cost = (found.square() - 2 * found * wanted).sum()
    assert tuple(found.tolist()) in {tuple(map(int, one)) for one in every.tolist()}
    assert float(cost) <= float(costs.min()) + 1e-6


@settings(deadline=None, max_examples=100)
@given(estimate=st.lists(st.floats(), min_size=1, max_size=8), total=st.integers(0, 40))
def test_whatever_the_estimate_there_are_as_many_labels_as_examples(estimate, total):
    found = whole_counts(torch.tensor(estimate, dtype=torch.float64), total)
    assert found.dtype == torch.int64
    assert int(found.sum()) == total
    assert int(found.min()) >= 0


@settings(deadline=None)
@given(counts=st.lists(st.integers(0, 9), min_size=1, max_size=8))
def test_whole_counts_of_the_right_sum_stay_as_they_are(counts):
    assert whole_counts(torch.tensor(counts), sum(counts)).tolist() == counts


def test_an_estimate_that_is_no_number_counts_as_none_and_an_infinite_one_as_all():
    nan, inf = float("nan"), float("inf")
    assert whole_counts(torch.tensor([nan, 2.0, 1.0]), 3).tolist() == [0, 2, 1]
    assert whole_counts(torch.tensor([0.0, inf, -inf]), 4).tolist() == [0, 4, 0]
    assert whole_counts(torch.tensor([10.0, 3.0]), 3).tolist() == [3, 0]
    assert whole_counts(torch.tensor([-1000.0, -5.0]), 3).tolist() == [0, 3]


# The head's mean gradient


@pytest.mark.parametrize("bias", [True, False])
def test_the_head_of_a_plain_gradient_is_that_of_torch(bias, attacked, examples):
    module, batch = network(5, bias=bias), examples(7, SHAPE, dtype=torch.float64)
    head = mean_gradient(attacked(module, batch), needed_by=ILRG())
    cross_entropy(module(batch.inputs), batch.labels).backward()
    assert torch.allclose(head.weight_update, module.head.weight.grad, atol=1e-14)
    assert torch.equal(head.weight, module.head.weight.detach())
    if bias:
        assert torch.allclose(head.bias_update, module.head.bias.grad, atol=1e-14)
        assert torch.equal(head.bias, module.head.bias.detach())
    else:
        assert head.bias is None
        assert head.bias_update is None
    assert torch.allclose(head.weight_update.sum(dim=0), torch.zeros(24).double(), atol=1e-14)


def test_one_local_step_over_all_is_the_gradient_itself(attacked, examples):
    module, batch = network(5), examples(6, SHAPE, dtype=torch.float64)
    plain = mean_gradient(attacked(module, batch), needed_by=ILRG())
    for defended in (FedAvg(1, 6, 0.25), FedAvg(1, 99, 1e-3)):
        found = mean_gradient(attacked(module, batch, local_update=defended), needed_by=ILRG())
        assert torch.allclose(found.weight_update, plain.weight_update, rtol=0, atol=1e-12)
        assert torch.allclose(found.bias_update, plain.bias_update, rtol=0, atol=1e-12)


@pytest.mark.parametrize("local_update", [FedAvg(3, 6, 1.0), FedAvg(2, 2, 1.0)], ids=repr)
def test_several_local_steps_are_the_gradient_to_first_order_in_the_rate(local_update, attacked, examples):
    module, batch = network(5), examples(6, SHAPE, dtype=torch.float64)
    plain = head_of(attacked(module, batch)).weight_update

    def error(rate: float) -> float:
        seen = attacked(module, batch, local_update=replace(local_update, learning_rate=rate))
        return float((mean_gradient(seen, needed_by=ILRG()).weight_update - plain).norm())

    assert error(1e-3) < 0.05 * float(plain.norm())
    assert error(1e-3) / error(1e-4) == pytest.approx(10, rel=0.1)


@pytest.mark.parametrize("threat_model", ["honest_but_curious", "unaware"])
def test_a_defence_that_acts_on_the_finished_update_leaves_its_scale_known(threat_model, attacked, examples):
    defence, batch = Chain((Clipping(1e6), Pruning(1.0))), examples(6, SHAPE, dtype=torch.float64)
    for local_update in (FedSGD(), FedAvg(2, 3, 0.01)):
        seen = attacked(network(5), batch, local_update=local_update, defence=defence, threat_model=threat_model)
        plain = attacked(network(5), batch, local_update=local_update)
        found, expected = (mean_gradient(one, needed_by=ILRG()).weight_update for one in (seen, plain))
        assert torch.allclose(found, expected, atol=1e-12)


class Secret(PlainUpdate):
    """A client of which the attacker knows that it exists."""

    def compute(self, learner, state, batch):
        return learner.gradient(state, batch)


@pytest.mark.parametrize("rule", [ILRG(), Alternating(), HeadMatching()], ids=repr)
def test_without_the_scale_of_the_update_there_are_no_counts(rule, attacked, examples):
    seen = attacked(network(5), examples(3, SHAPE, dtype=torch.float64))
    for client in (Secret(), FedAvg(1, 3, 0.0)):
        with pytest.raises(MissingKnowledge, match=rf"^{type(rule).__name__} needs `the scale of the update`"):
            rule.restore(replace(seen, local_update=client), generator=seeded(0))
    with pytest.raises(MissingKnowledge, match=rf"^{type(rule).__name__} needs `local_update`"):
        rule.restore(replace(seen, local_update=None), generator=seeded(0))
    with pytest.raises(MissingKnowledge, match=rf"^{type(rule).__name__} needs `num_examples`"):
        rule.restore(replace(seen, num_examples=None), generator=seeded(0))


NEED_A_HEAD = [rule for rule in (*OURS, IDLG(), MinRow()) if not isinstance(rule, BestLabels)]


def test_the_best_rule_names_a_label_through_a_frozen_head(attacked, examples):
    module, batch = network(5), examples(1, SHAPE, dtype=torch.float64)
    module.head.requires_grad_(False)
    restored = BestLabels().restore(attacked(module, batch), generator=seeded(0))
    assert restored.tolist() == batch.labels.tolist()


@pytest.mark.parametrize("rule", NEED_A_HEAD, ids=repr)
def test_a_frozen_head_is_refused_in_one_sentence(rule, attacked, examples):
    module = network(5)
    module.head.requires_grad_(False)
    with pytest.raises(
        UnsupportedModel, match=r"no gradient of the classifier 'head'.*train the last layer"
    ) as refused:
        rule.restore(attacked(module, examples(2, SHAPE, dtype=torch.float64)), generator=seeded(0))
    assert "\n" not in str(refused.value)


def test_a_bias_that_is_not_trained_still_shifts_the_probabilities(attacked, examples):
    module, batch = network(5), examples(4, SHAPE, dtype=torch.float64)
    module.head.bias.requires_grad_(False)[:] = torch.linspace(-1, 1, 5)
    head = head_of(attacked(module, batch))
    assert head.bias_update is None
    features = torch.rand(3, 24, dtype=torch.float64)
    assert torch.allclose(head.probabilities(features), module.head(features).softmax(dim=1))


# iLRG


@settings(deadline=None, max_examples=30)
@given(counts=st.lists(st.integers(0, 9), min_size=2, max_size=8).filter(any), seed=seeds, sharp=st.floats(0.1, 3))
def test_the_linear_system_has_the_counts_as_its_only_solution(counts, seed, sharp):
    wanted = torch.tensor(counts, dtype=torch.float64)
    scores = torch.randn(len(counts), len(counts), generator=seeded(seed), dtype=torch.float64)
    probabilities = (sharp * scores).softmax(dim=1)
    bias_update = (probabilities.T @ wanted - wanted) / wanted.sum()
    assert torch.allclose(solve_counts(probabilities, bias_update, sum(counts)), wanted, atol=1e-6)


@settings(deadline=None, max_examples=15)
@given(labels=st.lists(st.integers(0, 5), min_size=1, max_size=40), seed=seeds, scale=st.sampled_from([1.0, 5.0]))
def test_ilrg_is_exact_when_all_examples_share_their_features(labels, seed, scale, attacked, examples):
    # dW = db e^T: every row gives the one embedding there is.
    module = network(6, seed=seed)
    with torch.no_grad():
        module.head.weight *= scale
    images = examples(1, SHAPE, seed=seed, dtype=torch.float64).inputs.expand(len(labels), *SHAPE)
    seen = attacked(module, Batch(images, torch.tensor(labels)))
    estimate = ILRG().estimate(seen, generator=seeded(0))
    assert torch.allclose(estimate, torch.bincount(torch.tensor(labels), minlength=6).double(), atol=1e-6)


@settings(deadline=None, max_examples=15)
@given(labels=st.lists(st.integers(0, 5), min_size=1, max_size=40), seed=seeds)
def test_the_simplified_system_is_exact_when_every_class_present_has_a_negative_update(
    labels, seed, attacked, examples
):
    images = examples(1, SHAPE, seed=seed, dtype=torch.float64).inputs.expand(len(labels), *SHAPE)
    seen = attacked(network(6, seed=seed), Batch(images, torch.tensor(labels)))
    counts = torch.bincount(torch.tensor(labels), minlength=6).double()
    assume(bool(((head_of(seen).bias_update < -1e-6) == (counts > 0)).all()))
    assert torch.allclose(ILRG(simplified=True).estimate(seen, generator=seeded(0)), counts, atol=1e-6)


@settings(deadline=None, max_examples=15)
@given(counts=st.lists(st.integers(0, 9), min_size=7, max_size=7).filter(any), seed=seeds, sharp=st.floats(0.1, 2))
def test_ilrg_is_exact_when_each_row_is_its_classes_embedding(counts, seed, sharp, attacked, examples):
    weight = sharp * torch.randn(7, 12, generator=seeded(seed), dtype=torch.float64)
    wanted, embeddings = torch.tensor(counts, dtype=torch.float64), prototypes(7, 12, seed)
    module, size = Head01(weight), sum(counts)
    with torch.no_grad():
        bias_update = (module(as_images(embeddings)).softmax(dim=1).T @ wanted - wanted) / size
    seen = attacked(module, examples(size, (1, 1, 12), classes=7, dtype=torch.float64))
    seen = with_head_update(seen, bias_update[:, None] * embeddings, bias_update)
    assert torch.allclose(ILRG().estimate(seen, generator=seeded(0)), wanted, atol=1e-5)


@settings(deadline=None, max_examples=15)
@given(seed=seeds, count=st.integers(1, 30), local_update=st.sampled_from([FedSGD(), FedAvg(2, 4, 0.01)]))
def test_the_uniform_baseline_is_its_formula(seed, count, local_update, attacked, examples):
    batch = examples(count, SHAPE, seed=seed, dtype=torch.float64)
    seen = attacked(network(5, seed=seed), batch, local_update=local_update)
    estimate = ILRG(uniform=True).estimate(seen, generator=seeded(0))
    bias_update = mean_gradient(seen, needed_by=ILRG()).bias_update
    assert torch.allclose(estimate, count / 5 - count * bias_update, atol=1e-9)


@pytest.mark.parametrize(
    ("estimate", "one_by_one", "together"),
    [
        ([1.45, 1.35, 0.2], [0, 1], [0, 0, 1]),  # too few
        ([0.9, 0.7, 1.4], [0, 1, 2], [0, 1, 2]),
        ([1.6, 1.7, -0.3], [0, 0, 1, 1], [0, 1, 1]),  # too many
        ([7.0, -4.0, 0.0], [], [0, 0, 0]),  # more than there are examples is no count
    ],
)
def test_counts_rounded_one_by_one_need_not_be_a_batch(estimate, one_by_one, together, attacked, examples):
    # The uniform rule finds K (1/C - db), so db can be chosen to make it find anything.
    seen = attacked(network(3), examples(3, SHAPE, classes=3, dtype=torch.float64))
    seen = with_head_update(seen, None, 1 / 3 - torch.tensor(estimate, dtype=torch.float64) / 3)
    assert restored(ILRG(uniform=True, one_by_one=True), seen) == one_by_one
    assert restored(ILRG(uniform=True), seen) == together


@pytest.mark.parametrize("rule", [ILRG(), ILRG(uniform=True), Alternating(), BestLabels()], ids=repr)
def test_without_a_bias_counts_are_exact_when_private_images_have_the_feature_mass_of_noise(rule, attacked):
    # Features that sum to one, whatever the image; a head that has learnt nothing, so that nothing is entangled.
    for seed in range(4):
        generator = seeded(seed)
        labels = torch.randint(6, (20,), generator=generator)
        module = nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.Softmax(dim=1), nn.Linear(8, 6, bias=False)).double()
        nn.init.zeros_(module[-1].weight)
        seen = attacked(module, Batch(torch.rand(20, *SHAPE, generator=generator, dtype=torch.float64), labels))
        assert restored(rule, seen) == sorted(labels.tolist())


@pytest.mark.parametrize("rule", [ILRG(), Alternating()], ids=repr)
def test_without_a_bias_most_labels_of_an_untrained_network_come_back(rule, attacked, examples):
    found = []
    for seed in range(6):
        batch = examples(16, SHAPE, classes=20, seed=seed, dtype=torch.float64)
        found.append(recall(rule, attacked(network(20, seed=seed, bias=False), batch), batch))
    assert min(found) > 0.8


@pytest.mark.parametrize("rule", OURS, ids=repr)
@pytest.mark.parametrize("bias", [True, False])
def test_where_no_feature_fires_labels_are_still_classes(rule, bias, attacked, examples):
    module = network(5, bias=bias)
    with torch.no_grad():
        for parameter in module.linear1.parameters():
            parameter.fill_(-1.0)
    labels = restored(rule, attacked(module, examples(10, SHAPE, dtype=torch.float64)))
    assert len(labels) == 10
    assert 0 <= min(labels) <= max(labels) < 5


# Counts and embeddings in turn


def explained(head: Head, counts: Tensor, embeddings: Tensor) -> Head:
    """The head with the update that these classes leave."""
    share = counts[:, None] * (head.probabilities(embeddings) - torch.eye(len(counts)))
    total = counts.sum()
    return head._replace(weight_update=share.T @ embeddings / total, bias_update=share.sum(dim=0) / total)


@settings(deadline=None, max_examples=25)
@given(counts=st.lists(st.integers(0, 9), min_size=2, max_size=8).filter(any), seed=seeds, sharp=st.floats(0.0, 20.0))
def test_the_truth_is_a_fixed_point_of_alternation_however_confident_the_model(counts, seed, sharp):
    wanted, embeddings = torch.tensor(counts, dtype=torch.float64), prototypes(len(counts), 12, seed)
    weight, nothing = sharp * (embeddings - embeddings.mean(dim=0)), torch.zeros(len(counts), dtype=torch.float64)
    head = explained(Head(weight, nothing, weight, nothing), wanted, embeddings)
    after = improve(ClassModel(wanted, embeddings), head, sum(counts), longest=float(embeddings.norm(dim=1).max()))
    assert torch.allclose(after.counts, wanted, atol=1e-9)
    present = wanted > 0
    assert torch.allclose(after.embeddings[present], embeddings[present], atol=1e-9)


def test_the_start_is_the_mean_of_the_embeddings_of_a_model_that_knows_nothing():
    # All probabilities are 1/C, and each class that is present has the same number of examples.
    embeddings, counts = prototypes(6, 12, 0), torch.tensor([2.0, 2.0, 0.0, 0.0, 2.0, 0.0], dtype=torch.float64)
    nothing = torch.zeros(6, 12, dtype=torch.float64)
    head = explained(Head(nothing, None, nothing, None), counts, embeddings)
    assert torch.allclose(mean_embedding(head), embeddings[counts > 0].mean(dim=0))
    assert not mean_embedding(head._replace(bias_update=torch.zeros(6))).any()


TRAINED = {"many examples": (10, 64, 40), "few examples": (20, 40, 12)}


@pytest.mark.parametrize("case", TRAINED)
@pytest.mark.parametrize("bias", [True, False])
def test_on_a_trained_head_alternation_restores_what_ilrg_cannot(case, bias, attacked):
    # Row i of dW mixes classes there, so that dW_i / db_i is no embedding of class i.
    classes, features, count = TRAINED[case]
    gains = []
    for seed in range(8):
        module, batch = trained(classes, features, count, seed=seed, sharp=0.5, bias=bias)
        with torch.no_grad():
            own = module(batch.inputs).softmax(dim=1)[torch.arange(count), batch.labels]
        assert float(own.mean()) > 3 / classes  # the model is no longer guessing
        seen = attacked(module, batch, threat_model="honest_but_curious")
        gains.append(recall(Alternating(), seen, batch) - recall(ILRG(), seen, batch))
    assert min(gains) > 0 if bias else sum(gains) > 0
    assert sum(gains) / len(gains) > 0.2


def test_alternation_is_exact_on_a_trained_head_whose_classes_look_alike_within(attacked):
    for seed in range(5):
        module, batch = trained(20, 40, 12, seed=seed, sharp=0.5)
        assert restored(Alternating(), attacked(module, batch)) == sorted(batch.labels.tolist())
        assert restored(ILRG(), attacked(module, batch)) != sorted(batch.labels.tolist())


def test_more_rounds_are_not_worse(attacked):
    found: dict[int, float] = {0: 0.0, 3: 0.0, 30: 0.0}
    for seed in range(6):
        module, batch = trained(20, 40, 12, seed=seed, sharp=1.0)
        for rounds in found:
            found[rounds] += recall(Alternating(rounds), attacked(module, batch), batch)
    assert found[0] < found[3] <= found[30]


# Matching the head


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("signed", [True, False])
def test_the_gradient_of_head_matching_is_that_of_autograd(bias, signed):
    generator = seeded(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    weight_update, bias_update = random(5, 6), random(5)
    head = Head(random(5, 6), random(5) if bias else None, weight_update, bias_update if bias else None)
    start, free, logits = random(3, 6).abs(), random(3, 6), random(3, 5)
    problem = _Problem.of(head, start, signed=signed)
    value, gradient = problem.value_and_gradient(torch.cat((free.flatten(), logits.flatten())).numpy())

    unit = float(start.square().mean().sqrt())
    leaves = [free.clone().requires_grad_(), logits.clone().requires_grad_()]
    features = leaves[0] if signed else leaves[0].abs()
    delta = head.probabilities(features) - leaves[1].softmax(dim=1)
    miss = (delta.T @ features - 3 * weight_update).square().sum()
    size = (3 * weight_update).square().sum()
    if bias:
        miss = miss + (unit * (delta.sum(dim=0) - 3 * bias_update)).square().sum()
        size = size + (3 * unit * bias_update).square().sum()
    (miss / size).backward()
    expected = torch.cat([leaf.grad.flatten() for leaf in leaves])
    assert value == pytest.approx(float((miss / size).detach()), rel=1e-12)
    assert float((torch.from_numpy(gradient) - expected).abs().max()) < 1e-9


@pytest.mark.parametrize("bias", [True, False])
def test_the_truth_explains_the_head_without_rest(bias, attacked):
    module, batch = trained(8, 20, 5, seed=0, sharp=1.0, bias=bias)
    head, features = head_of(attacked(module, batch)), batch.inputs.flatten(1)
    certain = 60.0 * one_hot(batch.labels, 8).double()
    problem = _Problem.of(head, features, signed=False)
    value, gradient = problem.value_and_gradient(torch.cat((features.flatten(), certain.flatten())).numpy())
    assert value < 1e-20
    assert abs(gradient).max() < 1e-9


@pytest.mark.parametrize(("bias", "signed"), [(True, False), (True, True), (False, False)])
def test_head_matching_is_exact_on_a_trained_head_with_fewer_examples_than_classes(bias, signed, attacked):
    missed = 0
    for seed in range(2):
        module, batch = trained(10, 40, 5, seed=seed, sharp=0.5, bias=bias, signed=signed)
        seen = attacked(module, batch, threat_model="honest_but_curious")
        assert restored(HeadMatching(), seen) == sorted(batch.labels.tolist())
        missed += recall(ILRG(), seen, batch) < 1
    assert missed


@pytest.mark.parametrize("starts", [(0, 30), (30, 0)])
def test_of_two_starts_the_one_that_explains_more_is_kept(starts, attacked):
    module, batch = trained(10, 40, 5, seed=0, sharp=1.0)
    seen, rule, generator = attacked(module, batch), HeadMatching(starts, steps=15), seeded(0)
    head, _ = head_of(seen), dummy_features(seen, 2, generator=generator)  # features are looked at first
    found = [
        rule.explain(head, Alternating(rounds).solve(head, 5), 5, signed=False, generator=generator)
        for rounds in starts
    ]
    less, more = sorted(found, key=lambda one: one.residual)
    assert less.residual < more.residual < 1
    assert torch.equal(rule.estimate(seen, generator=seeded(0)), less.counts)
    assert float(less.counts.sum()) == pytest.approx(5)


# The default


@pytest.mark.parametrize("defence", [Clipping(0.01), Pruning(0.05), Chain((Clipping(0.1), Pruning(0.1)))], ids=repr)
@pytest.mark.parametrize("label", range(5))
def test_one_example_is_named_by_its_sign_whatever_became_of_the_update(label, defence, examples, attacked):
    batch = examples(1, (1, 6, 6), classes=5, seed=label)
    module = build(MLP((8,)), (1, 6, 6), 5, seed=label)
    seen = attacked(module, replace(batch, labels=torch.tensor([label])), defence=defence)
    assert restored(BestLabels(), replace(seen, labels=None)) == [label]


def test_the_default_is_the_best_rule_and_bears_a_name():
    assert leakgauge.labels.best() == BestLabels() == GradientMatching().labels


@pytest.mark.parametrize("bias", [True, False])
def test_without_the_scale_of_the_update_the_default_reads_signs(bias, attacked, examples):
    seen = attacked(network(10, bias=bias), examples(6, SHAPE, classes=10, dtype=torch.float64))
    for client in (None, Secret()):
        blind = replace(seen, local_update=client)
        assert restored(BestLabels(), blind) == restored(IDLG(), blind)
    with pytest.raises(MissingKnowledge, match=r"^BestLabels needs `num_examples`"):
        restored(BestLabels(), replace(seen, num_examples=None))


def test_the_default_matches_the_head_only_in_doubt_and_only_if_it_is_cheap(attacked):
    def estimates(*rules):
        return [rule.estimate(seen, generator=seeded(0)) for rule in rules]

    module, batch = trained(10, 40, 5, seed=2, sharp=1.0, signed=True)
    seen = attacked(module, batch)
    turns, matched, default, costly, trusting = estimates(
        Alternating(), HeadMatching(), BestLabels(), BestLabels(work=5 * 40 * 10 - 1), BestLabels(doubt=0.5)
    )
    assert float((turns - turns.round()).abs().max()) > BestLabels().doubt
    assert torch.equal(default, matched)
    assert torch.equal(costly, turns)
    assert torch.equal(trusting, turns)
    module, batch = trained(20, 40, 6, seed=0, sharp=0.1)
    seen = attacked(module, batch)
    turns, default = estimates(Alternating(), BestLabels())
    assert float((turns - turns.round()).abs().max()) <= BestLabels().doubt
    assert torch.equal(default, turns)


# All rules


DEFENCES = [
    Pruning(0.1),
    GaussianNoise(0.1),
    LaplaceNoise(1.0),
    Chain((Clipping(0.01), GaussianNoise(10.0))),
]


@pytest.mark.parametrize("rule", EVERY, ids=repr)
@pytest.mark.parametrize("defence", DEFENCES, ids=repr)
def test_under_any_defence_there_are_as_many_labels_as_examples(rule, defence, attacked, examples):
    other = examples(11, SHAPE, classes=8, seed=1, dtype=torch.float64)
    for bias, threat_model in ((True, "honest_but_curious"), (False, "unaware")):
        for local_update in (FedSGD(), FedAvg(2, 3, 0.01)):
            seen = attacked(
                network(8, bias=bias),
                examples(6, SHAPE, classes=8, dtype=torch.float64),
                defence=defence,
                threat_model=threat_model,
                local_update=local_update,
            )
            labels = restored(rule, replace(seen, auxiliary=other))
            assert len(labels) == 6
            assert 0 <= min(labels) <= max(labels) < 8


NORMALISED = nn.Sequential(
    nn.Flatten(), nn.Linear(36, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, 10)
)


@pytest.mark.parametrize("rule", OURS, ids=repr)
@pytest.mark.parametrize("threat_model", ["honest_but_curious", "unaware"])
def test_batch_norm_dropout_and_signed_features_in_train_mode_are_no_obstacle(rule, threat_model, attacked, examples):
    for module, shape in ((NORMALISED, SHAPE), (build(ConvNet(width=2), (1, 9, 9), 10, seed=0), (1, 9, 9))):
        for count in (1, 5) if module is not NORMALISED else (5,):
            batch = examples(count, shape, classes=10)
            labels = restored(rule, attacked(module, batch, mode="train", threat_model=threat_model))
            assert len(labels) == count
            assert 0 <= min(labels) <= max(labels) < 10


@pytest.mark.parametrize("rule", [ILRG(), Alternating(), BestLabels()], ids=repr)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("local_update", [FedSGD(), FedAvg(2, 4, 1e-3)], ids=repr)
def test_labels_of_an_untrained_network_come_back_exactly(rule, activation, local_update, attacked, examples):
    for seed in range(3):
        module, batch = (
            network(20, seed=seed, activation=activation),
            examples(12, SHAPE, classes=20, seed=seed, dtype=torch.float64),
        )
        seen = attacked(module, batch, threat_model="honest_but_curious", local_update=local_update)
        assert restored(rule, seen) == sorted(batch.labels.tolist())


@pytest.mark.parametrize("rule", [ILRG(), Alternating(), HeadMatching(), BestLabels()], ids=repr)
def test_the_label_of_one_example_is_exact(rule, attacked, examples):
    for label in range(4):
        batch = Batch(examples(1, SHAPE, seed=label).inputs, torch.tensor([label]))
        assert restored(rule, attacked(network(4, seed=label).float(), batch)) == [label]


@settings(deadline=None, max_examples=8)
@given(seed=seeds, order=st.permutations(range(7)), bias=st.booleans())
def test_renaming_the_classes_renames_the_counts(seed, order, bias, attacked, examples):
    batch, names = examples(5, SHAPE, classes=7, seed=seed, dtype=torch.float64), torch.tensor(order)
    module, renamed = (network(7, seed=seed, bias=bias) for _ in range(2))
    with torch.no_grad():
        for one, two in zip(module.head.parameters(), renamed.head.parameters()):
            two[names] = one
    seen, seen_renamed = attacked(module, batch), attacked(renamed, Batch(batch.inputs, names[batch.labels]))
    for rule in (ILRG(), ILRG(uniform=True), ILRG(simplified=True), Alternating()):
        estimate, after = (rule.estimate(one, generator=seeded(0)) for one in (seen, seen_renamed))
        assert torch.allclose(after[names], estimate, atol=1e-6), rule


def test_on_an_unrelated_update_recall_is_that_of_the_prior(attacked, examples):
    module, hits, rounds = network(10), Counter(), 60
    rules = (ILRG(), Alternating(), ClassPrior())
    for seed in range(rounds):
        truth = Counter(torch.randint(10, (4,), generator=seeded(seed, "truth")).tolist())
        seen = attacked(module, examples(4, SHAPE, classes=10, seed=seed, dtype=torch.float64))
        for rule in rules:
            hits[rule] += (truth & Counter(restored(rule, seen, seed=seed))).total()
    for rule in rules:
        assert abs(hits[rule] - hits[ClassPrior()]) / (4 * rounds) < 0.1, rule


@pytest.mark.parametrize("rule", [*OURS, BestLabels(), MinRow(), LLG("dummy"), ZLG(), ClassPrior()], ids=repr)
def test_as_the_label_step_of_gradient_matching_each_image_gets_a_label(rule, attacked, examples):
    batch = examples(3, SHAPE)
    seen = attacked(network(5).float(), batch, threat_model="honest_but_curious")
    found = GradientMatching(labels=rule, budget=Budget(steps=2))(seen, generator=seeded(0))
    assert found.inputs.shape == (3, *SHAPE)
    assert found.labels.tolist() == restored(rule, seen)


def test_a_label_step_that_finds_too_few_labels_is_refused(attacked, examples):
    seen = attacked(network(3), examples(3, SHAPE, classes=3, dtype=torch.float64), threat_model="honest_but_curious")
    seen = with_head_update(seen, None, 1 / 3 - torch.tensor([1.4, 1.4, 0.2], dtype=torch.float64) / 3)
    attack = GradientMatching(labels=ILRG(uniform=True, one_by_one=True), budget=Budget(steps=2))
    with pytest.raises(InvalidCase, match=r"one_by_one=True\) restored 2 labels for 3 examples; use a rule"):
        attack(seen, generator=seeded(0))


def test_a_soft_label_is_a_label_step_too(attacked, examples):
    images, label = examples(1, SHAPE).inputs, torch.tensor([[0.7, 0.3, 0.0, 0.0, 0.0]])
    seen = attacked(network(5).float(), Batch(images, label), threat_model="honest_but_curious")
    found = GradientMatching(labels=SoftLabel(), budget=Budget(steps=2))(seen, generator=seeded(0))
    assert found.inputs.shape == (1, *SHAPE)
    assert torch.allclose(found.labels, label, atol=1e-3)


@pytest.mark.parametrize("rule", OURS, ids=repr)
def test_called_as_an_attack_a_rule_returns_labels_and_no_images(rule, attacked, examples):
    found = rule(attacked(network(5), examples(3, SHAPE, dtype=torch.float64)), generator=seeded(0))
    assert (found.inputs, found.outcome, len(found.labels)) == (None, Outcome.SOLVED, 3)
