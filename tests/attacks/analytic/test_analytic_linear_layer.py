"""One image, exactly, from the first linear layer."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from leakgauge.attacks.analytic import LinearLayer
from leakgauge.attacks.analytic.linear_layer import recover_input
from leakgauge.data import Digits, Photos
from leakgauge.errors import InvalidUpdate
from leakgauge.metrics import PSNR, align
from leakgauge.models import MLP, Compact, ConvNet, Normalisation, ResNet, build
from leakgauge.protocol import FedAvg, FedSGD
from leakgauge.randomness import seeded
from leakgauge.types import Batch, Outcome, Reconstruction

LOCAL_UPDATES = [FedSGD(), FedAvg(1, 1, 0.1), FedAvg(5, 1, 0.01), FedAvg(3, 8, 0.05)]
ANYWHERE = [(0.5,), (0.25,)], [(0.1, 0.5, 0.9), (0.3, 0.1, 2.0)]


@pytest.fixture(scope="module")
def pictures() -> list[Batch]:
    """A colour photograph and a grey digit."""
    photos, digits = Photos(size=16)(), Digits()()
    return [photos.test[slice(0, 1)], digits.test[slice(0, 1)]]


def attack(seen) -> Reconstruction:
    return LinearLayer()(seen, generator=seeded(0))


@pytest.mark.parametrize("local_update", LOCAL_UPDATES, ids=repr)
@pytest.mark.parametrize("factory", [MLP(), MLP(hidden=(32,), activation="sigmoid"), MLP(hidden=())], ids=repr)
def test_one_image_comes_back_beyond_100_db_in_float32(factory, local_update, pictures, attacked):
    for picture in pictures:
        shape = tuple(picture.inputs.shape[1:])
        for normalisation in (None, Normalisation((0.1, 0.5, 0.9)[: shape[0]], (0.3, 0.1, 2.0)[: shape[0]])):
            module = build(factory, shape, 10, seed=0, normalisation=normalisation)
            found = attack(attacked(module, picture, threat_model="honest_but_curious", local_update=local_update))
            assert found.outcome is Outcome.SOLVED
            assert found.facts == {"layer": "linear1" if factory.hidden else "head"}
            assert float(PSNR()(align(found, picture))) > 100
            assert torch.equal(found.labels, picture.labels)


@settings(deadline=None, max_examples=20)
@given(
    seed=st.integers(0, 10_000),
    channels=st.integers(1, 3),
    side=st.integers(2, 9),
    local_update=st.sampled_from(LOCAL_UPDATES),
    activation=st.sampled_from(["relu", "tanh", "gelu"]),
)
def test_one_image_comes_back_to_ten_digits_in_float64(
    seed, channels, side, local_update, activation, attacked, examples
):
    shape = (channels, side, side)
    batch = examples(1, shape, seed=seed, dtype=torch.float64)
    module = build(MLP(hidden=(24,), activation=activation), shape, 5, seed=seed).double()
    found = attack(attacked(module, batch, local_update=local_update))
    assert found.inputs.dtype == torch.float64
    torch.testing.assert_close(found.inputs, batch.inputs, rtol=0, atol=1e-10)


class Turned(nn.Module):
    """The pixels reach the linear layer, but not in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(192, 5)

    def forward(self, images: Tensor) -> Tensor:
        return self.linear(images.flip(-1).flatten(1))


