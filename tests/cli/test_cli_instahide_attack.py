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

from leakgauge.attacks.encodings.clustering.attack import Clustering
from leakgauge.attacks.encodings.search.crops import Cropping
from leakgauge.audit.recovering import ledger_of, recover
from leakgauge.data import Photos
from leakgauge.encodings import CrossDataset, InsideDataset, Mixup, Scheme, SeededKeys, encrypt
from leakgauge.encodings.challenge import make_challenge, read_published
from leakgauge.errors import InvalidCase, InvalidFile
from leakgauge.files import read_tensors, write_tensors
from leakgauge.protocol.encoded_set import EncodedSet, EncodingObservation
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
        self._strong = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._strong = tag == "strong"
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        if self._strong:
            self.titles.append(data)
            self._strong = False


def test_photographs_come_back_and_stand_beside_what_was_published(
    command: Command, inside: tuple[Path, Path], others: Path
) -> None:
    published, kept = inside
    answer = command("instahide", "attack", published, "--auxiliary", others, "--secret", kept, "--json")
    assert answer.code == 0, answer.err
    (row,) = answer.rows
    assert row["identification"] == 1.0
    assert row["identification_null"] < 0.3
    assert row["psnr"] > 40
    assert row["psnr_null"] < 25
    assert row["images"] == row["private_images"] == PRIVATE
    assert row["decoys"] == 200  # without other decoys, the attacker's own images
    recovered, _ = read_tensors(Path("recovered/recovered.safetensors"))
    assert recovered["images"].shape == (PRIVATE, 3, SIDE, SIDE)
    assert recovered["coefficients"].shape == (PRIVATE * COPIES, PRIVATE)
    facts = json.loads(Path("recovered/attack.json").read_text())
    assert facts["rows"][0]["identification"] == 1.0
    assert facts["assumptions"] == answer.payload["assumptions"]
    assert str(published.parent) not in json.dumps(facts)  # what runs it again names no folder of this machine
    text = Path("recovered/index.html").read_text(encoding="utf-8")
    page = Page(text)
    assert page.titles[:4] == ["Encodings", "Demasked", "Recovered", "Originals"]
    assert len(page.sources) == 4 * PRIVATE
    assert all(source.startswith("data:image/png;base64,") for source in page.sources)
    assert f"These encodings gave away {PRIVATE} of {PRIVATE} private images." in text
    assert f"against another private image {row['psnr_null']:.3g} dB" in text
    assert 'class="headline leaks"' in text
    assert "neither masks and coefficients nor which images are mixed" in text
    with Image.open("recovered/recovered.png") as sheet:
        assert sheet.height >= 4 * SIDE


def test_without_the_secret_nothing_is_scored_and_the_page_says_so(command: Command, inside: tuple[Path, Path]) -> None:
    answer = command("instahide", "attack", inside[0], "--labels-only")
    assert "Report:" in answer.out
    facts = json.loads(Path("recovered/attack.json").read_text())
    assert set(facts["rows"][0]) == {"attack", "images", "seconds"}
    told = {fact["name"]: fact["disclosed"] for fact in facts["assumptions"]}
    assert told["Number of private images"] is False
    assert told["Labels of encodings"] is True
    assert told["Keys"] is False
    (own,) = [fact["detail"] for fact in facts["assumptions"] if fact["name"] == "Images of the same kind"]
    assert "all images may be negatives" in own
    text = Path("recovered/index.html").read_text(encoding="utf-8")
    assert "leakage was not measured" in text
    assert "Originals" not in Page(text).titles


def test_what_the_attacker_is_told_is_in_the_ledger() -> None:
    encoded = EncodedSet(torch.zeros(4, 1, 2, 2), torch.zeros(4, 3))
    untold = {fact.name: fact for fact in ledger_of(EncodingObservation(encoded, 2, 2))}
    assert [name for name, fact in untold.items() if fact.disclosed] == [
        "Encodings",
        "Labels of encodings",
        "Alignment",
    ]
    own = torch.zeros(5, 1, 2, 2)
    told = EncodingObservation(
        encoded, 4, 2, num_private=3, class_counts=torch.tensor([1, 0, 2]), public=own, auxiliary=own[:4]
    )
    facts = {fact.name: fact for fact in ledger_of(told)}
    assert facts["Images of each class"].detail == "given: [1, 0, 2]"
    assert facts["Public images"].detail == "given: 5"
    assert facts["Images of the same kind"].detail == "given: 4"
    assert not facts["Keys"].disclosed


def test_public_images_of_mixup_are_named_and_taken_out(command: Command, tmp_path: Path, others: Path) -> None:
    public = pictures(60, first=100).inputs
    published, kept = challenge(tmp_path, Mixup(3, public=2), public)
    write_tensors(tmp_path / "public.safetensors", {"images": public})
    words = ("--public", tmp_path / "public.safetensors", "--auxiliary", others, "--secret", kept, "--json")
    answer = command("instahide", "attack", published, *words)
    assert answer.code == 0, answer.err
    (row,) = answer.rows
    assert row["attack"] == "public"
    assert row["public_found"] > 0.8
    assert row["public_found_null"] < 0.3
    assert row["psnr"] > row["psnr_null"] + 5
    named = read_tensors(Path("recovered/recovered.safetensors"))[0]["named"]
    assert named.shape == (PRIVATE * COPIES, 2)
    assert "of the public images" in Path("recovered/index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("scheme", [Mixup(3, public=2), CrossDataset(3, private=1, least_private=0.0)])
def test_public_images_that_were_moved_are_named_when_every_alignment_is_tried(scheme: Scheme) -> None:
    public, own = pictures(40, first=100).inputs, pictures(200, first=300).inputs
    moved = Cropping()(public, generator=seeded(0, "crops"))
    keys = SeededKeys(seeded(0, "mask"))
    encoded, secret = encrypt(scheme, pictures(PRIVATE), classes=CLASSES, public=moved, copies=3, keys=keys)
    seen = EncodingObservation(encoded, 3, 1, scheme.signed, public=public, auxiliary=own)
    members = secret.mixing.indices[:, 1:] - PRIVATE
    shares = {}
    for name in ("public", "aligned"):
        found = recover(name, seen, generator=seeded(0, "attack"))
        assert found.named is not None
        assert found.images.shape == found.demasked.shape == encoded.images.shape
        shares[name] = float((found.named[:, :, None] == members[:, None]).any(dim=1).double().mean())
    assert shares["aligned"] > shares["public"] + 0.2
    assert any("162 crops" in fact.detail for fact in found.ledger)


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


def test_the_demasked_encodings_are_the_mixtures_themselves() -> None:
    keys = SeededKeys(seeded(0, "mask"))
    private = pictures(PRIVATE)
    encoded, secret = encrypt(InsideDataset(2), private, classes=CLASSES, copies=COPIES, keys=keys)
    others = pictures(100, first=300).inputs
    seen = EncodingObservation(encoded, 2, 2, num_private=PRIVATE, auxiliary=others)
    found = recover("clustering", seen, generator=seeded(0, "attack"))
    mixtures = secret.mixing.mix(private.inputs)
    shown = found.coefficients.argmax(dim=0)
    wrong = ((found.demasked - mixtures[shown]).abs() > 1e-3).double().mean()
    assert float(wrong) < 0.01
    masked = ((found.encodings - mixtures[shown]).abs() > 1e-3).double().mean()
    assert float(masked) > 0.3
    assert found.ledger == ledger_of(seen, Clustering().alignment)
