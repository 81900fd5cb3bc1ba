"""What a server runs its model on in place of the client's images: noise, or labelled images of the same kind."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import one_hot

from leakgauge.errors import InvalidCase
from leakgauge.protocol.observation import UpdateObservation, known


def dummy_images(observation: UpdateObservation, count: int, *, generator: Generator) -> Tensor:
    """Uniform noise within the bounds of the model's inputs, of their type and in their place."""
    return observation.space.noise(count, observation.state, generator=generator)


def features(observation: UpdateObservation, images: Tensor) -> Tensor:
    """What enters the classifier, a row per image, in float64 on the CPU."""
    learner, state = observation.learner, observation.state
    name = learner.classifier(state, observation.probe)
    with torch.no_grad():
        return learner.layer_inputs(state, images, nn.Linear)[name].detach().cpu().double()


def dummy_features(observation: UpdateObservation, count: int, *, generator: Generator) -> Tensor:
    """Of as many random inputs; two at least, for BatchNorm's sake."""
    return features(observation, dummy_images(observation, max(2, count), generator=generator))


Source = Literal["dummy", "auxiliary"]


class StandIns(NamedTuple):
    """The features of each image, n m, and its class probabilities, n C; None where no image has a class."""

    features: Tensor
    labels: Tensor | None

    @property
    def mass(self) -> Tensor:
        """sum_m e_m of each image."""
        return self.features.sum(dim=1)


def stand_ins(
    observation: UpdateObservation, source: Source, *, dummies: int, generator: Generator, needed_by: object
) -> StandIns:
    if source == "dummy":
        return StandIns(dummy_features(observation, dummies, generator=generator), None)
    auxiliary = known(observation.auxiliary, "auxiliary", needed_by=needed_by)
    if len(auxiliary) == 0:
        raise InvalidCase("The auxiliary data hold no image; give at least one, or use noise instead.")
    images = observation.space.place(auxiliary.inputs, observation.state)
    labels = auxiliary.labels.cpu()
    if len(images) == 1:  # twice the same, for BatchNorm's sake
        images, labels = images.repeat(2, 1, 1, 1), labels.repeat(2, *[1] * (labels.ndim - 1))
    if labels.ndim == 1:
        labels = one_hot(labels.long(), observation.learner.num_classes(observation.state, observation.probe))
    return StandIns(features(observation, images), labels.double())


def check_source(owner: object, source: str, choices: tuple[str, ...], dummies: int) -> None:
    """Refuse a source that does not exist, or noise of no image."""
    if source not in choices:
        raise InvalidCase(f"{type(owner).__name__} has no source {source!r}; choose one of {', '.join(choices)}.")
    if dummies < 1:
        raise InvalidCase(f"{type(owner).__name__} needs at least one dummy image, got {dummies}; pass 1 or more.")
