"""Rounds as people record them, in plain torch: what was done, what was said of it, and what must come of it.

`CLEAN` is the client as it is declared; every other situation departs from it in one respect, or in two. Nothing of
LeakGauge computes an update here, so that a mistake of its own clients cannot hide.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import cross_entropy

from leakgauge import RecordedRound
from leakgauge.data import Photos
from leakgauge.types import Batch

SIZE = 12
CLASSES = 6
RATE = 0.1
DECLARED = f"fedavg:epochs=1,batch_size=1,learning_rate={RATE}"

Tree = dict[str, Tensor]


class Small(nn.Module):
    """A smooth convolutional net, with BatchNorm if asked for."""

    def __init__(self, outputs: int = CLASSES, norm: bool = False, width: int = 8) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(width) if norm else nn.Identity()
        self.conv2 = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.norm2 = nn.BatchNorm2d(width) if norm else nn.Identity()
        self.head = nn.Linear(width * (SIZE // 2) ** 2, outputs)

    def forward(self, images: Tensor) -> Tensor:
        hidden = functional.gelu(self.norm1(self.conv1(images)))
        hidden = functional.gelu(self.norm2(self.conv2(hidden)))
        return self.head(hidden.flatten(1))


def build() -> nn.Module:
    return make_model()


def build_with_norm() -> nn.Module:
    return make_model(norm=True)


def build_one_score() -> nn.Module:
    return make_model(outputs=1)


def make_model(**settings: Any) -> nn.Module:
    torch.manual_seed(0)
    return Small(**settings)


def private(count: int = 1, first: int = 0) -> Batch:
    """Embedded photographs, small."""
    photos = Photos()(None).test
    images = functional.interpolate(photos.inputs[first : first + count], size=SIZE, mode="area").clamp(0, 1)
    return Batch(images, torch.arange(first, first + count) % CLASSES)


def weights(model: nn.Module) -> Tree:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def train(
    model: nn.Module,
    batches: list[tuple[Tensor, Tensor]],
    *,
    optimiser: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
    loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy,
    accumulate: int = 1,
    clip: float | None = None,
    mode: bool = False,
    **settings: Any,
) -> tuple[Tree, Tree]:
    """The weights before and after a client's own training loop."""
    model.train(mode)
    before = weights(model)
    steps = optimiser([p for p in model.parameters() if p.requires_grad], **({"lr": RATE} | settings))
    steps.zero_grad()
    for index, (images, labels) in enumerate(batches):
        loss(model(images), labels).backward()
        if (index + 1) % accumulate == 0:
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            steps.step()
            steps.zero_grad()
    return before, weights(model)


@dataclass(frozen=True)
class Made:
    """A round as it was recorded, the truth that its maker gives, and the factory of the model."""

    recorded: RecordedRound
    truth: Batch
    factory: str = "build"


@dataclass(frozen=True)
class Situation:
    """``make`` records the round, or is refused with the words ``refused``.

    ``cause`` are the words of the reading that explains it: with the truth, and by attack alone where the latter can
    tell; None = as declared. ``leaks`` says whether the attack finds the image though it was misread.
    """

    name: str
    make: Callable[[], Made]
    cause: str | None = None
    refused: str | None = None
    by_attack: bool = True
    leaks: bool = False
    options: tuple[str, ...] = field(default=())


def record(before: Tree, after: Tree, truth: Batch, factory: str = "build", **known: Any) -> Made:
    usual: dict[str, Any] = {"labels": truth.labels, "num_examples": len(truth), "local_update": DECLARED}
    return Made(RecordedRound.between(before, after, (3, SIZE, SIZE), **(usual | known)), truth, factory)


def clean(**known: Any) -> Made:
    truth = private()
    return record(*train(make_model(), [(truth.inputs, truth.labels)]), truth, **known)


def swapped() -> Made:
    truth = private()
    before, after = train(make_model(), [(truth.inputs, truth.labels)])
    return record(after, before, truth)


def reversed_sign() -> Made:
    made = clean()
    back = {name: -tensor for name, tensor in made.recorded.update.items()}
    return Made(_replace(made.recorded, update=back), made.truth)


def state_after() -> Made:
    truth = private()
    before, after = train(make_model(), [(truth.inputs, truth.labels)], lr=2.0)
    made = record(before, after, truth, local_update=f"{DECLARED[:-3]}2.0")
    return Made(_replace(made.recorded, state=after), truth)


