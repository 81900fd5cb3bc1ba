"""Published encodings as cases: what is scored, against which crowd, and beside which null."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from encodings_support import fields
from leakgauge.audit.case import Case
from leakgauge.audit.encodings import EncodingPlan, prepare_encodings
from leakgauge.audit.execute import execute
from leakgauge.audit.verdict import Reason, Verdict
from leakgauge.data import Photos
from leakgauge.encodings import CrossDataset, InsideDataset, Scheme, SeededKeys
from leakgauge.encodings.challenge import make_challenge, private_part, read_secret
from leakgauge.errors import InvalidCase
from leakgauge.randomness import seeded
from leakgauge.space import ImageSpace
from leakgauge.types import Batch, Outcome, Reconstruction

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


@dataclass(frozen=True)
class Planted:
    """An attack that returns what it was given, whatever it sees."""

    images: torch.Tensor

    def __call__(self, observation: object, **_: object) -> Reconstruction:
        return Reconstruction(self.images, None, Outcome.SOLVED)


def prepare(audit: EncodingPlan) -> list[Case]:
    return list(prepare_encodings(audit).cases)


def test_a_null_is_the_same_key_on_images_of_the_crowd_which_leave_it_and_its_own_images_are_the_control(
    tmp_path: Path,
) -> None:
    audit = with_decoys(challenge(tmp_path, InsideDataset(2)), tmp_path)
    real, *nulls = prepare(audit)
    assert [case.null for case in (real, *nulls)] == [0, 1, 2]  # a third would leave less than half of the crowd
    assert len({case.key for case in (real, *nulls)}) == 3
    left = CROWD[: -2 * PRIVATE]
    _, secret = read_secret(Path(str(audit.secret)))
    seen = real.source.observe()
    for null, others in zip(nulls, CROWD[-2 * PRIVATE :].split(PRIVATE), strict=True):
        assert real.truth is null.truth
        assert null.decoy is not None
        assert torch.equal(null.decoy.inputs, others)
        unrelated = null.source.observe()
        assert (unrelated.k, unrelated.num_private) == (seen.k, seen.num_private)
        mixtures = secret.mixing.mix(others)
        expected = torch.where(secret.flipped, 1 - mixtures, mixtures).roll(1, dims=0)
        torch.testing.assert_close(unrelated.encoded.images, expected)
        assert torch.equal(unrelated.encoded.labels, seen.encoded.labels.roll(1, dims=0))
    for case in (real, *nulls):
        assert case.distractors is not None
        assert case.crowd is not None
        torch.testing.assert_close(case.distractors, left)
        assert torch.equal(case.crowd[: len(left)], left)
        assert len(case.crowd) + 1 >= 2 * PRIVATE / 0.05  # as many as it takes to convict by rank


def test_without_enough_unrelated_images_photographs_are_those_of_the_nulls(tmp_path: Path) -> None:
    real, *nulls = prepare(with_decoys(challenge(tmp_path, InsideDataset(2)), tmp_path, 2 * PRIVATE - 1))
    assert len(nulls) == 3
    assert real.distractors is not None
    assert len(real.distractors) == 2 * PRIVATE - 1
    assert len({case.key for case in nulls}) == 3
    (alone,) = prepare(replace(challenge(tmp_path / "more", InsideDataset(2)), nulls=0))
    assert not alone.null
    with pytest.raises(InvalidCase, match="nulls >= 0"):
        EncodingPlan("any", nulls=-1)


def test_without_decoys_embedded_photographs_are_the_crowd_but_none_that_is_private(tmp_path: Path) -> None:
    private = Batch(Photos()(None).test.inputs[:PRIVATE], torch.arange(PRIVATE) % 3)
    source, secret, keys = tmp_path / "published", tmp_path / "kept", SeededKeys(seeded(0, "challenge"))
    make_challenge(source, secret, InsideDataset(2), private, classes=3, copies=COPIES, keys=keys)
    prepared = prepare_encodings(EncodingPlan(str(source), secret=str(secret)))
    real, *nulls = prepared.cases
    assert real.distractors is not None
    assert len(real.distractors) == 99
    assert float(ImageSpace.of(private.inputs).distance(real.distractors, private.inputs).min()) > 1e-6
    assert len(nulls) == 3
    assert prepared.description["crowd"].startswith("99 embedded photographs and 260 augmented copies")


@pytest.mark.parametrize(("copies", "verdict"), [(0, "inconclusive"), (1, "leaks partly"), (PRIVATE, "leaks")])
def test_what_comes_back_is_judged_image_by_image(tmp_path: Path, copies: int, verdict: str) -> None:
    prepared = prepare_encodings(with_decoys(challenge(tmp_path, InsideDataset(2)), tmp_path))
    planted = fields(PRIVATE, seed=9).float()
    planted[:copies] = fields(PRIVATE, seed=3).float()[:copies]
    cases = [case if case.null else replace(case, attack=Planted(planted)) for case in prepared.cases]
    cases = [replace(case, attack=Planted(fields(PRIVATE, seed=8).float())) if case.null else case for case in cases]
    (row,) = execute(replace(prepared, cases=cases), None).rows
    assert (row.verdict.value, row.leaked) == (verdict, copies)
    assert row.labels is None  # they are published with the encodings
    if not copies:
        assert row.judgement.reasons == (Reason.CONTROL_FAILED,)
        found = [replace(case, attack=Planted(case.decoy.inputs)) if case.decoy else case for case in cases]
        (row,) = execute(replace(prepared, cases=found), None).rows
        assert row.verdict is Verdict.NO_LEAK_FOUND


def test_without_the_secret_nothing_is_scored(tmp_path: Path) -> None:
    (case,) = prepare(replace(challenge(tmp_path, InsideDataset(2)), secret=None))
    assert case.truth is None


def test_what_is_read_off_one_encoding_is_scored_against_its_private_part_among_mixtures(tmp_path: Path) -> None:
    audit = with_decoys(challenge(tmp_path, CrossDataset(3, private=2)), tmp_path)
    prepared = prepare_encodings(replace(audit, attack="public"))
    real, *nulls = prepared.cases
    private, secret = read_secret(Path(str(audit.secret)))
    assert real.truth is not None
    assert real.paired
    assert torch.equal(real.truth.inputs, private_part(private.inputs, secret.mixing, 2))
    assert torch.equal(real.members, secret.mixing.indices[:, 2:] - PRIVATE)
    assert real.distractors is not None
    assert len(real.distractors) == len(CROWD) - 2 * PRIVATE
    # Mixtures of two vary less than images do.
    assert float(real.distractors.var(dim=0).mean()) < 0.8 * float(CROWD.var(dim=0).mean())
    assert "public_found" in prepared.metrics
    own = secret.mixing.indices[:, 2:]
    assert not bool((own == own.roll(1, dims=0)).all())
    assert len(nulls) == 2
    for null, others in zip(nulls, CROWD[-2 * PRIVATE :].split(PRIVATE), strict=True):
        assert null.paired
        assert null.decoy is not None
        # The null's encodings less their public images are what it is a control of, in the same order.
        assert torch.equal(null.decoy.inputs, private_part(others, secret.mixing, 2).roll(1, dims=0))


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
