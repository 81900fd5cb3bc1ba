"""A prior that lets go: it is as given while the update is unexplained, and never much of what is left."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from leakgauge.attacks.matching import (
    LBFGS,
    Budget,
    Cosine,
    Fading,
    GradientMatching,
    Pixels,
    SignedAdam,
    TotalVariation,
)
from leakgauge.attacks.matching.priors import Penalties
from leakgauge.data import Photos
from leakgauge.errors import InvalidCase
from leakgauge.models import Compact, build
from leakgauge.randomness import seeded

SHAPE = (3, 9, 9)
WEIGHT = TotalVariation(0.1)


@pytest.fixture
def seen(attacked, examples):
    return attacked(build(Compact(width=2), SHAPE, 5, seed=0), examples(1, SHAPE))


def images(rows: int) -> torch.Tensor:
    return torch.rand(rows, 1, *SHAPE, generator=seeded(0))


@pytest.mark.parametrize(("loss", "settled", "most"), [(1.0, False, None), (1e-5, False, 10.0), (1e-5, True, 1.0)])
def test_the_penalty_is_never_more_than_its_share_of_the_matching_loss(loss, settled, most, seen):
    penalties, shown = Penalties((Fading(WEIGHT),), [seen]), images(1)
    penalties.fade(shown, torch.tensor([loss]), settled=settled)
    (current,) = penalties.at(0.0)
    expected = WEIGHT(shown) if most is None else torch.tensor([most * loss])
    assert torch.allclose(current(shown), expected, rtol=1e-4)


def test_a_prior_that_has_let_go_does_not_come_back_and_small_changes_do_not_disturb(seen):
    penalties, shown = Penalties((Fading(WEIGHT),), [seen]), images(1)
    penalties.fade(shown, torch.tensor([1e-5]), settled=False)
    kept = penalties.weights
    for loss in (1.0, 0.6e-5):
        penalties.fade(shown, torch.tensor([loss]), settled=False)
        assert penalties.weights == kept
    penalties.fade(shown, torch.tensor([0.4e-5]), settled=False)
    assert penalties.weights[0] == pytest.approx(0.4 * kept[0], rel=1e-4)


def test_the_best_restart_decides_for_its_victim_and_for_no_other(seen):
    penalties = Penalties((Fading(WEIGHT),), [seen, seen])
    penalties.fade(images(4), torch.tensor([1.0, 1e-6, 1.0, float("nan")]), settled=False)
    faded, untouched = penalties.weights
    assert faded < 1e-2
    assert untouched == 1.0


def test_a_prior_that_would_be_gone_at_once_is_refused():
    with pytest.raises(InvalidCase, match="Fading needs most >= 1"):
        Fading(most=0.5)


def test_in_a_search_the_prior_is_what_it_is_without_fading_until_the_update_is_explained(seen):
    plain = GradientMatching(priors=(TotalVariation(1e-6),), budget=Budget(steps=5))
    one, other = (
        attack(seen, generator=seeded(0)) for attack in (plain, replace(plain, priors=(Fading(TotalVariation(1e-6)),)))
    )
    assert torch.equal(one.loss_trace, other.loss_trace)
    assert other.facts["left of the prior"] == 1.0


# Measured when written: 35.7 and 55.2 dB.
@pytest.mark.slow
def test_a_smooth_model_gives_the_image_itself_once_the_prior_lets_go(attacked):
    truth = Photos(size=16)().test[:1]
    seen = attacked(build(Compact(width=8), (3, 16, 16), 7, seed=0), truth)
    staying = GradientMatching(
        objective=Cosine(),
        priors=(TotalVariation(1e-3),),
        parametrisation=Pixels(spread=0.1),
        optimiser=LBFGS(),
        budget=Budget(steps=200),
    )
    letting_go = replace(staying, priors=(Fading(TotalVariation(1e-3)),))
    errors = [
        float((attack(seen, generator=seeded(0)).inputs - truth.inputs).square().mean())
        for attack in (staying, letting_go)
    ]
    assert errors[1] < 0.1 * errors[0]


def test_noise_on_the_update_keeps_the_prior_in_force(attacked, examples):
    seen = attacked(build(Compact(width=3), SHAPE, 5, seed=0), examples(1, SHAPE))
    noise = {name: torch.randn(one.shape, generator=seeded(1)) for name, one in seen.update.params.items()}
    seen = replace(seen, update=replace(seen.update, params=noise))
    attack = GradientMatching(priors=(Fading(TotalVariation(1e-3)),), optimiser=LBFGS(), budget=Budget(steps=60))
    assert attack(seen, generator=seeded(0)).facts["left of the prior"] == 1.0


@pytest.mark.parametrize("optimiser", [LBFGS(), SignedAdam()], ids=repr)
def test_a_fading_search_goes_on_from_its_snapshot_with_the_same_bits(optimiser, seen):
    attack = GradientMatching(
        priors=(Fading(TotalVariation(100.0), most=1.0),), optimiser=optimiser, budget=Budget(steps=24)
    )
    whole = attack(seen, generator=seeded(0))
    cut, again = (attack.search([seen], generator=seeded(0)) for _ in range(2))
    for _ in range(15):
        cut.step()
    again.restore(cut.snapshot())
    found = again.run()[0]
    assert whole.facts["left of the prior"] < 1
    assert torch.equal(found.loss_trace, whole.loss_trace)
    assert torch.equal(found.inputs, whole.inputs)
    assert found.facts == whole.facts


def test_curvature_outlives_a_change_of_weight_and_not_a_change_of_what_is_matched():
    optimiser = LBFGS()
    state = optimiser.start(torch.full((1, 4), 0.5), (0.0, 1.0))
    for value in (3.0, 2.0, 1.0):
        state = optimiser.advance(state, torch.tensor([value]), state.candidate - 0.1, 0.0)
    assert int(state.memory.filled) > 0
    assert int(optimiser.renew(state, anew=False).memory.filled) == int(state.memory.filled)
    assert int(optimiser.renew(state).memory.filled) == 0
