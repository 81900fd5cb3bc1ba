"""Challenges: what is published, what is not, and what a submission is worth."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import numpy as np
import pytest
import torch

from leakgauge.audit.grading import grade
from leakgauge.audit.verdict import Verdict
from leakgauge.encodings import CrossDataset, InsideDataset, SecureKeys, SeededKeys
from leakgauge.encodings.challenge import make_challenge, read_challenge, read_published
from leakgauge.errors import InvalidCase, InvalidFile
from leakgauge.files import read_tensors, write_tensors
from leakgauge.metrics import SSIM, Comparison
from leakgauge.randomness import seeded
from leakgauge.types import Batch

SHAPE = (3, 12, 12)


def hidden(count: int = 5) -> Batch:
    generator = seeded(0, "hidden")
    return Batch(torch.rand(count, *SHAPE, generator=generator), torch.randint(4, (count,), generator=generator))


@pytest.fixture
def made(tmp_path):
    """A challenge of five images, six encodings each."""
    folders = tmp_path / "published", tmp_path / "kept"
    make_challenge(*folders, InsideDataset(3), hidden(), classes=4, copies=6, keys=SecureKeys())
    return folders


def submit(tmp_path, images: torch.Tensor):
    write_tensors(tmp_path / "submission.safetensors", {"images": images})
    return tmp_path / "submission.safetensors"


def test_the_published_folder_holds_what_an_attacker_may_know_and_nothing_of_the_key(made, reachable):
    folder, secret = made
    assert sorted(path.name for path in folder.iterdir()) == ["challenge.json", "encodings.safetensors"]
    manifest = json.loads((folder / "challenge.json").read_text())
    assert (manifest["k"], manifest["private_images"], manifest["encodings"]) == (3, 5, 30)
    assert manifest["secure_keys"] is True
    kept, _ = read_tensors(secret / "secret.safetensors")
    seen = read_challenge(folder)
    assert (seen.k, seen.private_per_encoding, seen.num_private, seen.signed) == (3, 3, 5, True)
    assert seen.class_counts is None
    for tensor in reachable(seen).values():
        for hidden_tensor in kept.values():
            assert tensor.shape != hidden_tensor.shape or not torch.equal(tensor.double(), hidden_tensor.double())


def test_the_secret_explains_every_encoding_and_only_its_owner_may_open_it(made):
    folder, secret = made
    kept, _ = read_tensors(secret / "secret.safetensors")
    mixture = torch.einsum("tk,tkchw->tchw", kept["coefficients"].float(), kept["images"][kept["indices"]])
    expected = torch.where(kept["flipped"].bool(), 1 - mixture, mixture)
    torch.testing.assert_close(read_challenge(folder).encoded.images, expected)
    assert stat.S_IMODE(secret.stat().st_mode) == 0o700


def test_the_order_does_not_say_which_image_is_the_first(made):
    kept, _ = read_tensors(made[1] / "secret.safetensors")
    first = kept["indices"][:, 0].tolist()
    assert sorted(first) == sorted(list(range(5)) * 6)
    assert first != list(range(5)) * 6  # by chance once in 30! / 6!^5


def test_public_images_are_published_with_the_challenge(tmp_path):
    public = torch.rand(9, *SHAPE, generator=seeded(1))
    folders = tmp_path / "a", tmp_path / "b"
    manifest = make_challenge(
        *folders, CrossDataset(4), hidden(), classes=4, copies=2, keys=SeededKeys(seeded(0)), public=public
    )
    seen = read_challenge(folders[0])
    assert torch.equal(seen.public, public)
    assert (seen.k, seen.private_per_encoding) == (4, 2)
    assert manifest["secure_keys"] is False


def test_the_originals_in_any_order_get_full_marks(made, tmp_path):
    found = grade(submit(tmp_path, hidden().inputs.flip(0)), made[1])
    assert found.psnr.tolist() == [200.0] * 5
    assert found.identification.tolist() == [1.0] * 5
    row = found.to_dict()
    assert row["mean_of_max_ssim"] == pytest.approx(1)
    assert (row["identification"], row["submitted"], row["decoys"]) == (1.0, 5, 4)
    assert (row["recovered"], row["verdict"]) == (5, "leaks")


def test_the_null_scores_what_was_submitted_against_another_image(made, tmp_path):
    images = hidden().inputs
    found = grade(submit(tmp_path, images.flip(0)), made[1], decoys=torch.rand(50, *SHAPE, generator=seeded(4)))
    other = Comparison(images.roll(1, dims=0), images, None, torch.zeros(5), None)
    torch.testing.assert_close(found.null["ssim"], SSIM()(other))
    row = found.to_dict()
    assert row["psnr_null"] < 10 < row["psnr"]
    assert row["identification_null"] == 0
    assert row["identification"] == 1


def test_a_single_private_image_has_no_other_to_be_the_null(tmp_path):
    folders = tmp_path / "published", tmp_path / "kept"
    make_challenge(*folders, InsideDataset(1, largest=1.0), hidden(1), classes=4, copies=2, keys=SecureKeys())
    row = grade(submit(tmp_path, hidden(1).inputs), folders[1]).to_dict()
    assert row["psnr_null"] is None
    assert row["psnr"] == 200


def test_a_submission_of_one_image_is_matched_once(made, tmp_path):
    row = grade(submit(tmp_path, hidden().inputs[:1].expand(5, -1, -1, -1)), made[1]).to_dict()
    assert row["identification"] == pytest.approx(1 / 5)
    assert (row["recovered"], row["verdict"]) == (1, "leaks partly")
    few = grade(submit(tmp_path, hidden().inputs[2:4]), made[1])
    assert few.psnr.isnan().tolist() == [True, True, False, False, True]
    assert few.to_dict()["identification"] == pytest.approx(2 / 5)
    assert few.to_dict()["psnr"] == 200


def test_the_best_ssim_is_that_of_the_metric(made, tmp_path):
    images = torch.rand(4, *SHAPE, generator=seeded(3))
    found = grade(submit(tmp_path, images), made[1])
    assert found.verdict is Verdict.INCONCLUSIVE  # of the scheme nothing follows from what one submission lacks
    for row, original in enumerate(hidden().inputs):
        pairs = Comparison(original.expand_as(images), images, None, torch.zeros(4), None)
        assert float(found.best_ssim[row]) == pytest.approx(float(SSIM()(pairs).max()), abs=1e-6)


def test_decoys_are_what_a_recovered_image_must_be_told_from(made, tmp_path):
    images = hidden().inputs
    noisy = (images + 0.05 * torch.randn(images.shape, generator=seeded(0))).clamp(0, 1)
    far, near = torch.rand(50, *SHAPE, generator=seeded(4)), (images + noisy) / 2
    found = grade(submit(tmp_path, noisy), made[1], decoys=far)
    assert found.to_dict()["identification"] == 1
    assert found.to_dict()["chance"] == pytest.approx(5 / 55)
    assert grade(submit(tmp_path, noisy), made[1], decoys=near).to_dict()["identification"] == 0


def test_an_npz_of_bytes_is_a_submission_too(made, tmp_path):
    np.savez(tmp_path / "s.npz", images=(hidden().inputs * 255).round().to(torch.uint8).numpy())
    assert grade(tmp_path / "s.npz", made[1]).to_dict()["psnr"] > 50


def test_a_secret_that_would_be_published_is_refused_before_anything_is_written(tmp_path):
    for folder, secret in ((tmp_path / "a", tmp_path / "a" / "b"), (tmp_path / "a" / "b", tmp_path / "a")):
        with pytest.raises(InvalidCase, match="keep it in a folder outside"):
            make_challenge(folder, secret, InsideDataset(3), hidden(), classes=4, copies=1, keys=SecureKeys())
    with pytest.raises(InvalidCase, match="keep it in a folder outside"):
        make_challenge(tmp_path, tmp_path, InsideDataset(3), hidden(), classes=4, copies=1, keys=SecureKeys())
    assert list(tmp_path.iterdir()) == []


def test_files_that_do_not_fit_are_refused(made, tmp_path):
    folder, secret = made
    with pytest.raises(InvalidFile, match="submit n c h w of that size"):
        grade(submit(tmp_path, torch.rand(2, 3, 8, 8)), secret)
    with pytest.raises(InvalidFile, match=r"neither bytes nor floats in \[0, 1\]"):
        grade(submit(tmp_path, hidden().inputs * 3), secret)
    with pytest.raises(InvalidFile, match=r"secret\.safetensors"):
        grade(submit(tmp_path, hidden().inputs), folder)
    with pytest.raises(InvalidFile, match="name the folder of a challenge"):
        read_challenge(secret)
    tensors, _ = read_tensors(folder / "encodings.safetensors")
    write_tensors(folder / "encodings.safetensors", {**tensors, "images": tensors["images"].flip(0)})
    with pytest.raises(InvalidFile, match=r"not those of its challenge\.json"):
        read_challenge(folder)


def test_a_file_of_encodings_is_read_by_the_scheme_that_made_it(tmp_path: Path) -> None:
    scheme, path = CrossDataset(4), tmp_path / "encrypted.safetensors"
    write_tensors(path, {"images": torch.zeros(3, 1, 2, 2), "labels": torch.zeros(3, 2)}, {"scheme": repr(scheme)})
    seen = read_published(path, scheme)
    assert (seen.k, seen.private_per_encoding, seen.signed, seen.num_private) == (4, 2, True, None)
    with pytest.raises(InvalidCase, match="not by InsideDataset"):
        read_published(path, InsideDataset(4))
    write_tensors(path, {"images": torch.zeros(3, 1, 2, 2)})
    with pytest.raises(InvalidFile, match="labels"):
        read_published(path, scheme)
