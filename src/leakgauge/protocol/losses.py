"""What a client minimises, and what its labels are: classes, one of two, tags, or values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from leakgauge.errors import InvalidCase

LossFunction = Callable[[Any, Tensor], Tensor]
"""From the model's output and the labels to one number; a `Loss`, or any function."""

Reduction = Literal["mean", "sum"]


class Targets(Enum):
    """What the labels of a loss are."""

    CLASSES = "one class per example"
    BINARY = "one of two classes per example, told by one score"
    TAGS = "any number of tags per example"
    VALUES = "values"
    TOKENS = "the tokens of the inputs themselves"
    OWN = "whatever the user's own loss takes"


@dataclass(frozen=True)
class Loss(ABC):
    """A loss by name. ``output`` picks the scores where a model returns several things: a key, a field or a place."""

    reduction: Reduction = "mean"
    output: str | int | None = None

    targets: ClassVar[Targets]

    def __post_init__(self) -> None:
        if self.reduction not in ("mean", "sum"):
            raise InvalidCase(f"A loss is reduced by mean or sum, got {self.reduction!r}; choose one of them.")

    def __call__(self, output: Any, labels: Tensor) -> Tensor:
        return self.of_scores(self.scores(output), labels)

    @abstractmethod
    def of_scores(self, scores: Tensor, labels: Tensor) -> Tensor:
        """The loss of the scores themselves."""

    def scores(self, output: Any) -> Tensor:
        """What the loss looks at in the output of a model."""
        if self.output is not None:
            output = _part(output, self.output)
        if not isinstance(output, Tensor):
            part: str | int = 0 if isinstance(output, tuple | list) else "logits"
            raise InvalidCase(
                f"The model returned {describe_output(output)} where the loss needs a tensor, one row of class "
                f"scores per input; name its part, such as CrossEntropy(output={part!r}), on the command line --loss "
                f"cross_entropy:output={part}, or pass a loss of your own, loss(output, labels)."
            )
        return output


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """Softmax cross-entropy of class numbers, or of class probabilities n x k."""

    label_smoothing: float = 0.0

    targets: ClassVar[Targets] = Targets.CLASSES

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.label_smoothing < 1:
            raise InvalidCase(f"Labels are smoothed by at least 0 and less than 1, got {self.label_smoothing}.")

    def of_scores(self, scores: Tensor, labels: Tensor) -> Tensor:
        labels = labels if labels.is_floating_point() else labels.long()
        return functional.cross_entropy(scores, labels, reduction=self.reduction, label_smoothing=self.label_smoothing)


@dataclass(frozen=True)
class BinaryCrossEntropy(Loss):
    """Sigmoid cross-entropy of one score per example, labels 0 or 1."""

    targets: ClassVar[Targets] = Targets.BINARY

    def of_scores(self, scores: Tensor, labels: Tensor) -> Tensor:
        flat = scores.reshape(len(labels))
        return functional.binary_cross_entropy_with_logits(
            flat, labels.reshape(len(labels)).to(flat.dtype), reduction=self.reduction
        )


