"""Published label rules: exact where their theory says so, refused where it says nothing, lost without the update."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls
from torch import nn
from torch.nn.functional import one_hot

from leakgauge.attacks.labels import IDLG, LLG, RLG, ZLG, ClassPrior, MinRow, SoftLabel
from leakgauge.attacks.labels.base import head_of
from leakgauge.attacks.labels.llg import impact_and_offset
from leakgauge.attacks.labels.rlg import separable
from leakgauge.attacks.labels.stand_ins import stand_ins
from leakgauge.errors import InvalidCase, MissingKnowledge, UnsupportedModel
from leakgauge.models import MLP, ConvNet, build
from leakgauge.protocol import FedAvg, FedSGD
from leakgauge.randomness import seeded
from leakgauge.types import Batch, Outcome

SHAPE = (1, 6, 6)
RULES = [MinRow(), LLG(), LLG("dummy"), LLG("auxiliary"), RLG(), ZLG(), ZLG("auxiliary"), ClassPrior()]


def network(classes: int, *, seed: int = 0, bias: bool = True, activation: str = "relu", width: int = 24) -> nn.Module:
    return build(MLP(hidden=(width,), activation=activation, bias=bias), SHAPE, classes, seed=seed).double()


class ConstantMass(nn.Sequential):
    """Features that sum to one, and a head that finds every class equally likely."""

    def __init__(self, classes: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(36, 8), nn.Softmax(dim=1), nn.Linear(8, classes, bias=False))
        nn.init.zeros_(self[-1].weight)
        self.double()


def restored(rule, seen, *, seed: int = 0) -> list[int]:
    return rule.restore(seen, generator=seeded(seed)).tolist()


def distinct(examples, count: int, classes: int, seed: int) -> Batch:
    labels = torch.randperm(classes, generator=seeded(seed))[:count]
    return Batch(examples(count, SHAPE, seed=seed, dtype=torch.float64).inputs, labels)


seeds = st.integers(0, 10_000)


# Features are not negative, so a row of dW has negative entries only where its class is present.
@settings(deadline=None, max_examples=12)
@given(seed=seeds, count=st.integers(1, 8), bias=st.booleans())
def test_distinct_labels_are_exact_for_features_that_are_not_negative(seed, count, bias, attacked, examples):
    module, batch = network(10, seed=seed, bias=bias), distinct(examples, count, 10, seed)
    seen = attacked(module, batch)
    assume(bool((head_of(seen).row_sums[batch.labels] < 0).all()))
    for rule in (MinRow(), LLG(), LLG("dummy")):
        assert restored(rule, seen) == sorted(batch.labels.tolist()), rule


def test_the_smallest_entry_tells_a_class_whose_row_sum_is_positive(attacked):
    # The second image has the more mass and is taken for class 0, but is dark where the first is bright.
    images = torch.zeros(2, *SHAPE, dtype=torch.float64)
    images[0, 0, 0, 0], images[1, 0, 1:] = 0.3, 1.0
    module = nn.Sequential(nn.Flatten(), nn.Linear(36, 5, bias=False)).double()
    module[1].weight.data.zero_()[0] = 0.1
    seen = attacked(module, Batch(images, torch.tensor([0, 3])))
    assert head_of(seen).row_sums[0] > 0
    assert restored(MinRow(), seen) == [0, 3]
    assert restored(IDLG(), seen) == [3, 3]


def test_with_more_examples_than_classes_min_row_repeats_the_classes_in_turn(attacked, examples):
    seen = attacked(network(3), examples(7, SHAPE, classes=3, dtype=torch.float64))
    counts = MinRow().estimate(seen, generator=seeded(0))
    first = head_of(seen).weight_update.min(dim=1).values.argmin()
    assert counts.tolist() == [3.0 if index == first else 2.0 for index in range(3)]


# K rows p - y, restricted to the K classes present, are minus I plus a matrix whose row sums are below one: their
# positive combinations fill the negative orthant, and with one absent class everything. No confidence is too high.
@settings(deadline=None, max_examples=15)
@given(
    seed=seeds,
    count=st.integers(1, 6),
    scale=st.sampled_from([1.0, 10.0]),
    activation=st.sampled_from(["tanh", "relu"]),
    bias=st.booleans(),
)
def test_rlg_finds_distinct_labels_whatever_the_signs_of_the_features(
    seed, count, scale, activation, bias, attacked, examples
):
    module, batch = network(8, seed=seed, activation=activation, bias=bias), distinct(examples, count, 8, seed)
    with torch.no_grad():
        module.head.weight *= scale
    assert restored(RLG(), attacked(module, batch)) == sorted(batch.labels.tolist())


def test_rlg_counts_each_class_once_and_then_the_most_negative_ones(attacked, examples):
    images = examples(5, SHAPE, seed=1, dtype=torch.float64).inputs
    seen = attacked(network(20, seed=1, activation="tanh", width=64), Batch(images, torch.tensor([4, 4, 9, 4, 12])))
    assert Counter(restored(RLG(), seen)).keys() == {4, 9, 12}
    assert Counter(restored(RLG(), seen))[4] == 2


@settings(deadline=None, max_examples=30)
@given(seed=seeds, size=st.integers(1, 4), count=st.integers(2, 9))
def test_a_direction_is_separable_iff_it_is_no_positive_combination_of_the_others(seed, size, count):
    columns = torch.randn(size, count, generator=seeded(seed), dtype=torch.float64)
    columns = columns / columns.norm(dim=0)
    others = [columns[:, torch.arange(count) != index].numpy() for index in range(count)]
    distances = [nnls(other, columns[:, index].numpy())[1] for index, other in enumerate(others)]
    assume(all(distance < 1e-9 or distance > 1e-3 for distance in distances))
    assert separable(columns).tolist() == [distance > 1e-3 for distance in distances]


@pytest.mark.parametrize(("classes", "width", "count"), [(4, 24, 4), (30, 5, 5), (4, 24, 9)])
def test_rlg_refuses_as_many_examples_as_classes_or_features(classes, width, count, attacked, examples):
    seen = attacked(network(classes, width=width), examples(count, SHAPE, classes=classes, dtype=torch.float64))
    with pytest.raises(UnsupportedModel, match=rf"got {count} examples, {classes} classes and {width} features; use"):
        RLG().restore(seen, generator=seeded(0))


@settings(deadline=None, max_examples=12)
@given(labels=st.lists(st.integers(0, 5), min_size=1, max_size=12), seed=seeds)
def test_counts_are_exact_with_repeats_when_the_model_says_the_same_of_every_image(labels, seed, attacked, examples):
    batch = Batch(examples(len(labels), SHAPE, seed=seed, dtype=torch.float64).inputs, torch.tensor(labels))
    other = examples(9, SHAPE, classes=6, seed=seed + 1, dtype=torch.float64)
    seen = replace(attacked(ConstantMass(6), batch), auxiliary=other)
    for rule in (LLG("dummy"), LLG("auxiliary"), ZLG(), ZLG("auxiliary")):
        assert restored(rule, seen) == sorted(labels), rule


@settings(deadline=None, max_examples=12)
@given(seed=seeds, count=st.integers(1, 30), scale=st.sampled_from([1.0, 20.0]))
def test_zlg_plus_is_exact_with_a_bias_when_the_mean_probabilities_are_the_private_ones(
    seed, count, scale, attacked, examples
):
    module, batch = network(5, seed=seed, activation="tanh"), examples(count, SHAPE, seed=seed, dtype=torch.float64)
    with torch.no_grad():
        module.head.weight *= scale
    strangers = Batch(batch.inputs.flip(0), torch.zeros(count, dtype=torch.long))  # their labels play no part
    estimate = ZLG("auxiliary").estimate(replace(attacked(module, batch), auxiliary=strangers), generator=seeded(0))
    assert torch.allclose(estimate, torch.bincount(batch.labels, minlength=5).double(), atol=1e-9)


def test_without_any_feature_zlg_is_left_with_the_models_own_leaning(attacked, examples):
    module = network(5, bias=False)
    nn.init.zeros_(module.linear1.weight)
    estimate = ZLG().estimate(attacked(module, examples(10, SHAPE, dtype=torch.float64)), generator=seeded(0))
    assert torch.allclose(estimate, torch.full((5,), 2.0, dtype=torch.float64))


@pytest.mark.parametrize("probabilities", [False, True])
def test_impact_and_offset_are_the_row_sums_of_batches_of_one_class_each(probabilities, attacked, examples):
    module, known = network(4), torch.tensor([0, 0, 2, 3, 3, 3])  # nothing of class 1
    images = examples(6, SHAPE, seed=3, dtype=torch.float64).inputs
    auxiliary = Batch(images, one_hot(known, 4).double() if probabilities else known)
    seen = replace(attacked(module, examples(1, SHAPE, classes=4, dtype=torch.float64)), auxiliary=auxiliary)
    shown = stand_ins(seen, "auxiliary", dummies=1, generator=seeded(0), needed_by=LLG())
    impact, offset = impact_and_offset(head_of(seen), shown)
    sums = {
        label: seen.learner.gradient(seen.state, Batch(images[known == label], known[known == label]))[
            "head.weight"
        ].sum(1)
        for label in (0, 2, 3)
    }
    assert impact == pytest.approx(float(torch.stack([sums[label][label] for label in sums]).mean()))
    for label in range(4):
        others = torch.stack([sums[other][label] for other in sums if other != label])
        assert float(offset[label]) == pytest.approx(float(others.mean()))


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("local_update", [FedSGD(), FedAvg(2, 2, 0.01)], ids=repr)
@pytest.mark.parametrize("bias", [True, False])
def test_estimates_sum_to_the_batch_size(rule, local_update, bias, attacked, examples):
    # Rows of dW and entries of db sum to zero over the classes, and probabilities to one.
    batch = examples(6, SHAPE, classes=8, dtype=torch.float64)
    seen = attacked(network(8, bias=bias), batch, local_update=local_update)
    seen = replace(seen, auxiliary=examples(11, SHAPE, classes=8, seed=1, dtype=torch.float64))
    estimate = rule.estimate(seen, generator=seeded(0))
    assert estimate.dtype == torch.float64
    assert float(estimate.sum()) == pytest.approx(6)
    assert len(restored(rule, seen)) == 6


NORMALISED = nn.Sequential(
    nn.Flatten(), nn.Linear(36, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 10)
)


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("threat_model", ["honest_but_curious", "unaware"])
def test_batch_norm_and_dropout_in_train_mode_are_no_obstacle(rule, threat_model, attacked, examples):
    one = examples(1, SHAPE, classes=10, seed=1)  # a single auxiliary image has no batch statistics of its own
    for module in (NORMALISED, build(ConvNet(width=2), (1, 9, 9), 10, seed=0)):
        shape = SHAPE if module is NORMALISED else (1, 9, 9)
        seen = attacked(module, examples(5, shape, classes=10), mode="train", threat_model=threat_model)
        auxiliary = one if module is NORMALISED else examples(3, shape, classes=10, seed=1)
        labels = restored(rule, replace(seen, auxiliary=auxiliary))
        assert len(labels) == 5
        assert 0 <= min(labels) <= max(labels) < 10


@settings(deadline=None, max_examples=8)
@given(seed=seeds, order=st.permutations(range(7)), bias=st.booleans())
def test_renaming_the_classes_renames_the_counts(seed, order, bias, attacked, examples):
    batch = examples(5, SHAPE, classes=7, seed=seed, dtype=torch.float64)
    other = examples(12, SHAPE, classes=7, seed=seed + 1, dtype=torch.float64)
    names = torch.tensor(order)
    # No feature is zero, so no two classes tie.
    module, renamed = (network(7, seed=seed, bias=bias, activation="tanh") for _ in range(2))
    with torch.no_grad():
        for one, two in zip(module.head.parameters(), renamed.head.parameters()):
            two[names] = one
    seen = replace(attacked(module, batch), auxiliary=other)
    seen_renamed = replace(
        attacked(renamed, Batch(batch.inputs, names[batch.labels])), auxiliary=Batch(other.inputs, names[other.labels])
    )
    for rule in RULES[:-1]:  # what chance gives to a class does not depend on its name, but one draw does
        estimate, after = (rule.estimate(one, generator=seeded(0)) for one in (seen, seen_renamed))
        assert torch.allclose(after[names], estimate, rtol=1e-6), rule


@pytest.mark.parametrize("rule", [MinRow(), RLG(), IDLG(), LLG()], ids=repr)
@pytest.mark.parametrize("bias", [True, False])
def test_the_scale_of_the_update_does_not_matter_to_rules_of_sign_and_order(rule, bias, attacked, examples):
    seen = attacked(network(10, bias=bias), examples(6, SHAPE, classes=10, dtype=torch.float64))
    for scale in (1e-6, 0.3, 1e4):
        params = {name: scale * tensor for name, tensor in seen.update.params.items()}
        scaled = replace(seen, update=replace(seen.update, params=params), local_update=None)
        assert restored(rule, scaled) == restored(rule, seen)


def test_on_an_unrelated_update_recall_is_that_of_the_prior(attacked, examples):
    module, hits, rounds = network(10), Counter(), 60
    other = examples(20, SHAPE, classes=10, seed=1, dtype=torch.float64)
    for seed in range(rounds):
        truth = Counter(torch.randint(10, (4,), generator=seeded(seed, "truth")).tolist())
        seen = replace(attacked(module, distinct(examples, 4, 10, seed)), auxiliary=other)
        for rule in RULES:
            hits[rule] += (truth & Counter(restored(rule, seen, seed=seed))).total()
    for rule in RULES:
        assert abs(hits[rule] - hits[ClassPrior()]) / (4 * rounds) < 0.1, rule


@settings(deadline=None, max_examples=15)
@given(classes=st.integers(2, 60), count=st.integers(1, 200), seed=seeds)
def test_the_class_prior_is_as_balanced_as_can_be(classes, count, seed, attacked, examples):
    seen = replace(attacked(network(classes), examples(1, SHAPE, classes=2, dtype=torch.float64)), num_examples=count)
    counts = ClassPrior().estimate(seen, generator=seeded(seed))
    assert float(counts.sum()) == count
    assert set(counts.tolist()) <= {count // classes, -(-count // classes)}


def test_the_class_prior_never_looks_at_the_update(attacked, examples):
    batch = examples(7, SHAPE, dtype=torch.float64)
    seen = attacked(network(5), batch)
    other = attacked(network(5, seed=1), replace(batch, labels=(batch.labels + 1) % 5))
    draws = [restored(ClassPrior(), seen, seed=seed) for seed in range(40)]
    assert draws == [restored(ClassPrior(), other, seed=seed) for seed in range(40)]
    # The remainder of two goes to every pair of classes in time.
    assert len({tuple(draw) for draw in draws}) > 5


def test_another_prior_is_followed_in_proportion(attacked, examples):
    seen = attacked(network(3), examples(8, SHAPE, classes=3, dtype=torch.float64))
    assert restored(ClassPrior((2.0, 1.0, 1.0)), seen) == [0, 0, 0, 0, 1, 1, 2, 2]
    assert restored(ClassPrior((0.0, 1.0, 0.0)), seen) == [1] * 8
    with pytest.raises(InvalidCase, match="2 shares but the model 3 classes"):
        restored(ClassPrior((0.5, 0.5)), seen)
    for bad in ((), (0.0, 0.0), (1.0, -0.5), (float("nan"), 1.0)):
        with pytest.raises(InvalidCase, match="shares >= 0"):
            ClassPrior(bad)


@pytest.mark.parametrize("rule", [LLG("auxiliary"), ZLG("auxiliary")], ids=repr)
def test_auxiliary_data_that_nobody_gave_are_missed_by_name(rule, attacked, examples):
    seen = attacked(network(5), examples(2, SHAPE, dtype=torch.float64))
    with pytest.raises(MissingKnowledge, match=rf"^{type(rule).__name__} needs `auxiliary`"):
        rule.restore(seen, generator=seeded(0))
    with pytest.raises(InvalidCase, match="hold no image"):
        rule.restore(replace(seen, auxiliary=examples(2, SHAPE)[:0]), generator=seeded(0))


def test_a_source_that_does_not_exist_is_refused():
    with pytest.raises(InvalidCase, match="ZLG has no source 'gradient'; choose one of dummy, auxiliary"):
        ZLG("gradient")
    with pytest.raises(InvalidCase, match="LLG has no source 'noise'"):
        LLG("noise")
    with pytest.raises(InvalidCase, match="at least one dummy image, got 0"):
        LLG("dummy", dummies=0)


def soft(kind: str, classes: int, share: float, seed: int) -> torch.Tensor:
    """A label of one example: one class, smoothed over all, mixed of two, or both."""
    first, second = one_hot(torch.randperm(classes, generator=seeded(seed))[:2], classes).double()
    mixed = share * first + (1 - share) * second if kind in ("mixup", "both") else first
    return ((0.9 * mixed + 0.1 / classes) if kind in ("smoothing", "both") else mixed)[None]


@settings(deadline=None, max_examples=25)
@given(
    kind=st.sampled_from(["hard", "smoothing", "mixup", "both"]),
    classes=st.integers(5, 20),
    share=st.floats(0.5, 0.95),
    seed=seeds,
    bias=st.booleans(),
    local_update=st.sampled_from([FedSGD(), FedAvg(1, 1, 0.1)]),
)
def test_a_soft_label_is_exact_with_and_without_a_bias(
    kind, classes, share, seed, bias, local_update, attacked, examples
):
    label = soft(kind, classes, share, seed)
    module = network(classes, seed=seed, bias=bias, activation="tanh")
    batch = Batch(examples(1, SHAPE, seed=seed, dtype=torch.float64).inputs, label)
    found = SoftLabel()(attacked(module, batch, local_update=local_update), generator=seeded(0))
    assert found.outcome is Outcome.SOLVED
    assert found.inputs is None
    assert found.labels.shape == (1, classes)
    assert float((found.labels - label).abs().max()) < 1e-6


@pytest.mark.parametrize("kind", ["hard", "smoothing", "mixup"])
def test_a_soft_label_is_found_past_a_bias_that_is_not_trained(kind, attacked, examples):
    module, label = network(10), soft(kind, 10, 0.7, 0)
    module.head.bias.requires_grad_(False)[:] = torch.linspace(-1, 1, 10)
    seen = attacked(module, Batch(examples(1, SHAPE, dtype=torch.float64).inputs, label))
    assert float((SoftLabel().restore(seen, generator=seeded(0)) - label).abs().max()) < 1e-6


def test_with_a_bias_a_soft_label_is_exact_even_where_no_feature_fires(attacked, examples):
    module, label = network(3), soft("mixup", 3, 0.7, 0)
    nn.init.constant_(module.linear1.bias, -100.0)
    seen = attacked(module, Batch(examples(1, SHAPE, dtype=torch.float64).inputs, label))
    assert torch.allclose(SoftLabel().restore(seen, generator=seeded(0)), label)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("local_update", [FedSGD(), FedAvg(3, 1, 0.001)], ids=repr)
def test_a_soft_label_is_close_in_single_precision_and_over_local_steps(bias, local_update, attacked, examples):
    label = soft("mixup", 10, 0.7, 0).float()
    seen = attacked(network(10, bias=bias).float(), Batch(examples(1, SHAPE).inputs, label), local_update=local_update)
    found = SoftLabel().restore(seen, generator=seeded(0))
    assert found.dtype == torch.float32
    assert float((found - label).abs().max()) < 0.02
    assert float(found.sum()) == pytest.approx(1)


def test_soft_labels_are_refused_where_they_cannot_be_told(attacked, examples):
    def refusal(module: nn.Module, count: int) -> str:
        seen = attacked(module, examples(count, SHAPE, classes=2, dtype=torch.float64))
        with pytest.raises(UnsupportedModel) as refused:
            SoftLabel().restore(seen, generator=seeded(0))
        found = SoftLabel()(seen, generator=seeded(0))
        assert found.outcome is Outcome.NOT_APPLICABLE
        assert found.labels is None
        assert found.facts["reason"] == str(refused.value)
        return str(refused.value)

    dead = network(6, bias=False)
    nn.init.zeros_(dead.linear1.weight)
    assert "the update mixes 3" in refusal(network(6), 3)
    assert "needs five classes" in refusal(network(4, bias=False), 1)
    assert "update is zero" in refusal(dead, 1)
