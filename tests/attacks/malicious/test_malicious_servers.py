"""Dishonest servers: what each reads off the model it sent, exactly where it can, and nothing where it cannot."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, max_pool2d

from leakgauge import params as tree
from leakgauge.attacks.malicious import ConcatenatedInput, FrontLayer, IdentityConvolutions, LabelFlip, MaliciousAttack
from leakgauge.attacks.recipes import quasi_newton
from leakgauge.data import Digits, Photos
from leakgauge.defences import Clipping, NoDefence
from leakgauge.errors import InvalidCase, InvalidUpdate, MissingKnowledge
from leakgauge.metrics import PSNR, align
from leakgauge.models import MLP, Compact, ConvNet, LeNet, ResNet, build
from leakgauge.models.base import ACTIVATIONS
from leakgauge.protocol import THREAT_MODELS, FedAvg, Federation, FedSGD, learner_and_state, simulate_round
from leakgauge.protocol.learner import Tampering
from leakgauge.randomness import seeded
from leakgauge.space import ImageSpace
from leakgauge.training import Training, train
from leakgauge.types import Batch, Outcome, Reconstruction

SHAPE = (3, 16, 16)
PLAIN, UNDEFENDED = FedSGD(), NoDefence()
SHORT = LabelFlip(quasi_newton(steps=3))
SERVERS = [FrontLayer(), IdentityConvolutions(), ConcatenatedInput(), SHORT]


def federation(module: nn.Module, *, mode="eval", local_update=PLAIN) -> Federation:
    return Federation(*learner_and_state(module, mode=mode), local_update)


def observe(honest: Federation, batch: Batch, attack, *, threat_model="honest_but_curious", defence=UNDEFENDED):
    sent = attack.tamper(honest, ImageSpace.of(batch.inputs))
    return simulate_round(
        sent, batch, threat_model=THREAT_MODELS[threat_model], defence=defence, generator=seeded(0, "client")
    )


def leak(attack: MaliciousAttack, module: nn.Module, batch: Batch, *, mode="eval", local_update=PLAIN, **options):
    """What the attack makes of a batch that a client of this server trained on."""
    seen = observe(federation(module, mode=mode, local_update=local_update), batch, attack, **options)
    return attack(seen, generator=seeded(0))


def model(factory, shape=SHAPE, classes=10, *, dtype=torch.float64, seed=0) -> nn.Module:
    return build(factory, shape, classes, seed=seed).to(dtype)


def quality(found: Reconstruction, batch: Batch) -> list[float]:
    return PSNR()(align(found, batch)).tolist()


@pytest.fixture(scope="module")
def photos() -> Batch:
    """Photographs of ten different labels, in float64."""
    test = Photos(size=16)().test
    order = torch.randperm(len(test), generator=seeded(0))[:10]
    return Batch(test.inputs[order].double(), torch.arange(10))


# What holds for every dishonest server.


@pytest.mark.parametrize("attack", SERVERS, ids=lambda attack: type(attack).__name__)
def test_tampering_leaves_the_honest_model_bit_identical(attack, bits, examples):
    module = model(Compact(width=12))
    honest = federation(module)
    before = bits(module, honest, honest.learner.module)
    sent = attack.tamper(honest, ImageSpace(*SHAPE))
    simulate_round(
        sent,
        examples(1, SHAPE, dtype=torch.float64),
        threat_model=THREAT_MODELS["informed"],
        defence=NoDefence(),
        generator=seeded(0),
    )
    assert bits(module, honest, honest.learner.module) == before
    assert sent.learner.module is not honest.learner.module
    assert not tree_equal(sent.state.params, honest.state.params)
    assert sent.local_update == honest.local_update
    assert all(parameter.is_meta for parameter in sent.learner.module.parameters())


def tree_equal(left, right) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("attack", SERVERS, ids=lambda attack: type(attack).__name__)
def test_a_round_that_was_not_tampered_with_gives_a_reason_and_no_image(attack, attacked, examples):
    found = attack(attacked(model(Compact(width=3)), examples(1, SHAPE, dtype=torch.float64)), generator=seeded(0))
    assert (found.inputs, found.labels, found.outcome) == (None, None, Outcome.NOT_APPLICABLE)
    assert "did not get the model" in found.facts["reason"]


def test_a_round_of_another_server_is_not_read(examples):
    batch = examples(1, SHAPE, dtype=torch.float64)
    seen = observe(federation(model(Compact(width=12))), batch, FrontLayer(bins=8))
    assert FrontLayer(bins=8)(seen, generator=seeded(0)).inputs is not None
    for other in (FrontLayer(bins=9), ConcatenatedInput(), IdentityConvolutions(), SHORT):
        assert other(seen, generator=seeded(0)).outcome is Outcome.NOT_APPLICABLE


@pytest.mark.parametrize("attack", SERVERS, ids=lambda attack: type(attack).__name__)
def test_diverged_updates_and_hidden_batch_sizes_are_refused_by_name(attack, examples):
    seen = observe(federation(model(Compact(width=12))), examples(1, SHAPE, dtype=torch.float64), attack)
    with pytest.raises(MissingKnowledge, match=rf"^{type(attack).__name__} needs `num_examples`"):
        attack(replace(seen, num_examples=None), generator=seeded(0))
    next(iter(seen.update.params.values())).view(-1)[0] = float("nan")
    with pytest.raises(InvalidUpdate, match="NaN or infinite"):
        attack(seen, generator=seeded(0))


@pytest.mark.parametrize("attack", SERVERS, ids=lambda attack: type(attack).__name__)
def test_a_tampered_round_survives_pickling(attack, examples):
    seen = observe(federation(model(Compact(width=12))), examples(1, SHAPE, dtype=torch.float64), attack)
    again = pickle.loads(pickle.dumps(seen))  # noqa: S301
    assert again.learner.tampering == Tampering(attack)
    first, second = attack(seen, generator=seeded(0)), attack(again, generator=seeded(0))
    assert first.inputs is not None
    assert torch.equal(first.inputs, second.inputs)


@pytest.mark.parametrize("attack", SERVERS[:3], ids=lambda attack: type(attack).__name__)
def test_an_update_of_zero_gives_no_image(attack, examples):
    batch = examples(1, SHAPE, dtype=torch.float64)
    found = leak(attack, model(Compact(width=12)), batch, local_update=FedAvg(learning_rate=0.0))
    assert found.outcome is Outcome.NOT_APPLICABLE
    assert "is zero" in found.facts["reason"]


@pytest.mark.parametrize("attack", SERVERS[:3], ids=lambda attack: type(attack).__name__)
def test_an_unrelated_update_does_not_return_the_truth(attack, photos):
    truth, decoy = photos[slice(0, 1)], photos[slice(1, 2)]
    real = leak(attack, model(Compact(width=12)), truth)
    null = leak(attack, model(Compact(width=12)), decoy)
    assert quality(real, truth)[0] > quality(null, truth)[0] + 5
    assert quality(null, decoy)[0] > 20


@pytest.mark.parametrize("attack", [FrontLayer(), ConcatenatedInput()], ids=repr)
@pytest.mark.parametrize("local_update", [FedSGD(), FedAvg(3, 1, 0.01)], ids=repr)
@pytest.mark.parametrize("mode", ["eval", "train"])
def test_a_dishonest_architecture_gives_one_image_to_eight_digits(attack, local_update, mode, photos):
    batch = photos[slice(3, 4)]
    for factory in (Compact(width=3), ConvNet(width=2), ResNet(depth=20, base_width=2), MLP(hidden=(8,), bias=False)):
        found = leak(attack, model(factory), batch, local_update=local_update, mode=mode)
        torch.testing.assert_close(found.inputs, batch.inputs, rtol=0, atol=1e-8)
        assert found.outcome is Outcome.SOLVED


# (a) A layer in front.


def test_behind_256_bins_most_of_eight_images_are_exact():
    test = Photos(size=16)().test
    exact = []
    for chosen in torch.randperm(len(test), generator=seeded(1))[:80].split(8):
        batch = Batch(test.inputs[chosen].double(), test.labels[chosen])
        found = leak(FrontLayer(bins=256), model(Compact(width=3)), batch)
        assert len(found.inputs) == found.facts["bins that held images"] <= 8
        exact.append(sum(score > 60 for score in quality(found, batch)))
    assert sum(exact) >= 70
    assert min(exact) >= 4


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000), count=st.integers(1, 6), bins=st.integers(2, 64))
def test_an_image_alone_in_its_bin_is_exact_and_no_other_is_claimed(seed, count, bins):
    generator = seeded(seed)
    brightness = torch.rand(count, 1, 1, 1, generator=generator, dtype=torch.float64)
    images = (brightness + 0.1 * torch.rand(count, 1, 4, 4, generator=generator, dtype=torch.float64)).clamp(0, 1)
    batch = Batch(images, torch.randint(5, (count,), generator=generator))
    attack = FrontLayer(bins=bins, mean=0.5, spread=0.2)
    found = leak(attack, model(MLP(hidden=(8,), activation="tanh"), (1, 4, 4), 5, seed=seed), batch)
    quantiles = torch.distributions.Normal(0.5, 0.2).icdf(torch.arange(1, bins, dtype=torch.float64) / bins)
    bin_of = torch.bucketize(images.flatten(1).mean(1), quantiles)
    alone = [image for image, where in zip(images, bin_of.tolist()) if bin_of.tolist().count(where) == 1]
    assert len(found.inputs) == len(bin_of.unique())
    for image in alone:
        assert float((found.inputs - image).abs().amax(dim=(1, 2, 3)).min()) < 1e-6


def test_the_model_behind_keeps_working(photos):
    honest = federation(model(Compact()))
    sent = FrontLayer().tamper(honest, ImageSpace(*SHAPE))
    plain = honest.learner.logits(honest.state.params, honest.state.buffers, photos.inputs)
    fronted = sent.learner.logits(sent.state.params, sent.state.buffers, photos.inputs)
    assert torch.equal(plain.argmax(1), fronted.argmax(1)) or float((plain - fronted).abs().max()) < float(plain.std())
    # An image of the expected brightness passes unchanged.
    expected = torch.full((1, *SHAPE), 0.45, dtype=torch.float64)
    torch.testing.assert_close(
        sent.learner.logits(sent.state.params, sent.state.buffers, expected),
        honest.learner.logits(honest.state.params, honest.state.buffers, expected),
        rtol=0,
        atol=1e-12,
    )


@pytest.mark.parametrize("attack", [FrontLayer(), ConcatenatedInput()], ids=repr)
def test_clipping_does_not_stop_a_dishonest_architecture(attack, photos):
    batch = photos[slice(2, 6)]
    found = leak(attack, model(Compact(width=3)), batch, defence=Clipping(1e-3))
    assert min(quality(found, batch)) > 100


@pytest.mark.parametrize("options", [{"bins": 0}, {"spread": 0.0}, {"spread": float("nan")}, {"mean": float("inf")}])
def test_a_front_layer_without_sensible_bins_is_refused(options):
    with pytest.raises(InvalidCase, match="FrontLayer needs bins >= measures >= 1"):
        FrontLayer(**options)


# (b) Convolutions set to the identity.


def arriving(images: Tensor, factory) -> Tensor:
    """What of an image can arrive: every second pixel where channels are spare, the brightest of each window."""
    return max_pool2d(images, 9) if isinstance(factory, ConvNet) else images[..., ::2, ::2]


def read_back(images: Tensor, factory) -> Tensor:
    """The places of a reconstruction that show what arrived."""
    return images[..., 4:27:9, 4:27:9] if isinstance(factory, ConvNet) else images[..., ::2, ::2]


@pytest.mark.parametrize("factory", [LeNet(), Compact(), ConvNet(width=4)], ids=lambda factory: type(factory).__name__)
@pytest.mark.parametrize("local_update", [FedSGD(), FedAvg(1, 1, 0.1)], ids=repr)
def test_the_image_passes_an_honest_architecture_at_half_resolution_or_pooled(factory, local_update):
    test = Photos(size=32)().test
    batch = Batch(test.inputs[[0, 40, 80]].double(), torch.tensor([1, 5, 2]))
    for one in (batch[slice(0, 1)], batch):
        found = leak(IdentityConvolutions(), model(factory, (3, 32, 32)), one, local_update=local_update)
        if len(one) > 1 and local_update != FedSGD():
            continue  # the head is blank for the first example only
        assert found.outcome is Outcome.SOLVED
        assert torch.equal(found.labels, one.labels.sort().values)
        assert found.facts["resolution"] == ("3 x 3" if isinstance(factory, ConvNet) else "16 x 16")
        paired = align(found, one).reconstructions
        error = (read_back(paired, factory) - arriving(one.inputs, factory)).abs().max()
        assert float(error) < 1e-4


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_of_the_catalogue_can_be_inverted(activation, photos):
    batch = photos[slice(0, 4)]
    for factory in (LeNet(activation), Compact(12, activation)):
        found = leak(IdentityConvolutions(), model(factory), batch)
        paired = align(found, batch).reconstructions
        assert float((paired - batch.inputs)[..., ::2, ::2].abs().max()) < 1e-3


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 9, 9), (3, 11, 14), (1, 16, 5)], ids=str)
def test_any_size_arrives_at_its_own_places(shape, examples):
    batch = examples(1, shape, dtype=torch.float64)
    found = leak(IdentityConvolutions(), model(Compact(width=12), shape), batch)
    rows, columns = map(int, found.facts["resolution"].split(" x "))
    assert rows * columns * 4 >= shape[1] * shape[2]
    arrived = (found.inputs - batch.inputs).abs() < 1e-3
    assert int(arrived.all(dim=1).sum()) >= rows * columns


def test_without_strides_the_whole_image_passes(photos):
    plain = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 5, padding=2, bias=False))
    module = nn.Sequential(plain, nn.BatchNorm2d(3), nn.Tanh(), nn.Flatten(), nn.Linear(3 * 256, 10)).double()
    found = leak(IdentityConvolutions(), module, photos[slice(0, 9)])
    assert found.facts["resolution"] == "16 x 16"
    assert min(quality(found, photos[slice(0, 9)])) > 80


def test_a_hidden_linear_layer_gives_one_image_but_not_several(photos):
    module = nn.Sequential(
        nn.Conv2d(3, 3, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(192, 20), nn.ReLU()
    )
    module = nn.Sequential(module, nn.Linear(20, 10)).double()
    found = leak(IdentityConvolutions(), module, photos[slice(0, 1)])
    assert (found.facts["layer"], found.facts["resolution"]) == ("0.4", "8 x 8")
    # Interpolated between the middles of the windows: the middle itself is the mean of four.
    small = avg_pool2d(photos.inputs[:1], 2)
    assert float((avg_pool2d(found.inputs, 2) - small).abs().mean()) < 0.05
    several = leak(IdentityConvolutions(), module, photos[slice(0, 2)])
    assert several.outcome is Outcome.NOT_APPLICABLE
    assert "mixes several images" in several.facts["reason"]


class Residual(nn.Module):
    """Two branches that are added, and no pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.long, self.short = nn.Conv2d(3, 12, 3, stride=2, padding=1), nn.Conv2d(3, 12, 1, stride=2)
        self.head = nn.Linear(12 * 64, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.head((self.long(images) + self.short(images)).flatten(1))


def test_branches_carry_the_same_pixels(photos):
    found = leak(IdentityConvolutions(), Residual().double(), photos[slice(0, 3)])
    assert found.facts["resolution"] == "8 x 8"
    paired = align(found, photos[slice(0, 3)]).reconstructions
    assert float((paired - photos.inputs[:3])[..., ::2, ::2].abs().max()) < 1e-6


NO_WAY = {
    "global pooling": (lambda: model(ResNet(depth=20, base_width=3)), "eval", "no more than 1 x 1 points"),
    "no convolution": (lambda: model(MLP()), "eval", "no convolution to set"),
    "too narrow": (lambda: model(Compact(width=2)), "eval", "2 output channels and cannot carry 3 colours"),
    "batch statistics": (lambda: model(ConvNet(width=3)), "train", "BatchNorm in train mode"),
    "groups": (
        lambda: nn.Sequential(nn.Conv2d(3, 3, 3, groups=3), nn.Flatten(), nn.Linear(588, 10)).double(),
        "eval",
        "has groups",
    ),
    "no bias": (
        lambda: nn.Sequential(nn.Conv2d(3, 3, 3), nn.Flatten(), nn.Linear(588, 10, bias=False)).double(),
        "eval",
        "No trainable linear layer with a bias",
    ),
    "a weight made of others": (
        lambda: nn.Sequential(
            nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 3, 3)), nn.Flatten(), nn.Linear(588, 10)
        ).double(),
        "eval",
        "computes its weight from other tensors",
    ),
    "normalised by itself": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 3, 3, padding=1), nn.InstanceNorm2d(3), nn.Flatten(), nn.Linear(768, 10)
        ).double(),
        "eval",
        "Nothing of the image arrives",
    ),
}