def not_cloned() -> Made:
    truth, model = private(), make_model()
    before = model.state_dict()
    train(model, [(truth.inputs, truth.labels)])
    return record(before, model.state_dict(), truth)


def half_cloned() -> Made:
    truth, model = private(), make_model()
    before = {name: t.clone() if "head" in name else t for name, t in model.state_dict().items()}
    train(model, [(truth.inputs, truth.labels)])
    return record(before, model.state_dict(), truth)


def gradient_as_weights(scale: float) -> Callable[[], Made]:
    return lambda: clean(local_update=f"fedavg:epochs=1,batch_size=1,learning_rate={RATE * scale}")


def declared_as_gradient() -> Made:
    return clean(local_update="fedsgd")


def sum_of_losses() -> Made:
    truth = private(2)
    loss = nn.CrossEntropyLoss(reduction="sum")
    before, after = train(make_model(), [(truth.inputs, truth.labels)], loss=loss)
    return record(before, after, truth, local_update=f"fedavg:epochs=1,batch_size=2,learning_rate={RATE}")


def optimised(optimiser: Callable[..., torch.optim.Optimizer], steps: int = 1, **settings: Any) -> Callable[[], Made]:
    def make() -> Made:
        truth = private()
        before, after = train(
            make_model(), [(truth.inputs, truth.labels)] * steps, optimiser=optimiser, **({"lr": 0.01} | settings)
        )
        rate = settings.get("lr", 0.01)
        return record(before, after, truth, local_update=f"fedavg:epochs={steps},batch_size=1,learning_rate={rate}")

    return make


def changed_images(change: Callable[[Tensor], Tensor]) -> Callable[[], Made]:
    """The client trains on something made of the private images in its loader."""

    def make() -> Made:
        truth = private()
        return record(*train(make_model(), [(change(truth.inputs), truth.labels)]), truth)

    return make


def normalise(mean: tuple[float, ...], std: tuple[float, ...]) -> Callable[[Tensor], Tensor]:
    return lambda images: (images - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]


IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def binary(**known: Any) -> Made:
    truth, model = Batch(private().inputs, torch.tensor([1])), make_model(outputs=1)
    loss = functional.binary_cross_entropy_with_logits
    before, after = train(model, [(truth.inputs, torch.ones(1, 1))], loss=loss)
    return record(before, after, truth, "build_one_score", **known)


def other_loss(loss: Callable[[Tensor, Tensor], Tensor], hot: bool) -> Callable[[], Made]:
    def make() -> Made:
        truth = private()
        labels = functional.one_hot(truth.labels, CLASSES).float() if hot else truth.labels
        return record(*train(make_model(), [(truth.inputs, labels)], loss=loss), truth)

    return make


def with_norm(mode: bool, *, declared: str | None, keep_buffers: bool = True, steps: int = 1) -> Callable[[], Made]:
    def make() -> Made:
        truth, model = private(2), make_model(norm=True)
        model.train()(private(4, 10).inputs)  # running statistics that are not those of a new model
        before, after = train(model, [(truth.inputs, truth.labels)] * steps, mode=mode)
        if not keep_buffers:
            after = {
                name: before[name].clone() if "running" in name or "num_" in name else t for name, t in after.items()
            }
        known = {} if declared is None else {"mode": declared}
        text = f"fedavg:epochs={steps},batch_size=2,learning_rate={RATE}"
        return record(before, after, truth, "build_with_norm", local_update=text, **known)

    return make


def several(count: int, said: int) -> Callable[[], Made]:
    """An update of so many images of which the file says another number, and its maker gives as many."""

    def make() -> Made:
        truth = private(count)
        before, after = train(make_model(), [(truth.inputs, truth.labels)])
        given = truth[slice(0, said)]
        return record(before, after, given, labels=given.labels, num_examples=said)

    return make


def wrong_labels() -> Made:
    made = clean()
    return Made(_replace(made.recorded, labels=(made.truth.labels + 2) % CLASSES), made.truth)


def permuted_labels() -> Made:
    truth = private(2)
    before, after = train(make_model(), [(truth.inputs, truth.labels)])
    text = f"fedavg:epochs=1,batch_size=2,learning_rate={RATE}"
    made = record(before, after, truth, local_update=text)
    return Made(_replace(made.recorded, labels=truth.labels.flip(0)), truth)


