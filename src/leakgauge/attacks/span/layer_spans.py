"""What the weight gradient of a layer spans.

The gradient of a linear map, convolutions and projections included, is a sum over positions of outer products,
cotangent of the output times input. While there are fewer positions in a batch than the map has outputs and inputs, its
row space *is* the span of the private inputs of the layer (of a convolution, of the patches that its kernel sees).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from leakgauge.attacks.base import finite_update
from leakgauge.attacks.matching.engine.layers import Affine, Convolution
from leakgauge.attacks.matching.engine.network import Network
from leakgauge.attacks.matching.engine.passes import NetworkGradient
from leakgauge.attacks.matching.engine.trace import trace
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.randomness import seeded
from leakgauge.space import InputSpace
from leakgauge.types import ModelState, ParamTree

DRAWS = 2
"""Batches of noise that say which positions of a layer's output the loss depends on."""

DEPENDENT = 1e-6
"""Cotangents count as linearly dependent below this share of their largest singular value."""


def rank_rule(positions: int, outputs: int, inputs: int) -> int:
    """The largest batch whose inputs the gradient of an outputs x inputs map spans, at so many positions an example.

    >>> rank_rule(16, 512, 4608), rank_rule(64, 64, 576)
    (31, 0)
    """
    return (min(outputs, inputs) - 1) // positions


@dataclass(frozen=True)
class AffineLayer:
    """A linear or convolutional layer of a network, and where the loss depends on its output.

    ``outputs`` and ``inputs`` are of one group; the inputs of a convolution are those under its kernel.
    """

    weight: str
    outputs: int
    inputs: int
    groups: int
    kernel: tuple[int, ...]
    """The sides of a convolution's kernel; none for a linear layer."""
    uses: tuple[int, ...]
    """The steps of the network that multiply with the weight."""
    masks: tuple[Tensor, ...]
    """For each use, the positions of its output, over all examples, that have a cotangent."""
    independent: bool
    """Whether cotangents at different positions are linearly independent; those behind an average are not."""

    @property
    def positions(self) -> int:
        """In the whole batch."""
        return sum(int(mask.sum()) for mask in self.masks)

    @property
    def qualifies(self) -> bool:
        """Whether the gradient of this batch spans the layer's inputs."""
        return self.independent and 0 < self.positions < min(self.outputs, self.inputs)

    @property
    def constraints(self) -> int:
        """How many numbers the span asks to be zero: what of each input lies outside it."""
        return self.groups * self.positions * (self.inputs - self.positions)

    def matrices(self, gradient: Tensor) -> Tensor:
        """The weight's gradient as groups x outputs x inputs."""
        return gradient.reshape(self.groups, self.outputs, self.inputs)


@dataclass(frozen=True)
class LayerSpan:
    """The row space of one layer's observed gradient; ``directions`` are groups x rank x inputs, orthonormal rows.

    ``weights`` say how much of each direction is believed, in [0, 1]: the expected squared cosine between a singular
    vector under noise and the one without.
    """

    layer: AffineLayer
    directions: Tensor
    weights: Tensor
    spectrum: Tensor
    """All singular values, groups x min(outputs, inputs)."""

    @property
    def rank(self) -> int:
        return self.directions.shape[1]

    @property
    def gap(self) -> float:
        """The last singular value of the span over the first behind it, of the worst group."""
        last, next_one = self.spectrum[:, self.rank - 1], self.spectrum[:, self.rank]
        return float((last / next_one.clamp_min(torch.finfo(last.dtype).tiny)).min())


def affine_layers(
    learner: Learner, state: ModelState, space: InputSpace, num_examples: int, labels: Tensor | None = None
) -> tuple[AffineLayer, ...]:
    """All trained linear and convolutional layers in the order of execution; `UnsupportedModel` where none is known.

    No private data is looked at: which positions count, and whether their cotangents are independent, is told by
    batches of noise.
    """
    network, draws = _run_on_noise(learner, state, space, num_examples, labels)
    uses: dict[str, list[int]] = {}
    for index, step in enumerate(network.steps):
        layer = step.layer
        if isinstance(layer, Affine) and layer.weight in state.params and not _is_transposed(layer):
            uses.setdefault(layer.weight, []).append(index)
    found = (
        _affine_layer(network, state.params[weight], weight, tuple(places), draws) for weight, places in uses.items()
    )
    return tuple(layer for layer in found if layer is not None)


def layer_spans(observation: UpdateObservation, layers: tuple[AffineLayer, ...]) -> tuple[LayerSpan, ...]:
    """What the update spans in each of the layers that qualify and that it shares."""
    update = finite_update(observation)
    return tuple(
        span_of(layer, update[layer.weight])
        for layer in layers
        if layer.qualifies and layer.weight in update and bool(update[layer.weight].any())
    )


