"""What pruning leaves of a linear layer determines much of what it hides; what is not so is left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from leakgauge.attacks.adaptive import adaptive, completion
from leakgauge.attacks.adaptive import attack as adaptive_attack
from leakgauge.attacks.adaptive.completion import complete, complete_update
from leakgauge.defences import Clipping, GaussianNoise, NoDefence, Pruning, chain
from leakgauge.defences.base import Defence
from leakgauge.defences.pruning import keep_largest
from leakgauge.models import MLP, build
from leakgauge.protocol import THREAT_MODELS, FedAvg, Federation, FedSGD, UpdateObservation, learner_and_state
from leakgauge.protocol.local_update import LocalUpdate
from leakgauge.protocol.round import simulate_round
from leakgauge.randomness import seeded
from leakgauge.types import Batch

SHAPE, CLASSES, FIRST = (1, 20, 20), 10, "linear1.weight"


def batch_of(count: int) -> Batch:
    generator = seeded(0, "batch", count)
    return Batch(torch.rand(count, *SHAPE, generator=generator), torch.arange(count) % CLASSES)


def observe(defence: Defence, *, count: int = 4, client: LocalUpdate | None = None) -> UpdateObservation:
    learner, state = learner_and_state(build(MLP(hidden=(100,)), SHAPE, CLASSES, seed=0))
    return simulate_round(
        Federation(learner, state, client or FedSGD()),
        batch_of(count),
        threat_model=THREAT_MODELS["informed"],
        defence=defence,
        generator=seeded(0, "client"),
    )


def low_rank(rank: int, seed: int) -> Tensor:
    left, right = (torch.randn(size, rank, generator=seeded(seed, size)) for size in (80, 120))
    return left @ right.T


@settings(max_examples=15, deadline=None)
@given(rank=st.integers(1, 5), share=st.floats(0.5, 0.9), seed=st.integers(0, 1000))
def test_the_entries_left_of_a_matrix_of_low_rank_give_the_others(rank: int, share: float, seed: int) -> None:
    full = low_rank(rank, seed)
    pruned = keep_largest(full, share)
    found = complete(pruned, rank)
    back = (found != 0) & (pruned == 0)
    assert back.sum() > 0.2 * (pruned == 0).sum()
    assert (found - full)[back].norm() < 1e-3 * full[back].norm()
    assert torch.equal(found[pruned != 0], pruned[pruned != 0])


@settings(max_examples=15, deadline=None)
@given(rank=st.integers(1, 8), share=st.floats(0.03, 0.4), seed=st.integers(0, 1000))
def test_what_is_completed_is_right_however_little_was_left(rank: int, share: float, seed: int) -> None:
    # Rows and columns of very different lengths, as those of an update.
    lengths = [torch.rand(size, generator=seeded(seed, size, "lengths")).pow(3) for size in (80, 120)]
    full = low_rank(rank, seed) * torch.outer(*lengths)
    pruned = keep_largest(full, share)
    found = complete(pruned, rank)
    back = (found != 0) & (pruned == 0)
    assert (found - full)[back].norm() <= 0.02 * full[back].norm()


def test_a_row_that_the_densest_part_does_not_show_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "_WORK", 1.0)  # the part is as small as it may be
    full = low_rank(2, 0)
    # The densest rows are in the wide block, the densest columns in the tall one.
    blocks = torch.block_diag(torch.ones(20, 100), torch.ones(60, 20))
    pruned = full * blocks * (torch.rand(full.shape, generator=seeded(1)) < 0.9)
    assert complete(pruned, 2) is pruned  # each block has a scale of its own, so that nothing determines the rest


def test_images_that_are_alike_leave_a_lower_rank_and_no_error() -> None:
    full = low_rank(2, 0)
    found = complete(keep_largest(full, 0.6), 5)
    assert (found - full)[found != 0].norm() < 1e-3 * full.norm()


@pytest.mark.parametrize("rank", [1, 4, 16])
def test_a_matrix_of_full_rank_or_of_a_larger_one_is_left_alone(rank: int) -> None:
    for full in (torch.randn(80, 120, generator=seeded(rank)), low_rank(rank + 8, 0)):
        pruned = keep_largest(full, 0.5)
        assert complete(pruned, rank) is pruned


@pytest.mark.parametrize(
    "matrix",
    [torch.zeros(30, 30), torch.ones(30, 30), torch.zeros(30), torch.full((30, 30), torch.nan), torch.zeros(3, 0)],
)
def test_what_hides_nothing_or_shows_nothing_is_left_alone(matrix: Tensor) -> None:
    assert complete(matrix, 2) is matrix


def came_back(seen: UpdateObservation, truth: Tensor) -> tuple[float, float]:
    """The share of the hidden entries that came back, and their relative error once scaled to fit."""
    before, after = (one.update.params[FIRST] for one in (seen, complete_update(seen)))
    back = (before == 0) & (after != 0)
    scale = before.norm() / truth[before != 0].norm()
    return float(back.sum() / (before == 0).sum()), float((after / scale - truth)[back].norm() / truth[back].norm())


@pytest.mark.parametrize(("count", "keep", "least"), [(1, 0.1, 0.05), (4, 0.5, 0.5), (6, 0.2, 0.3)])
def test_pruning_hides_little_of_a_linear_layers_update(count: int, keep: float, least: float) -> None:
    share, error = came_back(
        observe(Pruning(keep), count=count), observe(NoDefence(), count=count).update.params[FIRST]
    )
    assert share > least
    assert error < 1e-3


@pytest.mark.parametrize("client", [FedSGD(), FedAvg(epochs=3, batch_size=2, learning_rate=0.1)])
def test_neither_clipping_nor_local_steps_change_that_of_the_first_layer(client: LocalUpdate) -> None:
    seen = observe(chain(Clipping(1e-3), Pruning(0.5)), client=client)
    share, error = came_back(seen, observe(NoDefence(), client=client).update.params[FIRST])
    assert share > 0.5
    assert error < 1e-3


def test_what_noise_was_added_to_is_left_alone() -> None:
    seen = observe(chain(GaussianNoise(1.0), Pruning(0.5)))
    after = complete_update(seen).update.params
    assert all(after[name] is tensor for name, tensor in seen.update.params.items())


def test_who_does_not_know_of_a_defence_or_of_the_batch_completes_nothing() -> None:
    seen = observe(Pruning(0.5))
    for unknown in (replace(seen, local_update=FedSGD()), replace(seen, num_examples=None)):
        assert complete_update(unknown) is unknown


def test_the_attack_that_knows_of_pruning_gains_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, truth = observe(Pruning(0.2), count=6), batch_of(6).inputs
    errors = []
    for completing in (complete_update, lambda observation: observation):
        monkeypatch.setattr(adaptive_attack, "complete_update", completing)
        result = adaptive(steps=60)(seen, generator=seeded(0))
        found = result.inputs
        assert found is not None
        assert ("entries known" in result.facts) is (completing is complete_update)
        # Each image beside the nearest that came back.
        errors.append((found[:, None] - truth).square().mean((2, 3, 4)).amin(0).mean())
    assert errors[0] < errors[1] / 2
