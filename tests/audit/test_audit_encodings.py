"""Published encodings as cases: what is scored, against which crowd, and beside which null."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from encodings_support import fields
from leakgauge.audit.case import Case
from leakgauge.audit.encodings import EncodingPlan, prepare_encodings
from leakgauge.data import Photos
from leakgauge.encodings import CrossDataset, InsideDataset, Scheme, SeededKeys
from leakgauge.encodings.challenge import make_challenge, private_part, read_secret
from leakgauge.errors import InvalidCase
from leakgauge.randomness import seeded
from leakgauge.space import ImageSpace
from leakgauge.types import Batch

PRIVATE, COPIES = 6, 3
PUBLIC, CROWD = fields(20, seed=1).float(), fields(30, seed=2).float()


def challenge(folder: Path, scheme: Scheme, seed: int = 0) -> EncodingPlan:
    private = Batch(fields(PRIVATE, seed=3).float(), torch.arange(PRIVATE) % 3)
    public = PUBLIC if scheme.public_per_encoding else None
    keys = SeededKeys(seeded(seed, "challenge"))
    source, secret = folder / "published", folder / "kept"
    make_challenge(source, secret, scheme, private, classes=3, copies=COPIES, keys=keys, public=public)
    return EncodingPlan(str(source), secret=str(secret))


def with_decoys(audit: EncodingPlan, folder: Path, count: int = len(CROWD)) -> EncodingPlan:
    np.savez(folder / "decoys.npz", images=CROWD[:count].numpy())
    return replace(audit, decoys=str(folder / "decoys.npz"))


def prepare(audit: EncodingPlan) -> list[Case]:
    return list(prepare_encodings(audit).cases)


def test_the_null_is_the_same_key_on_images_of_the_crowd_which_leave_it(tmp_path: Path) -> None:
    audit = with_decoys(challenge(tmp_path, InsideDataset(2)), tmp_path)
    real, null = prepare(audit)
    assert (real.null, null.null) == (False, True)
    assert real.truth is null.truth
    assert real.key != null.key
    assert real.distractors is not None
    assert null.distractors is not None
    torch.testing.assert_close(real.distractors, CROWD)
    torch.testing.assert_close(null.distractors, CROWD[:-PRIVATE])
    seen, unrelated = real.source.observe(), null.source.observe()
    assert (unrelated.k, unrelated.num_private) == (seen.k, seen.num_private)
    _, secret = read_secret(Path(str(audit.secret)))
    mixtures = secret.mixing.mix(CROWD[-PRIVATE:])
    expected = torch.where(secret.flipped, 1 - mixtures, mixtures).roll(1, dims=0)
    torch.testing.assert_close(unrelated.encoded.images, expected)
    assert torch.equal(unrelated.encoded.labels, seen.encoded.labels.roll(1, dims=0))


def test_without_enough_unrelated_images_there_is_no_null(tmp_path: Path) -> None:
    (real,) = prepare(with_decoys(challenge(tmp_path, InsideDataset(2)), tmp_path, 2 * PRIVATE - 1))
    assert not real.null
    assert real.distractors is not None


def test_without_decoys_embedded_photographs_are_the_crowd_but_none_that_is_private(tmp_path: Path) -> None:
    private = Batch(Photos()(None).test.inputs[:PRIVATE], torch.arange(PRIVATE) % 3)
    source, secret, keys = tmp_path / "published", tmp_path / "kept", SeededKeys(seeded(0, "challenge"))
    make_challenge(source, secret, InsideDataset(2), private, classes=3, copies=COPIES, keys=keys)
    real, null = prepare(EncodingPlan(str(source), secret=str(secret)))
    assert real.distractors is not None
    assert len(real.distractors) == 99 + PRIVATE
    assert float(ImageSpace.of(private.inputs).distance(real.distractors, private.inputs).min()) > 1e-6
    assert null.null


def test_without_the_secret_nothing_is_scored(tmp_path: Path) -> None:
    (case,) = prepare(replace(challenge(tmp_path, InsideDataset(2)), secret=None))
    assert case.truth is None


def test_what_is_read_off_one_encoding_is_scored_against_its_private_part_among_mixtures(tmp_path: Path) -> None:
    audit = with_decoys(challenge(tmp_path, CrossDataset(3, private=2)), tmp_path)
    prepared = prepare_encodings(replace(audit, attack="public"))
    real, null = prepared.cases
    private, secret = read_secret(Path(str(audit.secret)))
    assert real.truth is not None
    assert real.paired
    assert torch.equal(real.truth.inputs, private_part(private.inputs, secret.mixing, 2))
    assert torch.equal(real.members, secret.mixing.indices[:, 2:] - PRIVATE)
    assert real.distractors is not None
    assert real.distractors.shape == CROWD.shape
    # Mixtures of two vary less than images do.
    assert float(real.distractors.var(dim=0).mean()) < 0.8 * float(CROWD.var(dim=0).mean())
    assert "public_found" in prepared.metrics
    own = secret.mixing.indices[:, 2:]
    assert not bool((own == own.roll(1, dims=0)).all())
    assert null.paired


def test_another_image_of_the_attacker_s_own_is_another_case(tmp_path: Path) -> None:
    audit = challenge(tmp_path, InsideDataset(2))
    keys = set()
    for count in (10, 11):
        np.savez(tmp_path / "own.npz", images=CROWD[:count].numpy())
        keys.add(prepare(replace(audit, auxiliary=str(tmp_path / "own.npz")))[0].key)
    assert len(keys) == 2


def test_the_secret_of_other_encodings_is_refused(tmp_path: Path) -> None:
    one = challenge(tmp_path / "one", InsideDataset(2))
    other = challenge(tmp_path / "other", InsideDataset(2), seed=1)
    with pytest.raises(InvalidCase, match="secret of other encodings"):
        prepare(replace(one, secret=other.secret))