@pytest.mark.parametrize("name", NO_WAY)
def test_an_architecture_without_a_way_for_the_image_is_left_alone_and_the_reason_given(name, examples):
    make, mode, reason = NO_WAY[name]
    honest = federation(make(), mode=mode)
    sent = IdentityConvolutions().tamper(honest, ImageSpace(*SHAPE))
    assert sent.state is honest.state
    assert sent.learner.module is honest.learner.module
    found = leak(IdentityConvolutions(), make(), examples(1, SHAPE, dtype=torch.float64), mode=mode)
    assert (found.inputs, found.outcome) == (None, Outcome.NOT_APPLICABLE)
    assert reason in found.facts["reason"]
    assert "\n" not in found.facts["reason"]


# (c) The image at the classifier.


def test_the_image_beside_the_features_changes_no_prediction(photos):
    honest = federation(model(Compact(width=3)))
    sent = ConcatenatedInput(blank_head=False).tamper(honest, ImageSpace(*SHAPE))
    plain = honest.learner.logits(honest.state.params, honest.state.buffers, photos.inputs)
    torch.testing.assert_close(sent.learner.logits(sent.state.params, sent.state.buffers, photos.inputs), plain)
    found = leak(ConcatenatedInput(blank_head=False), model(Compact(width=3)), photos[slice(2, 3)])
    torch.testing.assert_close(found.inputs, photos.inputs[2:3], rtol=0, atol=1e-8)
    assert found.labels.tolist() == [2]
    several = leak(ConcatenatedInput(blank_head=False), model(Compact(width=3)), photos[slice(0, 2)])
    assert several.outcome is Outcome.NOT_APPLICABLE
    assert "blank_head" in several.facts["reason"]


