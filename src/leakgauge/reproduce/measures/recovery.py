"""How near an estimate of a private image comes to it, whatever its brightness and contrast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.attacks.encodings.algebra.whitening import FeatureMap, unit
from leakgauge.metrics.alignment import Comparison
from leakgauge.metrics.psnr import PSNR
from leakgauge.metrics.ssim import SSIM
from leakgauge.reproduce.table import Measured

_ROUNDING = 1e-5


@dataclass(frozen=True)
class Recovery:
    """Means over estimates; no two names of a quantity mean the same, here or among the metrics of audits.

    ``psnr`` is the audits'; ``psnr_fitted`` and ``ssim_fitted`` come after the best scale and offset of each estimate,
    which need the truth. ``identification_by_correlation`` is the share of estimates whose own image correlates with
    them better than every decoy does, ``identification_whitened`` the same in whitened features; the audits'
    identification goes by squared error.
    """

    psnr: float
    psnr_fitted: float
    ssim_fitted: float
    correlation: float
    identification_by_correlation: float
    identification_whitened: float


class Judge:
    """Scores estimates n c h w against originals of the same rows, beside decoys m c h w that are in none of them.

    What is needed of the decoys is computed once, for any number of scores.
    """

    def __init__(self, decoys: Tensor, whiten: FeatureMap) -> None:
        self._whiten = whiten
        self._decoys, self._white_decoys = _standard(decoys), unit(whiten(decoys))

    def __call__(self, estimates: Tensor, originals: Tensor) -> Recovery:
        fitted = best_affine(estimates, originals)
        seen, true = _standard(estimates), _standard(originals)
        white = unit(self._whiten(estimates)), unit(self._whiten(originals))
        return Recovery(
            psnr=_mean(PSNR()(_compared(estimates, originals))),
            psnr_fitted=_mean(PSNR()(_compared(fitted, originals))),
            ssim_fitted=_mean(SSIM()(_compared(fitted, originals))),
            correlation=_mean((seen * true).sum(dim=1)),
            identification_by_correlation=_mean(identified(seen, true, self._decoys)),
            identification_whitened=_mean(identified(*white, self._white_decoys)),
        )


def over_seeds(found: Sequence[object], names: Sequence[str], images: int) -> dict[str, Measured]:
    """Some of the quantities of what was found by each seed, such as a `Recovery`."""
    return {name: Measured.over_seeds([getattr(one, name) for one in found], images) for name in names}


def best_affine(estimates: Tensor, originals: Tensor) -> Tensor:
    """a x + b of each estimate x with the least squared error, in [0, 1].

    >>> image = torch.tensor([0.1, 0.5, 0.9]).view(1, 1, 1, 3)
    >>> best_affine(0.2 * image + 0.3, image).flatten().round(decimals=4).tolist()
    [0.10000000149011612, 0.5, 0.8999999761581421]
    """
    x, y = estimates.flatten(1).double(), originals.flatten(1).double()
    around, wanted = x - x.mean(dim=1, keepdim=True), y - y.mean(dim=1, keepdim=True)
    variance = around.square().sum(dim=1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)
    scale = (around * wanted).sum(dim=1, keepdim=True) / variance
    return (scale * around + y.mean(dim=1, keepdim=True)).clamp(0, 1).view_as(originals).to(originals)


def identified(estimates: Tensor, originals: Tensor, decoys: Tensor) -> Tensor:
    """Whether each estimate's inner product with its own original exceeds that with every decoy; rows of length one.

    A tie up to rounding is a miss, so a copy of the original among the decoys hides it.
    """
    own = (estimates * originals).sum(dim=1)
    return own > (estimates @ decoys.mT).amax(dim=1) + _ROUNDING


def _standard(images: Tensor) -> Tensor:
    rows = images.flatten(1)
    return unit(rows - rows.mean(dim=1, keepdim=True))


def _compared(estimates: Tensor, originals: Tensor) -> Comparison:
    return Comparison(originals, estimates, None, torch.zeros(len(originals)), None)


def _mean(values: Tensor) -> float:
    return float(values.double().mean())
