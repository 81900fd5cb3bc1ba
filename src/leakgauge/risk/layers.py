"""The rank rule layer by layer: up to which batch size a layer's gradient gives its inputs away, and what ends it.

A gradient is a sum of outer products, one for each position of each example; while these are fewer than the rows and
the columns of the weight, its row space is the span of the layer's inputs (`attacks.span.layer_spans`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod

import torch

from leakgauge.attacks.matching.engine import NetworkGradient, trace
from leakgauge.attacks.span.layer_spans import AffineLayer, affine_layers, rank_rule
from leakgauge.protocol.learner import Learner
from leakgauge.space import InputSpace
from leakgauge.types import Batch, ModelState


@dataclass(frozen=True)
class LayerRisk:
    """A trained linear layer or convolution; of a grouped one, ``outputs`` and ``inputs`` are those of a group.

    ``positions`` are those of one example at which the loss depends on the layer. ``entries`` is how many numbers of
    one example the layer reads at them: ``whole`` says that they are no fewer than the example has.
    """

    weight: str
    positions: int
    outputs: int
    inputs: int
    entries: int
    whole: bool
    largest_batch: int
    """Up to how many examples the gradient spans their inputs; 0 = not even of one."""

    @property
    def name(self) -> str:
        """That of the weight without its last word."""
        return self.weight.rpartition(".")[0] or self.weight

    def spans(self, batch_size: int) -> bool:
        return 0 < batch_size <= self.largest_batch


def layer_risks(learner: Learner, state: ModelState, space: InputSpace, batch: Batch) -> tuple[LayerRisk, ...]:
    """All trained affine layers in the order of execution; `UnsupportedModel` where the engine cannot read the model.

    Told from the first example of any batch, in eval mode: running statistics leave positions apart that batch
    statistics would mix.
    """
    learner, one = learner.in_mode("eval").without_dropout(), batch[slice(1)]
    layers = affine_layers(learner, state, space, 1, one.labels)
    with torch.no_grad():
        network = trace(learner, state, one.inputs)
        gradient = NetworkGradient.at(network, {**state.params, **state.buffers}, learner.loss)
        read = gradient.gradient(one.inputs, one.labels)[1].memories
    size = prod(space.shape)
    return tuple(_risk(layer, [read[use].numel() for use in layer.uses], size) for layer in layers)


def _risk(layer: AffineLayer, read: Sequence[int], size: int) -> LayerRisk:
    # What goes in at a position that the loss does not depend on leaves no trace.
    entries = round(sum(count * float(mask.float().mean()) for count, mask in zip(read, layer.masks, strict=True)))
    largest = rank_rule(layer.positions, layer.outputs, layer.inputs) if layer.qualifies else 0
    return LayerRisk(layer.weight, layer.positions, layer.outputs, layer.inputs, entries, entries >= size, largest)


def largest_batch(layers: Sequence[LayerRisk]) -> int:
    """Up to how many examples some layer gives whole examples away by the rank rule; 0 = not even one."""
    return max((layer.largest_batch for layer in layers if layer.whole), default=0)


def ending_changes(layers: Sequence[LayerRisk], batch_size: int, one: str) -> tuple[str, ...]:
    """What would keep every layer from giving whole examples away at this batch size; nothing where none does.

    ``one`` is what an example is called.
    """
    exposed = [layer for layer in layers if layer.whole and layer.spans(batch_size)]
    if not exposed:
        return ()
    needed = 1 + max(layer.largest_batch for layer in exposed)
    names = ", ".join(layer.name for layer in exposed[:_NAMED]) + (", ..." if len(exposed) > _NAMED else "")
    worst = max(exposed, key=lambda layer: layer.largest_batch)
    room = min(worst.outputs, worst.inputs)
    pooled = (
        f"Pooling: later or less of it, so that more positions remain; at {worst.name} {ceil(room / batch_size)} of "
        f"{one} instead of {worst.positions}."
    )
    return (
        f"Batch: {needed} examples or more in every update.",
        f"Width: in each layer at most as many outputs as it has positions in the batch; of {worst.name} "
        f"{batch_size * worst.positions} instead of {worst.outputs}.",
        *((pooled,) if worst.positions > 1 else ()),
        f"Freezing: train and share none of {len(exposed)} {'layers' if len(exposed) > 1 else 'layer'} ({names}).",
    )


_NAMED = 4
