"""Whom a recorded round's private images are told from: references as users have them, and simulated clients."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from leakgauge.audit import recorded as recorded_module
from leakgauge.audit.execute import execute
from leakgauge.audit.recorded import RecordedPlan, prepare_recorded
from leakgauge.audit.references import load_references
from leakgauge.audit.sources import SimulatedUpdate
from leakgauge.data import Digits
from leakgauge.defences import Clipping, NoDefence
from leakgauge.errors import InvalidCase, LeakGaugeError
from leakgauge.protocol.recording import RecordedRound, write_round
from leakgauge.space import Continuous, ImageSpace, TableSpace
from leakgauge.types import Batch

SPACE = ImageSpace(1, 8, 8)
TRUTH = Digits()().test[:1]


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 10))


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordedPlan:
    """A recorded round of one digit, whose client clipped its update."""
    monkeypatch.setattr(recorded_module, "recorded_model", lambda *_: model())
    module = model()
    nn.functional.cross_entropy(module(TRUTH.inputs), TRUTH.labels).backward()
    update = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    scale = min(1.0, 1 / float(torch.cat([part.flatten() for part in update.values()]).norm()))
    sent = {name: scale * part for name, part in update.items()}
    round_file, truth_file = tmp_path / "round.safetensors", tmp_path / "truth.npz"
    known: dict[str, Any] = {"labels": TRUTH.labels, "local_update": "fedsgd", "defence": "clipping:max_norm=1"}
    write_round(round_file, RecordedRound(module.state_dict(), sent, SPACE.shape, **known))
    np.savez(truth_file, images=TRUTH.inputs.numpy(), labels=TRUTH.labels.numpy())
    return RecordedPlan((str(round_file),), "any:model", ("linear_layer",), truths=(str(truth_file),))


def others(count: int) -> Batch:
    return Digits()().test[1 : count + 1]


def keys(images: Tensor) -> set[bytes]:
    return {image.numpy().tobytes() for image in images}


def test_nulls_are_clients_of_the_declared_defence_and_the_control_is_the_client_without_it(plan: RecordedPlan) -> None:
    cases = prepare_recorded(plan).cases
    assert [(case.defence, case.null) for case in cases] == [
        *(("as recorded", null) for null in range(4)),
        *(("none", null) for null in (1, 2, 3)),
    ]
    for case in cases[1:]:
        assert isinstance(case.source, SimulatedUpdate)
        assert case.source.client.defence == (NoDefence() if case.defence == "none" else Clipping(1.0))
        assert case.decoy is not None
        assert torch.equal(case.decoy.inputs, case.source.client.batch.inputs)
    (row,) = execute(prepare_recorded(plan), None).rows
    assert row.defence == "as recorded"
    assert row.verdict.leaks
    assert row.power is not None
    assert row.power.tried == 3


def test_a_client_without_a_defence_is_its_own_control(plan: RecordedPlan) -> None:
    cases = prepare_recorded(replace(plan, defence="none")).cases
    assert [(case.defence, case.null) for case in cases] == [("as recorded", null) for null in range(4)]


def test_without_references_copies_and_photographs_stand_in_and_the_description_says_so(plan: RecordedPlan) -> None:
    words = prepare_recorded(plan).description["crowd"]
    assert words == "49 embedded photographs in their tones and 50 augmented copies of the private images"


def test_references_are_an_npz_a_folder_or_a_dataset(plan: RecordedPlan, tmp_path: Path) -> None:
    images = others(120)
    np.savez(tmp_path / "labelled.npz", images=images.inputs.numpy(), labels=images.labels.numpy())
    np.savez(tmp_path / "bare.npz", images=images.inputs[:40].numpy())
    (tmp_path / "folder" / "below").mkdir(parents=True)
    for number, image in enumerate(images.inputs[:20]):
        Image.fromarray((image[0].numpy() * 255).astype(np.uint8)).save(tmp_path / f"folder/below/{number:02}.png")
    expected = {
        "labelled.npz": "99 references given",
        "bare.npz": "37 references given and 62 augmented copies of these and the private images",
        "folder": "17 references given and 82 augmented copies of these and the private images",
    }
    for name, words in expected.items():
        prepared = prepare_recorded(replace(plan, references=str(tmp_path / name)))
        assert prepared.description["crowd"] == words
    # The private digit itself is in the dataset.
    prepared = prepare_recorded(replace(plan, references="digits"))
    assert prepared.description["crowd"] == "99 references given; 1 copy of private images left out"
    null = prepared.cases[1]
    assert null.decoy is not None
    assert torch.equal(null.decoy.labels, TRUTH.labels)
    assert null.crowd is not None
    assert not keys(TRUTH.inputs) & keys(null.crowd)


@pytest.mark.parametrize(
    ("references", "message"),
    [("photos:size=8", "of the private ones' shape"), ("digitss", "did you mean 'digits'"), ("gone.npz", "no file")],
)
def test_references_that_do_not_fit_are_refused(plan: RecordedPlan, references: str, message: str) -> None:
    with pytest.raises(LeakGaugeError, match=message):
        prepare_recorded(replace(plan, references=references))


def test_references_without_a_truth_are_refused(plan: RecordedPlan) -> None:
    with pytest.raises(InvalidCase, match="give --truth as well"):
        replace(plan, truths=(), references="digits")


def test_a_folder_of_pictures_takes_any_shape_and_is_none_of_rows(tmp_path: Path) -> None:
    for name, size in (("wide", (40, 10)), ("tall", (10, 40))):
        Image.new("RGB", size, (255, 0, 0)).save(tmp_path / f"{name}.png")
    found = load_references(str(tmp_path), ImageSpace(3, 6, 12), None)
    assert isinstance(found, Tensor)
    assert found.shape == (2, 3, 6, 12)
    assert torch.equal(found[:, 0], torch.ones(2, 6, 12))
    with pytest.raises(InvalidCase, match="is a folder of images"):
        load_references(str(tmp_path), TableSpace((Continuous("age", 0, 1),)), None)
