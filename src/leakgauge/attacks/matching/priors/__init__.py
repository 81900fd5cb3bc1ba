"""What the attacker believes of images before seeing an update."""

from leakgauge.attacks.matching.priors.balanced import Balanced
from leakgauge.attacks.matching.priors.base import Absent, Prior, SideBySide, Starting, bind_all, unweighed
from leakgauge.attacks.matching.priors.batch_norm import BatchNormStatistics
from leakgauge.attacks.matching.priors.fading import Fading
from leakgauge.attacks.matching.priors.images import (
    AnisotropicTotalVariation,
    GroupConsistency,
    PixelNorm,
    SignedTotalVariation,
    TotalVariation,
)
from leakgauge.attacks.matching.priors.penalties import Penalties
from leakgauge.attacks.matching.priors.yielding import Yielding
