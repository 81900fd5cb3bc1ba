"""Losses by name are torch's own, and say what their labels are."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from leakgauge.config import build_loss
from leakgauge.errors import InvalidCase, UnsupportedModel
from leakgauge.protocol.learner import learner_and_state
from leakgauge.protocol.losses import (
    BinaryCrossEntropy,
    CrossEntropy,
    MeanSquaredError,
    MultiLabel,
    Targets,
    WeightedHeads,
    as_loss,
    draw_labels,
    targets_of,
)
from leakgauge.protocol.validation import check_batch, check_loss
from leakgauge.randomness import seeded
from leakgauge.types import Batch

SCORES = torch.randn(4, 3, generator=seeded(0, "scores"), dtype=torch.float64)
CLASSES = torch.tensor([0, 2, 1, 1])
TAGS = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 0, 0], [1, 1, 1]])
VALUES = torch.randn(4, 3, generator=seeded(1, "values"))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize(
    ("words", "scores", "labels", "theirs"),
    [
        ("cross_entropy", SCORES, CLASSES, lambda s, y, r: functional.cross_entropy(s, y, reduction=r)),
        (
            "cross_entropy:label_smoothing=0.2",
            SCORES,
            CLASSES,
            lambda s, y, r: functional.cross_entropy(s, y, reduction=r, label_smoothing=0.2),
        ),
        (
            "bce",
            SCORES[:, :1],
            CLASSES % 2,
            lambda s, y, r: functional.binary_cross_entropy_with_logits(s, y[:, None].double(), reduction=r),
        ),
        (
            "multi_label",
            SCORES,
            TAGS,
            lambda s, y, r: functional.binary_cross_entropy_with_logits(s, y.double(), reduction=r),
        ),
        ("mse", SCORES, VALUES, lambda s, y, r: functional.mse_loss(s, y.double(), reduction=r)),
        ("mse", SCORES[:, 0], VALUES[:, :1], lambda s, y, r: functional.mse_loss(s, y[:, 0].double(), reduction=r)),
    ],
)
def test_a_loss_by_name_is_torchs(words, scores, labels, theirs, reduction):
    joint = "," if ":" in words else ":"
    loss = build_loss(f"{words}{joint}reduction={reduction}")
    assert torch.allclose(loss(scores, labels), theirs(scores, labels, reduction), rtol=1e-12)


class Answer(NamedTuple):
    logits: Tensor
    features: Tensor


@pytest.mark.parametrize(
    ("output", "part"),
    [
        ({"out": SCORES, "aux": None}, "out"),
        ((SCORES, None), 0),
        ([None, SCORES], -1),
        (Answer(SCORES, SCORES), "logits"),
    ],
)
def test_a_loss_finds_its_scores_in_what_a_model_returns(output, part):
    expected = functional.cross_entropy(SCORES, CLASSES)
    assert CrossEntropy(output=part)(output, CLASSES) == expected
    with pytest.raises(InvalidCase, match="--loss cross_entropy:output="):
        CrossEntropy()(output, CLASSES)
    with pytest.raises(InvalidCase, match="no part"):
        CrossEntropy(output="nowhere")(output, CLASSES)


def test_several_heads_are_the_weighted_sum_of_their_losses():
    age = torch.rand(4)
    heads = WeightedHeads((CrossEntropy(), MeanSquaredError(output=1)), (1.0, 0.25))
    labels = torch.stack([CLASSES.float(), age], dim=1)
    expected = functional.cross_entropy(SCORES, CLASSES) + 0.25 * functional.mse_loss(SCORES[:, 0], age.double())
    assert torch.allclose(heads((SCORES, SCORES[:, 0]), labels), expected)
    with pytest.raises(InvalidCase, match="a column for each head"):
        heads((SCORES, SCORES), CLASSES)
    with pytest.raises(InvalidCase, match="a weight"):
        WeightedHeads((CrossEntropy(),), ())


@pytest.mark.parametrize(
    ("loss", "targets"),
    [
        (functional.cross_entropy, Targets.CLASSES),
        (nn.CrossEntropyLoss(label_smoothing=0.1), Targets.CLASSES),
        (nn.CrossEntropyLoss(weight=torch.ones(3)), Targets.OWN),
        (nn.CrossEntropyLoss(reduction="none"), Targets.OWN),
        (nn.BCEWithLogitsLoss(), Targets.TAGS),
        (functional.mse_loss, Targets.VALUES),
        (nn.MSELoss(reduction="sum"), Targets.VALUES),
        (lambda output, labels: output["x"].sum(), Targets.OWN),
    ],
)
def test_torchs_own_losses_are_known_for_what_their_labels_are(loss, targets):
    assert targets_of(as_loss(loss)) is targets


@pytest.mark.parametrize(
    ("loss", "width", "labels", "naming"),
    [
        (BinaryCrossEntropy(), 3, torch.tensor([0, 1]), "one score"),
        (BinaryCrossEntropy(), 1, torch.tensor([0, 2]), "0 or 1"),
        (MultiLabel(), 3, torch.tensor([0, 1]), "n x 3"),
        (MultiLabel(), 3, torch.full((2, 3), 2.0), "between 0 and 1"),
        (MeanSquaredError(), 3, torch.zeros(2), "as many values"),
        (MeanSquaredError(), 1, torch.tensor([0.0, torch.nan]), "NaN"),
        (CrossEntropy(), 3, torch.tensor([0, 3]), "3 classes"),
        (CrossEntropy(), 3, torch.tensor([0.0, 1.0]), "whole class numbers"),
    ],
)
def test_labels_that_do_not_fit_the_loss_are_refused_in_a_sentence(loss, width, labels, naming):
    learner, state = learner_and_state(nn.Sequential(nn.Flatten(), nn.Linear(12, width)), loss)
    with pytest.raises(InvalidCase, match=naming):
        check_batch(learner, state, Batch(torch.rand(2, 3, 2, 2), labels))


class Detector(nn.Module):
    """Takes images, returns a dict, as torchvision's detectors do."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(12, 5)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        found = self.body(images.flatten(1))
        return {"boxes": found[:, :4], "score": found[:, 4]}


