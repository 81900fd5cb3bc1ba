"""What a route is."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from leakgauge.attacks.matching.differentiation.linearised import Linearised
from leakgauge.attacks.matching.differentiation.matcher import CandidateLoss, Matcher
from leakgauge.attacks.matching.differentiation.rows import OneByOne, RowwiseLoss
from leakgauge.attacks.matching.problem import MatchingProblem, ValueAndGradient


class Differentiation(ABC):
    """A route to the derivative of the matching loss."""

    @abstractmethod
    def linearise(self, problem: MatchingProblem, images: Tensor) -> Linearised:
        """The problem's gradient as this route takes it; refuses a model the route does not hold for."""

    def resolve(self, problem: MatchingProblem, images: Tensor) -> Differentiation:
        """The concrete route for this problem."""
        del problem, images
        return self

    def matcher(self, problem: MatchingProblem, images: Tensor) -> CandidateLoss:
        """The matching loss with its derivative, as a function of a candidate shaped like ``images``."""
        return Matcher(problem, self.linearise(problem, images))

    def one(self, problem: MatchingProblem, images: Tensor) -> ValueAndGradient:
        """Loss and its gradient for one candidate batch ``n c h w``."""
        return self.matcher(problem, images)(images, problem.labels)

    def rowwise(self, problem: MatchingProblem, images: Tensor, *, chunk: int) -> RowwiseLoss:
        """All rows' losses with their derivatives; this one takes them one after another."""
        del chunk
        return OneByOne(self.matcher(problem, images))
