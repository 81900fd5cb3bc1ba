"""``leakgauge instahide attack``: what is published comes back as images, with a ledger, scores and a page."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from cli_support import *  # noqa: F403
from cli_support import Command
from PIL import Image

from leakgauge.data import Photos
from leakgauge.encodings import InsideDataset, Mixup, Scheme, SeededKeys
from leakgauge.encodings.challenge import make_challenge
from leakgauge.files import read_tensors, write_tensors
from leakgauge.randomness import seeded
from leakgauge.types import Batch

SIDE, PRIVATE, COPIES, CLASSES = 16, 8, 20, 7


def pictures(count: int, *, first: int = 0) -> Batch:
    """Photographs of all classes in turn."""
    photos = Photos(size=SIDE)().train
    order = torch.randperm(len(photos), generator=seeded(0, "pictures"))[first : first + count]
    return photos[order]


def challenge(
    folder: Path, scheme: Scheme, public: torch.Tensor | None = None, private: int = PRIVATE
) -> tuple[Path, Path]:
    keys = SeededKeys(seeded(0, "challenge"))
    paths = folder / "published", folder / "kept"
    make_challenge(*paths, scheme, pictures(PRIVATE), classes=CLASSES, copies=COPIES, keys=keys, public=public)
    return paths


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Inside-dataset encodings of eight photographs, and their secret."""
    return challenge(tmp_path_factory.mktemp("inside"), InsideDataset(2))


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("others") / "others.npz"
    np.savez(path, images=pictures(200, first=300).inputs.numpy())
    return path


class Page(HTMLParser):
    """The titles of the lines, and everything that the page would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.titles: list[str] = []
        self.sources: list[str] = []
        self.text = text
        self._strong = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._strong = tag == "strong"
        wanted = [value or "" for name, value in attrs if name in ("src", "href")]
        self.sources += [one for one in wanted if not one.startswith("#")]  # a place on the page itself

    def handle_data(self, data: str) -> None:
        if self._strong:
            self.titles.append(data)
            self._strong = False


@pytest.mark.slow
def test_photographs_come_back_and_stand_beside_what_was_published(
    command: Command, inside: tuple[Path, Path], others: Path
) -> None:
    published, kept = inside
    words = ("instahide", "attack", published, "--auxiliary", others, "--secret", kept, "--nulls", "1", "--json")
    answer = command(*words)
    assert answer.code == 0, answer.err
    (row,) = answer.rows
    metrics = row["metrics"]
    assert metrics["identification"]["mean"] == 1.0
    assert metrics["identification"]["null"]["mean"] < 0.3
    assert metrics["psnr"]["mean"] > 40
    assert metrics["psnr"]["null"]["mean"] < 25
    assert metrics["label_recall"]["mean"] == 1.0
    assert row["victims"] == PRIVATE
    assert row["verdict"] == "leaks"
    assert row["crowd"] == 200 - PRIVATE  # without other decoys, the attacker's own images, but for the null's
    recovered, _ = read_tensors(Path("recovered/recovered.safetensors"))
    assert recovered["images"].shape == (PRIVATE, 3, SIDE, SIDE)
    assert recovered["coefficients"].shape == (PRIVATE * COPIES, PRIVATE)
    facts = json.loads(Path("recovered/attack.json").read_text())
    assert facts["rows"] == answer.payload["rows"]
    assert str(published.parent) not in json.dumps(facts)  # what runs it again names no folder of this machine
    page = Page(Path("recovered/index.html").read_text(encoding="utf-8"))
    assert page.titles[:5] == ["Private images", "Encodings", "Demasked", "InstaHide (k 2)", "Null"]
    assert len(page.sources) == 5 * PRIVATE
    assert all(source.startswith("data:image/png;base64,") for source in page.sources)
    assert f"These encodings gave away {PRIVATE} of {PRIVATE} private images (" in page.text
    assert "same attack on unrelated encodings" in page.text
    assert 'class="headline leaks"' in page.text
    assert "neither masks and coefficients nor which images are mixed" in page.text
    assert str(published.parent) not in page.text
    with Image.open("recovered/recovered.png") as sheet:
        assert sheet.height >= 4 * SIDE
    assert command(*words).payload["rows"] == answer.payload["rows"]  # from the store: not even the seconds differ


def test_without_the_secret_nothing_is_scored_and_the_page_says_so(command: Command, inside: tuple[Path, Path]) -> None:
    answer = command("instahide", "attack", inside[0], "--labels-only")
    assert "Report:" in answer.out
    (row,) = json.loads(Path("recovered/attack.json").read_text())["rows"]
    assert (row["metrics"], row["verdict"]) == ({}, "not judged")
    told = {fact["name"]: fact["disclosed"] for fact in row["assumptions"]}
    assert told["Number of private images"] is False
    assert told["Labels of encodings"] is True
    assert told["Keys"] is False
    (own,) = [fact["detail"] for fact in row["assumptions"] if fact["name"] == "Images of the same kind"]
    assert "all images may be negatives" in own
    page = Page(Path("recovered/index.html").read_text(encoding="utf-8"))
    assert "leakage was not measured" in page.text
    assert "Private images" not in page.titles


@pytest.mark.slow
def test_public_images_of_mixup_are_named_and_taken_out(command: Command, tmp_path: Path, others: Path) -> None:
    public = pictures(60, first=100).inputs
    published, kept = challenge(tmp_path, Mixup(3, public=2), public)
    write_tensors(tmp_path / "public.safetensors", {"images": public})
    words = (
        "--public",
        tmp_path / "public.safetensors",
        "--auxiliary",
        others,
        "--secret",
        kept,
        "--nulls",
        "1",
        "--json",
    )
    answer = command("instahide", "attack", published, *words)
    assert answer.code == 0, answer.err
    (row,) = answer.rows
    assert row["attack"] == "public"
    metrics = row["metrics"]
    assert metrics["public_found"]["mean"] > 0.8
    assert metrics["public_found"]["null"]["mean"] < 0.3
    assert metrics["psnr"]["mean"] > metrics["psnr"]["null"]["mean"] + 5
    assert metrics["identification"]["mean"] > metrics["identification"]["null"]["mean"] + 0.3
    named = read_tensors(Path("recovered/recovered.safetensors"))[0]["named"]
    assert named.shape == (PRIVATE * COPIES, 2)
    assert "of the public images" in Path("recovered/index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--attack", "guessing"), ("guessing", "clustering, published, public, aligned")),
        (("--attack", "public"), ("no public images", "clustering")),
        (("--class-counts", "3,many"), ("whole numbers", "3,many")),
        (("--class-counts", "3,1", "--private", "5"), ("sum to 4", "5")),
        (("--labels-only", "--private", "5"), ("--labels-only", "--private")),
        (("--public", "small.npz"), ("--public", "(1, 4, 4)")),
        (("--auxiliary", "none.npz"), ("no file", "none.npz")),
        (("--secret", "nowhere"), ("nowhere",)),
    ],
)
def test_what_cannot_be_attacked_is_refused(
    words: tuple[str, ...], told: tuple[str, ...], command: Command, inside: tuple[Path, Path]
) -> None:
    np.savez("small.npz", images=np.zeros((3, 4, 4), np.uint8))
    command("instahide", "attack", inside[0], *words).refused(*told)
