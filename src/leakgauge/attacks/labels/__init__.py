"""Label restoration: one file per rule."""

from leakgauge.attacks.labels.alternating import Alternating
from leakgauge.attacks.labels.base import CountRule
from leakgauge.attacks.labels.best import BestLabels, best
from leakgauge.attacks.labels.class_gradients import ClassGradients
from leakgauge.attacks.labels.guess import ClassPrior
from leakgauge.attacks.labels.head_matching import HeadMatching
from leakgauge.attacks.labels.idlg import IDLG
from leakgauge.attacks.labels.ilrg import ILRG
from leakgauge.attacks.labels.llg import LLG
from leakgauge.attacks.labels.min_row import MinRow
from leakgauge.attacks.labels.rlg import RLG
from leakgauge.attacks.labels.soft_labels import SoftLabel
from leakgauge.attacks.labels.zlg import ZLG
