"""One image through a vision transformer, exactly, however its embeddings are written."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from leakgauge.attacks.analytic import PatchEmbedding
from leakgauge.defences import Clipping, GaussianNoise
from leakgauge.metrics import PSNR, align
from leakgauge.protocol import FedAvg
from leakgauge.randomness import seeded
from leakgauge.types import Outcome

SIDE, PATCH, CLASSES = 12, 3, 5
COUNT = (SIDE // PATCH) ** 2
CELLS = 3 * PATCH**2


class Transformer(nn.Module):
    """Patches by a convolution, tokens with a class token in front, positions added, two blocks."""

    def __init__(self, width: int = 24, extra: int = 1) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = self.embedding(width)
        self.token = nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.position = self.positions(COUNT + extra, width)
        layer = nn.TransformerEncoderLayer(width, 4, 32, 0.0, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def embedding(self, width):
        return nn.Conv2d(3, width, PATCH, PATCH)

    def positions(self, count, width):
        return nn.Parameter(0.02 * torch.randn(1, count, width))

    def patches(self, x):
        return self.embed(x).flatten(2).transpose(1, 2)

    def tokens(self, z):
        return torch.cat([self.token.expand(len(z), -1, -1), z], dim=1) + self.position

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.tokens(self.patches((x - 0.5) / 0.25)))[:, 0]))


class Averaged(Transformer):
    """Without a class token, and with positions that are a map like the convolution's."""

    def positions(self, count, width):
        return nn.Parameter(0.02 * torch.randn(width, SIDE // PATCH, SIDE // PATCH))

    def forward(self, x):
        tokens = (self.embed(x) + self.position).flatten(2).mT
        return self.head(self.norm(self.blocks(tokens).mean(dim=1)))


class Unfolded(Transformer):
    """A linear layer on unfolded patches; positions looked up in a table, of which the class token has its own row."""

    def embedding(self, width):
        return nn.Linear(CELLS, width)

    def positions(self, count, width):
        return nn.Embedding(count, width)

    def patches(self, x):
        return self.embed(functional.unfold(x, PATCH, stride=PATCH).mT)

    def tokens(self, z):
        places = self.position(torch.arange(COUNT + 1))
        return torch.cat([(self.token + places[:1]).expand(len(z), -1, -1), z + places[1:]], dim=1)


class Multiplied(Unfolded):
    """The same as products of matrices, on patches whose entries are in another order."""

    def patches(self, x):
        side = SIDE // PATCH
        cells = x.reshape(len(x), 3, side, PATCH, side, PATCH).permute(0, 2, 4, 3, 5, 1).reshape(len(x), COUNT, CELLS)
        return cells @ self.embed.weight.T + self.embed.bias


class Overlapping(Transformer):
    """Patches that share pixels."""

    def embedding(self, width):
        return nn.Conv2d(3, width, PATCH + 2, PATCH, padding=1)


@pytest.fixture
def picture(examples):
    return examples(1, (3, SIDE, SIDE), CLASSES)


def attack(seen):
    return PatchEmbedding()(seen, generator=seeded(0))


@pytest.mark.parametrize("spelling", [Transformer, Averaged, Unfolded, Multiplied, Overlapping])
def test_a_picture_comes_back_and_is_certified_however_the_embeddings_are_written(spelling, picture, attacked):
    found = attack(attacked(spelling(), picture, threat_model="honest_but_curious"))
    assert found.outcome is Outcome.SOLVED
    assert float(PSNR()(align(found, picture))) > 80
    assert torch.equal(found.labels, picture.labels)
    assert found.certificate is not None
    assert found.certificate.residual < 1e-5


def test_clipping_and_local_steps_on_the_picture_change_nothing(picture, attacked):
    clipped = attacked(Transformer(), picture, defence=Clipping(0.1))
    assert float(PSNR()(align(attack(clipped), picture))) > 80
    steps = attacked(Transformer().double(), _double(picture), local_update=FedAvg(3, 1, 0.05))
    assert float(PSNR()(align(attack(steps), _double(picture)))) > 150


def test_noise_is_never_certified(picture, attacked):
    for size in (1e-6, 1e-3, 1.0):
        found = attack(attacked(Transformer(), picture, defence=GaussianNoise(size)))
        assert found.certificate is None


@pytest.mark.parametrize(
    ("module", "count", "reason"),
    [
        (Transformer(width=16), 1, "embeds 16 patches in 16 channels; more channels than patches are needed"),
        (Transformer(), 2, "mixes several"),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(400, 5)), 1, "no trained position"),
    ],
    ids=["too narrow", "two images", "a convolutional net"],
)
def test_what_the_update_does_not_determine_is_withheld_with_the_reason(module, count, reason, examples, attacked):
    found = attack(attacked(module, examples(count, (3, SIDE, SIDE), CLASSES)))
    assert found.outcome is Outcome.NOT_APPLICABLE
    assert found.inputs is None
    assert reason in str(found.facts["reason"])


def test_positions_that_are_not_trained_are_no_way_in(picture, attacked):
    module = Transformer()
    module.position.requires_grad_(False)
    found = attack(attacked(module, picture))
    assert found.inputs is None
    assert "no trained position embedding" in str(found.facts["reason"])


def _double(batch):
    return type(batch)(batch.inputs.double(), batch.labels)
