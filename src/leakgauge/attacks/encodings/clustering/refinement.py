"""Pictures and coefficients by turns, each from the other, until the encodings are explained."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from leakgauge.attacks.encodings.algebra.lift import alternate, lift, residuals
from leakgauge.attacks.encodings.clustering.assignment import PRESENT, LabelSimplices, fit_coefficients
from leakgauge.progress import Progress, Tick
from leakgauge.types import Shape

_POOR = 4.0
"""How many times the typical error of a pixel counts as poor."""
_EXACT = 1e-12
_SWEEPS, _STEPS = 3, 10


def repair(mixing: Tensor, sizes: Tensor, pictures: Tensor, shape: Shape, *, variances: Tensor) -> Tensor:
    """Pictures n x d in which no poor pixel would be explained better from where one of its neighbours ended.

    Neighbours are alike up to the one open sign, which the sizes do not see, so that a start next door is a good one.
    """
    found = pictures
    for _ in range(_SWEEPS):
        errors = _errors(mixing, sizes, found, variances)
        poor = (errors > _POOR * errors.median() + _EXACT).nonzero().flatten()
        if not len(poor):
            break
        found = found.clone()
        best, least = found[:, poor], errors[poor]
        for source in _shift(torch.arange(sizes.shape[1]).view(shape)):
            tried = alternate(mixing, sizes[:, poor], found[:, source[poor]], variances=variances, steps=_STEPS)
            left = _errors(mixing, sizes[:, poor], tried, variances)
            best = torch.where(left < least, tried, best)
            least = torch.minimum(left, least)
        found[:, poor] = best
    return found


def _errors(mixing: Tensor, sizes: Tensor, pictures: Tensor, variances: Tensor) -> Tensor:
    """What is left at each pixel, encodings weighted by the inverse of their variance."""
    weights = 1 / variances
    return (weights / weights.sum()) @ residuals(mixing, sizes, pictures)


def _shift(index: Tensor) -> Iterator[Tensor]:
    """For every pixel the one next to it, in each direction of the plane and among the channels."""
    for dim in range(3):
        for step in (1, -1):
            if index.shape[dim] > 1:
                yield index.roll(step, dim).flatten()


_RIDGE = 1e-4
_TURNS = 15
_SOLVED = 1e-9
"""Mean squared error, on pixels in [-1, 1], below which an encoding is explained."""
_UNUSED, _DUPLICATE = 0.5, 0.9
_PATIENCE, _GAIN = 3, 0.98


class Explained(NamedTuple):
    """Coefficients t x n and the mean squared error that each encoding is left with."""

    coefficients: Tensor
    errors: Tensor

    @property
    def variances(self) -> Tensor:
        """What the error of an encoding is taken to be, bounded from below by that of the typical one."""
        return self.errors + 0.1 * self.typical

    @property
    def weights(self) -> Tensor:
        """How much an encoding counts in the lift."""
        return (self.typical / (self.errors + self.typical)).sqrt()

    @property
    def typical(self) -> Tensor:
        return self.errors.median().clamp_min(_SOLVED)


def pictures_of(explained: Explained, sizes: Tensor, *, ridge: float = _RIDGE, steps: int = _TURNS) -> Tensor:
    """Pictures n x d: the lift, then signs and pixels by turns, encodings weighted by how well they are explained."""
    start = lift(explained.coefficients, sizes.square(), weights=explained.weights, ridge=ridge)
    return alternate(explained.coefficients, sizes, start, variances=explained.variances, steps=steps)


def refine(
    start: Tensor, sizes: Tensor, simplices: LabelSimplices, k: int, *, rounds: int, progress: Progress
) -> tuple[Explained, list[float]]:
    """Coefficients that explain ``sizes`` t x d, from a first guess, and the mean error of every round.

    Each round reconstructs the pictures and fits every encoding anew, from where it was and from the lift with the
    roles exchanged: E^2 is as linear in the products of coefficients as in those of pixels. Images that are not used,
    or that two of a class have become, start again from the encodings that are explained worst.
    """
    # Signs are hard at first: nothing is known of the errors.
    state = Explained(start, torch.full_like(start[:, 0], 1e-2 * float(sizes.square().mean())))
    best, waited = state, 0
    trace: list[float] = []
    for number in range(rounds):
        pictures = pictures_of(state, sizes)
        state = state._replace(errors=residuals(state.coefficients, sizes, pictures).mean(dim=1))
        state = reassign(state, pictures, sizes, simplices, k)
        mean = float(state.errors.mean())
        waited = 0 if not trace or mean < _GAIN * min(trace) else waited + 1
        if not trace or mean < min(trace):
            best = state
        trace.append(mean)
        progress(Tick(number + 1, (number + 1) / rounds, mean))
        if mean < _SOLVED or waited == _PATIENCE:
            break
        state = reseed(state, pictures, simplices, k)
    return best, trace


def reassign(state: Explained, pictures: Tensor, sizes: Tensor, simplices: LabelSimplices, k: int) -> Explained:
    """Every encoding that is not yet explained, fitted anew; a fit is taken if it leaves less error."""
    rows = (state.errors > 0.1 * state.typical).nonzero().flatten()
    part = LabelSimplices(simplices.classes, simplices.labels[rows])
    seen, coefficients, errors = sizes[rows], state.coefficients[rows], state.errors[rows]
    for start in (coefficients, lift_coefficients(pictures, seen)):
        free = fit_coefficients(start, pictures, seen, part)
        found = fit_coefficients(free, pictures, seen, part, support=part.support(free, k), turns=2)
        left = residuals(found, seen, pictures).mean(dim=1)
        coefficients = torch.where((left < errors)[:, None], found, coefficients)
        errors = torch.minimum(left, errors)
    return Explained(state.coefficients.index_put((rows,), coefficients), state.errors.index_put((rows,), errors))


def lift_coefficients(pictures: Tensor, sizes: Tensor) -> Tensor:
    """Coefficients t x n with |coefficients pictures| = sizes, by the lift: no label, no start."""
    found = lift(pictures.T.contiguous(), sizes.T.square(), ridge=_RIDGE).T
    return found * torch.where(found.sum(dim=1, keepdim=True) < 0, -1.0, 1.0).to(found)


def reseed(state: Explained, pictures: Tensor, simplices: LabelSimplices, k: int) -> Explained:
    """Give each image that is lost, one a class at most, the encodings of its class that are explained worst."""
    coefficients = state.coefficients.clone()
    uses = (coefficients > PRESENT).sum(dim=0)
    share = max(1, len(coefficients) * k // len(simplices.classes))
    rows = pictures - pictures.mean(dim=1, keepdim=True)
    rows = rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)
    alike = (rows @ rows.T).abs().fill_diagonal_(0)
    for label in simplices.classes.unique().tolist():
        images = (simplices.classes == label).nonzero().flatten()
        if len(images) < 2:
            continue
        lost, takes = _lost(images, uses, alike[images][:, images], share)
        if lost is None:
            continue
        coefficients[:, takes] += coefficients[:, lost]
        coefficients[:, lost] = 0
        here = (simplices.labels[:, label] > PRESENT).nonzero().flatten()
        worst = here[state.errors[here].argsort(descending=True)[: share // 2]]
        coefficients[worst[:, None], images] = 0
        coefficients[worst, lost] = simplices.labels[worst, label]
    return state._replace(coefficients=coefficients)


def _lost(images: Tensor, uses: Tensor, alike: Tensor, share: int) -> tuple[Tensor | None, Tensor]:
    """An image of the class that nothing uses, or the less used of two that are one; and who takes what it had."""
    rarest = images[uses[images].argmin()]
    if int(uses[rarest]) < _UNUSED * share:
        return rarest, images[uses[images].argmax()]
    one, two = divmod(int(alike.argmax()), len(images))
    if float(alike.max()) > _DUPLICATE:
        pair = images[[one, two]]
        return pair[uses[pair].argmin()], pair[uses[pair].argmax()]
    return None, rarest
