"""Noise without a clip: how near any attacker can come on average, from the Jacobian of the update.

Seen is u(x) + N(0, s^2), J = du/dx, so the Fisher information is J^T J / s^2. An attacker without bias has a squared
error of at least its inverse's trace, which is at least d^2 s^2 / |J|^2 [Cramér; Rao]. One who knows what inputs look
like is bound by van Trees: with a Gaussian prior of covariance L the mean squared error is at least
tr (E J^T J / s^2 + L^-1)^-1 [Gill and Levit, 1995]. Of the first term the trace t is known; whatever its directions,
the bound is least where they are those of L (averaging over signs in the basis of L keeps the trace and, the inverse
being convex, only lowers the bound), and then by Lagrange it is sum_k min(l_k, n) over the eigenvalues l_k, with
sum_k max(0, 1/n - 1/l_k) = t.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from leakgauge import params as tree
from leakgauge.bounds.unwrapping import peeks
from leakgauge.defences import GaussianNoise
from leakgauge.protocol.clients import layers
from leakgauge.protocol.learner import Learner, functional_gradient
from leakgauge.protocol.local_update import LocalUpdate, Transformed
from leakgauge.types import Batch, ModelState

_PROBES = 8
_STEPS = 60
"""Halvings of the water level; each is worth a factor of two."""


@dataclass(frozen=True)
class ErrorBound:
    """Mean squared errors per entry of an input that no attacker falls below on average; ``decibels`` of each.

    ``unbiased`` holds for attackers without bias, ``informed`` for all where inputs are Gaussian with the spectrum of
    the references. ``information`` is E |J|^2 / s^2 of one input over all rounds.
    """

    information: float
    unbiased: float
    informed: float

    @property
    def unbiased_decibels(self) -> float:
        return _decibels(self.unbiased)

    @property
    def informed_decibels(self) -> float:
        return _decibels(self.informed)

    @property
    def words(self) -> str:
        return (
            f"on average over inputs with the spectrum of the crowd no attacker comes nearer than "
            f"{self.informed_decibels:.1f} dB, and none without bias nearer than {self.unbiased_decibels:.1f} dB"
        )


def error_bound(
    client: LocalUpdate,
    learner: Learner,
    state: ModelState,
    batch: Batch,
    references: Tensor,
    *,
    rounds: int = 1,
    probes: int = _PROBES,
    generator: Generator,
) -> ErrorBound | None:
    """The bound of a client with Gaussian noise, for one of its inputs, all others being known; None without noise."""
    found = under_noise(client)
    if found is None:
        return None
    inner, deviation = found
    size = batch.inputs[0].numel()
    update = update_function(inner, learner, state, batch)
    squares = squared_jacobian(update, batch.inputs, probes, generator) / len(batch)
    information = rounds * squares / (deviation * deviation)  # a power of a large number raises
    return ErrorBound(
        information,
        unbiased=size / information if information else math.inf,
        informed=least_error(prior_spectrum(references), information) / size,
    )


def under_noise(client: LocalUpdate) -> tuple[LocalUpdate, float] | None:
    """What a client adds Gaussian noise to, and its standard deviation; what follows never sees the data again."""
    for layer in layers(client):
        if isinstance(layer, Transformed):
            transform = layer.transform
            if type(transform) is GaussianNoise and transform.std:
                return layer.inner, transform.std
            if peeks(transform):
                return None
    return None


def update_function(
    client: LocalUpdate, learner: Learner, state: ModelState, batch: Batch
) -> Callable[[Tensor], Tensor]:
    """The expected update as a flat vector, a function of the inputs that forward and backward modes go through."""
    quiet = replace(learner.without_dropout(), gradient_rule=functional_gradient)
    with torch.no_grad():
        observed = client.expected(learner.without_dropout(), state, batch, observed=state.params)

    def update(inputs: Tensor) -> Tensor:
        return tree.flatten(client.expected(quiet, state, Batch(inputs, batch.labels), observed=observed))

    return update


def squared_jacobian(function: Callable[[Tensor], Tensor], at: Tensor, probes: int, generator: Generator) -> float:
    """|J|^2 by random signs v, for which E |J v|^2 is just that; two standard errors are added [Hutchinson, 1989]."""
    squares = []
    for _ in range(probes):
        signs = torch.randint(0, 2, at.shape, generator=generator).to(at) * 2 - 1
        pushed = torch.func.jvp(function, (at,), (signs,))[1]
        squares.append(float(pushed.detach().double().square().sum()))
    seen = torch.tensor(squares, dtype=torch.float64)
    margin = 2 * float(seen.std()) / math.sqrt(probes) if probes > 1 else 0.0
    return float(seen.mean()) + margin


def leading_singular_values(
    function: Callable[[Tensor], Tensor], at: Tensor, count: int, generator: Generator, sweeps: int = 4
) -> Tensor:
    """The largest singular values of the Jacobian, by subspace iteration [Halko et al., 2011].

    Where no noise hides the update there is no bound; these say along how many directions of the inputs it tells most.
    """
    basis, _ = torch.linalg.qr(torch.randn(at.numel(), count, generator=generator).to(at))
    pushed = basis
    for sweep in range(sweeps):
        pushed = torch.stack(
            [torch.func.jvp(function, (at,), (one.reshape(at.shape),))[1].detach() for one in basis.T], dim=1
        )
        if sweep + 1 < sweeps:
            pull = torch.func.vjp(function, at)[1]
            back = torch.stack([pull(one)[0].detach().flatten() for one in pushed.T], dim=1)
            basis, _ = torch.linalg.qr(back)
    return torch.linalg.svdvals(pushed)


def prior_spectrum(references: Tensor) -> Tensor:
    """The eigenvalues of the covariance of inputs, the largest first.

    For images by the mean power at each frequency, as if they had no borders, after the colours are decorrelated; for
    rows by the sample covariance, which knows no direction that it has not seen.
    """
    centred = references.double() - references.double().mean(dim=0)
    if centred.ndim == 4:
        channels = centred.shape[1]
        colours = torch.linalg.eigh(torch.einsum("nchw,ndhw->cd", centred, centred)).eigenvectors
        turned = torch.einsum("nchw,cd->ndhw", centred, colours)
        powers = torch.fft.fft2(turned, norm="ortho").abs().square().mean(dim=0)
        return powers.reshape(channels, -1).flatten().sort(descending=True).values
    flat = centred.flatten(1)
    squares = torch.linalg.svdvals(flat).square() / len(flat)
    missing = flat.new_zeros(max(0, flat.shape[1] - len(squares)))
    return torch.cat([squares, missing])


def least_error(spectrum: Tensor, information: float) -> float:
    """The least total squared error that so much information allows for a Gaussian prior with this spectrum."""
    values = spectrum.double()
    values = values[values > 0]
    if not information or not len(values):
        return float(values.sum())

    def needed(level: float) -> float:
        return float((1 / level - 1 / values).clamp_min(0).sum())

    low, high = 0.0, float(values.max())
    for _ in range(_STEPS):
        middle = (low + high) / 2 if low else high / 2
        if needed(middle) > information:
            low = middle
        else:
            high = middle
    # The end that needs more information than there is, so that the error is not overstated.
    return float(values.clamp_max(low).sum())


def _decibels(error: float) -> float:
    return -10 * math.log10(error) if error > 0 else math.inf
