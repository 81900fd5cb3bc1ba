"""How far a candidate's update is from the observed one."""

from leakgauge.attacks.matching.objectives.base import Objective, WeighedObjective
from leakgauge.attacks.matching.objectives.cosine import Cosine
from leakgauge.attacks.matching.objectives.distances import L1, Euclidean
from leakgauge.attacks.matching.objectives.leaving_out import LeavingOut
from leakgauge.attacks.matching.objectives.stepwise import Stepwise
from leakgauge.attacks.matching.objectives.weighting import Geometric, Latest, Uniform, Weighting
