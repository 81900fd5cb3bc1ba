"""A client of many local steps, explained by one gradient on the way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch

from leakgauge import params as tree
from leakgauge.attacks.matching.objectives import Cosine
from leakgauge.protocol import clients
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.local_update import FedAvg, FedSGD, LocalUpdate
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.randomness import seeded
from leakgauge.types import Batch, ModelState, ParamTree

_STRAIGHT = 1e-3
"""A path counts as straight when the gradients at its ends point the same way up to this 1 - cos."""


class StandIn(ABC):
    """What a search takes the client for while it is far from the answer; a frozen dataclass."""

    @abstractmethod
    def __call__(self, observation: UpdateObservation) -> UpdateObservation:
        """The same update as that of a client whose steps are easier to follow."""


@dataclass(frozen=True)
class StraightLine(LocalUpdate):
    """The client's update taken as one gradient on all its images at w0 - a (w0 - wT), a to be found in [0, 1].

    The surrogate of Zhu et al. [2023, SME]: a gradient somewhere between the weights sent and the weights returned
    points along the whole path. One gradient per step, however many steps the client made. ``position`` is where a
    starts; gradient matching moves it along with the images.
    """

    position: float = 0.5

    def expected(self, learner: Learner, state: ModelState, batch: Batch, *, observed: ParamTree) -> ParamTree:
        return learner.gradient(self.halfway(state, observed, self.position), batch)

    def run(self, learner: Learner, state: ModelState, batch: Batch, *, generator: object) -> ParamTree:
        raise NotImplementedError("no client runs the attacker's surrogate")

    @staticmethod
    def halfway(state: ModelState, observed: ParamTree, position: float) -> ModelState:
        # Of what is not shared nobody knows how it moved.
        shared = {name: observed[name] if name in observed else torch.zeros_like(p) for name, p in state.params.items()}
        return ModelState(tree.add(state.params, shared, scale=-position), state.buffers)


def as_one_gradient(observation: UpdateObservation, position: float | None = None) -> UpdateObservation:
    """The update of many local steps as that of one gradient on all images, in direction.

    The mean of T gradients at equal steps along a path is that at the mean of their places, (T - 1) / 2T of the way,
    up to second order in its length: half of it for many steps, and where their number is not disclosed. A client that
    is known to send a single gradient, or anything but a sum of gradients, stays as it is.
    """
    disclosed, count = observation.local_update, observation.num_examples
    if isinstance(clients.algorithm(disclosed), FedSGD) or not clients.sums_gradients(disclosed):
        return observation
    if position is None:
        steps = None if count is None else clients.local_steps(disclosed, count)
        position = 0.5 if steps is None else (steps - 1) / (2 * steps)
    client = FedSGD() if disclosed is None else clients.with_algorithm(disclosed, FedSGD())
    return replace(
        observation,
        state=StraightLine.halfway(observation.state, observation.update.params, position),
        local_update=clients.merge_clients(client, observation.learner),
    )


@dataclass(frozen=True)
class OneGradient(StandIn):
    """`as_one_gradient`."""

    def __call__(self, observation: UpdateObservation) -> UpdateObservation:
        return as_one_gradient(observation)


def nearly_straight(observation: UpdateObservation) -> bool:
    """Whether a known FedAvg client came so little far that one gradient says what its steps do.

    Told by the gradients of noise at both ends of its way, which the server can compute.
    """
    count = observation.num_examples
    algorithm = clients.algorithm(observation.local_update)
    if not isinstance(algorithm, FedAvg) or not algorithm.rule.weighs_equally or count is None:
        return False
    learner, state = observation.learner, observation.state
    generator = seeded(0, "stand-ins")
    images = observation.space.noise(max(2, count), state, generator=generator)
    if observation.labels is None:
        classes = learner.num_classes(state, observation.probe)
        labels = torch.randint(classes, (len(images),), generator=generator).to(state.device)
    else:  # which may be values or tags, of which none can be made up
        labels = observation.labels[torch.arange(len(images)) % len(observation.labels)]
    ends = [StraightLine.halfway(state, observation.update.params, place) for place in (0.0, 1.0)]
    first, last = (learner.gradient(end, Batch(images, labels)) for end in ends)
    return bool(Cosine()(first, last) < _STRAIGHT)
