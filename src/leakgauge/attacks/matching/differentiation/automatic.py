"""Which route to take, and how many rows to evaluate together."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from leakgauge import params as tree
from leakgauge.attacks.matching.differentiation.graph import DoubleBackward, FiniteDifference
from leakgauge.attacks.matching.differentiation.matcher import CandidateLoss, Linearised
from leakgauge.attacks.matching.differentiation.route import Choice, Differentiation, OneByOne, Rows, RowwiseLoss
from leakgauge.attacks.matching.differentiation.sweeps import SweepRoute, Tangent
from leakgauge.attacks.matching.problem import MatchingProblem
from leakgauge.errors import UnsupportedModel

_WORTH_SWEEPING = 50_000
"""Parameters from which sweeps written in Python beat the graph autograd builds in C++.

One image, time of a sweep over that of the graph: 1.2 for LeNet with 16 000 parameters, 0.85 for a ResNet-20 with
69 000, 0.81 for one with 272 000.
"""


@dataclass(frozen=True)
class Automatic(Differentiation):
    """The fastest exact route that holds for the model, else finite differences; the record names the one that ran.

    ``first`` is tried before the others, such as a frozen difference where its error does no harm.
    """

    first: Differentiation | None = None

    def linearise(self, problem: MatchingProblem, images: Tensor) -> Linearised:
        return self.resolve(problem, images).linearise(problem, images)

    def matcher(self, problem: MatchingProblem, images: Tensor) -> CandidateLoss:
        return self.resolve(problem, images).matcher(problem, images)

    def rowwise(self, problem: MatchingProblem, images: Tensor, *, chunk: int) -> RowwiseLoss:
        return self.resolve(problem, images).rowwise(problem, images, chunk=chunk)

    def resolve(self, problem: MatchingProblem, images: Tensor) -> Differentiation:
        return self.choose(problem, images).route

    def choose(self, problem: MatchingProblem, images: Tensor) -> Choice:
        count = tree.count(problem.state.params)
        routes: list[Differentiation] = [] if self.first is None else [self.first]
        if count >= _WORTH_SWEEPING:
            routes.append(Tangent())
        chosen = _first_that_holds((*routes, DoubleBackward(), FiniteDifference()), problem, images)
        if chosen.why or isinstance(chosen.route, SweepRoute):
            return chosen
        return chosen._replace(why=f"a graph is faster than sweeps for {count} parameters")


def _first_that_holds(routes: tuple[Differentiation, ...], problem: MatchingProblem, images: Tensor) -> Choice:
    refusals: dict[str, None] = {}
    for route in routes:
        try:
            resolved = route.resolve(problem, images)
            if not isinstance(resolved, SweepRoute):
                resolved.one(problem, images)
        except (RuntimeError, NotImplementedError, UnsupportedModel) as error:
            refusals[_reason(error)] = None
        else:
            return Choice(resolved, "; ".join(refusals))
    raise UnsupportedModel(
        "This model cannot be attacked by gradient matching, because no derivative route holds for it "
        f"({'; '.join(refusals)}); replace the operation named, or use an analytic attack."
    )


def _reason(error: Exception) -> str:
    """Why a route was refused, without its advice to take the next one."""
    sentence = str(error).splitlines()[0].rstrip(".")
    return sentence.rsplit("; use ", 1)[0]


class Evaluator(NamedTuple):
    """The chosen way to evaluate all rows, with its name and reason for the record."""

    route: str
    evaluate: RowwiseLoss
    why: str = ""


def plan_evaluation(problem: MatchingProblem, differentiation: Differentiation, rows: Rows) -> Evaluator:
    """Resolve the route on the starting point; run rows together where memory allows and the result is the same."""
    first = rows.images[0]
    problem = replace(problem, labels=rows.labels[0])
    route, why = differentiation.choose(problem, first)
    name = type(route).__name__
    if len(rows.images) > 1 and type(route).rowwise is not Differentiation.rowwise:
        chunk = min(len(rows.images), _affordable(problem, first))
        if chunk > 1 and _batches(route, problem, rows):
            return Evaluator(f"{name}, {chunk} at a time", route.rowwise(problem, first, chunk=chunk), why)
    return Evaluator(name, route.rowwise(problem, first, chunk=1), why)


def _batches(route: Differentiation, problem: MatchingProblem, rows: Rows) -> bool:
    observed = None if rows.observed is None else tree.map_tensors(lambda stack: stack[:2], rows.observed)
    two = Rows(rows.images[:2], rows.labels[:2], observed)
    try:
        evaluate = route.rowwise(problem, two.images[0], chunk=2)
        if isinstance(evaluate, OneByOne):
            return False
        together = evaluate(two, problem.objective)
    except (RuntimeError, NotImplementedError):
        return False  # an operation without a batching rule; one after another still works
    alone = route.rowwise(problem, two.images[0], chunk=1)(two, problem.objective)
    scale = alone.gradient[1].abs().max()
    return bool((together.gradient[1] - alone.gradient[1]).abs().max() <= 1e-2 * scale)


def _affordable(problem: MatchingProblem, images: Tensor) -> int:
    """How many rows fit in half of the free memory, judged by what one double backward keeps."""
    kept = 0

    def count(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += tensor.numel() * tensor.element_size()
        return tensor

    try:
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            DoubleBackward().one(problem, images)
    except RuntimeError:
        return 1
    return max(1, int(_free_memory(images.device) / 2 / max(kept, 1)))


def _free_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 2 << 30  # not told on this system: assume a small laptop
