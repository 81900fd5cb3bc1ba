"""A copy of the batch for every epoch of the client, held together by what no order of the examples changes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache

import torch
from scipy.optimize import linear_sum_assignment
from torch import Generator, Tensor
from torch.nn.functional import conv2d, gelu

from leakgauge.attacks.base import Attack
from leakgauge.attacks.budget import Around
from leakgauge.attacks.matching import FreeLabels, GradientMatching
from leakgauge.attacks.matching.priors import Prior
from leakgauge.errors import InvalidCase
from leakgauge.progress import Progress, silent
from leakgauge.protocol import clients
from leakgauge.protocol.local_update import FedAvg, LocalSteps, Step
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.protocol.optimisers import StepRule
from leakgauge.randomness import seeded
from leakgauge.types import Reconstruction

# Pixels in [0, 1] differ by at most 1, so no likeness outweighs another label.
_OTHER_LABEL = 1e3


@dataclass(frozen=True)
class FedAvgOnCopies(LocalSteps):
    """FedAvg whose epoch e runs on the e-th of as many copies of the batch, stacked one after another."""

    client: FedAvg

    @property
    def rule(self) -> StepRule:
        return self.client.rule

    @property
    def micro_batches(self) -> int:
        return self.client.micro_batches

    def steps(self, num_examples: int) -> list[Step]:
        """The rows of each local step, in order.

        >>> FedAvgOnCopies(FedAvg(epochs=2, batch_size=2)).steps(6)
        [(slice(0, 2, None),), (slice(2, 3, None),), (slice(3, 5, None),), (slice(5, 6, None),)]
        """
        size, rest = divmod(num_examples, self.client.epochs)
        if rest:
            raise InvalidCase(
                f"{num_examples} rows are not {self.client.epochs} copies of one batch; stack one per epoch."
            )
        every = self.client.steps(size)
        once = len(every) // self.client.epochs
        return [
            tuple(slice(rows.start + offset, rows.stop + offset) for rows in step)
            for offset, step in ((index // once * size, step) for index, step in enumerate(every))
        ]


@dataclass(frozen=True)
class PermutationInvariant(Prior):
    """Weight times the mean squared difference between the summaries of two of the ``groups`` [Dimitrov et al., 2022].

    The summary of a group is the mean over its images of fixed features, so the order of the images does not enter it:
    the pixels (``channels=0``), or a random 3x3 convolution with that many channels and a GELU, which also tells apart
    groups whose mean image is the same.
    """

    weight: float = 1.0
    channels: int = 96
    groups: int = 1

    def __post_init__(self) -> None:
        if self.channels < 0 or self.groups < 1:
            raise InvalidCase(f"PermutationInvariant needs channels >= 0 and groups >= 1, got {self}; correct it.")

    def __call__(self, images: Tensor) -> Tensor:
        if self.groups == 1:
            return images.flatten(1).sum(dim=1) * 0
        grouped = self._features(images).unflatten(1, (self.groups, -1))
        summaries = grouped.mean(dim=2).flatten(2)
        # The mean over pairs, by way of the mean: sum over pairs |s - t|^2 = groups * sum |s - mean|^2.
        spread = (summaries - summaries.mean(dim=1, keepdim=True)).square().mean(dim=2).sum(dim=1)
        return self.weight * 2 / (self.groups - 1) * spread

    def _features(self, images: Tensor) -> Tensor:
        if self.channels == 0:
            return images
        kernel = _random_kernel(self.channels, images.shape[2]).to(images)
        return gelu(conv2d(images.flatten(0, 1), kernel, padding=1)).unflatten(0, images.shape[:2])


@lru_cache
def _random_kernel(channels: int, incoming: int) -> Tensor:
    # Of unit gain, so that the weight means about the same as for pixels.
    return (
        torch.randn(channels, incoming, 3, 3, generator=seeded(0, "order-invariant features")) / (9 * incoming) ** 0.5
    )


@dataclass(frozen=True)
class EpochCopies(Attack, Around):
    """Match FedAvg with a copy of the batch per epoch, tied by a prior, and average the copies [Dimitrov et al., 2022].

    A client that shuffles visits its examples in another order each epoch, so one batch in a fixed order cannot explain
    its update; copies can, for each epoch may order its own. They are tied because all hold the same images: an
    order-invariant summary of each is pulled together. In the end each copy is matched to the first, within equal
    labels, at the least summed squared error [Kuhn, 1955], and the mean is returned. One epoch needs no copies: it is
    left to the attack as it is, as are other clients.
    """

    attack: GradientMatching = field(default_factory=GradientMatching)
    tie: PermutationInvariant = field(default_factory=PermutationInvariant)

    def __call__(
        self, observation: UpdateObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction:
        num_examples = known(observation.num_examples, "num_examples", needed_by=self)
        disclosed = known(observation.local_update, "local_update", needed_by=self)
        client = clients.algorithm(disclosed)
        # Of an aggregate no client has all rows of an epoch.
        if not isinstance(client, FedAvg) or client.epochs == 1 or clients.clients_behind(disclosed) > 1:
            return self.attack(observation, generator=generator, progress=progress)
        copies = FedAvgOnCopies(client)
        labels = observation.labels
        if labels is None and not isinstance(self.attack.labels, FreeLabels):
            labels = self.attack.problem(observation, generator=generator).labels
        attack = replace(self.attack, priors=(*self.attack.priors, replace(self.tie, groups=client.epochs)))
        found = attack(
            replace(
                observation,
                local_update=clients.with_algorithm(disclosed, copies),
                num_examples=client.epochs * num_examples,
                labels=None if labels is None else torch.cat([labels] * client.epochs),
            ),
            generator=generator,
            progress=progress,
        )
        own = None if found.labels is None else found.labels.unflatten(0, (client.epochs, num_examples))
        images = found.inputs
        if images is not None:
            assert own is not None
            images = merge_copies(images.unflatten(0, (client.epochs, num_examples)), own)
        return replace(
            found,
            inputs=images,
            labels=None if own is None else own[0],
            facts={**found.facts, "copies": client.epochs},
        )


def merge_copies(copies: Tensor, labels: Tensor) -> Tensor:
    """The mean of copies ``e n c h w``, each matched to the first within equal labels ``e n`` or ``e n k``."""
    first = copies[0].flatten(1)
    total = copies[0].clone()
    for copy, own in zip(copies[1:], labels[1:], strict=True):
        other = labels[0][:, None] != own[None]
        cost = (first[:, None] - copy.flatten(1)[None]).square().mean(dim=2)
        cost = cost + _OTHER_LABEL * (other.any(dim=2) if other.ndim == 3 else other)
        _, partner = linear_sum_assignment(cost.double().cpu().numpy())
        total += copy[torch.as_tensor(partner, device=copy.device)]
    return total / len(copies)
