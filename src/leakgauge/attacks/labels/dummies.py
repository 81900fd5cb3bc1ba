"""What a server can learn about its model by running it: on noise, or on images it has."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from leakgauge.protocol.observation import UpdateObservation


def dummy_images(observation: UpdateObservation, count: int, *, generator: Generator) -> Tensor:
    """Uniform noise within the bounds of the model's inputs, of their type and in their place."""
    noise = torch.rand(count, *observation.space.shape, generator=generator)
    return observation.space.lift(noise.to(device=observation.state.device, dtype=observation.state.dtype))


def features(observation: UpdateObservation, images: Tensor) -> Tensor:
    """What enters the classifier, a row per image, in float64 on the CPU."""
    learner, state = observation.learner, observation.state
    name = learner.classifier(state, observation.probe)
    with torch.no_grad():
        return learner.layer_inputs(state, images, nn.Linear)[name].detach().cpu().double()


def dummy_features(observation: UpdateObservation, count: int, *, generator: Generator) -> Tensor:
    """Of as many random inputs; two at least, for BatchNorm's sake."""
    return features(observation, dummy_images(observation, max(2, count), generator=generator))