class Twice(nn.Module):
    """The image and its features pass through one layer, so that its update is a sum of two."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.head = nn.Linear(192, 192), nn.Linear(192, 5)

    def forward(self, images: Tensor) -> Tensor:
        image = images.flatten(1)
        return self.head(self.linear(self.linear(image).tanh()) + self.linear(image))


NOT_APPLICABLE = {
    "a convolution comes first": (lambda: build(Compact(width=3), (3, 8, 8), 5, seed=0), 1, "no biased linear layer"),
    "batch norm comes first": (lambda: build(ResNet(depth=20, base_width=2), (3, 8, 8), 5, seed=0), 1, "no biased"),
    "there is no bias": (lambda: build(MLP(hidden=(8,), bias=False), (3, 8, 8), 5, seed=0), 1, "no biased"),
    "the weight is frozen": (lambda: frozen("linear1.weight"), 1, "no biased"),
    "the bias is frozen": (lambda: frozen("linear1.bias"), 1, "no biased"),
    "the pixels are turned": (Turned, 1, "no biased linear layer"),
    "the layer runs more than once": (Twice, 1, "no biased linear layer"),
    "two images": (lambda: build(MLP(hidden=(8,)), (3, 8, 8), 5, seed=0), 2, "several images"),
    "nothing was learnt": (lambda: silent(), 1, "zero"),
}


def frozen(name: str) -> nn.Module:
    module = build(MLP(hidden=(8,)), (3, 8, 8), 5, seed=0)
    dict(module.named_parameters())[name].requires_grad_(False)
    return module


def silent() -> nn.Module:
    """Every hidden unit is dead, so the first layer's update is zero."""
    module = build(MLP(hidden=(8,)), (3, 8, 8), 5, seed=0)
    nn.init.constant_(module.linear1.bias, -1e6)
    return module


@pytest.mark.parametrize("name", NOT_APPLICABLE)
def test_where_the_proposition_does_not_hold_the_attack_says_why(name, attacked, examples):
    make, count, reason = NOT_APPLICABLE[name]
    found = attack(attacked(make(), examples(count)))
    assert (found.inputs, found.labels, found.outcome) == (None, None, Outcome.NOT_APPLICABLE)
    assert reason in found.facts["reason"]


@pytest.mark.parametrize("name", ["linear1.weight", "linear1.bias", "head.weight"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_an_update_that_diverged_gives_no_image(name, bad, attacked, examples):
    seen = attacked(build(MLP(hidden=(8,)), (3, 8, 8), 5, seed=0), examples(1))
    seen.update.params[name].view(-1)[-1] = bad
    with pytest.raises(InvalidUpdate, match="NaN or infinite"):
        attack(seen)


def test_the_image_does_not_depend_on_the_labels(attacked, examples):
    class Soft(nn.Sequential):
        """Its output is not that of a linear layer, so no label can be read."""

    batch = examples(1)
    module = Soft(nn.Flatten(), nn.Linear(192, 8), nn.Tanh(), nn.Linear(8, 5), nn.Tanh()).double()
    batch = Batch(batch.inputs.double(), batch.labels)
    found = attack(attacked(module, batch, threat_model="honest_but_curious"))
    assert found.labels is None
    torch.testing.assert_close(found.inputs, batch.inputs, rtol=0, atol=1e-10)
    given_labels = attack(attacked(module, batch, threat_model="informed"))
    assert torch.equal(given_labels.labels, batch.labels)


def test_train_mode_batch_norm_behind_the_layer_does_no_harm(attacked, examples):
    # Proposition 3.1 asks nothing of what follows the layer.
    module = build(ConvNet(width=2), (3, 9, 9), 5, seed=0)
    assert attack(attacked(module, examples(1, (3, 9, 9)), mode="train")).outcome is Outcome.NOT_APPLICABLE
    behind = nn.Sequential(
        nn.Flatten(), nn.Linear(192, 32), nn.Unflatten(1, (2, 4, 4)), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(32, 5)
    )
    batch = examples(1)
    found = attack(attacked(behind, batch, mode="train"))
    assert float(PSNR()(align(found, batch))) > 80


def test_a_batch_norm_in_front_is_undone_only_while_it_stands_still(attacked, examples):
    batch = examples(1)
    module = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(192, 5))
    nn.init.uniform_(module[0].running_mean, 0.2, 0.8)
    nn.init.uniform_(module[0].weight, 0.5, 2)
    assert float(PSNR()(align(attack(attacked(module, batch)), batch))) > 80
    assert attack(attacked(module, batch, mode="train")).outcome is Outcome.NOT_APPLICABLE
    several = attacked(module, batch, local_update=FedAvg(3, 1, 0.1))
    assert attack(several).outcome is Outcome.NOT_APPLICABLE


def test_the_largest_bias_entry_is_divided_by():
    weight, bias = torch.tensor([[1e-9, 5.0], [2.0, 4.0], [0.3, 0.3]]), torch.tensor([1e-8, -2.0, 0.1])
    assert torch.equal(recover_input(weight, bias), torch.tensor([-1.0, -2.0]))
    assert recover_input(weight, torch.zeros(3)) is None