def detection_loss(output: dict[str, Tensor], labels: Tensor) -> Tensor:
    boxes = functional.smooth_l1_loss(output["boxes"], labels[:, :4])
    return boxes + functional.binary_cross_entropy_with_logits(output["score"], labels[:, 4])


def test_a_users_own_loss_takes_whatever_a_model_returns():
    learner, state = learner_and_state(Detector(), detection_loss)
    batch = Batch(torch.rand(2, 3, 2, 2), torch.rand(2, 5))
    assert check_batch(learner, state, batch) == 0
    check_loss(learner, state, batch)
    assert set(learner.gradient(state, batch)) == {"body.weight", "body.bias"}
    with pytest.raises(UnsupportedModel, match="not classes"):
        learner.num_classes(state, batch.inputs)


@pytest.mark.parametrize("loss", [CrossEntropy(), BinaryCrossEntropy(), MultiLabel(), MeanSquaredError()], ids=repr)
def test_drawn_labels_fit_the_loss_they_were_drawn_for(loss):
    width = 1 if loss.targets is Targets.BINARY else 3
    learner, state = learner_and_state(nn.Sequential(nn.Flatten(), nn.Linear(12, width)), loss)
    drawn = draw_labels(loss, 5, width, like=VALUES if loss.targets is Targets.VALUES else None, generator=seeded(0))
    batch = Batch(torch.rand(5, 3, 2, 2), drawn)
    assert check_batch(learner, state, batch) == width
    check_loss(learner, state, batch)


@pytest.mark.parametrize(
    "words", ["cross_entropi", "bce:smoothing=1", "mse:reduction=none", "torch.nn:Nothing", "math:pi"]
)
def test_an_unknown_loss_is_refused(words):
    with pytest.raises(InvalidCase):
        build_loss(words)


def test_a_users_loss_is_imported_by_name():
    assert build_loss("torch.nn.functional:smooth_l1_loss") is functional.smooth_l1_loss
