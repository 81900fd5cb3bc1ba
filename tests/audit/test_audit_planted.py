"""Results planted into an audit as a stranger would: the verdict is what was planted, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import pytest
import torch
from audit_support import *  # noqa: F403
from audit_support import MakeRecord
from sklearn.datasets import load_digits
from torch import Generator, Tensor, nn
from torch.nn.functional import avg_pool2d, cross_entropy

import leakgauge
from leakgauge import Outcome, UpdateObservation, Verdict
from leakgauge.attacks.base import Attack
from leakgauge.audit.crowd import Pool, draw_crowd
from leakgauge.audit.result import Finding, summarise_records
from leakgauge.audit.verdict import Reason
from leakgauge.config import build_dataset
from leakgauge.metrics import weigh_evidence
from leakgauge.space import ImageSpace
from leakgauge.types import Batch, Reconstruction

SHAPE = (3, 8, 8)


class Planted(Attack):
    """Returns what it was given for the update it knows; for others noise, or the same."""

    def __init__(self, known: Tensor, images: Tensor, otherwise: str) -> None:
        self.known, self.images, self.otherwise = known, images, otherwise

    def __repr__(self) -> str:
        return f"Planted({self.otherwise!r}, {self.images.double().sum().item()!r})"

    def __call__(self, observation: UpdateObservation, *, generator: Generator, progress=None) -> Reconstruction:
        found = torch.allclose(flat(observation.update.params.values()), self.known, atol=1e-6)
        noise = torch.rand(max(1, len(self.images)), *SHAPE, generator=generator)
        images = self.images if found or self.otherwise == "the same" else noise
        return Reconstruction(images, None, Outcome.SOLVED)


def flat(tensors) -> Tensor:
    return torch.cat([one.flatten() for one in tensors])


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 10))


def photographs(split: str) -> Tensor:
    """Crops with something on them: a blur of 14 dB leaves something to be seen."""
    dataset = build_dataset("photos:size=8", None)
    images = (dataset.test if split == "test" else dataset.train).inputs
    return images[images.flatten(1).std(dim=1) > 0.2]


def audited(victims: Tensor, planted: Tensor, otherwise: str = "noise", references: Tensor | None = None) -> Finding:
    labels, net = torch.arange(len(victims)) % 10, model()
    known = flat(torch.autograd.grad(cross_entropy(net(victims), labels), list(net.parameters())))
    attack = Planted(known, planted, otherwise)
    audit = leakgauge.audit(net, batch=(victims, labels), attacks=[attack], defences=["none"], references=references)
    return audit["none"]


def drawn(count: int, seed: int) -> Tensor:
    images = photographs("test")
    return images[torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))[:count]]


def degrade(image: Tensor, least: float, change: Callable[[Tensor, float], Tensor]) -> Tensor:
    """The change at the strength that brings the image down to a PSNR."""
    low, high = 0.0, 1.0
    for _ in range(30):
        strength = (low + high) / 2
        error = (change(image, strength) - image).square().mean()
        low, high = (strength, high) if -10 * torch.log10(error) > least else (low, strength)
    return change(image, low)


def blur(image: Tensor, strength: float) -> Tensor:
    wide = avg_pool2d(nn.functional.pad(image[None], (2, 2, 2, 2), mode="replicate"), 5, 1)[0]
    return (1 - strength) * image + strength * wide


def grain(image: Tensor, strength: float) -> Tensor:
    return image + strength * torch.randn(image.shape, generator=torch.Generator().manual_seed(1))


CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "exact": lambda image: image,
    "blurred to 18 dB": lambda image: degrade(image, 18, blur),
    "blurred to 14 dB": lambda image: degrade(image, 14, blur),
    "noisy at 18 dB": lambda image: degrade(image, 18, grain),
    "noisy at 14 dB": lambda image: degrade(image, 14, grain),
    "mirrored": lambda image: image.flip(-1),
    "half the contrast": lambda image: 0.5 * image + 0.25,
}


def among_noise(images: Tensor, leaked: int, change: str) -> Tensor:
    planted = torch.rand(images.shape, generator=torch.Generator().manual_seed(2))
    planted[len(images) - leaked :] = torch.stack([CHANGES[change](image) for image in images[:leaked]])
    return planted


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("leaked", "victims"), [(1, 4)])
def test_what_was_planted_is_found_and_named(leaked: int, victims: int, change: str) -> None:
    images = drawn(victims, seed=victims)
    row = audited(images, among_noise(images, leaked, change), references=photographs("train"))
    assert row.verdict is Verdict.LEAKS_PARTLY
    assert row.leaks == tuple((0, place) for place in range(leaked))


@lru_cache
def crowd_of(victims: int) -> tuple[Tensor, Tensor]:
    """Private images, and as many strangers as an audit of them would have."""
    images = drawn(victims, seed=victims + 1)
    private = Batch(images, torch.arange(victims) % 10)
    drawing = {"tests": victims, "at_least": 99, "generator": torch.Generator().manual_seed(0)}
    crowd = draw_crowd(ImageSpace(*SHAPE), private, Pool(photographs("train"), None, "photographs"), **drawing).inputs
    assert crowd is not None
    return images, crowd


@lru_cache
def evidence_of_noise(victims: int) -> tuple[float, ...]:
    images, crowd = crowd_of(victims)
    noise = torch.rand(images.shape, generator=torch.Generator().manual_seed(4))
    return weigh_evidence(noise, images, crowd, ImageSpace(*SHAPE)).p


@pytest.mark.parametrize(("leaked", "victims"), [(1, 1), (1, 4), (1, 8), (2, 16), (1, 64), (6, 64), (28, 64)])
@pytest.mark.parametrize("change", CHANGES)
def test_a_record_of_what_was_planted_is_judged_a_leak(
    leaked: int, victims: int, change: str, make_record: MakeRecord
) -> None:
    images, crowd = crowd_of(victims)
    known = {"strangers": len(crowd), "batch_size": victims}
    planted = weigh_evidence(among_noise(images, leaked, change), images, crowd, ImageSpace(*SHAPE)).p
    found = [planted, evidence_of_noise(victims)]
    records = [make_record(evidence=found[bool(number)], null=number, **known) for number in range(4)]
    (row,) = summarise_records(records, {}).rows
    assert row.verdict is (Verdict.LEAKS if 2 * leaked >= victims else Verdict.LEAKS_PARTLY)
    named = {place for _, place in row.leaks}
    if victims < 16 or "dB" not in change:
        assert named >= set(range(leaked))
    assert len(named - set(range(leaked))) <= 2  # of the same scene as one that leaked


@pytest.mark.parametrize("count", [0, 1, 3, 9])
def test_more_and_fewer_candidates_than_examples_are_judged(count: int) -> None:
    images = drawn(4, seed=7)
    planted = torch.cat([images[1:2], torch.rand(8, *SHAPE, generator=torch.Generator().manual_seed(3))])[:count]
    row = audited(images, planted)
    assert row.leaks == (((0, 1),) if count else ())
    assert row.verdict is (Verdict.LEAKS_PARTLY if count else Verdict.INCONCLUSIVE)


NOTHING: dict[str, Callable[[int], Tensor]] = {
    "noise": lambda count: torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(5)),
    "the mean image": lambda count: photographs("train").mean(dim=0).expand(count, -1, -1, -1),
    "others' images": lambda count: photographs("train")[11 : 11 + count],
    "a constant": lambda count: torch.full((count, *SHAPE), 0.4),
}


@pytest.mark.parametrize("what", NOTHING)
@pytest.mark.parametrize("victims", ["photographs", "flat", "sparse"])
def test_what_is_of_nobody_is_no_leak(victims: str, what: str) -> None:
    generator = torch.Generator().manual_seed(6)
    images = {
        "photographs": drawn(4, seed=8),
        "flat": torch.rand(4, 3, 1, 1, generator=generator).expand(4, *SHAPE).clone(),
        "sparse": (torch.rand(4, *SHAPE, generator=generator) > 0.8).float(),
    }[victims]
    row = audited(images, NOTHING[what](4))
    assert (row.verdict, row.leaked) == (Verdict.INCONCLUSIVE, 0)
    assert Reason.CONTROL_FAILED in row.judgement.reasons  # it finds nothing in any update


@pytest.mark.parametrize("seed", range(2))
def test_without_references_another_of_the_same_kind_is_no_leak_but_a_copy_is(seed: int) -> None:
    """Any digit is nearer to another than every photograph is: made strangers convict nobody of less than a copy."""
    order = torch.randperm(1797, generator=torch.Generator().manual_seed(seed))
    digits = (torch.from_numpy(load_digits().images).float() / 16)[order][:, None].expand(-1, *SHAPE)
    for others in (digits[100:104], digits[100:400].mean(dim=0).expand(4, *SHAPE)):
        row = audited(digits[:4].clone(), others.clone())
        assert (row.verdict, row.leaked) == (Verdict.INCONCLUSIVE, 0)
    assert audited(digits[:4].clone(), digits[:4].clone()).verdict is Verdict.LEAKS


def test_a_copy_of_one_of_the_crowd_is_no_leak() -> None:
    references = photographs("train")
    for seed in range(3):
        row = audited(drawn(4, seed=seed), references[seed : seed + 4], references=references)
        assert row.leaked == 0


@pytest.mark.parametrize("victims", [1, 4])
def test_what_comes_back_from_every_update_is_no_leak_of_this_one(victims: int) -> None:
    images = drawn(victims, seed=9)
    row = audited(images, images, otherwise="the same")
    assert row.verdict is Verdict.INCONCLUSIVE
    assert Reason.NULL_RECOVERS_TOO in row.judgement.reasons
