"""Training on disguised images: every epoch another disguise of the whole set, and nothing else than that changes."""

from __future__ import annotations

import pytest
import torch

from leakgauge.defences import NoDefence
from leakgauge.encodings import CrossDataset, InsideDataset, Mixup
from leakgauge.encodings.crops import Cropping
from leakgauge.errors import InvalidCase
from leakgauge.models import MLP, build
from leakgauge.protocol.learner import Learner, learner_and_state
from leakgauge.randomness import seeded
from leakgauge.training import DefendedTraining, Training, hits
from leakgauge.training.disguises import Disguise, Encrypted, Moved, NoisyImages, Undisguised, hits_in_disguise
from leakgauge.types import Batch, ModelState

CLASSES = 3
DATA = Batch(torch.rand(24, 1, 4, 4, generator=torch.Generator().manual_seed(0)), torch.arange(24) % CLASSES)
EVERYONE = torch.arange(len(DATA))


def model() -> tuple[Learner, ModelState]:
    return learner_and_state(build(MLP(hidden=(8,)), (1, 4, 4), CLASSES, seed=0), mode="train")


def training(disguise: Disguise, steps: int = 7) -> DefendedTraining:
    settings = Training(steps, batch_size=8)
    return DefendedTraining(*model(), DATA, NoDefence(), settings, disguise=disguise, seed=1)


def once(disguise: Disguise, seed: int = 0) -> Batch:
    return disguise.epoch(DATA, classes=CLASSES, generator=seeded(seed, "epoch"))(EVERYONE, seeded(seed, "mask"))


def test_undisguised_training_makes_the_very_steps_of_an_undefended_one() -> None:
    plain = DefendedTraining(*model(), DATA, NoDefence(), Training(7, batch_size=8), seed=1)
    disguised = training(Undisguised())
    while not plain.over:
        plain.step()
        disguised.step()
    for name, tensor in plain.state.params.items():
        assert torch.equal(tensor, disguised.state.params[name])


def test_a_mask_alone_leaves_every_pixel_or_reflects_it() -> None:
    shown = once(Encrypted(InsideDataset(1, 1.0)))
    flipped = shown.inputs != DATA.inputs
    torch.testing.assert_close(torch.where(flipped, 1 - shown.inputs, shown.inputs), DATA.inputs)
    assert 0.3 < float(flipped.double().mean()) < 0.7
    assert torch.equal(shown.labels.argmax(dim=1), DATA.labels)


def test_mixing_is_linear_in_images_and_labels_alike() -> None:
    constant = Batch(DATA.labels.view(-1, 1, 1, 1).float().expand(-1, 1, 4, 4) / CLASSES, DATA.labels)
    shown = Encrypted(Mixup(4)).epoch(constant, classes=CLASSES, generator=seeded(0, "a"))(EVERYONE, seeded(0, "b"))
    expected = shown.labels @ torch.arange(CLASSES).float() / CLASSES
    torch.testing.assert_close(shown.inputs[:, 0, 0, 0], expected)


def test_of_public_images_nothing_is_in_the_label() -> None:
    public = torch.rand(9, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    weights = once(Encrypted(CrossDataset(4), public)).labels.sum(dim=1)
    assert float(weights.max()) < 1
    assert float(weights.min()) >= 0.3 - 1e-6


def test_every_epoch_has_a_key_of_its_own_and_a_resumed_training_the_same_ones() -> None:
    first, again = training(Encrypted(InsideDataset(2))), training(Encrypted(InsideDataset(2)))
    for step in (4, 0, 4):  # in any order, as after a resumption
        assert torch.equal(first.batch(step).inputs, again.batch(step).inputs)
    assert not torch.equal(first.batch(0).inputs, first.batch(3).inputs)


@pytest.mark.parametrize("alpha", [0.25, 1.0])
def test_noise_has_the_norm_of_what_is_mixed_in(alpha: float) -> None:
    many = Batch(DATA.inputs.repeat(40, 1, 1, 1), DATA.labels.repeat(40))
    shown = NoisyImages(alpha).epoch(many, classes=CLASSES, generator=seeded(0, "a"))(
        torch.arange(len(many)), seeded(0, "b")
    )
    noise = shown.inputs - 0.5 - (1 - alpha) * (many.inputs - 0.5)
    wanted = alpha * float((DATA.inputs - 0.5).abs().mean())
    # 15,360 draws with the standard deviation of |e| equal to its mean: five standard errors are 4 %.
    assert float(noise.abs().mean()) == pytest.approx(wanted, rel=0.04)
    assert abs(float(noise.mean())) < 0.06 * wanted
    # Of Laplace noise E e^2 = 2 (E|e|)^2; Gaussian noise would give pi / 2.
    assert float(noise.square().mean()) == pytest.approx(2 * wanted**2, rel=0.1)


def test_no_noise_changes_nothing() -> None:
    torch.testing.assert_close(once(NoisyImages(0.0)).inputs, DATA.inputs)


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan")])
def test_a_share_lies_between_none_and_all(alpha: float) -> None:
    with pytest.raises(InvalidCase, match=r"\[0, 1\]"):
        NoisyImages(alpha)


def test_asking_in_no_disguise_is_asking() -> None:
    learner, state = model()
    plain = hits(learner, state, DATA, NoDefence(), generator=seeded(0, "a"))
    assert 0 < float(plain.mean()) < 1
    found = hits_in_disguise(learner, state, DATA, Undisguised(), generator=seeded(0, "a"))
    assert torch.equal(found, plain)


def test_nobody_is_asked_about_nothing() -> None:
    found = hits_in_disguise(*model(), DATA[:0], Undisguised(), generator=seeded(0, "a"))
    assert len(found) == 0


def test_images_are_moved_before_they_are_disguised_and_their_labels_stay() -> None:
    shown = once(Moved(cropping=Cropping(margin=1)))
    assert torch.equal(shown.labels, DATA.labels)
    places = torch.stack(list(Cropping(margin=1).every(DATA.inputs)))
    assert bool((places == shown.inputs).flatten(2).all(dim=2).any(dim=0).all())
    assert not torch.equal(shown.inputs, DATA.inputs)
    masked = once(Moved(Encrypted(InsideDataset(1, 1.0)), Cropping(margin=0, mirror=False)))
    torch.testing.assert_close((masked.inputs - 0.5).abs(), (DATA.inputs - 0.5).abs())
