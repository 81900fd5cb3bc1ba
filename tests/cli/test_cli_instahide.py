"""``leakgauge instahide``: encrypt, prepare a public set, estimate, make and grade a challenge."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
import torch
from cli_support import *  # noqa: F403
from cli_support import Command

from leakgauge import cli
from leakgauge.files import read_tensors, write_tensors

DIGITS = ("--dataset", "digits")


@pytest.fixture
def public() -> Path:
    images = torch.randint(256, (12, 1, 8, 8), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    write_tensors(Path("public.safetensors"), {"images": images})
    return Path("public.safetensors")


def test_a_command_imports_what_it_computes_with_only_when_it_runs() -> None:
    for path in Path(cli.__file__).parent.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:  # the top level, which `if TYPE_CHECKING` is not
            named = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            named += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in named:
                assert name.split(".")[0] not in ("torch", "numpy", "scipy"), path
                light = ("cli", "errors", "progress", "version")
                assert not name.startswith("leakgauge.") or name.split(".")[1] in light, path


def test_a_dataset_is_encrypted_with_secure_keys_and_the_key_is_kept_only_on_request(command: Command) -> None:
    answer = command("instahide", "encrypt", *DIGITS, "--scheme", "inside:k=3", "--json")
    assert (answer.code, answer.err) == (0, "")
    assert (answer.payload["command"], answer.payload["seed"]) == ("instahide encrypt", None)
    (row,) = answer.rows
    assert row["secure_keys"] is True
    assert row["scheme"] == "InsideDataset(k=3, largest=0.65, law='uniform')"
    assert [path.name for path in Path().iterdir()] == ["encrypted.safetensors"]
    tensors, facts = read_tensors(Path("encrypted.safetensors"))
    assert tensors["images"].shape == (row["encodings"], 1, 8, 8)
    torch.testing.assert_close(tensors["labels"].sum(dim=1), torch.ones(row["encodings"]))
    assert facts["secure_keys"] == "true"


def test_with_the_secret_every_encoding_can_be_explained(command: Command, public: Path) -> None:
    np.savez("own.npz", images=np.random.default_rng(0).random((9, 8, 8)), labels=np.arange(9) % 3)
    words = ("--dataset", "npz:file='own.npz'", "--data-root", ".", "--scheme", "cross:k=4", "--public", public)
    answer = command("instahide", "encrypt", *words, "--copies", "2", "--secret", "key.safetensors", "--json")
    (row,) = answer.rows
    encodings, (key, _) = read_tensors(Path("encrypted.safetensors"))[0], read_tensors(Path("key.safetensors"))
    assert len(encodings["images"]) == row["encodings"] == 2 * row["images"]
    weights = key["coefficients"][:, :2].sum(dim=1)
    torch.testing.assert_close(encodings["labels"].sum(dim=1).double(), weights, atol=1e-6, rtol=0)
    assert float(weights.min()) >= 0.3
    assert Path("key.safetensors").stat().st_mode & 0o077 == 0


def test_a_seed_repeats_and_is_called_insecure(command: Command) -> None:
    found = []
    for name in ("a.safetensors", "b.safetensors"):
        answer = command("instahide", "encrypt", *DIGITS, "--insecure-seed", "3", "--out", name, "--json")
        assert "INSECURE" in answer.err
        assert answer.payload["seed"] == 3
        assert answer.rows[0]["secure_keys"] is False
        found.append(read_tensors(Path(name)))
    assert torch.equal(found[0][0]["images"], found[1][0]["images"])
    assert found[0][1]["secure_keys"] == "false"


def test_a_public_set_is_cut_from_a_folder_of_pictures_once(command: Command) -> None:
    pytest.importorskip("cv2")
    from PIL import Image
    from skimage import data

    (Path("pictures") / "below").mkdir(parents=True)
    Image.fromarray(data.astronaut()).save("pictures/below/astronaut.png")
    words = ("instahide", "public", "pictures", "--count", "3", "--json")
    first = command(*words)
    assert (first.code, first.err) == (0, "")
    assert first.rows == [{"file": "public.safetensors", "patches": 3, "size": 32, "images": 1}]
    kept = Path("public.safetensors").read_bytes()
    assert command(*words).code == 0
    assert Path("public.safetensors").read_bytes() == kept
    command("instahide", "public", "pictures", "--count", "4").refused("holds other patches", "choose another file")


def test_the_estimate_is_the_papers(command: Command) -> None:
    answer = command("instahide", "estimate", "--public", "1e7", "--k", "6", "--json")
    by_way = {row["way"]: row["log10_work"] for row in answer.rows}
    assert by_way["guess the public images"] == pytest.approx(28)
    assert by_way["naive attack, the cheaper of the two"] == pytest.approx(28)
    assert "not what every attack must" in answer.payload["caveat"]
    text = command("instahide", "estimate", "--public", "1e7", "--k", "4")
    assert "10^14.0" in text.out
    assert "give each" in text.out


def test_a_challenge_is_made_and_graded(command: Command) -> None:
    words = ("--private", "4", "--copies", "3", "--scheme", "inside:k=2", "--secret", "kept")
    made = command("instahide", "challenge", "--make", "published", *DIGITS, *words, "--json")
    assert (made.code, made.err) == (0, "")
    (row,) = made.rows
    assert (row["encodings"], row["private_images"], row["k"], row["secure_keys"]) == (12, 4, 2, True)
    images = read_tensors(Path("kept/secret.safetensors"))[0]["images"]
    np.savez("submission.npz", images=images[[2, 0, 3]].numpy())
    graded = command("instahide", "challenge", "--score", "submission.npz", "--secret", "kept", "--json")
    (row,) = graded.rows
    assert (row["submitted"], row["identification"], row["psnr"], row["chance"]) == (3, 0.75, 200.0, None)
    assert 0.75 <= row["mean_of_max_ssim"] < 1
    np.savez("decoys.npz", images=np.random.default_rng(0).random((40, 8, 8)))
    (row,) = command(
        *("instahide", "challenge", "--score", "submission.npz", "--secret", "kept", "--decoys", "decoys.npz", "--json")
    ).rows
    assert (row["decoys"], row["chance"]) == (40, pytest.approx(4 / 44))
    text = command("instahide", "challenge", "--score", "submission.npz", "--secret", "kept")
    assert "0.750" in text.out


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("encrypt", "--scheme", "insde"), ("There is no scheme 'insde'", "inside")),
        (("encrypt", "--scheme", "inside:k=0"), ("at least 1",)),
        (("encrypt", "--scheme", "cross:k=4"), ("name their file with --public",)),
        (("encrypt", "--scheme", "inside:k=4", "--public", "public.safetensors"), ("leave out --public",)),
        (("encrypt", "--split", "both"), ("no split 'both'",)),
        (("encrypt", *DIGITS, "--copies", "0"), ("at least 1, got 0",)),
        (("encrypt", "--out", "x.safetensors", "--secret", "x.safetensors"), ("would overwrite the encodings",)),
        (("encrypt", *DIGITS, "--out", "nowhere/x.safetensors"), ("Cannot write nowhere/x.safetensors",)),
        (("encrypt", "--scheme", "cross", "--public", "none.safetensors"), ("none.safetensors", "check the path")),
        (("encrypt", "--scheme", "cross:k=4", "--public", "public.safetensors"), ("crop or resize",)),
        (("public",), ("name a folder of images",)),
        (("public", "nowhere"), ("Cannot list the folder nowhere",)),
        (("public", ".", "--count", "1"), ("holds no images",)),
        (("public", ".", "--size", "97"), ("would enlarge",)),
        (("estimate",), ("--public",)),
        (("estimate", "--public", "0"), ("public set of 0 images",)),
        (("estimate", "--public", "10", "--per-second", "0"), ("0 guesses a second",)),
        (("challenge", "--secret", "kept"), ("either made or graded",)),
        (("challenge", "--make", "a"), ("--secret",)),
        (("challenge", "--make", "a", "--secret", "a/b", *DIGITS), ("keep it in a folder outside",)),
        (("challenge", "--make", "a", "--secret", "b", *DIGITS, "--private", "9999"), ("Cannot hide 9999 images",)),
        (("challenge", "--score", "none.npz", "--secret", "kept"), ("secret.safetensors", "check the path")),
        (("attck",), ("attck",)),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else "",
)
def test_a_mistake_is_one_sentence(command: Command, public: Path, words: tuple[str, ...], named: tuple[str, ...]):
    command("instahide", *words).refused(*named)
    assert {path.name for path in Path().iterdir()} == {"public.safetensors"}


def test_copies_without_end_are_refused(command: Command) -> None:
    command("instahide", "encrypt", "--dataset", "digits", "--copies", "1" + "0" * 30).refused("at most", "copies")
