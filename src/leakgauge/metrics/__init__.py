"""What came back, compared with what was private: the only place where truth and reconstruction meet."""

from leakgauge.metrics.affine_psnr import AffinePSNR
from leakgauge.metrics.alignment import Comparison, align
from leakgauge.metrics.base import Kind, Metric
from leakgauge.metrics.cells_right import CellsRight
from leakgauge.metrics.evidence import Evidence, count_statistics, least_by_rank, near_copies, weigh_evidence
from leakgauge.metrics.fsim import FSIM
from leakgauge.metrics.identification import Identification
from leakgauge.metrics.intervals import Summary, beyond_chance, student_interval, summarise
from leakgauge.metrics.labels import LabelCounts, LabelExistence, LabelRecall, class_counts, expected_guess
from leakgauge.metrics.lpips import LPIPSVGG, LPIPSAlex, find_weights
from leakgauge.metrics.psnr import PSNR
from leakgauge.metrics.public_found import PublicFound
from leakgauge.metrics.shifted_identification import ShiftedIdentification
from leakgauge.metrics.ssim import SSIM
from leakgauge.metrics.texts import ExactText, Rouge1, Rouge2, RougeL, TokenRecall
