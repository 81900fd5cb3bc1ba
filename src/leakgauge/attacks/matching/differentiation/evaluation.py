"""How many rows to evaluate together."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from leakgauge import params as tree
from leakgauge.attacks.matching.differentiation.graph import DoubleBackward
from leakgauge.attacks.matching.differentiation.route import Differentiation, OneByOne, Rows, RowwiseLoss
from leakgauge.attacks.matching.problem import MatchingProblem


class Evaluator(NamedTuple):
    """The chosen way to evaluate all rows, and its name for the record."""

    route: str
    evaluate: RowwiseLoss


def plan_evaluation(problem: MatchingProblem, differentiation: Differentiation, rows: Rows) -> Evaluator:
    """Resolve the route on the starting point; run rows together where memory allows and the result is the same."""
    first = rows.images[0]
    problem = replace(problem, labels=rows.labels[0])
    route = differentiation.resolve(problem, first)
    name = type(route).__name__
    if len(rows.images) > 1 and type(route).rowwise is not Differentiation.rowwise:
        chunk = min(len(rows.images), _affordable(problem, first))
        if chunk > 1 and _batches(route, problem, rows):
            return Evaluator(f"{name}, {chunk} at a time", route.rowwise(problem, first, chunk=chunk))
    return Evaluator(name, route.rowwise(problem, first, chunk=1))


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
