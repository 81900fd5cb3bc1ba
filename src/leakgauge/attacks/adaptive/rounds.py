"""Encodings of one round or of many, decoded together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from leakgauge.attacks.adaptive.decoding import decode
from leakgauge.attacks.base import Stepper, StepperAround
from leakgauge.errors import InvalidCase, MissingKnowledge
from leakgauge.protocol.encoding import CENTRE, stack_mixings
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.types import Batch, Reconstruction

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
