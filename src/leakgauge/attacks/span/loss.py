"""What span matching minimises: what of a candidate's layer inputs lies outside the span of the observed gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from leakgauge.attacks.matching.engine.layers import Affine, Convolution, Linear
from leakgauge.attacks.matching.engine.network import Network
from leakgauge.attacks.matching.engine.trace import trace
from leakgauge.attacks.span.features import FeatureSweep
from leakgauge.attacks.span.layer_spans import LayerSpan
from leakgauge.protocol import clients
from leakgauge.protocol.losses import LossFunction
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.types import ParamTree

_TINY = 1e-30


def spoilt(observation: UpdateObservation) -> set[str]:
    """The parameters whose gradients a disclosed defence distorts on purpose."""
    return {
        name
        for transform in clients.transforms(observation.local_update)
        for name in transform.distorted(observation.learner, observation.state, observation.probe)
    }


class Terms(NamedTuple):
    """At one candidate: the residuals of its images against the spans, the head's term, and the loss's gradient."""

    residuals: Tensor
    head: Tensor
    gradient: Tensor

    @property
    def value(self) -> Tensor:
        return self.residuals.mean() + self.head


@dataclass(frozen=True, eq=False)
class Projection:
    """The part of one layer's inputs outside a span, at one place of the network.

    The projection of a patch on the span's directions is a convolution with these as kernels, and its squared length
    one of the squared map with ones, so that no patch is ever cut out.
    """

    layer: Affine
    slot: int
    mask: Tensor
    kernels: Tensor
    ones: Tensor | None
    groups: int

    @classmethod
    def of(cls, network: Network, span: LayerSpan, use: int, mask: Tensor, like: Tensor) -> Projection:
        step = network.steps[use]
        assert isinstance(step.layer, Affine)
        believed = span.directions * span.weights.sqrt()[..., None]
        groups, ones = span.layer.groups, None
        shape: tuple[int, ...] = (span.layer.inputs,)
        if isinstance(step.layer, Convolution):
            kernel = span.layer.kernel
            ones = torch.ones(groups, 1, *kernel).to(like)
            shape = (-1, *kernel)
        kernels = believed.reshape(groups * span.rank, *shape).to(like)
        return cls(step.layer, step.inputs[0], mask.to(like), kernels, ones, groups)

    def outside(self, values: Tensor, num_examples: int) -> Tensor:
        """The share of each example's energy that lies outside, differentiable."""
        inside = self.layer.multiply(values, self.kernels, None).square()
        energy = values.square()
        if self.ones is None:
            whole, inside = energy.sum(dim=-1), inside.sum(dim=-1)
        else:
            by_group = energy.unflatten(1, (self.groups, -1)).sum(dim=2)
            whole, inside = self.layer.multiply(by_group, self.ones, None).sum(dim=1), inside.sum(dim=1)
        total, inner = ((part * self.mask).reshape(num_examples, -1).sum(dim=1) for part in (whole, inside))
        return (total - inner) / total.clamp_min(_TINY)


@dataclass(frozen=True, eq=False)
class HeadGradient:
    """The gradient of the last layer, which the forward pass alone gives: (d loss / d scores)^T features.

    It is compared up to a common scale of weight and bias, which the client may have changed.
    """

    network: Network
    tensors: ParamTree
    loss: LossFunction
    name: str
    """Of the weight."""
    features: int
    scores: int
    weight: Tensor
    bias: Tensor | None

    @classmethod
    def of(cls, network: Network, observation: UpdateObservation) -> HeadGradient | None:
        """None where the scores are not those of one trained linear layer."""
        steps = [step for step in network.steps if step.output in network.outputs]
        layer = steps[0].layer if len(steps) == 1 and len(network.outputs) == 1 else None
        update = observation.update.params
        if not isinstance(layer, Linear) or layer.norm is not None or layer.weight not in update:
            return None
        if layer.weight in spoilt(observation):
            return None
        state = observation.state
        bias = None if layer.bias is None else update.get(layer.bias)
        return cls(
            network, {**state.params, **state.buffers}, observation.learner.loss, layer.weight,
            steps[0].inputs[0], steps[0].output, update[layer.weight], bias,
        )  # fmt: skip

    def distance(self, features: Tensor, scores: Tensor, labels: Tensor) -> Tensor:
        """|own - observed|^2 / |observed|^2 of the weight and of the bias, differentiable in features and scores."""
        loss = self.loss(self.network.assemble((scores,), self.tensors), labels)
        slope = torch.autograd.grad(loss, scores, create_graph=True)[0]
        slope = slope.flatten(0, -2)
        pairs = [(slope.mT @ features.flatten(0, -2), self.weight)]
        if self.bias is not None:
            pairs.append((slope.sum(dim=0), self.bias))
        # Each relative to what was observed, so that weight and bias count alike.
        own, observed = (
            torch.cat([pair[side].flatten() / pair[1].norm().clamp_min(_TINY) for pair in pairs]) for side in (0, 1)
        )
        scale = (own @ observed) / own.square().sum().clamp_min(_TINY)
        return (scale * own - observed).square().sum()


@dataclass(frozen=True, eq=False)
class SpanLoss:
    """The loss of one update: the mean residual of images and layers, and the head's term."""

    sweep: FeatureSweep
    projections: tuple[Projection, ...]
    head: HeadGradient | None

    @classmethod
    def of(cls, observation: UpdateObservation, spans: Sequence[LayerSpan], num_examples: int) -> SpanLoss:
        state = observation.state
        probe = observation.space.probe(num_examples, state)
        network = trace(observation.learner, state, probe)
        head = HeadGradient.of(network, observation)
        projections = tuple(
            Projection.of(network, span, use, mask, probe)
            for span in spans
            for use, mask in zip(span.layer.uses, span.layer.masks, strict=True)
        )
        slots = {one.slot for one in projections} | (set() if head is None else {head.features, head.scores})
        return cls(FeatureSweep.at(network, {**state.params, **state.buffers}, slots), projections, head)

    def at(self, images: Tensor, labels: Tensor) -> Terms:
        """The residuals, the head's term and the gradient at one batch of inputs as the model takes them."""
        values, memories = self.sweep.values(images)
        leaves = {slot: value.detach().requires_grad_() for slot, value in values.items()}
        with torch.enable_grad():
            outside = torch.stack([one.outside(leaves[one.slot], len(images)) for one in self.projections])
            head = images.new_zeros(())
            if self.head is not None:
                head = self.head.distance(leaves[self.head.features], leaves[self.head.scores], labels)
            slopes = torch.autograd.grad(outside.mean() + head, list(leaves.values()))
        pulled = self.sweep.pull(memories, dict(zip(leaves, slopes, strict=True)))
        gradient = torch.zeros_like(images) if pulled is None else pulled
        return Terms(outside.detach().mean(dim=0), head.detach(), gradient)
