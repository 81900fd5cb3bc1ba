"""What a page shows in the place of private data, so that it can be handed on: blocks for pixels, dots for words."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from leakgauge.audit.result import RECORDED, AuditResult

DOTS = "•••"
"""In the place of a value or a token, whatever its length."""

_MOST_BLOCKS = 4
_LEAST_PIXELS = 4
"""A side has at most so many blocks, and a block at least so many pixels a side: of a digit of 8 x 8, four are left."""


def is_redacted(result: AuditResult, asked: bool | None = None) -> bool:
    """Whether private data is kept out of the page: as is asked for now or was when the audit ran, else for recorded
    rounds, whose data is somebody's."""
    for wish in (asked, result.description.get("redact")):
        if wish is not None:
            return bool(wish)
    return is_recorded(result)


def is_recorded(result: AuditResult) -> bool:
    """Whether rounds were attacked that really happened."""
    return any(row.defence == RECORDED for row in result.rows)


def pixelate(image: Tensor) -> Tensor:
    """The means of a few blocks of pixels c h w, as small as an image can be.

    >>> import torch
    >>> pixelate(torch.rand(3, 32, 48)).shape, pixelate(torch.rand(1, 8, 8)).shape
    (torch.Size([3, 4, 4]), torch.Size([1, 2, 2]))
    """
    height, width = (max(1, min(_MOST_BLOCKS, side // _LEAST_PIXELS)) for side in image.shape[-2:])
    return adaptive_avg_pool2d(image.detach().cpu().double()[None], (height, width))[0]