@pytest.mark.parametrize("threat_model", ["honest_but_curious", "informed"])
def test_a_blank_head_tells_nine_images_of_ten_classes_apart(threat_model, photos):
    batch = photos[torch.tensor([7, 1, 3, 0, 9, 5, 2, 8, 4])]
    found = leak(ConcatenatedInput(), model(Compact(width=3)), batch, threat_model=threat_model)
    assert min(quality(found, batch)) > 150
    assert torch.equal(found.labels.sort().values, batch.labels.sort().values)


def test_images_that_share_a_label_come_back_as_their_mean_and_all_labels_are_counted(photos):
    batch = Batch(photos.inputs[:5], torch.tensor([3, 1, 3, 3, 6]))
    found = leak(ConcatenatedInput(), model(Compact(width=3)), batch)
    assert found.labels.tolist() == [1, 3, 3, 3, 6]
    mean = photos.inputs[[0, 2, 3]].mean(0)
    expected = torch.stack([photos.inputs[1], mean, mean, mean, photos.inputs[4]])
    torch.testing.assert_close(found.inputs, expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("labels", "reason"),
    [(torch.arange(10), "every class is present"), (torch.full((10, 10), 0.1).double(), "class probabilities")],
)
def test_where_labels_cannot_sort_the_images_the_attack_says_so(labels, reason, photos):
    found = leak(ConcatenatedInput(), model(Compact(width=3)), Batch(photos.inputs, labels), threat_model="informed")
    assert (found.inputs, found.outcome) == (None, Outcome.NOT_APPLICABLE)
    assert reason in found.facts["reason"]


