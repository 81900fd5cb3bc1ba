"""One attack under way: stepped, watched, interrupted, resumed."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from leakgauge import params as tree
from leakgauge.attacks.base import Snapshot, Stepper
from leakgauge.attacks.budget import Budget
from leakgauge.attacks.matching.differentiation import Differentiation, Evaluator, Rows, plan_evaluation
from leakgauge.attacks.matching.objectives import Objective
from leakgauge.attacks.matching.optimisers import AdamFamily, Optimiser, OptimiserState
from leakgauge.attacks.matching.priors import Prior
from leakgauge.attacks.matching.problem import MatchingProblem, ValueAndGradient
from leakgauge.attacks.matching.unknowns import Unknowns
from leakgauge.errors import InvalidFile
from leakgauge.progress import Tick
from leakgauge.types import Outcome, ParamTree, Reconstruction


@dataclass(frozen=True)
class Phase:
    """What is minimised at one time; losses of different phases do not compare."""

    objective: Objective
    priors: tuple[Prior, ...]


class Search(Stepper):
    """Rows are victims times restarts, each with its own best iterate; the lowest loss of a phase decides.

    Mutable, unlike everything around it: this is the state of a running attack.
    """

    outcome: Outcome | None = None

    def __init__(
        self,
        *,
        problems: tuple[MatchingProblem, ...],
        unknowns: Unknowns,
        priors: tuple[Prior, ...],
        optimiser: Optimiser,
        differentiation: Differentiation,
        restarts: int,
        budget: Budget,
        start: Tensor,
    ) -> None:
        self.problems, self.unknowns, self.priors = problems, unknowns, priors
        self.optimiser, self.restarts, self.budget = optimiser, restarts, budget
        box = unknowns.box
        if box is not None:
            box = tuple(b.to(start) if isinstance(b, Tensor) else b for b in box)  # type: ignore[assignment]
        self.state: OptimiserState = optimiser.start(start, box)
        self.best = start.clone()
        self.lowest = torch.full((len(start),), float("inf"), dtype=start.dtype, device=start.device)
        self.trace: list[Tensor] = []
        self.seconds = 0.0
        self.notes: dict[str, str | int | float] = dict(unknowns.coordinates.facts)
        self.phase: Phase | None = None
        self.share = 0.0
        """Of the budget that was spent when the last step began, which decided its phase."""
        self.observed = self._stacked_observed()
        self.labels = torch.stack([problem.labels for problem in problems]).repeat_interleave(restarts, dim=0)
        started = budget.now()
        self.evaluator = self._plan(differentiation)
        self.factors: list[tuple[float, ...]] = self._balance()
        """Weights of each prior whose weight follows the matching loss, as they are now."""
        self.seconds += budget.now() - started

    @property
    def steps(self) -> int:
        return len(self.trace)

    def step(self) -> Tick:
        """Evaluate the candidate and move on."""
        started = self.budget.now()
        if self._due():
            self.factors = self._balance()
        self.share = self.spent
        phase = self._phase(self.share)
        if phase != self.phase:
            self.lowest.fill_(float("inf"))
            if self.phase is not None:
                self.state = self.optimiser.renewed(self.state)
            self.phase = phase
        value, gradient = self._loss(phase, self.state.candidate)
        self.trace.append(value)
        better = value < self.lowest
        self.lowest = torch.where(better, value, self.lowest)
        self.best[better] = self.state.candidate[better]
        everything = slice(None)
        if not self._explodes(everything):
            self.state = self.optimiser.advance(self.state, value, gradient.nan_to_num(0.0, 0.0, 0.0), self.spent)
        self.seconds += self.budget.now() - started
        self.outcome = self._outcome(everything)
        return Tick(len(self.trace), 1.0 if self.outcome else self.spent, float(self.lowest.min()))

    @property
    def spent(self) -> float:
        return self.budget.spent(len(self.trace), self.seconds)

    def _explodes(self, rows: slice) -> bool:
        return not bool(self.trace[0][rows].isfinite().any())

    def _outcome(self, rows: slice) -> Outcome | None:
        """How the search has ended for these rows, if it has."""
        if self._explodes(rows):
            return Outcome.NON_FINITE
        if bool(self.state.converged[rows].all()) and self._phase(1.0) == self.phase:
            # Adam rests when its rate runs out along with the budget, whatever the loss still has to give.
            return Outcome.STEPS_EXHAUSTED if isinstance(self.optimiser, AdamFamily) else Outcome.CONVERGED
        return Outcome.STEPS_EXHAUSTED if self.spent >= 1 else None

    def results(self) -> list[Reconstruction]:
        """One reconstruction per victim."""
        found = []
        traces = torch.stack(self.trace)
        for index, problem in enumerate(self.problems):
            rows = slice(index * self.restarts, (index + 1) * self.restarts)
            winner = index * self.restarts + int(self.lowest[rows].argmin())
            outcome = self._outcome(rows) or Outcome.STEPS_EXHAUSTED
            found.append(self._result(problem, winner, traces[:, winner], outcome))
        return found

    def _result(self, problem: MatchingProblem, row: int, trace: Tensor, outcome: Outcome) -> Reconstruction:
        facts: dict[str, str | int | float] = {
            "route": self.evaluator.route,
            "steps": len(self.trace),
            "restarts": self.restarts,
            **self.notes,
        }
        if any(self.factors):
            facts["weight of the prior"] = max(own[row // self.restarts] for own in self.factors if own)
        labels = problem.labels
        if outcome is Outcome.NON_FINITE:
            return Reconstruction(None, None if labels.is_floating_point() else labels, outcome, trace, facts)
        parts = self.unknowns.split(self.best[row : row + 1])
        with torch.no_grad():
            images = self.unknowns.coordinates.decode(parts.images)[0].clamp(0, 1)
        if parts.logits is not None:
            labels = parts.logits[0].argmax(dim=1)
        if parts.position is not None:
            facts["position"] = float(parts.position[0])
        return Reconstruction(images, labels, outcome, trace, facts | {"loss": float(self.lowest[row])})

    def _phase(self, spent: float) -> Phase:
        weighed = (prior.weighed(factors) for prior, factors in zip(self.priors, self.factors, strict=True))
        active = (prior.at(spent) for prior in weighed)
        return Phase(self.problems[0].objective.at(spent), tuple(prior for prior in active if prior is not None))

    def _plan(self, differentiation: Differentiation) -> Evaluator:
        return plan_evaluation(self.problems[0], differentiation, self._rows(self.state.candidate))

    def _rows(self, variables: Tensor) -> Rows:
        """The candidates, not to be differentiated."""
        parts = self.unknowns.split(variables)
        with torch.no_grad():
            images = self.unknowns.coordinates.decode(parts.images)
        return Rows(images, self._labels(parts.logits), self.observed, parts.position)

    def _balance(self) -> list[tuple[float, ...]]:
        """The weights that follow from the candidates of the moment."""
        if not any(prior.updates for prior in self.priors):
            return [() for _ in self.priors]
        rows = self._rows(self.state.candidate)
        losses = self.evaluator.evaluate(rows, self.problems[0].objective.at(self.spent)).value
        return [prior.factors(rows.images, losses) for prior in self.priors]

    def _due(self) -> bool:
        """Whether the step to come is the first of another part of the budget by which a prior is weighed."""
        return any(int(self.spent * prior.updates) > int(self.share * prior.updates) for prior in self.priors)

    def matching_loss(self) -> Tensor:
        """Of each row's best iterate, without priors and under the last objective; comparable between searches."""
        return self.evaluator.evaluate(self._rows(self.best), self.problems[0].objective.at(1.0)).value

    def _labels(self, logits: Tensor | None) -> Tensor:
        return self.labels if logits is None else logits.softmax(dim=-1)

    def _stacked_observed(self) -> ParamTree | None:
        if len(self.problems) == 1:
            return None
        return {
            name: torch.stack([problem.observed[name] for problem in self.problems]).repeat_interleave(
                self.restarts, dim=0
            )
            for name in self.problems[0].observed
        }

    def _loss(self, phase: Phase, variables: Tensor) -> tuple[Tensor, Tensor]:
        """Matching loss plus priors, one value per row, and its gradient in the variables."""
        leaf = variables.detach().requires_grad_()
        with torch.enable_grad():
            parts = self.unknowns.split(leaf)
            images = self.unknowns.coordinates.decode(parts.images)
            labels = self._labels(parts.logits)
        position = None if parts.position is None else parts.position.detach()
        rows = Rows(images.detach(), labels.detach(), self.observed, position)
        found = self.evaluator.evaluate(rows, phase.objective)
        value, gradient = found.value, found.gradient
        if phase.priors:
            # The priors differentiate separately, so that every route stays free of them.
            pixels = images.detach().requires_grad_()
            with torch.enable_grad():
                penalty = torch.stack([prior(pixels) for prior in phase.priors]).sum(dim=0)
            value = value + penalty.detach()
            gradient = gradient + torch.autograd.grad(penalty.sum(), pixels)[0]
        if images is leaf:
            return value, gradient
        outputs, seeds = [images], [gradient]
        if parts.logits is not None:
            outputs, seeds = [*outputs, labels], [*seeds, _given(found, "labels")]
        if parts.position is not None:
            outputs, seeds = [*outputs, parts.position], [*seeds, _given(found, "position")]
        return value, torch.autograd.grad(outputs, leaf, grad_outputs=seeds)[0]

    # Interruption and resumption

    def snapshot(self) -> Snapshot:
        """Everything that is needed to go on, as named tensors."""
        kept = {
            "best": self.best,
            "lowest": self.lowest,
            "trace": torch.stack(self.trace) if self.trace else self.lowest.new_zeros(0, len(self.lowest)),
            "seconds": torch.tensor(self.seconds, dtype=torch.float64),
            "share": torch.tensor(self.share, dtype=torch.float64),
            "factors": torch.tensor([one for factors in self.factors for one in factors], dtype=torch.float64),
        }
        kept |= {f"state.{name}": tensor for name, tensor in _tensors(self.state).items()}
        return tree.map_tensors(torch.clone, kept)  # the search goes on writing to its own

    def restore(self, snapshot: Snapshot) -> None:
        """Go on from a snapshot of the same attack on the same update."""
        if not _alike(snapshot, self.snapshot()):
            raise InvalidFile(
                "The snapshot belongs to another attack, or to one of another size; delete it and start again."
            )
        state = _restored(self.state, {k.removeprefix("state."): v for k, v in snapshot.items()}, "")
        best, lowest, trace = snapshot["best"], snapshot["lowest"], snapshot["trace"]
        seconds, share, factors = float(snapshot["seconds"]), float(snapshot["share"]), snapshot["factors"].tolist()
        device = self.best.device
        self.state, self.best, self.lowest = state, best.to(device).clone(), lowest.to(device).clone()
        self.trace, self.seconds, self.share = list(trace.to(device)), seconds, share
        self.factors = [tuple(factors.pop(0) for _ in own) for own in self.factors]
        # The phase of the step before, so that its lowest loss still counts.
        self.phase = self._phase(share) if self.trace else None
        self.outcome = self._outcome(slice(None)) if self.trace else None


