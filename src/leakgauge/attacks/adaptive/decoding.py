"""From encodings, of one round or of many, to the images they were mixed from, with the mixing known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Generator, Tensor

from leakgauge.attacks.base import Stepper, StepperAround
from leakgauge.attacks.encodings.algebra.synchronisation import along_tree
from leakgauge.errors import InvalidCase, MissingKnowledge
from leakgauge.protocol.encoding import CENTRE, Mixing, stack_mixings
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.randomness import seeded
from leakgauge.types import Batch, Reconstruction

_STEPS = 200
_STARTS = 24
_RIDGES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
_EXCESS = 1e-2
"""Mean distance of pixels from [0, 1] above which they are noise; exact encodings leave none."""


def decode(encodings: Tensor, mixing: Mixing, num_examples: int, *, generator: Generator | None = None) -> Tensor:
    """The images P that explain encodings E = Lambda P best: n images from T encodings, of one round or of many.

    MixUp: least squares, exact once Lambda has rank n; short of that the solution nearest to grey, and damped where the
    errors of the encodings blow up. InstaHide: for every
    pixel min over P of | |E - 1/2| - |Lambda (P - 1/2)| |^2, by turns in the signs and in P, from several starts. The
    masks hide the sign of P - 1/2 at each pixel, for all images at once; it is chosen so that neighbours agree, which
    leaves a picture or its negative. Where the update gave the encodings and nothing else is known, this is the upper
    bound of Huang et al. [2021], not what a server without the mixing could do.
    """
    matrix = mixing.matrix(num_examples).double()
    centred = encodings.flatten(1).double() - CENTRE
    if mixing.signed:
        found = _signed(matrix, centred.abs(), generator or seeded(0, "decode"))
        found = found * agreement(found.unflatten(1, encodings.shape[1:])).flatten()
    else:
        found = _linear(matrix, centred)
    return (found + CENTRE).unflatten(1, encodings.shape[1:]).to(encodings)


def _linear(matrix: Tensor, centred: Tensor) -> Tensor:
    """Least squares; where errors blow up beyond what pixels can be, with the least ridge that keeps them in range."""
    found = torch.linalg.pinv(matrix) @ centred
    unit = torch.eye(matrix.shape[1]).to(matrix)
    for ridge in _RIDGES:
        if float((found.abs() - CENTRE).clamp_min(0).mean()) <= _EXCESS:
            break
        found = torch.linalg.solve(matrix.T @ matrix + ridge * unit, matrix.T @ centred)
    return found


def _signed(matrix: Tensor, sizes: Tensor, generator: Generator) -> Tensor:
    """P with |matrix P| nearest to ``sizes``, column by column; of equally good ones, that of the first start."""
    inverse = torch.linalg.pinv(matrix)
    # All mixtures on one side first: exact for images that are, and the natural choice where many fit.
    best = inverse @ sizes
    lowest = torch.full_like(sizes[0], float("inf"))
    rounding = 1e-12 * sizes.square().sum(dim=0)
    for start in range(_STARTS):
        guess = torch.randn(sizes.shape, generator=generator).to(sizes).sign() if start else 1.0
        found, signs = inverse @ (sizes * guess), None
        for _ in range(_STEPS):
            seen = (matrix @ found).sign()
            if signs is not None and torch.equal(seen, signs):
                break
            signs = seen
            found = inverse @ (sizes * torch.where(signs == 0, 1.0, signs))
        error = ((matrix @ found).abs() - sizes).square().sum(dim=0)
        better = error < lowest - rounding
        best = torch.where(better, found, best)
        lowest = torch.where(better, error, lowest)
    return best


def agreement(pictures: Tensor) -> Tensor:
    """Signs ``c h w`` that make neighbours alike, for pictures ``n c h w`` whose signs are open at every entry.

    Two neighbours in the plane want one sign if their inner product over the n pictures is positive; the strongest
    wishes are granted first, along a spanning tree. Channels are then brought into agreement as a whole.
    """
    signs = torch.stack([_along_a_tree(channel) for channel in pictures.unbind(dim=1)])
    smooth = pictures * signs
    votes = (smooth * smooth[:, :1]).sum(dim=(0, 2, 3))
    return signs * torch.where(votes < 0, -1.0, 1.0)[:, None, None].to(pictures)


def _along_a_tree(pictures: Tensor) -> Tensor:
    """The signs of one channel, ``h w``, of pictures ``n h w``."""
    index = torch.arange(pictures[0].numel()).view(pictures.shape[1:])
    found = along_tree(pictures.flatten(1), [(index[1:], index[:-1]), (index[:, 1:], index[:, :-1])])
    return found.view_as(index).to(pictures)


T = TypeVar("T")

UPPER_BOUND = "known: an upper bound on leakage"
HIDDEN = "hidden: these are the encodings, not the images"


def decode_rounds(found: Sequence[Reconstruction], observations: Sequence[UpdateObservation]) -> Reconstruction:
    """The private images of several rounds on the same examples, from what each round's encodings were inverted to.

    Every round mixes anew, so that a few of them determine even images whose signs are hidden. Rounds whose inversion
    diverged are left out.
    """
    pairs = [(one, seen) for one, seen in zip(found, observations, strict=True) if one.inputs is not None]
    first = observations[0]
    count = _needed(first.num_examples, "num_examples")
    if any(seen.num_examples != count for _, seen in pairs):
        raise InvalidCase("Rounds are decoded together only if they are on the same examples; split them.")
    labels = _needed(first.labels, "labels")
    if not pairs:
        return replace(found[0], labels=labels)
    mixing = stack_mixings([_needed(seen.mixing, "mixing") for _, seen in pairs])
    encodings = torch.cat([one.inputs for one, _ in pairs if one.inputs is not None])
    images = decode(encodings, mixing, mixing.images(count))[:count].clamp(0, 1)
    if mixing.signed:
        images = _likelier(images, labels, pairs[-1][1])
    facts = {**found[0].facts, "mixing": UPPER_BOUND, "rounds": len(pairs)}
    return replace(pairs[0][0], inputs=images, labels=labels, facts=facts)


def _needed(value: T | None, name: str) -> T:
    if value is None:
        raise MissingKnowledge(
            f"Decoding needs `{name}`, which the threat model hides; use one that discloses it, such as `strongest`."
        )
    return value


def _likelier(images: Tensor, labels: Tensor, observation: UpdateObservation) -> Tensor:
    """The images or their negatives, whichever the model that was sent finds easier to label."""
    state, learner = observation.state, observation.learner.in_mode("eval")
    both = (images, 2 * CENTRE - images)
    with torch.no_grad():
        losses = [float(learner.objective(state.params, state.buffers, Batch(one, labels))) for one in both]
    return both[losses[1] < losses[0]]


class DecodedSearch(StepperAround):
    """A search for encodings that is decoded when it ends, where labels and mixing are disclosed.

    Which encoding is which follows from their class probabilities, so that examples all of one class stay in doubt.
    """

    def __init__(self, inner: Stepper, observations: tuple[UpdateObservation, ...]) -> None:
        super().__init__(inner)
        self.observations = observations

    def results(self) -> list[Reconstruction]:
        return [self._decode(*pair) for pair in zip(self.inner.results(), self.observations, strict=True)]

    def _decode(self, found: Reconstruction, observation: UpdateObservation) -> Reconstruction:
        if observation.mixing is None or observation.mixed_labels is None:
            return replace(found, facts={**found.facts, "mixing": HIDDEN})
        return decode_rounds([found], [observation])
