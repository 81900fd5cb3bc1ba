"""One attack under way: stepped, watched, interrupted, resumed."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from leakgauge import params as tree
from leakgauge.attacks.base import Snapshot, Stepper
from leakgauge.attacks.budget import Budget
from leakgauge.attacks.matching.differentiation import Differentiation
from leakgauge.attacks.matching.loss import RowsLoss, Unknowns
from leakgauge.attacks.matching.objectives import Objective
from leakgauge.attacks.matching.optimisers import Optimiser, OptimiserState
from leakgauge.attacks.matching.priors import Penalties, Prior, unweighed
from leakgauge.attacks.matching.problem import MatchingProblem
from leakgauge.clocks import Seconds
from leakgauge.errors import InvalidFile
from leakgauge.progress import Tick
from leakgauge.types import Outcome, Reconstruction


def write_state(value: Any, prefix: str = "") -> dict[str, Tensor]:
    """The tensors and numbers of a dataclass, however deep, by name."""
    found: dict[str, Tensor] = {}
    for entry in fields(value):
        part, name = getattr(value, entry.name), f"{prefix}{entry.name}"
        if isinstance(part, Tensor):
            found[name] = part
        elif isinstance(part, int):
            found[name] = torch.tensor(part)
        elif is_dataclass(part):
            found |= write_state(part, f"{name}.")
    return found


def read_state(like: Any, tensors: Snapshot, prefix: str = "") -> Any:
    """A copy of the dataclass with its tensors and numbers from a snapshot."""
    changes: dict[str, Any] = {}
    for entry in fields(like):
        part, name = getattr(like, entry.name), f"{prefix}{entry.name}"
        if isinstance(part, Tensor):
            changes[entry.name] = tensors[name].to(part).clone()
        elif isinstance(part, int):
            changes[entry.name] = int(tensors[name])
        elif is_dataclass(part):
            changes[entry.name] = read_state(part, tensors, f"{name}.")
    return replace(like, **changes)


def same_layout(kept: Snapshot, fresh: Snapshot, *, growing: str) -> bool:
    """The same names, types and sizes, save for the tensor that grows with the steps."""

    def describe(snapshot: Snapshot) -> dict[str, tuple[object, ...]]:
        return {
            name: (tensor.dtype, tensor.ndim, tensor.shape[1:] if name == growing else tensor.shape)
            for name, tensor in snapshot.items()
        }

    return describe(kept) == describe(fresh)


@dataclass(frozen=True)
class Phase:
    """What is minimised at one time; losses of different phases do not compare."""

    objective: Objective
    priors: tuple[Prior, ...]

    def is_like(self, other: Phase) -> bool:
        """Whether they differ in nothing but the weights of priors, so that curvature still holds."""
        own, its = (tuple(map(unweighed, phase.priors)) for phase in (self, other))
        return self.objective == other.objective and own == its


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
        penalties: Penalties,
        optimiser: Optimiser[Any],
        differentiation: Differentiation,
        restarts: int,
        budget: Budget,
        start: Tensor,
    ) -> None:
        self.problems, self.unknowns, self.penalties = problems, unknowns, penalties
        self.optimiser, self.restarts, self.budget = optimiser, restarts, budget.on(start.device)
        box = unknowns.box
        if box is not None:
            box = tuple(b.to(start) if isinstance(b, Tensor) else b for b in box)  # type: ignore[assignment]
        self.state: OptimiserState = optimiser.start(start, box)
        self.best = start.clone()
        self.lowest = torch.full((len(start),), float("inf"), dtype=start.dtype, device=start.device)
        self.trace: list[Tensor] = []
        self.elapsed = Seconds()
        self.notes: dict[str, str | int | float] = dict(unknowns.coordinates.facts)
        self.phase: Phase | None = None
        self.share = 0.0
        """Of the budget that was spent when the last step began, which decided its phase."""
        started = self.budget.now()
        self.loss = RowsLoss(problems, unknowns, restarts, differentiation, self.state.candidate)
        self._weigh()
        self.elapsed += self.budget.now() - started

    @property
    def steps(self) -> int:
        return len(self.trace)

    def step(self) -> Tick:
        """Evaluate the candidate and move on."""
        started = self.budget.now()
        if self.penalties.are_due(self.share, self.spent):
            self._weigh()
        self._fade()
        self.share = self.spent
        phase = self._phase(self.share)
        if phase != self.phase:
            self.lowest.fill_(float("inf"))
            if self.phase is not None:
                self.state = self.optimiser.renew(self.state, anew=not phase.is_like(self.phase))
            self.phase = phase
        value, gradient = self.loss.with_gradient(self.state.candidate, phase.objective, phase.priors)
        self.trace.append(value)
        better = value < self.lowest
        self.lowest = torch.where(better, value, self.lowest)
        self.best[better] = self.state.candidate[better]
        everything = slice(None)
        if not self._explodes(everything):
            self.state = self.optimiser.advance(self.state, value, gradient.nan_to_num(0.0, 0.0, 0.0), self.spent)
        self.elapsed += self.budget.now() - started
        self.outcome = self._outcome(everything)
        return Tick(len(self.trace), 1.0 if self.outcome else self.spent, float(self.lowest.min()))

    @property
    def spent(self) -> float:
        return self.budget.spent(len(self.trace), self.elapsed)

    def _explodes(self, rows: slice) -> bool:
        return not bool(self.trace[0][rows].isfinite().any())

    def _outcome(self, rows: slice) -> Outcome | None:
        """How the search has ended for these rows, if it has."""
        if self._explodes(rows):
            return Outcome.NON_FINITE
        if bool(self.state.converged[rows].all()) and self._phase(1.0) == self.phase and not self._held_by_priors():
            return self.optimiser.outcome_at_rest
        if self.budget.is_overdue(len(self.trace), self.elapsed):
            return Outcome.OVERDUE
        return Outcome.STEPS_EXHAUSTED if self.spent >= 1 else None

    def results(self) -> list[Reconstruction]:
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
            "route": self.loss.evaluator.route,
            "steps": len(self.trace),
            "restarts": self.restarts,
            **({"why this route": why} if (why := self.loss.evaluator.why) else {}),
            **self.notes,
        }
        victim = row // self.restarts
        if followings := self.penalties.followings:
            facts["weight of the prior"] = max(one.weights[victim] for one in followings)
        if fades := self.penalties.fades:
            facts["left of the prior"] = max(one.weights[victim] for one in fades)
        labels = problem.labels
        if outcome is Outcome.NON_FINITE:
            return Reconstruction(None, None if labels.is_floating_point() else labels, outcome, trace, facts)
        parts = self.unknowns.split(self.best[row : row + 1])
        with torch.no_grad():
            space = self.unknowns.space
            inputs = space.decode(space.relax(self.unknowns.coordinates.decode(parts.images)[0]))
        if parts.logits is not None:
            labels = parts.logits[0].argmax(dim=1)
        if parts.position is not None:
            facts["position"] = float(parts.position[0])
        return Reconstruction(inputs, labels, outcome, trace, facts | {"loss": float(self.lowest[row])})

    def matching_loss(self) -> Tensor:
        """Of each row's best iterate, without priors and under the last objective; comparable between searches."""
        return self.loss.matching(self.loss.rows(self.best), self.problems[0].objective.at(1.0))

    def _phase(self, spent: float) -> Phase:
        return Phase(self.problems[0].objective.at(spent), self.penalties.at(spent))

    def _weigh(self) -> None:
        """Weigh the priors at the candidates of the moment."""
        if self.penalties.followings:
            rows = self.loss.rows(self.state.candidate)
            self.penalties.weigh(rows.images, self.loss.matching(rows, self.problems[0].objective.at(self.spent)))

    def _fade(self) -> None:
        """Let go of fading priors as far as what was found allows."""
        if self.penalties.fades and self.phase is not None:
            self.penalties.fade(*self._left(), settled=bool(self.state.converged.all()))

    def _held_by_priors(self) -> bool:
        """Whether the search has settled where a prior holds it that would let go."""
        if not self.penalties.fades:
            return False
        return self.penalties.faded(*self._left(), settled=True) != [one.weights for one in self.penalties.fades]

    def _left(self) -> tuple[Tensor, Tensor]:
        """The best images and their matching loss, which is what priors leave of their loss: it costs no evaluation."""
        assert self.phase is not None
        images = self.loss.rows(self.best).images
        with torch.no_grad():
            return images, self.lowest - sum(prior(images) for prior in self.phase.priors)

    # Interruption and resumption

    def snapshot(self) -> Snapshot:
        kept = {
            "best": self.best,
            "lowest": self.lowest,
            "trace": torch.stack(self.trace) if self.trace else self.lowest.new_zeros(0, len(self.lowest)),
            "elapsed": torch.tensor(astuple(self.elapsed), dtype=torch.float64),
            "share": torch.tensor(self.share, dtype=torch.float64),
            "factors": torch.tensor(self.penalties.weights, dtype=torch.float64),
        }
        kept |= write_state(self.state, "state.")
        return tree.map_tensors(torch.clone, kept)  # the search goes on writing to its own

    def restore(self, snapshot: Snapshot) -> None:
        if not same_layout(snapshot, self.snapshot(), growing="trace"):
            raise InvalidFile(
                "The snapshot belongs to another attack, or to one of another size; delete it and start again."
            )
        state = read_state(self.state, snapshot, "state.")
        best, lowest, trace = snapshot["best"], snapshot["lowest"], snapshot["trace"]
        elapsed, share = Seconds(*snapshot["elapsed"].tolist()), float(snapshot["share"])
        device = self.best.device
        self.state, self.best, self.lowest = state, best.to(device).clone(), lowest.to(device).clone()
        self.trace, self.elapsed, self.share = list(trace.to(device)), elapsed, share
        self.penalties.restore(snapshot["factors"].tolist())
        # The phase of the step before, so that its lowest loss still counts.
        self.phase = self._phase(share) if self.trace else None
        self.outcome = self._outcome(slice(None)) if self.trace else None
