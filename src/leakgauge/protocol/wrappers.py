"""Clients around another: with clipped and noisy gradients, or many of whom the server sees the mean alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from leakgauge import params as tree
from leakgauge.errors import InvalidCase
from leakgauge.protocol.encoding import Encoding, stack_mixings
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.local_update import Departure, Wrapped
from leakgauge.types import Batch, ModelState, ParamTree

_TOGETHER = 16
"""Examples whose gradients are held at a time."""

_MARGIN = 1e-6
"""What Opacus adds to the length of a gradient before it divides by it."""


@dataclass(frozen=True)
class Private(Wrapped):
    """A local update each of whose gradients is that of DP-SGD [Abadi et al., 2016].

    Every example's gradient is clipped to ``max_grad_norm``, the clipped ones are summed, N(0, (noise_multiplier *
    max_grad_norm)^2) is added to every entry, and the sum is divided by the number of examples, or by the
    ``expected_batch_size`` of batches whose examples are drawn each by its own coin. With a generator of the same seed
    it is what Opacus computes.
    """

    max_grad_norm: float
    noise_multiplier: float
    expected_batch_size: int | None = None

    def divisor(self, num_examples: int) -> int:
        """What the sum over so many examples is divided by."""
        return self.expected_batch_size or num_examples

    @property
    def departure(self) -> Departure:
        return Departure.GAUSSIAN if self.noise_multiplier else Departure.NONE

    def expected(self, learner: Learner, state: ModelState, batch: Batch, *, observed: ParamTree) -> ParamTree:
        return self.inner.expected(
            replace(learner, gradient_rule=self._clipped_gradient), state, batch, observed=observed
        )

    def stream(self, generator: Generator) -> Generator:
        if not self.noise_multiplier:
            return self.inner.stream(generator)
        # A copy, so that the noise is what the generator gives first, as it is for Opacus.
        return torch.Generator(generator.device).set_state(generator.get_state())

    def run(self, learner: Learner, state: ModelState, batch: Batch, *, generator: Generator) -> ParamTree:
        scale = self.noise_multiplier * self.max_grad_norm

        def noisy(learner: Learner, state: ModelState, batch: Batch) -> dict[str, Tensor]:
            mean = self._clipped_gradient(learner, state, batch)
            if not scale:
                return mean
            share = 1 / self.divisor(len(batch))
            return tree.map_tensors(lambda tensor: tensor + share * _normal(tensor, scale, generator), mean)

        return self.inner.run(replace(learner, gradient_rule=noisy), state, batch, generator=generator)

    def _clipped_gradient(self, learner: Learner, state: ModelState, batch: Batch) -> dict[str, Tensor]:
        parts = [batch[slice(start, start + _TOGETHER)] for start in range(0, len(batch), _TOGETHER)]
        means = [mean_of_clipped(per_example_gradients(learner, state, part), self.max_grad_norm) for part in parts]
        shares = [len(part) / self.divisor(len(batch)) for part in parts]
        return {
            name: torch.stack([mean[name] * share for mean, share in zip(means, shares)]).sum(dim=0)
            for name in means[0]
        }


def _normal(like: Tensor, deviation: float, generator: Generator) -> Tensor:
    """Noise drawn in the type of a tensor: another type is another stream."""
    return torch.normal(0.0, deviation, like.shape, generator=generator, dtype=like.dtype).to(like.device)


def per_example_gradients(learner: Learner, state: ModelState, batch: Batch) -> dict[str, Tensor]:
    """The gradient of each example's own loss, stacked along the first axis of every tensor."""
    if learner.mode == "train" and learner.batch_norm_layers():
        raise InvalidCase(
            "In train mode BatchNorm mixes the examples of a batch, so none has a gradient of its own; train in eval "
            "mode, or use a model without BatchNorm."
        )

    def loss(params: ParamTree, image: Tensor, label: Tensor) -> Tensor:
        return learner.objective(params, state.buffers, Batch(image[None], label[None]))

    gradient, params = torch.func.grad(loss), dict(state.params)
    try:
        each = torch.func.vmap(gradient, in_dims=(None, 0, 0), randomness="different")
        return each(params, batch.inputs, batch.labels)
    except RuntimeError:  # of a model that branches on its values, which examples side by side cannot
        found = [gradient(params, *one) for one in zip(batch.inputs, batch.labels, strict=True)]
        return {name: torch.stack([one[name] for one in found]) for name in params}


def mean_of_clipped(gradients: ParamTree, max_norm: float) -> dict[str, Tensor]:
    """The mean over the first axis of g_i * min(1, max_norm / |g_i|), |g_i| over all tensors of example i."""
    rows = [tensor.reshape(len(tensor), -1) for tensor in gradients.values()]  # a parameter may be a single number
    squares = torch.stack([row.square().sum(dim=1) for row in rows]).sum(dim=0)
    factors = clip_factors(squares, max_norm)
    return {name: torch.tensordot(factors, t, dims=1) / len(factors) for name, t in gradients.items()}


def clip_factors(squares: Tensor, max_norm: float) -> Tensor:
    """By what gradients of these squared lengths are multiplied: min(1, max_norm / (length + 1e-6)), as in Opacus."""
    # Clamped before the root, whose slope at zero is infinite.
    least = max(max_norm - _MARGIN, 0.0)
    return (max_norm / (squares.clamp_min(least**2).sqrt() + _MARGIN)).clamp_max(1.0)


@dataclass(frozen=True)
class Aggregated(Wrapped):
    """The mean of the updates of ``clients`` clients, each with an equal part of the batch, in order.

    What a server sees behind secure aggregation [Bonawitz et al., 2017]. The private batch is that of all clients
    together, and so is what an attack has to find.
    """

    clients: int

    def parts(self, batch: Batch) -> list[Batch]:
        """The batch of each client."""
        size, rest = divmod(len(batch), self.clients)
        if rest or not size:
            raise InvalidCase(
                f"{len(batch)} examples cannot be shared equally by {self.clients} clients; use a multiple of "
                f"{self.clients}, the examples of all clients together."
            )
        # Each client mixes what it has: whose the other images would be is not known.
        own = replace(batch, others=None)
        return [own[slice(start, start + size)] for start in range(0, len(batch), size)]

    def expected(self, learner: Learner, state: ModelState, batch: Batch, *, observed: ParamTree) -> ParamTree:
        return _mean([self.inner.expected(learner, state, part, observed=observed) for part in self.parts(batch)])

    def encode(self, learner: Learner, state: ModelState, batch: Batch, *, generator: Generator) -> Encoding:
        encodings = [self.inner.encode(learner, state, part, generator=generator) for part in self.parts(batch)]
        seen = [encoding.batch for encoding in encodings]
        together = Batch(torch.cat([part.inputs for part in seen]), torch.cat([part.labels for part in seen]))
        mixings = [
            encoding.mixing._replace(indices=encoding.mixing.indices + client * len(seen[0]))
            for client, encoding in enumerate(encodings)
            if encoding.mixing is not None
        ]
        return Encoding(together, stack_mixings(mixings) if mixings else None)

    def run(self, learner: Learner, state: ModelState, batch: Batch, *, generator: Generator) -> ParamTree:
        return _mean([self.inner.run(learner, state, part, generator=generator) for part in self.parts(batch)])


def _mean(updates: list[ParamTree]) -> dict[str, Tensor]:
    return {name: torch.stack([update[name] for update in updates]).mean(dim=0) for name in updates[0]}
