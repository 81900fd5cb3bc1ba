"""A plain stack of convolutions."""

from __future__ import annotations

from dataclasses import dataclass

from leakgauge.models.base import check_positive
from leakgauge.models.equal_width import EqualWidth


@dataclass(frozen=True)
class Plain(EqualWidth):
    """3x3 convolutions, every second with stride 2, and a linear layer; BatchNorm after convolutions only if asked for.

    By default a 6-layer ConvNet such as Huang et al. [2021, A.3] train on MNIST; they do not describe theirs further.
    """

    convolutions: int = 5
    width: int = 32
    activation: str = "relu"
    batch_norm: bool = False

    def __post_init__(self) -> None:
        check_positive(self, convolutions=self.convolutions)
        super().__post_init__()

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(1 + index % 2 for index in range(self.convolutions))
