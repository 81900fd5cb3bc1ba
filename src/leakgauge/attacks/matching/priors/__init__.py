"""What the attacker believes of images before seeing an update."""

from leakgauge.attacks.matching.priors.balanced import Balanced, Penalties
from leakgauge.attacks.matching.priors.base import Absent, Prior
from leakgauge.attacks.matching.priors.batch_norm import BatchNormStatistics
from leakgauge.attacks.matching.priors.group_consistency import GroupConsistency
from leakgauge.attacks.matching.priors.pixel_norm import PixelNorm
from leakgauge.attacks.matching.priors.side_by_side import SideBySide, bind_all
from leakgauge.attacks.matching.priors.starting import Starting
from leakgauge.attacks.matching.priors.total_variation import (
    AnisotropicTotalVariation,
    SignedTotalVariation,
    TotalVariation,
)
