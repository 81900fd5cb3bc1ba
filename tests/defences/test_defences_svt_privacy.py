"""The sparse vector technique as it is deployed."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from leakgauge import params as tree
from leakgauge.defences import LaplaceNoise, SVTPrivacy
from leakgauge.errors import InvalidCase
from leakgauge.randomness import seeded

UPDATE = {"a": 1e-3 * torch.randn(100, 30, generator=seeded(0)).double(), "b": 1e-3 * torch.randn(1000).double()}
ENTRIES = 4000
EARLY = SVTPrivacy(early=True)
"""As NVFlare had it up to 2.7."""


def sent(defence, seed=0):
    return tree.flatten(defence.transform(UPDATE, generator=seeded(seed)))


def test_as_many_leave_as_asked_for_and_with_replacement_fewer():
    assert int((sent(SVTPrivacy(replace=False)) != 0).sum()) == 400
    distinct = int((sent(SVTPrivacy()) != 0).sum())
    # Of two thousand that are let through, 400 are drawn with replacement.
    assert 330 < distinct < 400


def test_what_leaves_is_the_clipped_entry_with_noise_twenty_times_the_clip():
    found = sent(SVTPrivacy(fraction=1.0, replace=False))
    noise = found - tree.flatten(UPDATE).clamp(-1e-5, 1e-5)
    # Laplace noise of scale b has mean b in absolute value, here with a relative error of 1 / sqrt(4000).
    assert float(noise.abs().mean()) == pytest.approx(2e-4, rel=0.06)
    assert float(noise.mean()) == pytest.approx(0, abs=4 * 2e-4 * 2**0.5 / ENTRIES**0.5)


def test_by_the_early_rule_nothing_leaves_that_is_longer_than_the_clip_and_most_are_as_long():
    visible = sent(EARLY)[sent(EARLY) != 0].abs()
    assert float(visible.max()) == 1e-5
    assert float((visible == 1e-5).double().mean()) > 0.9


@pytest.mark.parametrize(("size", "right"), [(1e-2, 1.0), (1e-7, 0.5)])
def test_by_the_early_rule_the_sign_of_a_large_entry_leaves_and_that_of_a_small_one_is_a_coins(size, right):
    signs = torch.where(torch.rand(ENTRIES, generator=seeded(4)) < 0.5, -1.0, 1.0).double()
    found = EARLY.transform({"w": size * signs}, generator=seeded(0))["w"]
    visible = found != 0
    share = float((found.sign() == signs)[visible].double().mean())
    assert share == pytest.approx(right, abs=4 * 0.5 / int(visible.sum()) ** 0.5)


@pytest.mark.parametrize("early", [False, True])
def test_without_noise_it_is_the_clipped_entries_above_the_threshold(early):
    quiet = SVTPrivacy(fraction=0.3, epsilon=math.inf, noise_var=math.inf, replace=False, early=early)
    defence = replace(quiet, gamma=1e-3, tau=5e-4)
    flat, found = tree.flatten(UPDATE), sent(defence)
    kept = found != 0
    assert bool((flat[kept].abs() >= 5e-4).all())
    assert torch.equal(found[kept], flat[kept].clamp(-1e-3, 1e-3))


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("noise_var", [0.5, 4.0, 100.0])
def test_what_is_expected_of_a_visible_entry_is_its_mean(noise_var, early):
    defence = SVTPrivacy(noise_var=noise_var, gamma=1.0, early=early)
    noise = LaplaceNoise(2 / noise_var).draw(torch.Size((200_000,)), generator=seeded(3))
    for value in (-3.0, -0.4, 0.0, 0.9, 2.0):
        mean = float((value + noise).clamp(-1, 1).mean()) if early else max(-1.0, min(value, 1.0))
        one = {"w": torch.tensor([value], dtype=torch.float64)}
        found = float(defence.anticipate(one, observed={"w": torch.ones(1)})["w"])
        assert found == pytest.approx(mean, abs=0.01)


def test_the_budget_that_is_spent_grows_with_the_entries():
    # 0.1 for each of the entries that leave, besides the threshold's and the questions'.
    assert SVTPrivacy().spent(7_033_300) == pytest.approx(70_333 + 0.1, rel=1e-9)
    assert EARLY.spent(7_033_300) == pytest.approx(70_333 + 0.1 + 0.1 * (2 * 703_330) ** (2 / 3), rel=1e-6)


def test_a_threshold_that_no_entry_meets_is_refused_and_not_asked_for_ever():
    with pytest.raises(InvalidCase, match="lower it"):
        sent(SVTPrivacy(epsilon=math.inf, gamma=1e-5, tau=1.0))
    some = float(tree.flatten(UPDATE).abs().quantile(0.95))  # a twentieth of the entries, where a tenth is wanted
    with pytest.raises(InvalidCase, match="lower it"):
        sent(SVTPrivacy(epsilon=math.inf, gamma=2 * some, tau=some))
    assert int((sent(SVTPrivacy(0.04, epsilon=math.inf, gamma=2 * some, tau=some)) != 0).sum()) > 0
