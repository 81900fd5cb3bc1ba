"""A model or loss that fails says in which layer, and what to do."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from leakgauge.audit.plan import OwnClient
from leakgauge.errors import InvalidCase
from leakgauge.protocol.learner import Mode, learner_and_state
from leakgauge.protocol.validation import check_batch, check_loss
from leakgauge.types import Batch


def convolutional(channels: int = 3, features: int = 8 * 8 * 8, classes: int = 10) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(features, classes)
    )


class Lazy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.LazyConv2d(8, 3)
        self.head = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean((2, 3)))


class Normed(nn.Module):
    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.body, self.norm, self.head = nn.Conv2d(3, 8, 3), norm, nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.body(x)).mean((2, 3)))


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(768, 10)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.head(x.flatten(1) * mask)


class OfDicts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = convolutional()

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return self.inner(batch["image"])


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(10, 8), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.words(x).mean((1, 2, 3)))


class Picky(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = convolutional()

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] != 224:
            raise ValueError("only 224 pixels")
        return self.inner(x)


def frozen() -> nn.Module:
    return convolutional().requires_grad_(requires_grad=False)


def quantised() -> nn.Module:
    floating = nn.Sequential(nn.Flatten(), nn.Linear(768, 10))
    return torch.ao.quantization.quantize_dynamic(floating, {nn.Linear}, dtype=torch.qint8)


def check(client: OwnClient, mode: Mode) -> None:
    learner, state = learner_and_state(client.model, client.loss, mode=mode)
    check_batch(learner, state, client.batch)
    check_loss(learner, state, client.batch)


def refusal(client: OwnClient, mode: Mode = "eval") -> str:
    with pytest.raises(InvalidCase) as caught:
        check(client, mode)
    return str(caught.value)


BATCH = Batch(torch.full((2, 3, 16, 16), 0.25), torch.tensor([1, 2]))


@pytest.mark.filterwarnings("ignore:.*quantiz.*", "ignore:Lazy modules")
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: convolutional(channels=1), "the layer '0' (Conv2d) takes 1 channel and got 3; give inputs with"),
        (lambda: convolutional(features=100), "the layer '3' (Linear) takes 100 features and got 512: the model was"),
        (lambda: convolutional(classes=2), "Labels run from 1 to 2, but the model has 2 classes"),
        (lambda: convolutional().half(), "(Conv2d) computes in float16 and got float32; use model.float()"),
        (lambda: convolutional().double(), "(Conv2d) computes in float64 and got float32; use model.float()"),
        (Lazy, "The layer 'body' (LazyConv2d) has no weights before its first input; run the model once"),
        (lambda: Normed(nn.LayerNorm([8, 4, 4])), "the layer 'norm' (LayerNorm) takes (8, 4, 4) and got (8, 14, 14)"),
        (lambda: Normed(nn.BatchNorm2d(4)), "the layer 'norm' (BatchNorm2d) takes 4 channels and got 8; give"),
        (Masked, "missing 1 required positional argument: 'mask'; hand the inputs to one argument by"),
        (OfDicts, "one that takes a dict is wrapped as leakgauge.NamedInput(model, name, 'dict')"),
        (Tokens, "the layer 'words' (Embedding) looks up whole numbers and got pixels"),
        (Picky, "only 224 pixels; check the size of the inputs and the forward of the model"),
        (frozen, "The model has no trainable parameter, so its update is empty; unfreeze"),
        (quantised, "The layer '1' is quantised, and no parameter of the model can be trained; give the model as it"),
    ],
)  # fmt: skip
def test_a_model_that_fails_names_the_layer_and_the_remedy(make: Callable[[], nn.Module], said: str) -> None:
    sentence = refusal(OwnClient(make(), BATCH))
    assert said in sentence
    assert sentence.endswith(".")
    assert len(sentence.splitlines()) == 1


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (lambda output, labels: cross_entropy(output, labels, reduction="none"), "2 numbers of shape (2,) instead of"),
        (lambda output, labels: [output], "The loss returns a list, not a tensor; let"),
        (lambda output, labels: (cross_entropy(output, labels), output), "The loss returns a tuple, not a tensor"),
        (lambda output, labels: cross_entropy(output, labels) / 0, "is inf, not a finite number; check"),
        (lambda output, labels: output[:, 99].sum(), "cannot be computed (index 99 is out of bounds"),
    ],
)  # fmt: skip
def test_a_loss_that_is_no_number_says_what_it_is(loss: Callable[[Tensor, Tensor], Tensor], said: str) -> None:
    assert said in refusal(OwnClient(convolutional(), BATCH, loss))


def test_one_value_per_channel_in_train_mode_names_the_layer_and_the_mode() -> None:
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(3, 10))
    one = Batch(BATCH.inputs[:1], BATCH.labels[:1])
    assert "the layer '1' (BatchNorm2d) normalises by the batch" in refusal(OwnClient(model, one), mode="train")
