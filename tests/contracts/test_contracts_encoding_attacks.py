"""What holds for every attack on encodings; that none sees the secret is a contract of imports."""

from __future__ import annotations

import dataclasses
import functools

import pytest
import torch
from torch import Tensor

from encodings_support import fields, published
from leakgauge.attacks.encodings.base import EncodingAttack
from leakgauge.audit.sources.encodings import ledger_of
from leakgauge.catalogue import ENCODING_ATTACKS
from leakgauge.encodings import CrossDataset
from leakgauge.errors import MissingKnowledge
from leakgauge.progress import Tick
from leakgauge.protocol.encoding import EncodingObservation
from leakgauge.protocol.facts import Subject
from leakgauge.randomness import seeded
from leakgauge.types import Decoding, Reconstruction

PRIVATE, COPIES, PUBLIC = 10, 6, 20
BRIEF = {"published": {"steps": 20}, "clustering": {"rounds": 2}}
TOLD = {"num_private": Subject.NUM_PRIVATE, "public": Subject.PUBLIC_IMAGES, "auxiliary": Subject.SIMILAR_IMAGES}


@functools.cache
def observation() -> EncodingObservation:
    public, auxiliary = fields(PUBLIC, 12, seed=1).float(), fields(300, 12, seed=2).float()
    scheme = CrossDataset(3, private=2, least_private=0.3)
    seen, _ = published(scheme, fields(PRIVATE, 12, seed=3).float(), public, auxiliary, copies=COPIES)
    return dataclasses.replace(seen, num_private=PRIVATE)


def build(name: str) -> EncodingAttack:
    attack: EncodingAttack = ENCODING_ATTACKS[name](**BRIEF.get(name, {}))
    return attack


@functools.cache
def run(name: str, seed: int = 0) -> tuple[Reconstruction, tuple[Tick, ...]]:
    ticks: list[Tick] = []
    return build(name)(observation(), generator=seeded(seed), progress=ticks.append), tuple(ticks)


@pytest.fixture(params=ENCODING_ATTACKS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def parts(found: Reconstruction) -> list[Tensor | None]:
    assert isinstance(found.decoding, Decoding)
    return [found.inputs, found.labels, *vars(found.decoding).values()]


def test_it_is_a_frozen_value_that_can_be_made_without_arguments(name: str) -> None:
    attack = ENCODING_ATTACKS[name]()
    assert isinstance(attack, EncodingAttack)
    assert dataclasses.is_dataclass(attack)
    assert attack == ENCODING_ATTACKS[name]()
    assert repr(attack) == repr(ENCODING_ATTACKS[name]())
    with pytest.raises(dataclasses.FrozenInstanceError):
        attack.by_encoding = True


def test_the_same_seed_gives_the_same_and_nothing_else_is_drawn_from_or_changed(name: str) -> None:
    # To rounding: products of matrices add up in an order that may depend on where in memory they lie.
    seen, state = observation(), torch.get_rng_state()
    before = [tensor.clone() for tensor in (seen.encoded.images, seen.encoded.labels, seen.public, seen.auxiliary)]
    again = build(name)(seen, generator=seeded(0))
    for one, other in zip(parts(run(name)[0]), parts(again), strict=True):
        assert (one is None) == (other is None)
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert torch.equal(torch.get_rng_state(), state)
    after = (seen.encoded.images, seen.encoded.labels, seen.public, seen.auxiliary)
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_what_comes_back_are_images_with_the_encodings_they_were_read_from(name: str) -> None:
    found, seen = run(name)[0], observation()
    assert found.inputs is not None
    assert found.decoding is not None
    assert all(bool(tensor.isfinite().all()) for tensor in parts(found) if tensor is not None)
    assert 0 <= float(found.inputs.min()) <= float(found.inputs.max()) <= 1
    assert found.inputs.shape == found.decoding.encodings.shape == found.decoding.demasked.shape
    assert found.inputs.shape[1:] == seen.encoded.images.shape[1:]
    assert len(found.decoding.coefficients) == len(seen.encoded)
    # A mask changes no size, and undoing it changes none either.
    sizes = [(images - 0.5).abs() for images in (found.decoding.encodings, found.decoding.demasked)]
    assert bool((sizes[1] <= sizes[0] + 1e-4).all())


def test_it_names_public_images_if_it_returns_the_private_part_of_each_encoding(name: str) -> None:
    found, seen = run(name)[0], observation()
    assert found.inputs is not None
    assert found.decoding is not None
    if not build(name).by_encoding:
        assert found.decoding.public is None
        assert found.decoding.coefficients.shape == (len(seen.encoded), len(found.inputs))
        assert found.labels is not None
        return
    named = found.decoding.public
    assert named is not None
    assert len(found.inputs) == len(seen.encoded)
    assert named.shape == found.decoding.coefficients.shape == (len(seen.encoded), 1)
    assert 0 <= int(named.min()) <= int(named.max()) < PUBLIC


def test_progress_reaches_the_end_at_most_once(name: str) -> None:
    fractions = [tick.fraction for tick in run(name)[1]]
    assert fractions
    assert all(0 < fraction <= 1 for fraction in fractions)


@pytest.mark.parametrize("hidden", TOLD)
def test_the_ledger_tells_what_it_was_told_and_what_it_assumes(name: str, hidden: str) -> None:
    for seen, told in ((observation(), True), (dataclasses.replace(observation(), **{hidden: None}), False)):
        ledger = {fact.subject: fact for fact in ledger_of(seen, build(name))}
        assert ledger[TOLD[hidden]].disclosed is told
        assert ledger[Subject.ALIGNMENT].detail == build(name).alignment
        assert not ledger[Subject.KEYS].disclosed


def test_what_it_needs_and_was_not_told_is_said_in_a_sentence(name: str) -> None:
    ignorant = dataclasses.replace(observation(), public=None, auxiliary=None)
    if build(name).by_encoding:
        with pytest.raises(MissingKnowledge, match="public"):
            build(name)(ignorant, generator=seeded(0))
    else:
        assert build(name)(ignorant, generator=seeded(0)).inputs is not None
