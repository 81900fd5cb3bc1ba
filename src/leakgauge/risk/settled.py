"""Attacks with a route that was chosen before, so that setting up another one costs next to nothing."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

from torch import Tensor

from leakgauge.attacks.matching.attack import GradientMatching
from leakgauge.attacks.matching.differentiation.matcher import CandidateLoss, Linearised
from leakgauge.attacks.matching.differentiation.route import Choice, Differentiation
from leakgauge.attacks.matching.problem import MatchingProblem
from leakgauge.attacks.recipes.best import Best

T = TypeVar("T")


@dataclass(frozen=True)
class Settled(Differentiation):
    """A route that is not tried again."""

    route: Differentiation
    why: str

    def linearise(self, problem: MatchingProblem, images: Tensor) -> Linearised:
        return self.route.linearise(problem, images)

    def matcher(self, problem: MatchingProblem, images: Tensor) -> CandidateLoss:
        return self.route.matcher(problem, images)

    def choose(self, problem: MatchingProblem, images: Tensor) -> Choice:
        del problem, images
        return Choice(self.route, self.why)


def settle(attack: T, choice: Choice, best: GradientMatching | None = None) -> T:
    """The attack, however deep it holds gradient matching, by this route and from a single start.

    ``best`` takes the place of a `Best` in it, which would choose that recipe anew.
    """
    if isinstance(attack, GradientMatching):
        return replace(attack, differentiation=Settled(*choice), restarts=1)
    if isinstance(attack, Best) and best is not None:
        return settle(best, choice)  # type: ignore[return-value]
    if isinstance(attack, tuple):
        return type(attack)(settle(one, choice, best) for one in attack)
    if not is_dataclass(attack) or isinstance(attack, type):
        return attack
    parts: dict[str, Any] = {one.name: getattr(attack, one.name) for one in fields(attack) if one.init}
    changed = {name: new for name, part in parts.items() if (new := settle(part, choice, best)) is not part}
    return replace(attack, **changed) if changed else attack
