"""What came back, compared with what was private: the only place where truth and reconstruction meet."""

from leakgauge.metrics.alignment import Comparison, align
from leakgauge.metrics.base import Metric
from leakgauge.metrics.identification import Identification
from leakgauge.metrics.intervals import Summary, beyond_chance, summarise
from leakgauge.metrics.labels import LabelRecall
from leakgauge.metrics.lpips import LPIPS, find_weights
from leakgauge.metrics.psnr import PSNR
from leakgauge.metrics.ssim import SSIM

__all__ = [
    "LPIPS",
    "PSNR",
    "SSIM",
    "Comparison",
    "Identification",
    "LabelRecall",
    "Metric",
    "Summary",
    "align",
    "beyond_chance",
    "find_weights",
    "summarise",
]