def span_of(layer: AffineLayer, gradient: Tensor) -> LayerSpan:
    """The row space of a gradient, whatever its scale."""
    matrices = layer.matrices(gradient.detach().double())
    spectrum, right = leading_directions(matrices, layer.positions)
    weights = torch.stack([believe(own, layer.positions, layer.outputs, layer.inputs) for own in spectrum])
    return LayerSpan(layer, right, weights, spectrum)


def leading_directions(matrices: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """All singular values, and the first ``rank`` right singular vectors, through the smaller matrix of products.

    In float64, that halves the digits to those of the float32 in which gradients come, and is many times faster.
    """
    if matrices.shape[-2] > matrices.shape[-1]:
        squares, right = torch.linalg.eigh(matrices.mT @ matrices)
        rows = right.flip(-1)[..., :rank].mT
    else:
        squares, left = torch.linalg.eigh(matrices @ matrices.mT)
        rows = left.flip(-1)[..., :rank].mT @ matrices
    return squares.flip(-1).clamp_min(0).sqrt(), torch.linalg.qr(rows.mT).Q.mT.contiguous()


def believe(spectrum: Tensor, rank: int, outputs: int, inputs: int) -> Tensor:
    """How much to believe of each of the first ``rank`` right singular vectors of a matrix under white noise.

    The expected squared cosine between the noisy right singular vector and the true one, and 0 where the singular value
    is lost in the noise [Benaych-Georges & Nadakuditi, 2012]. The noise is read from the singular values behind the
    rank, which a noiseless gradient would not have; what arithmetic leaves there counts as noise too.
    """
    free = max(1, (outputs - rank) * (inputs - rank))
    variance = spectrum[rank:].square().sum() / free
    # In units in which an entry of the noise has the variance 1 / inputs.
    ratio = outputs / inputs
    observed = spectrum[:rank].square() / (inputs * variance).clamp_min(torch.finfo(spectrum.dtype).tiny)
    excess = observed - 1 - ratio
    inner = (excess.square() - 4 * ratio).clamp_min(0)
    signal = (excess + inner.sqrt()) / 2  # the squared singular value without noise
    seen = (excess > 0) & (signal > ratio**0.5)
    signal = torch.where(seen, signal, torch.ones_like(signal))
    cosine = 1 - (ratio + signal) / (signal * (signal + 1))
    return torch.where(seen, cosine.clamp(0, 1), torch.zeros_like(cosine))


def _is_transposed(layer: Affine) -> bool:
    return isinstance(layer, Convolution) and layer.transposed is not None


def _run_on_noise(
    learner: Learner, state: ModelState, space: InputSpace, num_examples: int, labels: Tensor | None
) -> tuple[Network, list[list[Tensor | None]]]:
    """The network, and of each batch of noise the cotangents of all its steps' outputs."""
    network = trace(learner, state, space.probe(num_examples, state))
    tensors: ParamTree = {**state.params, **state.buffers}
    gradient = NetworkGradient.at(network, tensors, learner.loss)
    generator = seeded(0, "span positions")
    draws = []
    for _ in range(DRAWS):
        images = space.noise(num_examples, state, generator=generator)
        if labels is None:
            classes = learner.num_classes(state, space.probe(2, state))
            own = torch.randint(classes, (num_examples,), generator=generator).to(state.device)
        else:
            own = labels
        draws.append(gradient.gradient(images, own)[1].cotangents)
    return network, draws


def _affine_layer(
    network: Network, weight: Tensor, name: str, uses: tuple[int, ...], draws: list[list[Tensor | None]]
) -> AffineLayer | None:
    layer = network.steps[uses[0]].layer
    groups = layer.groups if isinstance(layer, Convolution) else 1
    rows = [list(_cotangent_rows(network, uses, draw)) for draw in draws]
    if not all(rows):
        return None
    masks = tuple(torch.stack([one.any(dim=-1) for one in of_use]).any(dim=0) for of_use in zip(*rows))
    outputs, inputs = weight.shape[0] // groups, prod(weight.shape[1:])
    # Not asked of layers with too many positions, where it could be costly.
    narrow = sum(int(mask.sum()) for mask in masks) < min(outputs, inputs)
    independent = narrow and all(_independent(of_draw, masks, groups) for of_draw in rows)
    return AffineLayer(name, outputs, inputs, groups, tuple(weight.shape[2:]), uses, masks, independent)


def _cotangent_rows(network: Network, uses: tuple[int, ...], draw: list[Tensor | None]) -> Iterator[Tensor]:
    """Of each use the cotangent of its output, the outputs of the layer last; none where the loss does not see one."""
    for index in uses:
        cotangent = draw[index]
        if cotangent is None:
            return
        yield cotangent.movedim(1, -1) if isinstance(network.steps[index].layer, Convolution) else cotangent


def _independent(rows: list[Tensor], masks: tuple[Tensor, ...], groups: int) -> bool:
    together = torch.cat([own[mask] for own, mask in zip(rows, masks, strict=True)]).double()
    if not len(together):
        return False
    values = torch.linalg.svdvals(torch.stack(together.chunk(groups, dim=1)))
    return bool((values[:, len(together) - 1] > DEPENDENT * values[:, 0]).all())


@dataclass(frozen=True)
class RowSpace:
    """What a matrix spans as far as noise and rounding show it: ``directions`` rank x inputs with their singular
    ``values``, and the ``floor``, the greatest singular value of what is not spanned."""

    directions: Tensor
    values: Tensor
    floor: float
    rounding: float
    """Relative error of a feature that is computed again."""

    @property
    def rank(self) -> int:
        return len(self.values)

    @property
    def is_clear(self) -> bool:
        """Whether nothing that was spanned can be hidden in the floor."""
        return float(self.values[-1]) >= CLEAR * self.floor

    def distances(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """What of each feature lies outside, as a share of its length, and how much floor and rounding explain of that.

        A feature is inside if it is a sum of rows, f = c G. Noise N in G then leaves c N outside, whose length is at
        most that of c times the floor, and the shortest c has the length of f's coordinates over the values.
        """
        features = features.double()
        features = features / features.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
        inside = features @ self.directions.mT
        outside = (features - inside @ self.directions).norm(dim=-1)
        return outside, self.rounding + self.floor * (inside / self.values).norm(dim=-1)

    @property
    def stranger(self) -> float:
        """How far outside a feature in no particular direction lies."""
        return (1 - self.rank / self.directions.shape[1]) ** 0.5


def row_space(matrices: list[Tensor], rounding: float, errors: list[Tensor] | None = None) -> RowSpace | None:
    """What several gradients of maps that read the same span together; None where they are noise or span everything.

    Each has the same weight. ``errors``, where the sizes of the entries' errors are known, say what no sum of reads
    explains, and the rank is what lies above. Without them it lies at the greatest gap of the singular values, of which
    none counts that is below a tenth of the ``rounding`` of the client's numbers times the first; without a clear gap,
    noise hides some, and those remain that stand out of it [Gavish & Donoho, 2014].
    """
    lengths = [float(one.norm()) for one in matrices]
    if not any(lengths):
        return None
    stacked = torch.cat([one / length for one, length in zip(matrices, lengths, strict=True) if length])
    _, values, right = torch.linalg.svd(stacked, full_matrices=False)
    least = _LEAST * rounding * float(values[0])
    inputs = stacked.shape[1]

    def up_to(rank: int, floor: float) -> RowSpace:
        return RowSpace(right[:rank], values[:rank], floor, _COMPUTED * rounding)

    if errors is not None:
        sizes = [_largest_value(one) / length for one, length in zip(errors, lengths, strict=True) if length]
        floor = max(least, sum(size**2 for size in sizes) ** 0.5)
        rank = int((values > floor).sum())
        if 0 < rank < min(inputs, len(values)):
            return up_to(rank, floor)
    bounded = torch.cat((values, values.new_zeros(1))).clamp_min(least)[: min(len(values) + 1, inputs)]
    gaps = bounded[:-1] / bounded[1:]
    # Those that end where arithmetic begins come first: a signal may have gaps of its own.
    at_floor = torch.where(bounded[1:] <= _ARITHMETIC * least, gaps, 0.0)
    chosen = next((one for one in (at_floor, gaps) if len(one) and float(one.max()) >= CLEAR), None)
    if chosen is not None:
        rank = int(chosen.argmax()) + 1
        return up_to(rank, float(bounded[rank]))
    ratio = min(stacked.shape) / max(stacked.shape)
    cut = (0.56 * ratio**3 - 0.95 * ratio**2 + 1.82 * ratio + 1.43) * float(values.median())
    rank = int((values > cut).sum())
    return up_to(rank, float(values[rank])) if 0 < rank < min(inputs, len(values)) else None


def _largest_value(sizes: Tensor) -> float:
    """About the largest singular value of a matrix of independent errors of these sizes [Bandeira & van Handel, 2016].

    >>> round(_largest_value(torch.full((400, 100), 0.1)), 6)
    3.0
    """
    squares = sizes.double().square()
    return float(squares.sum(dim=0).max().sqrt() + squares.sum(dim=1).max().sqrt())


_LEAST = 0.1
"""Of the rounding: the least floor that a span has."""

_COMPUTED = 4.0
"""Times the rounding: how well a feature that goes through a few layers is computed again."""

_ARITHMETIC = 20.0
"""Times the least floor: what lies below may be what arithmetic leaves."""

CLEAR = 5.0
"""How many times as large the last singular value of a span is as the next one, where the rank is beyond doubt."""