class Reused(nn.Module):
    """Looks into its own classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(768, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(images.flatten(1) * self.head.weight.sum())


def test_a_model_that_breaks_under_tampering_is_refused(examples):
    found = leak(ConcatenatedInput(), Reused().double(), examples(1, SHAPE, dtype=torch.float64))
    assert found.outcome is Outcome.NOT_APPLICABLE
    assert found.facts["reason"].startswith("The model cannot be tampered with")
    soft = nn.Sequential(nn.Flatten(), nn.Linear(768, 10), nn.Tanh()).double()
    for attack in (ConcatenatedInput(), SHORT):
        found = leak(attack, soft, examples(1, SHAPE, dtype=torch.float64))
        assert "not the output of an nn.Linear layer" in found.facts["reason"]


# (d) Flipped labels.


@pytest.mark.parametrize("classes", [None, (4, 1)])
def test_the_tampered_head_is_a_permutation_and_nothing_else_moved(classes):
    honest = federation(model(Compact(width=3)))
    sent = LabelFlip(classes=classes).tamper(honest, ImageSpace(*SHAPE))
    order = [9, *range(9)] if classes is None else [0, 4, 2, 3, 1, *range(5, 10)]
    for name, tensor in honest.state.params.items():
        assert torch.equal(sent.state.params[name], tensor[order] if name.startswith("head.") else tensor)
    assert tree_equal(sent.state.buffers, honest.state.buffers)


def test_flipped_labels_make_the_small_gradients_of_a_trained_model_large():
    data = Digits()()
    module = build(MLP(hidden=(32,)), data.space.shape, 10, seed=0)
    train(module, data.train, Training(steps=300, learning_rate=0.1), generator=seeded(0))
    honest = federation(module)
    flipped = LabelFlip().tamper(honest, data.space)
    right = (module(data.test.inputs).argmax(1) == data.test.labels).nonzero().flatten()
    growth = []
    for index in right[:20].tolist():
        victim = data.test[slice(index, index + 1)]
        small, large = (float(tree.norm(one.learner.gradient(one.state, victim))) for one in (honest, flipped))
        growth.append(large / small)
    assert min(growth) > 1
    assert sorted(growth)[10] > 10


def test_after_the_flip_the_inner_attack_runs_and_finds_the_image(photos):
    batch = photos[slice(0, 1)]
    attack = LabelFlip(quasi_newton(steps=60))
    seen = observe(federation(model(MLP(hidden=(16,), activation="tanh"))), batch, attack)
    found = attack(seen, generator=seeded(0))
    assert quality(found, batch)[0] > 20
    assert torch.equal(found.labels, batch.labels)
    inner = quasi_newton(steps=60)(seen, generator=seeded(0))
    assert torch.equal(found.inputs, inner.inputs)
    assert found.outcome is inner.outcome


@pytest.mark.parametrize("classes", [(1,), (2, 2), (0, 1, 2)])
def test_only_two_different_classes_can_be_swapped(classes):
    with pytest.raises(InvalidCase, match="swaps two different classes"):
        LabelFlip(classes=classes)


def test_classes_that_the_model_does_not_have_are_refused():
    with pytest.raises(InvalidCase, match=r"has 10 \(0 to 9\)"):
        LabelFlip(classes=(3, 10)).tamper(federation(model(Compact(width=3))), ImageSpace(*SHAPE))
