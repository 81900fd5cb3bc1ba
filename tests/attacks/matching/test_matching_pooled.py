"""Rows of tables by many starts: every candidate is a row, and cells on which the starts agree are right."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from leakgauge.attacks.matching import GradientMatching
from leakgauge.attacks.matching.parametrisations import ColumnLogits
from leakgauge.attacks.matching.pooled import PooledRows, pair_with_first, pool
from leakgauge.attacks.recipes import tab_leak
from leakgauge.defences import GaussianNoise, NoDefence
from leakgauge.errors import InvalidCase
from leakgauge.metrics import CellsRight, align
from leakgauge.protocol import THREAT_MODELS, Federation, FedSGD, learner_and_state, simulate_round
from leakgauge.randomness import seeded
from leakgauge.space import Categorical, Continuous, TableSpace
from leakgauge.types import Batch, Outcome

SPACE = TableSpace(
    (
        *(Continuous(f"value {place}", -place, 10 * place + 1) for place in range(4)),
        Categorical("colour", ("red", "green", "blue")),
        Categorical("size", ("small", "large")),
    )
)


def observe(rows, defence=None):
    batch = Batch(rows, torch.arange(len(rows)) % 2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        scale = nn.BatchNorm1d(SPACE.shape[0], affine=False).eval()
        drawn = SPACE.decode(torch.rand(200, SPACE.shape[0]))
        scale.running_mean, scale.running_var = drawn.mean(dim=0), drawn.var(dim=0)
        module = nn.Sequential(scale, nn.Linear(SPACE.shape[0], 60), nn.Tanh(), nn.Linear(60, 2))
    learner, state = learner_and_state(module)
    federation = Federation(learner, state, FedSGD(), SPACE)
    informed = THREAT_MODELS["informed"]
    defence = defence or NoDefence()
    return batch, simulate_round(federation, batch, threat_model=informed, defence=defence, generator=seeded(0))


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000), size=st.floats(0.1, 30))
def test_whatever_the_numbers_are_each_cell_is_one_that_its_column_can_hold(seed, size):
    variables = size * torch.randn(3, 5, SPACE.shape[0], generator=seeded(seed), dtype=torch.float64)
    shares = ColumnLogits(SPACE, 1.0).shares(variables)
    assert bool(((shares >= 0) & (shares <= 1)).all())
    for column, block in zip(SPACE.columns, SPACE.blocks(shares), strict=True):
        if isinstance(column, Categorical):
            torch.testing.assert_close(block.sum(dim=-1), torch.ones(3, 5, dtype=torch.float64))
    SPACE.check(SPACE.decode(shares).flatten(0, 1))


@settings(deadline=None, max_examples=25)
@given(order=st.permutations(range(6)), seed=st.integers(0, 10_000))
def test_rows_of_a_start_are_paired_whatever_their_order(order, seed):
    rows = torch.rand(6, 4, generator=seeded(seed), dtype=torch.float64)
    assert torch.equal(pair_with_first(torch.stack([rows, rows[list(order)]]), None)[1], rows)


def test_a_cell_is_what_most_starts_say_and_as_sure_as_they_agree():
    agreed = SPACE.relax(SPACE.decode(torch.rand(1, SPACE.shape[0], generator=seeded(1)))).double()
    one, sure = pool(SPACE, agreed.expand(5, 1, -1))
    torch.testing.assert_close(one, agreed)
    assert bool((sure == 1).all())
    stray = agreed.clone()
    stray[0, 0] = 1 - stray[0, 0]
    same, less = pool(SPACE, torch.stack([agreed, agreed, agreed, stray]))
    torch.testing.assert_close(same[0, 0], agreed[0, 0])
    assert float(less[0, 0]) < 1


@pytest.mark.slow
def test_rows_come_back_with_their_cells_and_noise_leaves_the_starts_at_odds():
    rows = SPACE.decode(torch.rand(4, SPACE.shape[0], generator=seeded(3)))
    attack = tab_leak(steps=150, restarts=4)
    batch, seen = observe(rows)
    found = attack(seen, generator=seeded(1))
    SPACE.check(found.inputs)
    assert float(CellsRight(0.05)(align(found, batch, space=SPACE)).mean()) > 0.9
    _, drowned = observe(rows, GaussianNoise(1.0))
    lost = attack(drowned, generator=seeded(1))
    assert float(CellsRight(0.05)(align(lost, batch, space=SPACE)).mean()) < 0.6
    assert float(lost.confidence.mean()) < float(found.confidence.mean())


def test_images_are_refused_and_other_parametrisations_too(attacked, examples):
    seen = attacked(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), examples(2, (3, 2, 2), 3))
    refused = tab_leak(steps=2)(seen, generator=seeded(0))
    assert (refused.inputs, refused.outcome) == (None, Outcome.NOT_APPLICABLE)
    assert "images" in refused.facts["reason"]
    with pytest.raises(InvalidCase, match="Columns"):
        PooledRows(GradientMatching())
