"""Encodings that a client published in place of an update."""

from __future__ import annotations

from dataclasses import dataclass

from leakgauge.attacks.encodings.base import EncodingAttack
from leakgauge.audit.sources.base import Source
from leakgauge.fingerprint import digest
from leakgauge.protocol.encoding import EncodingObservation
from leakgauge.protocol.facts import Fact, Subject

_NO_SIMILAR = "none: clustering then takes what looks more like a photograph, and all images may be negatives"


@dataclass(frozen=True)
class PublishedEncodings(Source[EncodingObservation]):
    """What was published, with what else the attacker is told."""

    observation: EncodingObservation

    @property
    def num_parameters(self) -> int:
        return 0

    def observe(self) -> EncodingObservation:
        return self.observation

    def fingerprint(self) -> str:
        seen = self.observation
        held = (seen.class_counts, seen.public, seen.auxiliary)
        return digest(
            (repr((seen.k, seen.private_per_encoding, seen.signed, seen.num_private, [one is None for one in held])),),
            (seen.encoded.images, seen.encoded.labels, *(one for one in held if one is not None)),
            (),
        )

    def num_classes(self) -> int:
        return self.observation.encoded.labels.shape[1]

    def num_examples(self) -> int | None:
        return self.observation.num_private

    def description(self) -> str:
        return _describe(self.observation)


def ledger_of(observation: EncodingObservation, attack: EncodingAttack) -> tuple[Fact, ...]:
    """Everything that the attacker is given, what it assumes, and what was kept from it."""
    seen = observation
    counts = None if seen.class_counts is None else seen.class_counts.tolist()
    shape = tuple(seen.encoded.images.shape[1:])
    return (
        Fact(Subject.ENCODINGS, True, f"{len(seen.encoded)} of shape {shape}, {_describe(seen)}"),
        Fact(Subject.ENCODING_LABELS, True, "the coefficients of the private images, by class"),
        _fact(Subject.NUM_PRIVATE, seen.num_private, "read from the labels if needed"),
        _fact(Subject.CLASS_COUNTS, counts, "read from the labels if needed"),
        _fact(Subject.PUBLIC_IMAGES, None if seen.public is None else len(seen.public), "none"),
        _fact(Subject.SIMILAR_IMAGES, None if seen.auxiliary is None else len(seen.auxiliary), _NO_SIMILAR),
        Fact(Subject.ALIGNMENT, True, attack.alignment),
        Fact(Subject.KEYS, False, "neither masks and coefficients nor which images are mixed"),
    )


def _fact(subject: Subject, value: object, otherwise: str) -> Fact:
    return Fact(subject, value is not None, otherwise if value is None else f"given: {value}")


def _describe(seen: EncodingObservation) -> str:
    masked = "masked" if seen.signed else "not masked"
    return f"k = {seen.k} images in each, {seen.private_per_encoding} of them private, {masked}"
