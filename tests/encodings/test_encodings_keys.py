"""Where keys come from: fair, independent, never repeated unless a seed says so."""

from __future__ import annotations

import os
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakgauge.encodings import SecureKeys, SeededKeys
from leakgauge.randomness import seeded

SOURCES = [SecureKeys(), SeededKeys(seeded(0))]


@pytest.mark.parametrize("keys", SOURCES, ids=repr)
def test_uniform_numbers_lie_in_the_unit_interval_and_have_its_mean_and_variance(keys):
    drawn = keys.uniform(200, 100)
    assert drawn.dtype == torch.float64
    assert drawn.shape == (200, 100)
    assert 0 <= float(drawn.min()) <= float(drawn.max()) < 1
    # Five standard errors of the mean and of the variance; a false alarm is rarer than one in a million.
    assert abs(float(drawn.mean()) - 1 / 2) < 5 * (1 / 12 / 20_000) ** 0.5
    assert abs(float(drawn.var()) - 1 / 12) < 5 * (1 / 180 / 20_000) ** 0.5


@pytest.mark.parametrize("keys", SOURCES, ids=repr)
def test_flips_are_fair_and_neighbours_independent(keys):
    drawn = keys.flips(16, 3, 33, 7)
    assert drawn.dtype == torch.bool
    assert drawn.shape == (16, 3, 33, 7)
    signs = 2 * drawn.double().flatten() - 1
    for lag in (1, 2, 7, 8, 64):
        assert abs(float((signs[lag:] * signs[:-lag]).mean())) < 5 / (len(signs) - lag) ** 0.5
    assert abs(float(signs.mean())) < 5 / len(signs) ** 0.5


@pytest.mark.parametrize("keys", SOURCES, ids=repr)
def test_no_key_is_drawn_twice(keys):
    assert not torch.equal(keys.flips(400), keys.flips(400))
    assert not torch.equal(keys.uniform(9), keys.uniform(9))
    assert not torch.equal(keys.fork().flips(400), keys.fork().flips(400))
    assert not torch.equal(keys.fork().flips(400), keys.flips(400))


@settings(deadline=None, max_examples=20)
@given(count=st.integers(0, 40))
def test_any_number_of_bits_can_be_asked_for(count):
    assert SecureKeys().flips(count).shape == SeededKeys(seeded(1)).flips(count).shape == (count,)


def test_secure_keys_hold_every_bit_of_the_systems_generator(monkeypatch):
    monkeypatch.setattr(os, "urandom", lambda count: bytes([0b10110010] * count))
    assert SecureKeys().flips(2, 8).tolist() == [[True, False, True, True, False, False, True, False]] * 2
    monkeypatch.setattr(os, "urandom", lambda count: b"\xff" * count)
    assert float(SecureKeys().uniform(1)) == 1 - 2**-53
    monkeypatch.setattr(os, "urandom", lambda count: b"\x00" * count)
    assert float(SecureKeys().uniform(1)) == 0


def test_secure_keys_do_not_follow_torchs_seed():
    drawn = []
    for _ in range(2):
        torch.manual_seed(0)
        drawn.append(SecureKeys().flips(400))
    assert not torch.equal(*drawn)


def test_seeded_keys_repeat_and_say_that_they_are_insecure():
    one, two = SeededKeys(seeded(3)), SeededKeys(seeded(3))
    assert torch.equal(one.flips(99), two.flips(99))
    assert torch.equal(one.uniform(9), two.uniform(9))
    assert torch.equal(one.fork().flips(99), two.fork().flips(99))
    assert not one.secure
    assert SecureKeys().secure
    assert "insecure" in repr(one)
    assert "INSECURE" in (SeededKeys.__doc__ or "")


def test_a_forked_source_travels_to_another_process():
    fork = SeededKeys(seeded(4)).fork()
    travelled = pickle.loads(pickle.dumps(fork))  # noqa: S301
    assert torch.equal(travelled.flips(99), fork.flips(99))
    assert pickle.loads(pickle.dumps(SecureKeys())) == SecureKeys()  # noqa: S301
