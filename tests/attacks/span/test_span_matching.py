"""Span matching finds what lies in the span, goes on where it was stopped, and says where it does not apply."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from span_support import SHAPE, photographs, wide
from torch import nn

from leakgauge import best
from leakgauge.attacks.budget import Budget
from leakgauge.attacks.matching.objectives import Cosine
from leakgauge.attacks.matching.parametrisations import Pixels
from leakgauge.attacks.matching.search import Search
from leakgauge.attacks.recipes.chain import ChainSearch
from leakgauge.attacks.recipes.exact import exact
from leakgauge.attacks.span import SpanMatching
from leakgauge.defences import Clipping
from leakgauge.errors import InvalidFile
from leakgauge.models import ConvNet, build
from leakgauge.protocol import FedAvg
from leakgauge.randomness import seeded
from leakgauge.types import Outcome

DEEP = 1e-4
"""The mean squared error of 40 dB."""


@pytest.fixture(scope="module")
def module() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return wide().eval()


def error(found, truth) -> float:
    return float((found.inputs - truth.inputs).square().mean())


def test_the_truth_has_no_loss_and_another_image_has(module, attacked):
    truth = photographs(0)
    problem = SpanMatching(priors=()).problem(attacked(module, truth), generator=seeded(0))
    loss, residuals, _ = problem.evaluate(truth.inputs)
    assert float(loss) < 1e-6
    assert residuals.shape == (1,)
    assert float(problem.evaluate(photographs(9).inputs)[0]) > 1e-2


def test_the_gradient_is_that_of_the_loss(module, attacked, examples):
    seen = attacked(module.double(), replace(photographs(0), inputs=photographs(0).inputs.double()))
    module.float()
    problem = SpanMatching().problem(seen, generator=seeded(0))
    image, along = (examples(1, SHAPE, seed=seed, dtype=torch.float64).inputs for seed in (0, 1))
    ahead, behind = (problem.evaluate(image + step * along)[0] for step in (1e-5, -1e-5))
    slope = (problem.evaluate(image)[2] * along).sum()
    assert float((ahead - behind) / 2e-5) == pytest.approx(float(slope), rel=1e-5)


# Measured when written: 57 dB.
def test_a_photograph_comes_back_from_a_wide_network_clipped_or_not_and_is_no_other(module, attacked):
    truth = photographs(0)
    seen = attacked(module, truth, defence=Clipping(1e-3))
    found = SpanMatching(budget=Budget(steps=300))(seen, generator=seeded(0))
    assert error(found, truth) < DEEP
    assert error(found, photographs(9)) > 1e-2  # the null: this update scored against another's image
    assert found.outcome is Outcome.CONVERGED
    assert float(found.facts["residual"]) < 1e-4
    assert found.facts["spanned layers"] == "2, 4"


def test_labels_that_are_hidden_are_restored(module, attacked):
    truth = photographs(0)
    found = SpanMatching(budget=Budget(steps=2))(
        attacked(module, truth, threat_model="honest_but_curious"), generator=seeded(0)
    )
    assert torch.equal(found.labels, truth.labels)


def test_several_local_steps_are_one_gradient_in_their_middle(module, attacked):
    truth = photographs(0)
    seen = attacked(module, truth, local_update=FedAvg(3, 1, 1e-3))
    problem = SpanMatching(priors=()).problem(seen, generator=seeded(0))
    assert float(problem.evaluate(truth.inputs)[0]) < 1e-4


def test_a_search_that_was_stopped_goes_on_to_the_same_bits(module, attacked):
    seen = attacked(module, photographs(0, 9))
    attack = SpanMatching(starts=2, budget=Budget(steps=12))
    whole = attack.search([seen], generator=seeded(0))
    straight = whole.run()[0]
    for stop in (1, 5, 9):
        first, second = (attack.search([seen], generator=seeded(0)) for _ in range(2))
        for _ in range(stop):
            first.step()
        second.restore(first.snapshot())
        resumed = second.run()[0]
        assert torch.equal(resumed.inputs, straight.inputs)
        assert torch.equal(resumed.loss_trace, straight.loss_trace)
    with pytest.raises(InvalidFile, match="another attack"):
        attack.search([seen], generator=seeded(1)).restore(whole.snapshot())


def test_images_that_are_wrong_are_drawn_anew_and_the_right_ones_stay(module, attacked):
    truth = photographs(0, 9)
    attack = SpanMatching(starts=1, budget=Budget(steps=10), race=0.1, renewal=0.5)
    search = attack.begin([attacked(module, truth)], generator=seeded(0))
    for _ in range(5):
        search.step()
    search.best[0, 0] = truth.inputs[0]
    search.residuals[0] = torch.tensor([1e-6, 0.5])
    wrong = search.best[0, 1].clone()
    search._turn()
    assert torch.equal(search.state.candidate[0, 0], truth.inputs[0])
    assert not torch.equal(search.state.candidate[0, 1], wrong)
    search.step()
    moved = (search.state.candidate[0] - torch.stack([truth.inputs[0], wrong])).abs().amax(dim=(1, 2, 3))
    assert moved[0] < moved[1]


def test_where_no_layer_qualifies_it_says_so_and_the_best_recipe_is_gradient_matching(attacked, examples):
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5))
    seen = attacked(module, examples(1, SHAPE))
    found = SpanMatching()(seen, generator=seeded(0))
    assert found.outcome is Outcome.NOT_APPLICABLE
    assert "No layer's gradient spans its inputs" in str(found.facts["reason"])
    ours = best(steps=3)
    search = ours.search([seen], generator=seeded(0))
    assert isinstance(search, Search)
    alone = ours.recipe(seen).search([seen], generator=seeded(0))
    assert torch.equal(search.run()[0].inputs, alone.run()[0].inputs)


def test_where_span_matching_gets_nowhere_gradient_matching_has_the_rest_and_a_stop_changes_no_bit(module, attacked):
    """The spans of noise hold no image."""
    seen = attacked(module, photographs(0))
    noise = {name: torch.randn(p.shape, generator=seeded(1)) for name, p in seen.update.params.items()}
    seen = replace(seen, update=replace(seen.update, params=noise))
    searches = [best(steps=8).search([seen], generator=seeded(0)) for _ in range(3)]
    assert all(isinstance(search, ChainSearch) for search in searches)
    straight = searches[0].run()[0]
    assert searches[0].matching is not None
    for _ in range(6):
        searches[1].step()
    searches[2].restore(searches[1].snapshot())
    resumed = searches[2].run()[0]
    assert torch.equal(resumed.inputs, straight.inputs)
    assert "misfit of span matching" in str(straight.facts["why this answer"])


@pytest.mark.slow
def test_a_guide_leads_where_spans_alone_end_in_a_jigsaw(attacked):
    # The head reads features place by place, and only the last two layers are spanned: 10 dB alone, 26 with a guide.
    module, truth = build(ConvNet(width=24), (3, 18, 18), 5, seed=0), photographs(0, side=18)
    alone = SpanMatching(starts=1, budget=Budget(steps=150))
    guided = replace(alone, guide=Cosine(), parametrisation=Pixels(spread=0.1))
    seen = attacked(module, truth)
    errors = [error(attack(seen, generator=seeded(0)), truth) for attack in (alone, guided)]
    assert errors[0] > 10 * errors[1]
    chosen = exact().span_matching(seen, 1)
    assert (chosen.guide, chosen.starts) == (guided.guide, 1)
