"""One image through a vision transformer, from the updates of its position and patch embeddings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from leakgauge.attacks.analytic.affine_parts import AffineMap, AffinePart, RunNetwork
from leakgauge.attacks.analytic.fully_connected import Undetermined
from leakgauge.attacks.analytic.linear_layer import NO_GRADIENTS, not_applicable, restored_labels, without_decay
from leakgauge.attacks.base import Attack, LabelAttack, finite_update
from leakgauge.attacks.certificates import certify
from leakgauge.attacks.labels.idlg import IDLG
from leakgauge.attacks.matching.engine.layers.affine import Affine, Convolution, Linear
from leakgauge.attacks.matching.engine.layers.operations import Parameter
from leakgauge.attacks.matching.engine.layers.products import MatrixProduct
from leakgauge.attacks.matching.engine.network import NetworkStep
from leakgauge.progress import Progress, silent
from leakgauge.protocol.clients import sums_gradients
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.types import Outcome, ParamTree, Reconstruction

_RANK = 1e-10
"""A singular value that is this much smaller than the largest is none."""
_UNEXPLAINED = 0.1
"""The share of the patch embedding's update above which it has nothing to do with the position embedding's."""


@dataclass(frozen=True)
class PatchEmbedding(Attack):
    """One private image, in closed form, from a vision transformer with a learnable position embedding.

    Patches p are embedded as z = W p + b, and a trained position embedding is added to them. Moving the position
    embedding moves the tokens just as moving z does, so its update *is* the cotangent G of z, and that of W is G^T P:
    least squares gives the patches P, whatever norms, attention and shortcuts come after [compare Lu et al., 2022,
    APRIL, which needs a transformer without them]. More channels than patches are needed. Both embeddings are found by
    what the network computes, not by their names or spelling; several local steps on one image keep the relation.
    """

    labels: LabelAttack | None = IDLG()

    def __call__(
        self, observation: UpdateObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction:
        del progress
        observation = without_decay(observation)
        update = finite_update(observation)
        if not sums_gradients(observation.local_update):
            return not_applicable(NO_GRADIENTS)
        if known(observation.num_examples, "num_examples", needed_by=self) != 1:
            return not_applicable(f"the update mixes several {observation.space.kinds}")
        whole = RunNetwork.of(observation)
        embeddings = list(_embeddings(whole, update))
        if not embeddings:
            return not_applicable(f"no trained layer embeds patches of the {observation.space.kind} itself")
        reasons = []
        for embedding in embeddings:
            try:
                found = _solve(whole, embedding, update)
            except Undetermined as reason:
                reasons.append(str(reason))
                continue
            return self._answer(observation, embedding, found, generator)
        return not_applicable("; ".join(dict.fromkeys(reasons)))

    def _answer(
        self, observation: UpdateObservation, embedding: Embedding, found: Solution, generator: Generator
    ) -> Reconstruction:
        state, space = observation.state, observation.space
        images = space.decode(space.relax(found.image.to(state.dtype).view(1, *space.shape)))
        labels = restored_labels(observation, self.labels, generator=generator)
        facts: dict[str, str | int | float] = {
            "layer": embedding.weight,
            "position embedding": found.position,
            "patches": found.patches,
            "unexplained": found.unexplained,
        }
        answer = Reconstruction(images, labels, Outcome.SOLVED, facts=facts)
        argument = (
            f"the update of {found.position} is the cotangent of all {found.patches} patches, which has full rank, so "
            f"that no other patches give the update of {embedding.weight}"
        )
        return certify(observation, answer, argument)


class Embedding(NamedTuple):
    """A trained layer z = W p + b of patches p that are affine in the image."""

    weight: str
    output: int
    patches: AffineMap
    """From the image, N x K."""
    rows: Callable[[Tensor], Tensor]
    """A tensor like z as N x d."""
    gradient: Tensor
    """The update of W, d x K."""


class Solution(NamedTuple):
    """The image, the name of the position embedding, how many patches there are, and what they leave unexplained."""

    image: Tensor
    position: str
    patches: int
    unexplained: float


def _embeddings(whole: RunNetwork, update: ParamTree) -> Iterator[Embedding]:
    images = whole.part(0)
    for step in whole.network.steps:
        layer = step.layer
        if isinstance(layer, MatrixProduct):
            yield from _products(whole, images, step, update)
        if not isinstance(layer, Affine) or step.inputs[0] not in images.members:
            continue
        if layer.weight not in update or layer.weight in whole.network.shared:
            continue
        seen, gradient = images.to(step.inputs[0]), update[layer.weight].double()
        like = whole.values[step.inputs[0]]
        if isinstance(layer, Convolution) and layer.groups == 1 and layer.transposed is None:
            patches = seen.then(*_unfolding(layer, gradient.shape[1:], like, whole.values[step.output]))
            yield Embedding(layer.weight, step.output, patches, lambda z: z[0].flatten(1).mT, gradient.flatten(1))
        elif isinstance(layer, Linear):
            patches = seen.then(partial(torch.reshape, shape=(-1, like.shape[-1])), torch.flatten)
            yield Embedding(layer.weight, step.output, patches, lambda z: z.flatten(0, -2), gradient)


def _products(whole: RunNetwork, images: AffinePart, step: NetworkStep, update: ParamTree) -> Iterator[Embedding]:
    """A layer that was written as a product of matrices, one of them a parameter, however that is turned."""
    shapes = [whole.values[slot].shape for slot in step.inputs]
    if any(shape[:-2].numel() > 1 for shape in shapes):
        return
    for place in (0, 1):
        slot, kernel = step.inputs[place], step.inputs[1 - place]
        source = _only_source(whole, kernel)
        if slot not in images.members or source is None or source.layer.names()[0] not in update:
            continue
        (weight,) = source.layer.names()
        moved = whole.part(source.output).to(kernel).solve_transposed(update[weight].double())
        gradient, shape = moved.view(shapes[1 - place][-2:]), shapes[place][-2:]
        if place == 0:  # patches times weights
            patches = images.to(slot).then(partial(torch.reshape, shape=shape), torch.flatten)
            yield Embedding(weight, step.output, patches, lambda z: z.flatten(0, -2), gradient.mT)
        else:
            patches = images.to(slot).then(partial(_columns, shape), lambda gy: gy.mT.flatten())
            yield Embedding(weight, step.output, patches, lambda z: z.flatten(0, -2).mT, gradient)


def _columns(shape: torch.Size, vector: Tensor) -> Tensor:
    return vector.view(shape).mT


def _only_source(whole: RunNetwork, slot: int) -> NetworkStep | None:
    """The parameter that a slot is another form of, if nothing else uses it."""
    readers = whole.network.readers()
    by_output = {step.output: step for step in whole.network.steps}
    while slot in by_output and readers[slot] == 1:
        step = by_output[slot]
        if isinstance(step.layer, Parameter):
            return None if step.layer.name in whole.network.shared else step
        if len(step.inputs) != 1:
            return None
        (slot,) = step.inputs
    return None


def _unfolding(
    layer: Convolution, kernel: torch.Size, like: Tensor, result: Tensor
) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """The patches that a convolution sees, one row each, by a kernel for each of their entries; and its transpose."""
    taps = int(kernel.numel())
    each = torch.eye(taps, dtype=like.dtype, device=like.device).view(taps, *kernel)

    def unfold(x: Tensor) -> Tensor:
        return layer.multiply(x.view(like.shape), each, None)[0].flatten(1).mT

    def fold(patches: Tensor) -> Tensor:
        maps = patches.mT.reshape(1, taps, *result.shape[2:])
        return layer.multiply_transposed(maps, each, like).flatten()

    return unfold, fold


def _solve(whole: RunNetwork, embedding: Embedding, update: ParamTree) -> Solution:
    cotangent, position = _cotangent(whole, embedding, update)
    rows = embedding.rows(cotangent)
    count = len(rows)
    if count < 2:
        raise Undetermined(f"{embedding.weight} sees the whole image as one patch")
    if len(embedding.gradient) <= count:
        raise Undetermined(
            f"{embedding.weight} embeds {count} patches in {len(embedding.gradient)} channels; "
            "more channels than patches are needed for the update to determine them"
        )
    gradient = embedding.gradient
    left, sizes, right = torch.linalg.svd(rows, full_matrices=False)
    if not bool(sizes[-1] > _RANK * sizes[0]):
        raise Undetermined("the loss does not depend on every patch in a way of its own")
    turned = right @ gradient
    patches = left @ (turned / sizes[:, None])
    unexplained = float((gradient - right.mT @ turned).norm() / gradient.norm())
    if not unexplained <= _UNEXPLAINED:
        raise Undetermined(
            f"the updates of {embedding.weight} and {position} do not belong together ({unexplained:.2g} is left over)"
        )
    if not embedding.patches.is_one_to_one():
        raise Undetermined(f"the patches that {embedding.weight} sees do not cover the image")
    image = embedding.patches.solve(patches - embedding.patches.offset)
    return Solution(image, position, count, unexplained)


def _cotangent(whole: RunNetwork, embedding: Embedding, update: ParamTree) -> tuple[Tensor, str]:
    """The update's cotangent of the embedded patches, from a parameter whose moves move them as they move themselves.

    With t = L z + M p + constant what the rest of the network sees of the embedded patches z and the parameter p, the
    update of p is M^T g and the cotangent of z is L^T g. It follows from the other whenever M reaches what L does.
    """
    like = whole.values[embedding.output]
    probe = torch.randn(like.shape, generator=torch.Generator().manual_seed(1), dtype=like.dtype).to(like.device)
    for step in whole.network.steps:
        layer = step.layer
        if not isinstance(layer, Parameter) or layer.name not in update or layer.name in whole.network.shared:
            continue
        if update[layer.name].numel() < like.numel():
            continue
        part = whole.part(embedding.output, step.output)
        if not part.ends:
            continue
        by_patches, by_parameter = (part.to(*part.ends, start=start) for start in part.starts)
        if by_parameter.reaches(by_patches.along(probe)):
            seen = by_parameter.solve_transposed(update[layer.name].double())
            return by_patches.back(seen), layer.name
    raise Undetermined(f"no trained position embedding is added to the output of {embedding.weight}")
