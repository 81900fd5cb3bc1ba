"""The route of plain differences, for models without second derivatives."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leakgauge import params as tree
from leakgauge.attacks.matching.differentiation.matcher import Linearised, Pull, Wanted
from leakgauge.attacks.matching.differentiation.route import Differentiation
from leakgauge.attacks.matching.engine import Pulled
from leakgauge.attacks.matching.problem import MatchingProblem
from leakgauge.errors import UnsupportedModel
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.local_update import FedSGD
from leakgauge.types import Batch, ModelState, ParamTree


@dataclass(frozen=True)
class FiniteDifference(Differentiation):
    """Central difference of grad_x L(params +- e v, x): first derivatives only, for models that have no second ones.

    Accurate on smooth models; where a ReLU or max-pool switches between the two sides the quotient is off, so the exact
    routes come first. ``relative_step`` is e |v| / |params|; None takes the cube root of the machine precision.
    """

    relative_step: float | None = None

    def linearise(self, problem: MatchingProblem, images: Tensor) -> Linearised:
        client = problem.client()
        if not isinstance(client, FedSGD):
            raise UnsupportedModel(
                f"This differentiation route needs an update that is one gradient, not {client!r}; "
                "use DoubleBackward()."
            )
        del images
        relative = self.relative_step or torch.finfo(problem.state.dtype).eps ** (1 / 3)
        return _Quotient(problem.learner, problem.state, relative)


@dataclass(frozen=True)
class _Quotient(Linearised):
    learner: Learner
    state: ModelState
    relative: float

    def at(self, params: ParamTree, batch: Batch, wanted: Wanted) -> tuple[dict[str, Tensor], Pull]:
        with torch.no_grad():
            gradient = self.learner.gradient(replace(self.state, params=params), batch)

        def pull(direction: dict[str, Tensor]) -> Pulled:
            length = tree.norm(direction)
            if length == 0:
                zero = torch.zeros_like(batch.labels) if wanted.labels else None
                return Pulled(torch.zeros_like(batch.inputs), None, zero)
            step = float(self.relative * tree.norm(params) / length)
            ahead, behind = (
                _batch_gradient(
                    self.learner,
                    replace(self.state, params=tree.add(params, direction, scale=sign * step)),
                    batch,
                    of_labels=wanted.labels,
                )
                for sign in (1.0, -1.0)
            )
            found = [(one - two) / (2 * step) for one, two in zip(ahead, behind)]
            return Pulled(found[0], None, found[1] if wanted.labels else None)

        return tree.map_tensors(torch.clone, gradient), pull


def _batch_gradient(learner: Learner, state: ModelState, batch: Batch, *, of_labels: bool) -> tuple[Tensor, ...]:
    """The loss's derivative in the images and, where asked for, in the labels."""
    images, labels = batch.inputs.detach().requires_grad_(), batch.labels.detach().requires_grad_(of_labels)
    with torch.enable_grad():
        loss = learner.objective(state.params, state.buffers, Batch(images, labels))
        return torch.autograd.grad(loss, (images, labels) if of_labels else (images,))
