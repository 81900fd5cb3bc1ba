"""The static risk of architectures: known values, and that gradients obey it."""

import pytest
import torch
from torch import Tensor, nn

from leakgauge.catalogue import MODELS
from leakgauge.config import build
from leakgauge.protocol.learner import learner_and_state
from leakgauge.risk.layers import LayerRisk, ending_changes, layer_risks
from leakgauge.space import ImageSpace
from leakgauge.types import Batch


def risks_of(model: nn.Module, shape: tuple[int, int, int]) -> dict[str, LayerRisk]:
    learner, state = learner_and_state(model)
    batch = Batch(torch.rand(1, *shape, dtype=state.dtype), torch.zeros(1, dtype=torch.long))
    return {risk.name: risk for risk in layer_risks(learner, state, ImageSpace(*shape), batch)}


@pytest.mark.parametrize(
    ("words", "limits"),
    [
        ("resnet20_4", {"stage2": 0, "stage3": 3}),
        ("resnet:depth=18", {"stage2": 0, "stage3": 3, "stage4": 31}),
        ("resnet:depth=20,base_width=16", {"stage1": 0, "stage2": 0, "stage3": 0}),
        ("convnet:width=64", {"conv6": 0, "conv7": 2, "conv8": 3}),  # whose last pooling drops a row and a column
    ],
)
def test_the_batches_up_to_which_stages_give_inputs_away_are_the_known_ones(words: str, limits: dict[str, int]) -> None:
    found = risks_of(build(MODELS, words, kind="model")((3, 32, 32), 10), (3, 32, 32))
    for stage, limit in limits.items():
        assert max(risk.largest_batch for name, risk in found.items() if name.startswith(stage)) == limit
    # 256 to 2304 numbers behind the last pooling are not a picture of 3072.
    assert not found["head"].whole


class OneToken(nn.Module):
    """Tokens that mix, of which the first alone is classified."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 24, 4, stride=4)
        self.mix = nn.Linear(4, 4)
        self.last = nn.Linear(24, 24)
        self.head = nn.Linear(24, 10)

    def forward(self, x: Tensor) -> Tensor:
        tokens = torch.tanh(self.embed(x).flatten(2))
        tokens = torch.tanh(self.mix(tokens)).transpose(1, 2)
        return self.head(torch.tanh(self.last(tokens))[:, 0])


def test_positions_the_loss_does_not_depend_on_are_left_out() -> None:
    found = risks_of(OneToken(), (3, 8, 8))
    assert {name: risk.positions for name, risk in found.items()} == {"embed": 4, "mix": 24, "last": 1, "head": 1}
    assert {name: risk.largest_batch for name, risk in found.items()} == {"embed": 5, "mix": 0, "last": 23, "head": 9}
    assert {name: risk.entries for name, risk in found.items()} == {"embed": 192, "mix": 96, "last": 24, "head": 24}
    assert [name for name, risk in found.items() if risk.whole] == ["embed"]


class Strange(nn.Module):
    """A grouped convolution, and one weight that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.grouped = nn.Conv2d(4, 40, 3, stride=4, groups=2)
        self.twice = nn.Linear(40, 40)
        self.head = nn.Linear(160, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.grouped(x)).flatten(2).transpose(1, 2)
        return self.head(torch.tanh(self.twice(torch.tanh(self.twice(y)))).flatten(1))


def test_the_rank_of_every_gradient_is_the_one_the_rule_says() -> None:
    model = Strange().double()
    found = risks_of(model, (4, 8, 8))
    assert {name: risk.positions for name, risk in found.items()} == {"grouped": 4, "twice": 8, "head": 1}
    assert {name: risk.largest_batch for name, risk in found.items()} == {"grouped": 4, "twice": 4, "head": 9}
    learner, state = learner_and_state(model)
    for count in (1, 2, 4, 5):
        images = torch.rand(count, 4, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(count))
        gradient = learner.gradient(state, Batch(images, torch.arange(count)))
        matrices = {
            "grouped": gradient["grouped.weight"][:20].flatten(1),
            "twice": gradient["twice.weight"],
            "head": gradient["head.weight"],
        }
        for name, matrix in matrices.items():
            rank = int(torch.linalg.matrix_rank(matrix, rtol=1e-10))
            assert (rank == count * found[name].positions < min(matrix.shape)) == found[name].spans(count), (
                name,
                count,
            )


def test_the_changes_that_end_it_do_end_it() -> None:
    def net(width: int, pool: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.Tanh(), nn.MaxPool2d(pool), nn.Conv2d(32, width, 3, padding=1),
            nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10),
        )  # fmt: skip

    def exposed(model: nn.Module, batch_size: int) -> list[LayerRisk]:
        return [risk for risk in risks_of(model, (3, 8, 8)).values() if risk.whole and risk.spans(batch_size)]

    (second,) = exposed(net(40, 2), 2)
    assert (second.name, second.positions, second.largest_batch) == ("3", 16, 2)
    said = ending_changes([second], 2, "an image")
    assert "Batch: 3 examples" in said[0]
    assert not exposed(net(40, 2), 3)
    assert "32 instead of 40" in said[1]
    assert not exposed(net(32, 2), 2)
    assert "20 of an image instead of 16" in said[2]
    assert not exposed(net(40, 1), 2)
    frozen = net(40, 2)
    frozen.get_submodule("3").requires_grad_(requires_grad=False)
    assert not exposed(frozen, 2)
    assert ending_changes([second], 3, "an image") == ()
