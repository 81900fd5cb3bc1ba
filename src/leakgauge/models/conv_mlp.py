"""Convolutions below a wide linear layer."""

from __future__ import annotations

from dataclasses import dataclass

from leakgauge.models.base import check_positive
from leakgauge.models.equal_width import EqualWidth


@dataclass(frozen=True)
class ConvMLP(EqualWidth):
    """3x3 convolutions with stride 2, hidden linear layers and the head; BatchNorm after convolutions if asked for.

    As in AlexNet and the CNN of McMahan et al. [2017], most parameters are in the first hidden layer: millions of them
    at the price of a few convolutions, so that pruning leaves as many numbers as a batch has pixels.
    """

    convolutions: int = 2
    width: int = 64
    hidden: tuple[int, ...] = (512,)
    activation: str = "relu"
    batch_norm: bool = False

    def __post_init__(self) -> None:
        # Configuration files know only lists; a frozen value must hold a tuple.
        object.__setattr__(self, "hidden", tuple(self.hidden))
        check_positive(self, convolutions=self.convolutions)
        for size in self.hidden:
            check_positive(self, hidden=size)
        super().__post_init__()

    @property
    def strides(self) -> tuple[int, ...]:
        return (2,) * self.convolutions
