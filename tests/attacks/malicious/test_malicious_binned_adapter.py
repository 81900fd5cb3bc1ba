"""An adapter with bins: the patches of an image, though the model is frozen."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from leakgauge.attacks.malicious import BinnedAdapter
from leakgauge.data import Photos
from leakgauge.defences import NoDefence
from leakgauge.errors import InvalidCase
from leakgauge.metrics import PSNR, align
from leakgauge.models import MLP, build
from leakgauge.protocol import THREAT_MODELS, Federation, learner_and_state, simulate_round
from leakgauge.randomness import seeded
from leakgauge.space import ImageSpace
from leakgauge.types import Batch, Outcome

SHAPE = (3, 16, 16)


class Transformer(nn.Module):
    """Patches of 4 x 4 with a class token and learned positions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, width, 4, stride=4)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, 17, width))
        self.block = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        patches = self.embed(images).flatten(2).mT
        tokens = torch.cat((self.token.expand(len(images), -1, -1), patches), dim=1) + self.places
        return self.head(self.block(tokens)[:, 0])


def leak(module: nn.Module, batch: Batch):
    attack = BinnedAdapter(bins=400)
    sent = attack.tamper(Federation(*learner_and_state(module)), ImageSpace(*SHAPE))
    threat_model, defence = THREAT_MODELS["honest_but_curious"], NoDefence()
    seen = simulate_round(sent, batch, threat_model=threat_model, defence=defence, generator=seeded(0))
    return seen, attack(seen, generator=seeded(0))


@pytest.fixture(scope="module")
def module() -> nn.Module:
    torch.manual_seed(0)
    return Transformer(64).double()


@pytest.fixture(scope="module")
def batch() -> Batch:
    test = Photos(size=16)().test
    return Batch(test.inputs[:2].double(), test.labels[:2])


def test_the_patches_of_a_frozen_transformer_come_back_in_their_places(module, batch):
    seen, found = leak(module, batch[slice(0, 1)])
    assert all(".down." in name or ".up." in name for name in seen.update.params)
    assert found.facts["patches found"] >= found.facts["expected patches"] - 2
    assert found.facts["patches"] == 16
    if found.facts["patches found"] == 16:
        assert float(PSNR()(align(found, batch[slice(0, 1)]))[0]) > 40


@pytest.mark.parametrize(
    ("make", "count", "reason"),
    [
        (lambda: Transformer(64), 2, "among several images"),
        (lambda: Transformer(32), 1, "does not tell where its patch of 48 pixels is"),
        (lambda: build(MLP(hidden=(8,)), SHAPE, 10, seed=0), 1, "No layer of the model receives tokens"),
    ],
    ids=["two images", "narrow", "no tokens"],
)
def test_where_patches_have_no_place_the_reason_is_given(make, count, reason, batch):
    _, found = leak(make().double(), batch[slice(0, count)])
    assert found.outcome is Outcome.NOT_APPLICABLE
    assert reason in found.facts["reason"]


def test_more_measures_than_bins_are_refused():
    with pytest.raises(InvalidCase, match="bins >= measures"):
        BinnedAdapter(bins=1, measures=2)
