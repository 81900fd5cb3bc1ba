"""A classifier that silences all examples of a class but the one that differs most."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from leakgauge.attacks.base import Attack
from leakgauge.attacks.malicious.fishing import Fishing
from leakgauge.attacks.malicious.guessed_images import guess_images
from leakgauge.attacks.recipes.best import best
from leakgauge.errors import InvalidCase
from leakgauge.protocol.learner import Learner
from leakgauge.randomness import seeded
from leakgauge.space import ImageSpace, InputSpace
from leakgauge.types import ModelState

_GUESSED = 500
_SHARPNESS = 30.0
"""How many units of the logit lie between neighbours, on average."""


@dataclass(frozen=True)
class FeatureFishing(Fishing):
    """Fishing in a batch of one class for the example whose features lie lowest in a direction [Wen et al., 2022].

    W_c points where features vary most, and is so steep that the class is certain above a threshold and impossible
    below it: (p_c - 1) W_c is what flows back, nothing from examples above. About one in ``examples`` lies below, of
    public images or of images that the server makes up. An example of another class would flow back above the
    threshold, as p_c W_c: no linear classifier sorts by class and by feature at once, so the batch must be of one.
    """

    attack: Attack = field(default_factory=best)
    target: int = 0
    examples: int = 64
    server: ClassVar[str] = "sets the classifier so that the examples with the lowest feature alone train the model"
    serves: ClassVar[type[InputSpace]] = ImageSpace

    def __post_init__(self) -> None:
        if self.examples < 1:
            raise InvalidCase(f"FeatureFishing(examples=...) must be at least 1, got {self.examples}; correct it.")

    def head(
        self, learner: Learner, state: ModelState, space: InputSpace, weight: Tensor, public: Tensor | None
    ) -> tuple[Tensor, float]:
        images = guess_images(space.shape, _GUESSED, seeded(0, "guessed")) if public is None else public
        features = _features(learner, state, images.to(state.device, state.dtype)).double()
        centred = features - features.mean(dim=0)
        direction = torch.linalg.svd(centred, full_matrices=False).Vh[0]
        scores = centred @ direction
        # The longer tail is let through: there neighbours are further apart.
        if float(scores.pow(3).mean()) > 0:
            direction, scores = -direction, -scores
        steepness = _SHARPNESS * self.examples / max(float(scores.std()), 1e-12)
        threshold = (features @ direction).quantile(1 / self.examples)
        return (steepness * direction).to(weight), -steepness * float(threshold)

    def rate(self, num_classes: int) -> float:
        del num_classes
        return 1 / self.examples

    def refuses(self, slope: Tensor, count: int, through: float) -> str | None:
        others = torch.cat((slope[: self.target], slope[self.target + 1 :]))
        if float(others.min()) < -1e-4:
            return "the batch holds other classes, which a classifier that sorts by a feature lets through"
        if count == 0:
            return "no example lies below the threshold"
        if abs(through - count) > 0.05:
            return f"{through:.2f} examples were let through, one of them in part"
        return None


def _features(learner: Learner, state: ModelState, images: Tensor) -> Tensor:
    """What flows into the classifier."""
    learner = learner.in_mode("eval")
    head = learner.classifier(state, images[:2])
    with torch.no_grad():
        return torch.cat([learner.layer_inputs(state, part, nn.Linear)[head] for part in images.split(50)])