def shuffled_batches() -> Made:
    truth = private(2)
    halves = [(truth.inputs[one : one + 1], truth.labels[one : one + 1]) for one in (1, 0)]
    before, after = train(make_model(), halves, lr=1.0)
    return record(before, after, truth, local_update="fedavg:epochs=1,batch_size=1,learning_rate=1.0")


def noisy(std: float) -> Callable[[], Made]:
    def make() -> Made:
        truth = private()
        before, after = train(make_model(), [(truth.inputs, truth.labels)])
        torch.manual_seed(1)
        return record(before, {n: t + std * torch.randn_like(t) for n, t in after.items()}, truth)

    return make


def half_precision(kind: torch.dtype) -> Callable[[], Made]:
    def make() -> Made:
        truth = private()
        before, after = train(make_model(), [(truth.inputs, truth.labels)])
        return record(*({name: t.to(kind).float() for name, t in tree.items()} for tree in (before, after)), truth)

    return make


def last_layer_only() -> Made:
    made = clean()
    part = {name: t for name, t in made.recorded.update.items() if name.startswith("head")}
    return Made(_replace(made.recorded, update=part), made.truth)


def frozen_backbone() -> Made:
    truth, model = private(), make_model()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.startswith("conv1"))
    return record(*train(model, [(truth.inputs, truth.labels)]), truth)


def other_weights() -> Made:
    made = clean()
    torch.manual_seed(7)
    return Made(_replace(made.recorded, state=weights(Small())), made.truth)


def prefixed() -> Made:
    truth = private()
    pair = train(make_model(), [(truth.inputs, truth.labels)])
    before, after = ({f"module.{name}": t for name, t in one.items()} for one in pair)
    return record(before, after, truth)


def clipped() -> Made:
    truth = private()
    return record(*train(make_model(), [(truth.inputs, truth.labels)], clip=0.1), truth)


def accumulated() -> Made:
    truth = private(2)
    parts = [(truth.inputs[one : one + 1], truth.labels[one : one + 1]) for one in (0, 1)]
    before, after = train(make_model(), parts, accumulate=2)
    return record(before, after, truth, local_update=f"fedavg:epochs=1,batch_size=2,learning_rate={RATE}")


def two_clients() -> Made:
    truth = private(2)
    pairs = [train(make_model(), [(truth.inputs[one : one + 1], truth.labels[one : one + 1])]) for one in (0, 1)]
    mean = {name: (pairs[0][1][name] + pairs[1][1][name]) / 2 for name in pairs[0][1]}
    return record(pairs[0][0], mean, truth[slice(0, 1)])


def other_truth() -> Made:
    return Made(clean().recorded, Batch(private(1, 5).inputs, private().labels))


def diverged() -> Made:
    truth, model = private(), make_model()
    before, after = train(model, [(truth.inputs, truth.labels)])
    after["head.bias"][0] = float("nan")
    return record(before, after, truth)


def other_architecture() -> Made:
    truth = private()
    return record(*train(make_model(width=6), [(truth.inputs, truth.labels)]), truth)


def normalised_and_momentum() -> Made:
    """Two things at once, as a usual training script has them."""
    truth = private()
    images = normalise(*IMAGENET)(truth.inputs)
    return record(*train(make_model(), [(images, truth.labels)]), truth, local_update="fedsgd")


def swapped_and_normalised() -> Made:
    truth = private()
    images = normalise((0.5,) * 3, (0.5,) * 3)(truth.inputs)
    before, after = train(make_model(), [(images, truth.labels)])
    return record(after, before, truth)


def _replace(recorded: RecordedRound, **changes: Any) -> RecordedRound:
    fresh = copy.copy(recorded)
    for name, value in changes.items():
        object.__setattr__(fresh, name, value)
    return fresh


_MIRROR, _BRIGHT = (lambda images: images.flip(-1)), (lambda images: (images * 1.4).clamp(0, 1))
_SHIFT = lambda images: images.roll((3, 2), dims=(-2, -1))  # noqa: E731

