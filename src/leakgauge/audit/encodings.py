"""Published encodings as cases: the attack on them, and with the secret at hand its scores and its null."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from leakgauge.attacks.encodings.base import EncodingAttack
from leakgauge.audit.case import Case
from leakgauge.audit.crowd import Pool, copies, draw_crowd
from leakgauge.audit.execute import PreparedAudit
from leakgauge.audit.sources.encodings import PublishedEncodings, ledger_of
from leakgauge.catalogue import ENCODING_ATTACKS, SCHEMES, build_metrics, standard_metrics
from leakgauge.config import build
from leakgauge.data import read_images, reference_images
from leakgauge.encodings.challenge import encrypt_others, private_part, private_shares, read_published, read_secret
from leakgauge.encodings.schemes import Secret
from leakgauge.errors import InvalidCase
from leakgauge.metrics import PublicFound
from leakgauge.protocol.encoding import EncodingObservation, Mixing
from leakgauge.randomness import seeded
from leakgauge.space import ImageSpace
from leakgauge.types import Batch
from leakgauge.version import VERSION

_CROWD = 99
_PHOTOGRAPHS = 1000
"""Of the embedded crops at the most."""
_SAME = 1e-6
_FILES = ("source", "public", "auxiliary", "secret", "decoys")


@dataclass(frozen=True)
class EncodingPlan:
    """What to attack, what to tell the attacker, and the ``secret`` of the challenge if scores are wanted.

    Without ``decoys`` what came back is told from the auxiliary or the public images, or from embedded photographs.
    """

    source: str
    attack: str | None = None
    scheme: str = "inside:k=4"
    public: str | None = None
    auxiliary: str | None = None
    private: int | None = None
    class_counts: str | None = None
    labels_only: bool = False
    secret: str | None = None
    decoys: str | None = None
    nulls: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        if self.nulls < 0:
            raise InvalidCase(f"An audit has nulls >= 0, got {self.nulls}; correct it.")

    @property
    def attack_name(self) -> str:
        return self.attack or ("public" if self.public is not None else "clustering")

    @property
    def command(self) -> str:
        """What runs it again, without the folders of this machine."""
        given: dict[str, object] = {
            "attack": self.attack_name,
            "scheme": self.scheme if Path(self.source).is_file() else None,
        }
        given |= {name: _file(getattr(self, name)) for name in ("public", "auxiliary")}
        given |= {"private": self.private, "class-counts": self.class_counts}
        given |= {name: _file(getattr(self, name)) for name in ("secret", "decoys")}
        given |= {"nulls": None if self.nulls == EncodingPlan.nulls else self.nulls, "seed": self.seed}
        words = [f"--{name} {value}" for name, value in given.items() if value is not None]
        only = ["--labels-only"] if self.labels_only else []
        return " ".join(["leakgauge instahide attack", Path(self.source).name, *words, *only])


def prepare_encodings(plan: EncodingPlan) -> PreparedAudit:
    """Read and check what was published and the secret; nothing is attacked yet."""
    attack: EncodingAttack = build(ENCODING_ATTACKS, plan.attack_name, kind="attack on encodings")
    seen = _observe(plan)
    if attack.by_encoding and (seen.public is None or seen.k == seen.private_per_encoding):
        raise InvalidCase("There are no public images to name in these encodings; use the attack `clustering`.")
    case = Case(
        round=0,
        defence=_defence(seen),
        attack_name=plan.attack_name,
        attack=attack,
        null=0,
        source=PublishedEncodings(seen),
        truth=None,
        distractors=None,
        ledger=ledger_of(seen, attack),
        seed=plan.seed,
    )
    cases, words = [case], "none"
    if plan.secret is not None:
        private, secret = read_secret(Path(plan.secret), seen.encoded)
        pool = read_published(Path(plan.source), build(SCHEMES, plan.scheme, kind="scheme")).public
        cases, words = _cases_with_truth(case, attack, seen, private, secret, _unrelated(plan, seen, private), pool)
    metrics = standard_metrics() | (build_metrics([PublicFound.name]) if attack.by_encoding else {})
    files = {name: _file(getattr(plan, name)) for name in _FILES}
    description: dict[str, Any] = asdict(plan) | files
    description |= {"command": plan.command, "crowd": words, "version": VERSION}
    return PreparedAudit(cases, metrics, description)


def _cases_with_truth(
    case: Case,
    attack: EncodingAttack,
    seen: EncodingObservation,
    private: Batch,
    secret: Secret,
    unrelated: Unrelated,
    pool: Tensor | None,
) -> tuple[list[Case], str]:
    """The case scored against the truth and its nulls, and what the crowd consists of.

    A null is the same attack on a release of the same parameters: what the same key makes of unrelated images. Scored
    against these it is the positive control. There is none where the key mixes in public images that nobody has here.
    """
    own, count, space = seen.private_per_encoding, len(private), ImageSpace.of(private.inputs)
    truth, members = private, None
    if attack.by_encoding:
        parts = private_part(private.inputs, secret.mixing, own)
        truth, members = Batch(parts, seen.encoded.labels.argmax(dim=1)), secret.mixing.indices[:, own:] - count

    def beside(images: Tensor | None) -> Tensor | None:
        return _mix_alike(images, secret.mixing, own) if attack.by_encoding and images is not None else images

    rest = unrelated.crowd
    strangers = draw_crowd(
        space, private, rest, tests=count, at_least=len(rest), generator=seeded(case.seed, "strangers")
    )
    scored = replace(case, truth=truth, members=members, paired=attack.by_encoding)
    scored = replace(scored, distractors=beside(rest.inputs), crowd=beside(strangers.inputs))
    cases = [scored]
    for number, others in enumerate(() if seen.k > own and pool is None else unrelated.batches, 1):
        decoy = Batch(others, private.labels)
        if attack.by_encoding:  # in the order of encodings whose keys were handed on
            decoy = Batch(private_part(others, secret.mixing, own).roll(1, dims=0), truth.labels.roll(1, dims=0))
        source = PublishedEncodings(replace(seen, encoded=encrypt_others(seen, secret, others, pool)))
        cases.append(replace(scored, null=number, source=source, decoy=decoy))
    return cases, strangers.words


@dataclass(frozen=True)
class Unrelated:
    """Images that are not private: those of each null, and the crowd."""

    batches: tuple[Tensor, ...]
    crowd: Pool


def _unrelated(plan: EncodingPlan, seen: EncodingObservation, private: Batch) -> Unrelated:
    """From the decoys, or else from what the attacker holds, or from embedded photographs; no image serves twice.

    Where the crowd would lose more than half of its images to the nulls, these are fewer, and where it has too few for
    any, they are of photographs.
    """
    count, space = len(private), ImageSpace.of(private.inputs)
    crowd = read_images(Path(plan.decoys)) if plan.decoys else _crowd(seen, private.inputs, plan.nulls, plan.seed)
    crowd = crowd.to(private.inputs)
    crowd = crowd[~copies(space, crowd, private.inputs)]
    several = min(plan.nulls, len(crowd) // (2 * count))
    others = crowd[len(crowd) - several * count :]
    if several == 0 and plan.nulls:
        others = reference_images(space.shape, plan.nulls * count, generator=seeded(plan.seed, "unrelated")).to(others)
    name = "of the decoys" if plan.decoys else "embedded photographs" if seen.auxiliary is None else "of the attacker's"
    batches = tuple(one for one in others.split(count) if len(one) == count)
    return Unrelated(batches, Pool(crowd[: len(crowd) - several * count], None, name))


def _mix_alike(decoys: Tensor, mixing: Mixing, own: int) -> Tensor:
    """Decoys mixed as the private images of encodings are, so that a mixture is told from mixtures."""
    number = torch.arange(len(decoys))
    together = (number[:, None] + torch.arange(own)) % len(decoys)
    shares = private_shares(mixing, own)
    return Mixing(shares[number % len(shares)], together).mix(decoys)


def _observe(plan: EncodingPlan) -> EncodingObservation:
    """What the attacker sees and is told; nothing of the secret."""
    seen = read_published(Path(plan.source), build(SCHEMES, plan.scheme, kind="scheme"))
    private, class_counts = plan.private, plan.class_counts
    if plan.labels_only:
        if private is not None or class_counts is not None:
            raise InvalidCase("--labels-only tells the attacker no number; leave out --private and --class-counts.")
        seen = replace(seen, num_private=None)
    if private is not None:
        seen = replace(seen, num_private=private)
    if class_counts is not None:
        counts = torch.tensor(_whole_numbers(class_counts))
        if private not in (None, int(counts.sum())):
            raise InvalidCase(f"--class-counts sum to {int(counts.sum())}, not to --private {private}; correct one.")
        seen = replace(seen, class_counts=counts, num_private=int(counts.sum()))
    if plan.public is not None:
        seen = replace(seen, public=_of_size(plan.public, seen, "--public"))
    if plan.auxiliary is not None:
        return replace(seen, auxiliary=_of_size(plan.auxiliary, seen, "--auxiliary"))
    return replace(seen, auxiliary=seen.public)  # who has public images has images of some kind


def _defence(seen: EncodingObservation) -> str:
    """What stands between the private images and the attacker, written as defences are."""
    own = f",private={seen.private_per_encoding}" if seen.private_per_encoding < seen.k else ""
    return f"{'instahide' if seen.signed else 'mixup'}:k={seen.k}{own}"


def _whole_numbers(text: str) -> list[int]:
    try:
        found = [int(word) for word in text.split(",")]
    except ValueError:
        found = [-1]
    if min(found) < 0:
        raise InvalidCase(f"--class-counts takes whole numbers such as 3,0,2, one for each class, got {text!r}.")
    return found


def _of_size(file: str, seen: EncodingObservation, option: str) -> Tensor:
    images, wanted = read_images(Path(file)), tuple(seen.encoded.images.shape[1:])
    if tuple(images.shape[1:]) != wanted:
        raise InvalidCase(f"{option} holds images {tuple(images.shape[1:])}, but encodings are {wanted}; resize them.")
    return images


def _crowd(seen: EncodingObservation, private: Tensor, nulls: int, seed: int) -> Tensor:
    """What the private images are told from: images that the attacker holds, or else embedded photographs."""
    if seen.auxiliary is not None:
        return seen.auxiliary
    wanted = _CROWD + nulls * len(private)
    space, count = ImageSpace.of(private), min(wanted + len(private), _PHOTOGRAPHS)
    crops = reference_images(space.shape, count, generator=seeded(seed, "crowd"))
    # The challenge itself may be of these photographs: what is private is no stranger.
    strange = (space.distance(crops, private) > _SAME).all(dim=1)
    return crops[strange][:wanted]


def _file(path: str | None) -> str | None:
    return None if path is None else Path(path).name
