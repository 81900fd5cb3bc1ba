"""Clients of many local steps: what the attacker does not know of them, it replaces, copies or searches for."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, permutations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakgauge import params as tree
from leakgauge.attacks.budget import Budget
from leakgauge.attacks.federated import (
    EpochCopies,
    FedAvgOnCopies,
    LocalStepSearch,
    MidwayMatching,
    PermutationInvariant,
    SurrogateMatching,
    merge_copies,
)
from leakgauge.attacks.matching import Cosine, StraightLine
from leakgauge.attacks.recipes import (
    epoch_copies,
    inverting_gradients,
    local_step_search,
    midway,
    quasi_newton,
    surrogate,
)
from leakgauge.data import Photos
from leakgauge.defences import Pruning
from leakgauge.errors import InvalidCase, MissingKnowledge
from leakgauge.models import Compact, build
from leakgauge.progress import Tick
from leakgauge.protocol import FedAvg, FedSGD, UpdateObservation, learner_and_state
from leakgauge.randomness import seeded
from leakgauge.types import Batch, Outcome, Reconstruction

SHAPE = (3, 8, 8)
SMOOTH = Compact(width=6)
WRAPPERS = [SurrogateMatching, MidwayMatching, EpochCopies, LocalStepSearch]


@pytest.fixture(scope="module")
def module():
    return build(SMOOTH, SHAPE, 7, seed=0).double()


@pytest.fixture(scope="module")
def photographs() -> Batch:
    dataset = Photos(size=8)(None)
    chosen = dataset.test[torch.tensor(dataset.highlights[:2])]
    return replace(chosen, inputs=chosen.inputs.double())


def psnr(found: Reconstruction, truth: Batch) -> float:
    assert found.inputs is not None
    return float(-10 * torch.log10((found.inputs - truth.inputs).square().mean()))


def equal(left: Reconstruction, right: Reconstruction) -> bool:
    assert left.inputs is not None
    assert right.inputs is not None
    return torch.equal(left.inputs, right.inputs) and left.facts == right.facts


# A client that shuffles


def test_a_shuffled_epoch_is_the_epoch_of_some_order(module, examples):
    learner, state = learner_and_state(module)
    batch = examples(3, SHAPE, dtype=torch.float64)
    plain = FedAvg(1, 1, 0.5)
    orders = {order: plain.compute(learner, state, batch[torch.tensor(order)]) for order in permutations(range(3))}
    met = set()
    for seed in range(8):
        sent = replace(plain, shuffle=True)(learner, state, batch, generator=seeded(seed)).params
        [order] = [order for order, update in orders.items() if tree.norm(tree.sub(sent, update)) < 1e-12]
        met.add(order)
    assert len(met) > 1


def test_each_epoch_has_an_order_of_its_own(module, examples):
    learner, state = learner_and_state(module)
    batch = examples(3, SHAPE, dtype=torch.float64)
    client = FedAvg(2, 1, 0.5)
    repeated = [client.compute(learner, state, batch[torch.tensor(order)]) for order in permutations(range(3))]
    shuffled = [replace(client, shuffle=True)(learner, state, batch, generator=seeded(s)).params for s in range(8)]
    nearest = [min(float(tree.norm(tree.sub(sent, update))) for update in repeated) for sent in shuffled]
    assert max(nearest) > 1e-9


def test_with_one_mini_batch_per_epoch_shuffling_changes_nothing(module, examples):
    learner, state = learner_and_state(module)
    batch = examples(3, SHAPE, dtype=torch.float64)
    sent = FedAvg(2, 3, 0.5, shuffle=True)(learner, state, batch, generator=seeded(0)).params
    plain = FedAvg(2, 3, 0.5)(learner, state, batch, generator=seeded(0)).params
    assert tree.norm(tree.sub(sent, plain)) < 1e-12 * tree.norm(plain)


def test_an_attacker_expects_the_given_order_of_a_client_that_shuffles(module, examples):
    learner, state = learner_and_state(module)
    batch = examples(3, SHAPE, dtype=torch.float64)
    expected = FedAvg(2, 1, 0.5, shuffle=True).expected(learner, state, batch, observed={})
    plain = FedAvg(2, 1, 0.5).compute(learner, state, batch)
    assert all(torch.equal(expected[name], plain[name]) for name in plain)


# One gradient on the way


@pytest.mark.parametrize("learning_rate", [0.1, 0.3])
def test_a_gradient_on_a_curved_way_points_along_it_better_than_one_at_either_end(
    learning_rate, module, photographs, attacked
):
    seen = attacked(module, photographs, local_update=FedAvg(5, 2, learning_rate))
    observed = seen.update.params
    distance = [
        float(
            Cosine()(StraightLine(a / 10).expected(seen.learner, seen.state, photographs, observed=observed), observed)
        )
        for a in range(11)
    ]
    assert 0 < distance.index(min(distance)) < 10
    assert min(distance) < 0.1 * min(distance[0], distance[-1])


@pytest.mark.parametrize("disclosed", [None, FedSGD(), FedAvg(), FedAvg(7, 1, 3.0, shuffle=True)], ids=repr)
def test_the_surrogate_does_not_use_what_is_disclosed_of_the_local_steps(disclosed, module, photographs, attacked):
    seen = attacked(module, photographs, local_update=FedAvg(2, 1, 0.1))
    attack = SurrogateMatching(quasi_newton(steps=4))
    blind = attack(replace(seen, local_update=disclosed), generator=seeded(0))
    assert equal(blind, attack(seen, generator=seeded(0)))
    assert 0 <= blind.facts["position"] <= 1


def test_the_surrogate_keeps_a_known_defence(module, photographs, attacked):
    seen = attacked(module, photographs, local_update=FedAvg(2, 1, 0.1), defence=Pruning(0.5))
    search = SurrogateMatching(quasi_newton(steps=2)).search([seen], generator=seeded(0))
    assert search.problems[0].local_update == Pruning(0.5)(StraightLine())


def test_the_surrogate_finds_a_single_gradient_where_it_was_taken(module, photographs, attacked):
    seen = attacked(module, photographs[:1], local_update=FedSGD())
    found = SurrogateMatching(quasi_newton(tv_weight=1e-6, steps=60))(seen, generator=seeded(0))
    assert found.facts["position"] < 0.01
    assert psnr(found, photographs[:1]) > 30


def test_the_surrogate_brings_a_photograph_back_without_any_hyper_parameter(module, photographs, attacked):
    seen = attacked(module, photographs[:1], local_update=FedAvg(5, 1, 0.02))
    blind = replace(seen, local_update=None)
    found = SurrogateMatching(quasi_newton(tv_weight=1e-5, steps=60))(blind, generator=seeded(0))
    assert 0.1 < found.facts["position"] < 0.9
    assert psnr(found, photographs[:1]) > 25


@pytest.mark.parametrize("epochs", [2, 4])
def test_the_gradient_midway_is_off_the_path_by_the_square_of_its_length_and_that_at_its_start_by_its_length(
    epochs, module, photographs, attacked
):
    def angle(learning_rate: float, position: float | None) -> float:
        seen = attacked(module, photographs, local_update=FedAvg(epochs, 2, learning_rate))
        attack = MidwayMatching(quasi_newton(steps=1), position)
        problem = attack.search([seen], generator=seeded(0)).problems[0]
        there = seen.learner.gradient(problem.state, photographs)
        return float(Cosine()(there, seen.update.params)) ** 0.5  # up to a factor

    assert angle(0.02, 0.0) / angle(0.01, 0.0) == pytest.approx(2, rel=0.1)
    assert angle(0.02, None) / angle(0.01, None) == pytest.approx(4, rel=0.1)
    assert angle(0.01, None) < angle(0.01, 0.5)


def test_midway_matching_needs_the_number_of_steps_or_a_position(module, photographs, attacked):
    seen = attacked(module, photographs, local_update=FedAvg(2, 1, 0.1))
    hidden = replace(seen, local_update=None)
    with pytest.raises(MissingKnowledge, match="local_update"):
        MidwayMatching(quasi_newton(steps=4))(hidden, generator=seeded(0))
    placed = MidwayMatching(quasi_newton(steps=4), 0.5)
    assert equal(placed(hidden, generator=seeded(0)), placed(seen, generator=seeded(0)))


def test_midway_matching_leaves_a_single_gradient_as_it_is(module, photographs, attacked):
    seen = attacked(module, photographs, local_update=FedSGD())
    inner = quasi_newton(steps=4)
    assert equal(MidwayMatching(inner)(seen, generator=seeded(0)), inner(seen, generator=seeded(0)))


def test_midway_matching_keeps_a_known_defence(module, photographs, attacked):
    seen = attacked(module, photographs, local_update=FedAvg(2, 1, 0.1), defence=Pruning(0.5))
    search = MidwayMatching(quasi_newton(steps=2)).search([seen], generator=seeded(0))
    assert search.problems[0].local_update == Pruning(0.5)(FedSGD())


def test_midway_matching_brings_a_photograph_back_without_any_hyper_parameter(module, photographs, attacked):
    seen = attacked(module, photographs[:1], local_update=FedAvg(5, 1, 0.02))
    blind = replace(seen, local_update=None)
    found = MidwayMatching(quasi_newton(tv_weight=1e-5, steps=60), 0.5)(blind, generator=seeded(0))
    assert psnr(found, photographs[:1]) > 25


@pytest.mark.parametrize("wrapper", [SurrogateMatching, MidwayMatching])
def test_one_gradient_on_the_way_can_be_interrupted(wrapper, module, photographs, attacked):
    seen = attacked(module, photographs, local_update=FedAvg(2, 1, 0.1))
    attack = wrapper(quasi_newton(steps=6))
    search = attack.search([seen], generator=seeded(0))
    for _ in range(3):
        search.step()
    later = attack.search([seen], generator=seeded(1))
    later.restore(search.snapshot())
    assert torch.equal(later.run()[0].inputs, attack(seen, generator=seeded(0)).inputs)


# A copy of the batch for each epoch


@settings(deadline=None, max_examples=20)
@given(groups=st.integers(1, 3), size=st.integers(1, 3), channels=st.sampled_from([0, 5]), seed=st.integers(0, 99))
def test_the_order_within_a_group_does_not_enter_the_prior(groups, size, channels, seed):
    generator = seeded(seed)
    images = torch.rand(2, groups * size, 3, 6, 6, generator=generator, dtype=torch.float64)
    prior = PermutationInvariant(0.7, channels, groups)
    orders = [group * size + torch.randperm(size, generator=generator) for group in range(groups)]
    torch.testing.assert_close(prior(images[:, torch.cat(orders)]), prior(images), rtol=1e-9, atol=1e-12)


@settings(deadline=None, max_examples=20)
@given(groups=st.integers(2, 4), size=st.integers(1, 3), seed=st.integers(0, 99))
def test_the_prior_on_pixels_is_the_mean_squared_difference_of_mean_images_over_pairs(groups, size, seed):
    images = torch.rand(1, groups * size, 1, 4, 4, generator=seeded(seed), dtype=torch.float64)
    means = [images[0, first : first + size].mean(dim=0) for first in range(0, groups * size, size)]
    pairs = [(one - two).square().mean() for one, two in combinations(means, 2)]
    found = PermutationInvariant(0.3, channels=0, groups=groups)(images)
    torch.testing.assert_close(found[0], 0.3 * torch.stack(pairs).mean())


@pytest.mark.parametrize("channels", [0, 96])
def test_copies_of_one_batch_in_any_order_are_free_and_others_are_not(channels):
    batch = torch.rand(3, 3, 6, 6, generator=seeded(0), dtype=torch.float64)
    other = torch.rand(3, 3, 6, 6, generator=seeded(1), dtype=torch.float64)
    rows = torch.stack([torch.cat([batch, batch.flip(0)]), torch.cat([batch, other])])
    same, different = PermutationInvariant(1.0, channels, 2)(rows)
    assert same < 1e-20 < 1e-4 < different


def test_random_features_tell_apart_groups_with_the_same_mean_image():
    half = torch.full((1, 1, 4, 4), 0.5)
    images = torch.cat([half, half, 0 * half, 2 * half])[None]
    assert PermutationInvariant(1.0, 0, 2)(images) == 0
    assert PermutationInvariant(1.0, 96, 2)(images) > 1e-4


def test_fedavg_on_equal_copies_is_fedavg(module, examples):
    learner, state = learner_and_state(module)
    batch = examples(3, SHAPE, dtype=torch.float64)
    copies = Batch(torch.cat([batch.inputs] * 2), torch.cat([batch.labels] * 2))
    left = FedAvgOnCopies(FedAvg(2, 2, 0.1)).compute(learner, state, copies)
    right = FedAvg(2, 2, 0.1).compute(learner, state, batch)
    assert all(torch.equal(left[name], right[name]) for name in right)


def test_copies_can_explain_a_client_that_shuffles_and_one_batch_cannot(module, photographs, attacked):
    seen = attacked(module, photographs, local_update=FedAvg(2, 1, 0.5, shuffle=True), seed=8)
    observed = seen.update.params

    def distances(orders: list[list[int]], client: FedAvg) -> float:
        batch = photographs[torch.tensor(orders).flatten()]
        return float(Cosine()(client.compute(seen.learner, seen.state, batch), observed))

    either = [[0, 1], [1, 0]]
    apart = min(distances([one, two], FedAvgOnCopies(FedAvg(2, 1, 0.5))) for one in either for two in either)
    fixed = min(distances([one], FedAvg(2, 1, 0.5)) for one in either)
    assert apart < 1e-12 < 1e-6 < fixed


@settings(deadline=None, max_examples=25)
@given(copies=st.integers(1, 4), size=st.integers(1, 5), classes=st.integers(1, 3), seed=st.integers(0, 999))
def test_permuted_copies_merge_into_the_original(copies, size, classes, seed):
    generator = seeded(seed)
    images = torch.rand(size, 3, 4, 4, generator=generator, dtype=torch.float64)
    labels = torch.randint(classes, (size,), generator=generator)
    orders = [torch.arange(size), *(torch.randperm(size, generator=generator) for _ in range(copies - 1))]
    found = merge_copies(
        torch.stack([images[order] for order in orders]), torch.stack([labels[order] for order in orders])
    )
    torch.testing.assert_close(found, images)


def test_copies_are_matched_within_equal_labels_however_alike_others_are():
    dark, bright = torch.zeros(1, 2, 2), torch.ones(1, 2, 2)
    copies = torch.stack([torch.stack([dark, bright]), torch.stack([dark, bright])])
    labels = torch.tensor([[0, 1], [1, 0]])
    assert torch.equal(merge_copies(copies, labels), torch.full((2, 1, 2, 2), 0.5))


@pytest.mark.parametrize("client", [FedSGD(), FedAvg(1, 1, 0.1)], ids=repr)
def test_a_single_epoch_needs_no_copies(client, module, photographs, attacked):
    seen = attacked(module, photographs, local_update=client)
    inner = quasi_newton(steps=4)
    assert equal(EpochCopies(inner)(seen, generator=seeded(0)), inner(seen, generator=seeded(0)))


@pytest.mark.parametrize("labels", [True, False])
def test_copies_become_one_batch_again(labels, module, photographs, attacked):
    seen = attacked(module, photographs, local_update=FedAvg(3, 1, 0.1))
    found = EpochCopies(quasi_newton(steps=3))(seen if labels else replace(seen, labels=None), generator=seeded(0))
    assert found.inputs.shape == photographs.inputs.shape
    assert found.labels.sort().values.equal(photographs.labels.sort().values)
    assert found.facts["copies"] == 3


def test_epoch_copies_bring_a_photograph_back(module, photographs, attacked):
    seen = attacked(module, photographs[:1], local_update=FedAvg(3, 1, 0.1))
    found = EpochCopies(quasi_newton(tv_weight=1e-5, steps=60))(seen, generator=seeded(0))
    assert psnr(found, photographs[:1]) > 25


# The number of epochs by trying


@pytest.mark.parametrize("learning_rate", [0.01, 0.3])
@pytest.mark.parametrize("epochs", [1, 2, 4])
def test_the_true_number_of_epochs_is_found(epochs, learning_rate, module, photographs, attacked):
    seen = attacked(module, photographs[:1], local_update=FedAvg(epochs, 1, learning_rate))
    hidden = replace(seen, local_update=None)
    attack = LocalStepSearch(
        quasi_newton(tv_weight=1e-4, steps=8), (4, 1, 2), share=0.75, batch_size=1, learning_rate=learning_rate
    )
    found = attack(hidden, generator=seeded(0))
    distances = {tried: found.facts[f"distance at {tried} epochs"] for tried in (1, 2, 4)}
    assert found.facts["epochs"] == epochs == min(distances, key=distances.__getitem__)


def test_the_disclosed_number_of_epochs_is_not_looked_at(module, photographs, attacked):
    seen = attacked(module, photographs[:1], local_update=FedAvg(2, 1, 0.1), defence=Pruning(0.9))
    attack = LocalStepSearch(quasi_newton(steps=8), (1, 2), share=0.5)

    def told(epochs: int) -> UpdateObservation:
        return replace(seen, local_update=Pruning(0.9)(FedAvg(epochs, 1, 0.1)))

    assert equal(attack(told(2), generator=seeded(0)), attack(told(9), generator=seeded(0)))


def test_after_the_search_the_attack_is_the_one_that_knew(module, photographs, attacked):
    seen = attacked(module, photographs[:1], local_update=FedAvg(2, 1, 0.1))
    inner = quasi_newton(tv_weight=1e-5, steps=60)
    found = LocalStepSearch(inner, (1, 2), share=0.15)(
        replace(seen, local_update=FedAvg(5, 1, 0.1)), generator=seeded(0)
    )
    assert torch.equal(found.inputs, inner(seen, generator=seeded(0)).inputs)
    assert psnr(found, photographs[:1]) > 25


def test_a_client_without_epochs_is_not_searched(module, photographs, attacked):
    seen = attacked(module, photographs, local_update=FedSGD())
    inner = quasi_newton(steps=3)
    assert equal(LocalStepSearch(inner)(seen, generator=seeded(0)), inner(seen, generator=seeded(0)))


def test_without_the_rest_of_the_algorithm_the_number_of_epochs_does_not_help(module, photographs, attacked):
    blind = replace(attacked(module, photographs), local_update=None)
    for given_part in ({}, {"batch_size": 1}, {"learning_rate": 0.1}):
        with pytest.raises(MissingKnowledge, match=r"LocalStepSearch needs `local_update`"):
            LocalStepSearch(quasi_newton(steps=2), **given_part)(blind, generator=seeded(0))


def test_trials_and_full_run_report_progress_from_start_to_end(module, photographs, attacked):
    seen = attacked(module, photographs, local_update=FedAvg(1, 1, 0.1))
    ticks: list[Tick] = []
    found = LocalStepSearch(inverting_gradients(steps=6), (1, 2), share=0.5)(
        seen, generator=seeded(0), progress=ticks.append
    )
    assert [tick.step for tick in ticks] == list(range(1, 13))
    assert [tick.fraction for tick in ticks] == sorted(tick.fraction for tick in ticks)
    assert ticks[-1].fraction == 1
    assert len(found.loss_trace) == 6
    assert found.facts["trial steps"] == 3


def test_trials_and_full_run_keep_to_a_budget_together(module, photographs, attacked):
    attack = LocalStepSearch(inverting_gradients(), (1, 3), share=0.5)
    assert attack.with_budget(Budget(steps=20)).attack.budget == Budget(steps=10)
    seen = attacked(module, photographs[:1], local_update=FedAvg(1, 1, 0.1))
    begun = Budget(seconds=1).now()
    found = attack.with_budget(Budget(seconds=0.4))(seen, generator=seeded(0))
    assert found.facts["trial steps"] >= 1
    assert (Budget(seconds=1).now() - begun).cpu < 5


# All of them


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("local_update", [FedAvg(2, 1, 0.1), FedAvg(2, 1, 0.1, shuffle=True)], ids=repr)
def test_a_defended_client_of_several_epochs_is_attacked(wrapper, local_update, module, photographs, attacked):
    seen = attacked(module, photographs, local_update=local_update, defence=Pruning(0.5))
    found = wrapper(inverting_gradients(steps=2))(seen, generator=seeded(0))
    assert found.outcome is Outcome.STEPS_EXHAUSTED
    assert found.inputs.shape == photographs.inputs.shape


@pytest.mark.parametrize("wrapper", [SurrogateMatching, MidwayMatching, EpochCopies])
def test_another_budget_is_that_of_the_attack_inside(wrapper):
    assert wrapper(quasi_newton()).with_budget(Budget(seconds=7)) == wrapper(quasi_newton(seconds=7))


@pytest.mark.parametrize("recipe", [surrogate, midway, epoch_copies, local_step_search])
def test_a_recipe_takes_steps_seconds_and_an_optimiser(recipe):
    assert recipe(steps=7, optimiser="lbfgs").attack == quasi_newton(steps=7)
    assert recipe(steps=7, tv_weight=0.1, restarts=2).attack == inverting_gradients(0.1, steps=7, restarts=2)
    assert recipe(seconds=7.0) == recipe().with_budget(Budget(seconds=7.0))
    with pytest.raises(InvalidCase, match="choose from signed_adam, lbfgs"):
        recipe(optimiser="sgd")


@pytest.mark.parametrize(
    ("wrong", "naming"),
    [
        (lambda: LocalStepSearch(epochs=()), "epochs"),
        (lambda: LocalStepSearch(epochs=(1, 1)), "different epochs"),
        (lambda: LocalStepSearch(epochs=(0, 1)), "epochs"),
        (lambda: LocalStepSearch(share=0.0), "share=0.0"),
        (lambda: PermutationInvariant(channels=-1), "channels"),
        (lambda: PermutationInvariant(groups=0), "groups"),
        (lambda: FedAvgOnCopies(FedAvg(2, 1, 0.1)).steps(3), "3 rows are not 2 copies"),
    ],
)
def test_options_that_make_no_sense_are_refused_in_one_sentence(wrong, naming):
    with pytest.raises(InvalidCase, match=naming) as refused:
        wrong()
    assert "\n" not in str(refused.value)
