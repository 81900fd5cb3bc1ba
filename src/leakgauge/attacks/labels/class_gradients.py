"""Labels from whole gradients, for models whose head is no linear layer that could be read."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from leakgauge.attacks.base import finite_update
from leakgauge.attacks.labels.base import CountRule
from leakgauge.attacks.labels.stand_ins import dummy_images
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.types import Batch, ParamTree

_ENTRIES = 20_000_000
"""Of all classes' gradients together; of larger models the tensors nearest to the loss are compared."""


@dataclass(frozen=True)
class ClassGradients(CountRule):
    """Counts n_c >= 0 whose mixture sum_c n_c g_c comes nearest to the update, g_c the gradient of noise of class c.

    Where the scores enter the loss, examples of one class pull alike whatever they show, so that noise can stand in for
    them; ``dummies`` inputs are averaged. One example is of the class whose gradient has the smallest angle.
    """

    dummies: int = 4

    def estimate(self, observation: UpdateObservation, *, generator: Generator) -> Tensor:
        num_examples = known(observation.num_examples, "num_examples", needed_by=self)
        update = finite_update(observation)
        learner, state = observation.learner, observation.state
        classes = learner.num_classes(state, observation.probe)
        names = _nearest(update, classes)
        images = dummy_images(observation, max(2, self.dummies), generator=generator)
        rows = []
        for label in range(classes):
            labels = torch.full((len(images),), label, device=images.device)
            rows.append(_flat(learner.gradient(state, Batch(images, labels)), names))
        gradients, seen = torch.stack(rows), _flat(update, names)
        if num_examples == 1:
            angles = gradients @ seen / gradients.norm(dim=1).clamp_min(1e-300)
            return torch.nn.functional.one_hot(angles.argmax(), classes).double()
        counts = _nonnegative(gradients @ gradients.T, gradients @ seen)
        return counts * (num_examples / counts.sum().clamp_min(1e-300))


def _nearest(update: ParamTree, classes: int) -> list[str]:
    """The last tensors of the update whose gradients of all classes fit into memory."""
    names: list[str] = []
    left = _ENTRIES // classes
    for name, tensor in reversed(list(update.items())):
        left -= tensor.numel()
        if left < 0 and names:
            break
        names.append(name)
    return names


def _flat(tensors: ParamTree, names: list[str]) -> Tensor:
    return torch.cat([tensors[name].detach().flatten().cpu().double() for name in names])


def _nonnegative(products: Tensor, target: Tensor, sweeps: int = 500) -> Tensor:
    """The n >= 0 that minimise n^T A n / 2 - b^T n, one entry after another.

    >>> _nonnegative(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([4.0, -1.0]))
    tensor([2., 0.])
    """
    found = torch.zeros_like(target)
    for _ in range(sweeps):
        before = found.clone()
        for index in range(len(found)):
            scale = products[index, index].clamp_min(1e-300)
            found[index] = (found[index] + (target[index] - products[index] @ found) / scale).clamp_min(0)
        if float((found - before).abs().max()) <= 1e-9 * float(found.abs().max()):
            break
    return found