SITUATIONS: tuple[Situation, ...] = (
    Situation("as declared", clean),
    Situation("before and after swapped", swapped, "swapped"),
    Situation("sign reversed", reversed_sign, "sign of the update is reversed"),
    Situation("weights after training recorded", state_after, "are those after training"),
    Situation("before not cloned", not_cloned, refused="clone()"),
    Situation("some tensors not cloned", half_cloned, refused="clone()"),
    Situation("diverged", diverged, refused="NaN or infinite"),
    Situation("another architecture", other_architecture, refused="has shape"),
    Situation("update of the last layer only", last_layer_only),
    Situation("first layer frozen", frozen_backbone),
    Situation("names of DataParallel", prefixed),
    Situation("rate ten times too high", gradient_as_weights(10), "0.1 times as long", leaks=True),
    Situation("rate ten times too low", gradient_as_weights(0.1), "10 times as long", leaks=True),
    Situation("difference declared as gradient", declared_as_gradient, "learning rate of 0.1", leaks=True),
    Situation("sum of losses", sum_of_losses, "2 times as long", leaks=True),
    Situation("gradient clipped", clipped, "times as long", leaks=True),
    Situation("Adam", optimised(torch.optim.Adam), "Adam", by_attack=False),
    Situation("AdamW", optimised(torch.optim.AdamW, weight_decay=0.5), "Adam", by_attack=False),
    Situation("three steps of Adam", optimised(torch.optim.Adam, 3), "Adam", by_attack=False),
    Situation("three steps with momentum", optimised(torch.optim.SGD, 3, lr=0.3, momentum=0.9), "momentum"),
    Situation("weight decay", optimised(torch.optim.SGD, lr=0.1, weight_decay=0.05), "decays", leaks=True),
    Situation("normalised in the loader", changed_images(normalise(*IMAGENET)), "ImageNet"),
    Situation("scaled to [-1, 1]", changed_images(lambda images: 2 * images - 1), "[-1, 1]"),
    Situation("pixels in [0, 255]", changed_images(lambda images: 255 * images), "[0, 255]", by_attack=False),
    Situation("mirrored by the client", changed_images(_MIRROR), "mirrored", by_attack=False, leaks=True),
    Situation("red and blue exchanged", changed_images(lambda images: images.flip(1)), "red and blue", by_attack=False),
    Situation("augmented: shifted", changed_images(_SHIFT), "other inputs", by_attack=False),
    Situation("augmented: brighter", changed_images(_BRIGHT), "other inputs", by_attack=False, leaks=True),
    Situation("truth of another client", other_truth, "other inputs", by_attack=False),
    Situation("one score and BCE", binary),
    Situation("one score, said to be squared error", lambda: binary(loss="mse"), "binary cross-entropy", leaks=True),
    Situation("BCE of every class", other_loss(functional.binary_cross_entropy_with_logits, True), "each score"),
    Situation("squared error", other_loss(functional.mse_loss, True), "squared error", leaks=True),
    Situation("labels smoothed", other_loss(nn.CrossEntropyLoss(label_smoothing=0.1), False), "smoothed", leaks=True),
    Situation("BatchNorm in train mode", with_norm(True, declared=None)),
    Situation("train mode said to be eval", with_norm(True, declared="eval"), refused="mode='train'"),
    Situation("train mode, buffers dropped", with_norm(True, declared="eval", keep_buffers=False), "train mode"),
    Situation("eval mode said to be train", with_norm(False, declared="train"), "eval mode"),
    Situation("BatchNorm, three steps said to be one", with_norm(True, declared=None, steps=3), None),
    Situation("four images said to be one", several(4, 1), "examples"),
    Situation("two clients averaged", two_clients, "examples"),
    Situation("wrong label", wrong_labels, "labels"),
    Situation("labels in another order", permuted_labels),
    Situation("two batches in another order", shuffled_batches, "order"),
    Situation("accumulated without dividing", accumulated, "2 times as long", leaks=True),
    Situation("noise", noisy(3e-4), "noise", leaks=True),
    Situation("weights in float16", half_precision(torch.float16)),
    Situation("weights in bfloat16", half_precision(torch.bfloat16), "bfloat16", leaks=True),
    Situation("another checkpoint", other_weights, "No reading"),
    Situation("normalised, difference declared as gradient", normalised_and_momentum, "ImageNet"),
    Situation("swapped and scaled to [-1, 1]", swapped_and_normalised, "swapped"),
)
