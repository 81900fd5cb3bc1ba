"""What holds for every prior of gradient matching, and for every one that will be added to its room."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, fields, is_dataclass

import pytest
import torch

from leakgauge.attacks.matching import Budget, GradientMatching, priors
from leakgauge.models import ConvNet, build
from leakgauge.randomness import seeded

SHAPE = (3, 9, 9)
BUILT = {
    "SideBySide": lambda: priors.SideBySide((priors.TotalVariation(0.1), priors.PixelNorm(0.2))),
    "Starting": lambda: priors.Starting(priors.TotalVariation(0.1), 0.5),
}
"""Those that are made of other priors; all others stand for themselves."""

NAMES = [name for name in dir(priors) if is_dataclass(getattr(priors, name))]


@pytest.fixture(params=NAMES)
def prior(request):
    return BUILT.get(request.param, getattr(priors, request.param))()


@pytest.fixture
def seen(attacked, examples):
    module = build(ConvNet(width=2), SHAPE, 5, seed=0)
    return attacked(module, examples(2, SHAPE), threat_model="strongest", mode="train")


def test_the_room_has_priors():
    assert {"TotalVariation", "BatchNormStatistics", "Balanced"} <= set(NAMES)


def test_a_prior_is_its_own_configuration(prior):
    again = eval(repr(prior), vars(priors))  # noqa: S307 - the theorem is about eval, the text is ours
    assert again == prior == pickle.loads(pickle.dumps(prior))  # noqa: S301
    assert hash(again) == hash(prior)
    with pytest.raises(FrozenInstanceError):
        setattr(prior, fields(prior)[0].name if fields(prior) else "weight", 1)


def test_a_bound_prior_gives_each_restart_a_finite_penalty_that_can_be_followed(prior, seen, bits):
    before = bits(seen)
    # A balanced prior has no weight before a search has given it one; an absent one is never in force.
    current = prior.bind(seen).at(1.0) if isinstance(prior, priors.Prior) else None
    if current is None:
        return
    images = torch.rand(3, 2, *SHAPE, generator=seeded(0)).requires_grad_()
    penalty = current(images)
    assert penalty.shape == (3,)
    assert bool((penalty >= 0).all())
    assert bool(penalty.isfinite().all())
    if penalty.requires_grad:
        (gradient,) = torch.autograd.grad(penalty.sum(), images)
        assert bool(gradient.isfinite().all())
    assert torch.equal(current(images), penalty)
    assert bits(seen) == before


def test_a_search_under_any_prior_ends_in_the_box_and_again_in_the_same_place(prior, seen, bits):
    attack = GradientMatching(priors=(prior,), restarts=2, budget=Budget(steps=2))
    before = bits(seen)
    first, again = (attack(seen, generator=seeded(0)) for _ in range(2))
    assert torch.equal(first.inputs, again.inputs)
    assert 0 <= float(first.inputs.min()) <= float(first.inputs.max()) <= 1
    assert bits(seen) == before