@dataclass(frozen=True)
class MultiLabel(Loss):
    """Sigmoid cross-entropy of each of k scores, labels n x k between 0 and 1; the mean is over all of them."""

    targets: ClassVar[Targets] = Targets.TAGS

    def of_scores(self, scores: Tensor, labels: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(
            scores, labels.to(scores.dtype).reshape(scores.shape), reduction=self.reduction
        )


@dataclass(frozen=True)
class MeanSquaredError(Loss):
    """(score - value)^2, over all entries; labels n or n x k values."""

    targets: ClassVar[Targets] = Targets.VALUES

    def of_scores(self, scores: Tensor, labels: Tensor) -> Tensor:
        return functional.mse_loss(scores, labels.to(scores.dtype).reshape(scores.shape), reduction=self.reduction)


class NextTokens(NamedTuple):
    """What a language model returns: of each token but the last the ``scores`` n l v of what follows, and what does.

    ``targets`` are tokens n l, `IGNORED` where a text has ended, or weights of all tokens n l v.
    """

    scores: Tensor
    targets: Tensor

    @classmethod
    def of(cls, scores: Tensor, tokens: Tensor, pad: int) -> NextTokens:
        """From the scores after each of the tokens, numbers or weights, that the model was given."""
        following = tokens[:, 1:]
        if following.is_floating_point():
            # A text ends where padding begins: its weight counts for nothing.
            spoken = torch.arange(following.shape[-1], device=tokens.device) != pad
            return cls(scores[:, :-1], following * spoken)
        return cls(scores[:, :-1], following.masked_fill(following == pad, IGNORED))


IGNORED = -100
"""Stands for no token, as in torch and in Hugging Face's models."""


@dataclass(frozen=True)
class NextToken(Loss):
    """Cross-entropy of each next token, the mean over all tokens of a batch; the labels are its inputs, and no others
    are looked at."""

    targets: ClassVar[Targets] = Targets.TOKENS

    def __call__(self, output: Any, labels: Tensor) -> Tensor:
        del labels
        output = output if self.output is None else _part(output, self.output)
        scores = self.scores(output)
        targets = output.targets
        if targets.is_floating_point():
            surprise = -(targets * scores.log_softmax(dim=-1)).sum()
            return surprise if self.reduction == "sum" else surprise / targets.sum().clamp_min(1e-6)
        return functional.cross_entropy(
            scores.flatten(0, 1), targets.flatten(), reduction=self.reduction, ignore_index=IGNORED
        )

    def of_scores(self, scores: Tensor, labels: Tensor) -> Tensor:
        return self(NextTokens(scores, labels), labels)

    def scores(self, output: Any) -> Tensor:
        if not isinstance(output, NextTokens):
            raise InvalidCase(
                f"The model returned {describe_output(output)} where the loss next_token needs NextTokens, the scores "
                "and what follows; wrap it, a Hugging Face model in `leakgauge.models.CausalText`."
            )
        return output.scores


LOSSES: Mapping[str, type[Loss]] = {
    "cross_entropy": CrossEntropy,
    "bce": BinaryCrossEntropy,
    "multi_label": MultiLabel,
    "mse": MeanSquaredError,
    "next_token": NextToken,
}


@dataclass(frozen=True)
class WeightedHeads:
    """Several heads: the weighted sum of a loss each, head i reading column i of labels n x heads.

    Each loss says by its ``output`` which part of what the model returns it looks at; without one, part i.
    """

    losses: tuple[Loss, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "losses", tuple(self.losses))
        object.__setattr__(self, "weights", tuple(self.weights))
        if not self.losses or len(self.losses) != len(self.weights):
            raise InvalidCase(
                f"Each head needs a loss and a weight, got {len(self.losses)} losses and {len(self.weights)} weights; "
                "give one of each for every head."
            )

    def __call__(self, output: Any, labels: Tensor) -> Tensor:
        if labels.ndim != 2 or labels.shape[1] != len(self.losses):
            raise InvalidCase(
                f"{len(self.losses)} heads need labels n x {len(self.losses)}, a column for each head, got shape "
                f"{tuple(labels.shape)}; stack them."
            )
        total = labels.new_zeros((), dtype=torch.float32)
        for place, (loss, weight) in enumerate(zip(self.losses, self.weights)):
            own = loss if loss.output is not None else replace(loss, output=place)
            column = labels[:, place]
            total = total + weight * own(output, column.long() if loss.targets is Targets.CLASSES else column)
        return total


def as_loss(loss: LossFunction) -> LossFunction:
    """One of ours where the loss is torch's own with the usual settings, so that what its labels are is known."""
    if isinstance(loss, nn.CrossEntropyLoss) and loss.weight is None and loss.ignore_index == -100:
        return _like(CrossEntropy(label_smoothing=loss.label_smoothing), loss.reduction) or loss
    if isinstance(loss, nn.MSELoss):
        return _like(MeanSquaredError(), loss.reduction) or loss
    if isinstance(loss, nn.BCEWithLogitsLoss) and loss.weight is None and loss.pos_weight is None:
        return _like(MultiLabel(), loss.reduction) or loss
    return _OURS.get(loss, loss)


_OURS: Mapping[LossFunction, Loss] = {
    functional.mse_loss: MeanSquaredError(),
    functional.binary_cross_entropy_with_logits: MultiLabel(),
}


def _like(ours: Loss, reduction: str) -> Loss | None:
    if reduction not in ("mean", "sum"):
        return None
    return replace(ours, reduction="mean" if reduction == "mean" else "sum")


def targets_of(loss: LossFunction) -> Targets:
    """What the labels are that a loss takes; of a user's own function only the user knows."""
    if isinstance(loss, Loss):
        return loss.targets
    return Targets.CLASSES if loss is functional.cross_entropy else Targets.OWN


def named_classes(loss: LossFunction, output: Any) -> Tensor:
    """The class that a model names for each example."""
    scores = loss.scores(output) if isinstance(loss, Loss) else output
    return (scores.reshape(len(scores)) > 0).long() if targets_of(loss) is Targets.BINARY else scores.argmax(1)


def summed(loss: LossFunction) -> bool:
    """Whether the loss of a batch is the sum over its examples, as far as is known, and not the mean."""
    return isinstance(loss, Loss) and loss.reduction == "sum"


def check_labels(loss: LossFunction, labels: Tensor, width: int) -> None:
    """Refuse, in a sentence, labels that do not fit a loss of ours and ``width`` scores per example."""
    targets = targets_of(loss)
    if targets is Targets.CLASSES:
        _check_classes(labels, width)
    elif targets is Targets.BINARY:
        if width != 1:
            raise InvalidCase(
                f"The loss bce needs a model of one score per example, this one has {width}; use cross_entropy for "
                "classes, or multi_label for tags."
            )
        if labels.numel() != len(labels) or bool(((labels != 0) & (labels != 1)).any()):
            raise InvalidCase("The loss bce needs labels 0 or 1, one per example; convert them.")
    elif targets is Targets.TAGS:
        if labels.numel() != len(labels) * width or bool(((labels < 0) | (labels > 1)).any()):
            raise InvalidCase(
                f"The loss multi_label needs labels n x {width} between 0 and 1, a column for each score, got shape "
                f"{tuple(labels.shape)}; convert them."
            )
    elif targets is Targets.VALUES and labels.numel() != len(labels) * width:
        raise InvalidCase(
            f"The loss mse needs as many values per example as the model has scores, {width}, got labels of shape "
            f"{tuple(labels.shape)}; convert them."
        )
    if not bool(torch.isfinite(labels).all()):
        raise InvalidCase("The labels hold NaN or infinite values; correct them.")


def _check_classes(labels: Tensor, classes: int) -> None:
    if labels.ndim == 2 and labels.is_floating_point() and labels.shape[1] == classes and bool(labels.isfinite().all()):
        return
    if labels.ndim != 1 or labels.dtype not in (torch.int64, torch.uint8):
        raise InvalidCase(
            f"Labels must be whole class numbers (int64, shape n) or class probabilities (shape n x {classes}), "
            f"got {labels.dtype} of shape {tuple(labels.shape)}; convert them."
        )
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise InvalidCase(
            f"Labels run from {int(labels.min())} to {int(labels.max())}, but the model has {classes} classes "
            f"(0 to {classes - 1}); use a model with the right number of outputs."
        )


def draw_labels(loss: LossFunction, count: int, width: int, *, like: Tensor | None, generator: Generator) -> Tensor:
    """Labels of unrelated examples: any class, either of two, each tag by a coin; others are drawn from ``like``."""
    targets = targets_of(loss)
    whole = like is None or (like.ndim == 1 and not like.is_floating_point())
    if targets is Targets.CLASSES or (targets is Targets.OWN and width and whole):
        labels = torch.randint(width, (count,), generator=generator)
        if like is not None and like.ndim == 2:
            labels = functional.one_hot(labels, width)
    elif targets is Targets.BINARY:
        labels = torch.randint(2, (count,), generator=generator)
    elif targets is Targets.TAGS:
        labels = torch.randint(2, (count, width), generator=generator).float()
    elif targets is Targets.TOKENS:
        labels = torch.zeros(count, dtype=torch.long)
    elif like is None:
        raise InvalidCase(
            "Only the user knows what labels this loss takes, and none are given; disclose the labels of the round."
        )
    else:
        labels = like[torch.randint(len(like), (count,), generator=generator)]
    return labels if like is None else labels.to(like)


def _part(output: Any, name: str | int) -> Any:
    try:
        if isinstance(output, Mapping):
            return output[name]
        return output[name] if isinstance(name, int) else getattr(output, name)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise InvalidCase(
            f"The model returned {describe_output(output)}, which has no part {name!r}; correct `output` of the loss."
        ) from error


def describe_output(output: Any) -> str:
    """What a model returned, in words."""
    if isinstance(output, Tensor):
        return f"shape {tuple(output.shape)}"
    if isinstance(output, Mapping):
        return f"a {type(output).__name__} with {', '.join(map(repr, output))}"
    if isinstance(output, Sequence):
        return f"a {type(output).__name__} of {len(output)} parts"
    return f"a {type(output).__name__}"
