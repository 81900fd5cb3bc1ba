"""InstaHide as a whole: what it was said to resist, what its encodings give away, and challenges to attack it."""

from leakgauge.instahide.challenge import Grade, grade, make_challenge, read_challenge
from leakgauge.instahide.distributions import Difference, compare
from leakgauge.instahide.estimate import Cost, Hardness

__all__ = ["Cost", "Difference", "Grade", "Hardness", "compare", "grade", "make_challenge", "read_challenge"]
