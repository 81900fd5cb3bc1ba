"""Which route to take."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from leakgauge import params as tree
from leakgauge.attacks.matching.differentiation.graph import DoubleBackward
from leakgauge.attacks.matching.differentiation.matcher import CandidateLoss, Linearised
from leakgauge.attacks.matching.differentiation.quotient import FiniteDifference
from leakgauge.attacks.matching.differentiation.route import Differentiation, RowwiseLoss
from leakgauge.attacks.matching.differentiation.sweeps import Tangent
from leakgauge.attacks.matching.problem import MatchingProblem
from leakgauge.errors import UnsupportedModel

_WORTH_SWEEPING = 50_000
"""Parameters from which sweeps written in Python beat the graph autograd builds in C++.

One image, time of a sweep over that of the graph: 1.2 for LeNet with 16 000 parameters, 0.85 for a ResNet-20 with
69 000, 0.81 for one with 272 000.
"""


@dataclass(frozen=True)
class Automatic(Differentiation):
    """The fastest exact route that holds for the model, else finite differences; the record names the one that ran."""

    def linearise(self, problem: MatchingProblem, images: Tensor) -> Linearised:
        return self.resolve(problem, images).linearise(problem, images)

    def matcher(self, problem: MatchingProblem, images: Tensor) -> CandidateLoss:
        return self.resolve(problem, images).matcher(problem, images)

    def rowwise(self, problem: MatchingProblem, images: Tensor, *, chunk: int) -> RowwiseLoss:
        return self.resolve(problem, images).rowwise(problem, images, chunk=chunk)

    def resolve(self, problem: MatchingProblem, images: Tensor) -> Differentiation:
        large = tree.count(problem.state.params) >= _WORTH_SWEEPING
        routes: tuple[Differentiation, ...] = (DoubleBackward(), FiniteDifference())
        return _first_that_holds((Tangent(), *routes) if large else routes, problem, images)


def _first_that_holds(routes: tuple[Differentiation, ...], problem: MatchingProblem, images: Tensor) -> Differentiation:
    refusals = []
    for route in routes:
        try:
            resolved = route.resolve(problem, images)
            if not isinstance(resolved, Tangent):
                resolved.one(problem, images)
        except (RuntimeError, NotImplementedError, UnsupportedModel) as error:
            refusals.append(f"{type(route).__name__}: {str(error).splitlines()[0].rstrip('.')}")
        else:
            return resolved
    raise UnsupportedModel(
        "This model cannot be attacked by gradient matching, because no derivative route holds for it "
        f"({'; '.join(refusals)}); replace the operation named, or use an analytic attack."
    )
