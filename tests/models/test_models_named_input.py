"""Models that take their inputs by name."""

import pytest
import torch
from torch import Tensor, nn

import leakgauge
from leakgauge.errors import InvalidCase
from leakgauge.protocol.state_dicts import plain_name


class ByKeyword(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(12, 3)

    def forward(self, *, pixel_values: Tensor, scale: float) -> dict[str, Tensor]:
        return {"logits": self.head(scale * pixel_values.flatten(1))}


class OfDicts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(12, 3)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return self.head(batch["scale"] * batch["image"].flatten(1))


@pytest.mark.parametrize(
    ("model", "name", "form"), [(ByKeyword(), "pixel_values", "keyword"), (OfDicts(), "image", "dict")], ids=repr
)
def test_inputs_arrive_under_their_name_with_the_others_beside_them(model, name, form):
    images = torch.rand(2, 3, 2, 2)
    out = leakgauge.NamedInput(model, name, form, scale=2.0)(images)
    scores = out["logits"] if form == "keyword" else out
    torch.testing.assert_close(scores, model.head(2 * images.flatten(1)))
    assert {plain_name(key) for key in leakgauge.NamedInput(model, name, form).state_dict()} == set(model.state_dict())


def test_a_model_that_takes_a_dict_is_audited():
    torch.manual_seed(0)
    image, label = torch.rand(1, 3, 2, 2), torch.tensor([1])
    wrapped = leakgauge.NamedInput(OfDicts(), "image", "dict", scale=1.0)
    result = leakgauge.audit(wrapped, batch=(image, label), attacks=["linear_layer"], defences=["none"], nulls=1)
    (row,) = result.rows
    assert row.measured("psnr").attack.mean > 100


def test_an_unknown_form_is_refused():
    with pytest.raises(InvalidCase, match="choose keyword or dict"):
        leakgauge.NamedInput(OfDicts(), "image", "list")
