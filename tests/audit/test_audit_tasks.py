"""Tasks as people have them: any channels and sizes, any labels, any output, audited end to end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, interpolate, smooth_l1_loss

import leakgauge
from leakgauge.attacks.budget import Budget
from leakgauge.types import Outcome


def smooth(channels: int, height: int, width: int, scores: int) -> nn.Module:
    features = 6 * ((height + 3) // 4) * ((width + 3) // 4)
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5, stride=2, padding=2), nn.Sigmoid(), nn.Conv2d(6, 6, 5, stride=2, padding=2),
        nn.Sigmoid(), nn.Flatten(), nn.Linear(features, scores),
    )  # fmt: skip


def picture(channels: int, height: int, width: int) -> Tensor:
    coarse = torch.rand(1, channels, 4, 4, generator=torch.Generator().manual_seed(0))
    return interpolate(coarse, size=(height, width), mode="bilinear")


class Detector(nn.Module):
    """Boxes, scores, and more that no loss looks at."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 6, 5, stride=2, padding=2)
        self.boxes, self.scores = nn.Linear(6 * 36, 4), nn.Linear(6 * 36, 3)

    def forward(self, x: Tensor) -> dict[str, Any]:
        features = torch.sigmoid(self.body(x)).flatten(1)
        return {"boxes": self.boxes(features), "scores": self.scores(features), "maps": [features], "count": 1}


class Several(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = smooth(3, 12, 12, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, None]:
        scores = self.inner(x)
        return scores, scores.softmax(1), None


def of_boxes(output: dict[str, Any], labels: Tensor) -> Tensor:
    return smooth_l1_loss(output["boxes"], labels[:, :4]) + cross_entropy(output["scores"], labels[:, 4].long())


def per_pixel(channels: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.Sigmoid(), nn.Conv2d(6, channels, 3, padding=1))


CLASS = torch.tensor([2])
CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, int, int], Tensor, Any]] = {
    "1 channel": (lambda: smooth(1, 12, 12, 5), (1, 12, 12), CLASS, "cross_entropy"),
    "2 channels": (lambda: smooth(2, 12, 12, 5), (2, 12, 12), CLASS, "cross_entropy"),
    "4 channels": (lambda: smooth(4, 12, 12, 5), (4, 12, 12), CLASS, "cross_entropy"),
    "not square": (lambda: smooth(3, 9, 20, 5), (3, 9, 20), CLASS, "cross_entropy"),
    "tags of one example": (lambda: smooth(3, 12, 12, 3), (3, 12, 12), torch.tensor([[1.0, 0.0, 1.0]]), "multi_label"),
    "yes or no of one example": (lambda: smooth(3, 12, 12, 1), (3, 12, 12), torch.tensor([1]), "bce"),
    "the same by torch": (
        lambda: smooth(3, 12, 12, 1), (3, 12, 12), torch.tensor([[1.0]]),
        nn.BCEWithLogitsLoss(pos_weight=torch.ones(1)),
    ),
    "boxes in a dict": (Detector, (3, 12, 12), torch.tensor([[0.1, 0.2, 0.3, 0.4, 2.0]]), of_boxes),
    "scores in a tuple": (Several, (3, 12, 12), CLASS, "cross_entropy:output=0"),
    "a class for each pixel": (
        lambda: per_pixel(4), (3, 12, 12), torch.ones(1, 12, 12, dtype=torch.long), lambda o, y: cross_entropy(o, y),
    ),
    "an image for an image": (lambda: per_pixel(3), (3, 12, 12), torch.rand(1, 3, 12, 12), "mse"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_every_task_is_audited_end_to_end(name: str) -> None:
    make, shape, labels, loss = CASES[name]
    torch.manual_seed(1)
    result = leakgauge.audit(
        make(), loss, (picture(*shape), labels), attacks=["inverting_gradients_no_tv"], defences=["none"],
        budget=Budget(steps=8), nulls=0, distractors=1,
    )  # fmt: skip
    (record,) = result.records
    assert record.outcome is Outcome.STEPS_EXHAUSTED
    assert record.residual < 1  # what came back explains some of the update
    assert torch.tensor(record.scores["psnr"]).isfinite().all()