def _given(found: ValueAndGradient, name: str) -> Tensor:
    tensor = getattr(found, name)
    assert isinstance(tensor, Tensor), f"the route gave no derivative of the {name}"
    return tensor


def _alike(kept: Snapshot, fresh: Snapshot) -> bool:
    """The same names, types and sizes, save for the trace, which grows with the steps."""

    def described(snapshot: Snapshot) -> dict[str, tuple[object, ...]]:
        return {
            name: (tensor.dtype, tensor.ndim, tensor.shape[1:] if name == "trace" else tensor.shape)
            for name, tensor in snapshot.items()
        }

    return described(kept) == described(fresh)


def _tensors(value: Any, prefix: str = "") -> dict[str, Tensor]:
    """The tensors and numbers of a dataclass, however deep, by name."""
    found: dict[str, Tensor] = {}
    for entry in fields(value):
        part, name = getattr(value, entry.name), f"{prefix}{entry.name}"
        if isinstance(part, Tensor):
            found[name] = part
        elif isinstance(part, int):
            found[name] = torch.tensor(part)
        elif is_dataclass(part):
            found |= _tensors(part, f"{name}.")
    return found


def _restored(value: Any, tensors: Snapshot, prefix: str) -> Any:
    """A copy of the dataclass with its tensors and numbers from a snapshot."""
    changes: dict[str, Any] = {}
    for entry in fields(value):
        part, name = getattr(value, entry.name), f"{prefix}{entry.name}"
        if isinstance(part, Tensor):
            changes[entry.name] = tensors[name].to(part).clone()
        elif isinstance(part, int):
            changes[entry.name] = int(tensors[name])
        elif is_dataclass(part):
            changes[entry.name] = _restored(part, tensors, f"{name}.")
    return replace(value, **changes)
