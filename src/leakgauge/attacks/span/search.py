"""One span matching under way: stepped, watched, interrupted, resumed."""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Generator, Tensor

from leakgauge import params as tree
from leakgauge.attacks.base import Snapshot, Stepper
from leakgauge.attacks.matching.objectives import Objective
from leakgauge.attacks.matching.parametrisations import Coordinates
from leakgauge.attacks.matching.priors import Prior
from leakgauge.attacks.matching.search import read_state, same_layout, write_state
from leakgauge.attacks.span.guide import Guide
from leakgauge.attacks.span.layer_spans import LayerSpan
from leakgauge.attacks.span.loss import SpanLoss
from leakgauge.clocks import Seconds
from leakgauge.errors import InvalidFile
from leakgauge.progress import Tick
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.randomness import seeded
from leakgauge.types import Outcome, Reconstruction

if TYPE_CHECKING:
    from leakgauge.attacks.span.matching import SpanMatching

WRONG = 30.0
"""How many times the residual that counts as settled an image has that counts as wrong, once another has settled."""

PROMISING = 3e-2
"""The residual up to which a search is on its way."""

PACE = 0.1
"""Of an image that has come right, while others of its batch are drawn anew."""


@dataclass(frozen=True, eq=False)
class SpanProblem:
    """One update: its loss, what is believed of images, and how they are moved."""

    loss: SpanLoss
    priors: tuple[Prior, ...]
    coordinates: Coordinates
    observation: UpdateObservation
    labels: Tensor
    spans: tuple[LayerSpan, ...]
    objective: Objective | None = None
    """Of gradient matching, where it is to guide."""

    @cached_property
    def guide(self) -> Guide | None:
        """Made when it is first asked for, since it takes a while."""
        if self.objective is None:
            return None
        return Guide.of(self.observation, self.labels, self.objective, self.coordinates)

    @property
    def num_examples(self) -> int:
        return len(self.labels)

    @property
    def facts(self) -> dict[str, str | int | float]:
        """What the record says of the spans."""
        return {
            "spanned layers": ", ".join(span.layer.weight.removesuffix(".weight") for span in self.spans),
            "least belief in a direction": min(float(span.weights.min()) for span in self.spans),
            "gap behind the rank": min(span.gap for span in self.spans),
        }

    def evaluate(self, variables: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Loss, residual of each image, and the loss's gradient at one batch."""
        leaf = variables.detach().requires_grad_()
        with torch.enable_grad():
            inputs = self.coordinates.decode(leaf)
            penalty = sum((prior(inputs[None]).sum() for prior in self.priors), torch.zeros_like(leaf[0]).sum())
        terms = self.loss.at(inputs.detach(), self.labels)
        with torch.enable_grad():
            moved = (inputs * terms.gradient).sum() + penalty
        gradient = torch.autograd.grad(moved, leaf)[0]
        return terms.value + penalty.detach(), terms.residuals, gradient

    def guided(self, variables: Tensor, gradient: Tensor) -> Tensor:
        """A gradient with that of the guide beside it, each brought to unit length."""
        if self.guide is None:
            return gradient
        return _unit(gradient) + _unit(self.guide.gradient(variables))


@dataclass(frozen=True)
class Decay:
    """How far a decay has come: at ``place`` when the share ``since`` of the budget was spent, at 1 at ``until``."""

    since: float = 0.0
    until: float = 1.0
    place: float = 0.0

    def at(self, spent: float) -> float:
        """The share of the decay that is over.

        >>> Decay(0.5, 1.0).at(0.75), Decay(0.5, 1.0).hurry(0.6).at(0.9)
        (0.5, 1.0)
        """
        whole = self.until - self.since
        done = 1.0 if whole <= 0 else min(1.0, max(0.0, (spent - self.since) / whole))
        return self.place + (1 - self.place) * done

    def hurry(self, spent: float) -> Decay:
        """The same decay, over when half as much again has been spent as until now."""
        until = min(self.until, 1.5 * spent)
        return Decay(spent, until, self.at(spent))


def _unit(vector: Tensor) -> Tensor:
    return vector / vector.norm().clamp_min(torch.finfo(vector.dtype).tiny)


class SpanSearch(Stepper):
    """Rows are victims times starts; after the race one row of each victim goes on.

    Mutable, unlike everything around it: this is the state of a running attack.
    """

    name = "span matching"
    outcome: Outcome | None = None

    def __init__(
        self, attack: SpanMatching, problems: tuple[SpanProblem, ...], *, generator: Generator, elapsed: Seconds
    ) -> None:
        self.attack, self.problems, self.notes = attack, problems, dict[str, str | int | float]()
        state = problems[0].observation.state
        self.budget = attack.budget.on(state.device)
        self.seed = int(torch.randint(1 << 62, (), generator=generator))
        start = torch.cat([self._draw(problem, index, 0) for index, problem in enumerate(problems)]).to(
            state.device, state.dtype
        )
        self.box = problems[0].coordinates.box
        self.state: Any = attack.optimiser.start(start, self.box)
        self.best = start.clone()
        self.lowest = start.new_full((len(start),), float("inf"))
        self.residuals = start.new_full(start.shape[:2], float("inf"))
        """Of each image of the best iterate."""
        self.live = torch.ones(len(start), dtype=torch.bool)
        self.held = torch.zeros(start.shape[:2], dtype=torch.bool)
        """Images that have come right while others of their batch were drawn anew."""
        self.decay = Decay(until=attack.race if attack.starts > 1 else 1.0)
        self.racing, self.renewed, self.hurried = attack.starts > 1, False, False
        self.trace: list[Tensor] = []
        self.elapsed = elapsed

    @property
    def steps(self) -> int:
        return len(self.trace)

    @property
    def spent(self) -> float:
        return self.budget.spent(len(self.trace), self.elapsed)

    def step(self) -> Tick:
        """Evaluate the candidates and move on."""
        started = self.budget.now()
        self._turn()
        values, gradient = self._evaluate()
        self.trace.append(values)
        before = self.state.candidate
        self.state = self.attack.optimiser.advance(
            self.state, values, gradient.nan_to_num(0.0, 0.0, 0.0), self.decay.at(self.spent)
        )
        if bool(self.held.any()):
            slow = torch.where(self.held, PACE, 1.0).to(before)[(...,) + (None,) * (before.ndim - 2)]
            self.state = replace(self.state, candidate=torch.lerp(before, self.state.candidate, slow))
        self.elapsed += self.budget.now() - started
        self.outcome = self._outcome()
        return Tick(len(self.trace), 1.0 if self.outcome else self.spent, float(self.lowest.min()))

    def _evaluate(self) -> tuple[Tensor, Tensor]:
        candidate = self.state.candidate
        values, gradient = candidate.new_full((len(candidate),), float("inf")), torch.zeros_like(candidate)
        for row in self.live.nonzero().flatten().tolist():
            problem = self.problems[row // self.attack.starts]
            value, residuals, slope = problem.evaluate(candidate[row])
            gradient[row] = problem.guided(candidate[row], slope) if self._is_guided else slope
            values[row] = value
            if value < self.lowest[row]:
                self.lowest[row], self.best[row], self.residuals[row] = value, candidate[row], residuals
        return values, gradient

    @property
    def _is_guided(self) -> bool:
        return not self.hurried and self.spent < self.attack.guided

    # What happens when

    def _turn(self) -> None:
        """End the race, draw wrong images anew, or let the rate run out, where it is time."""
        if not self.trace:
            return
        spent = self.spent
        if self.racing and spent >= self.decay.until:
            self.racing = False
            self.live[:] = False
            self.live[self._winners()] = True
            self.decay = Decay(since=spent)
            self.state = self.attack.optimiser.start(self.best.clone(), self.box)
        elif not self.racing and not self.renewed and spent >= self.attack.renewal:
            self.renewed = True
            self._renew(spent)
        elif not self.racing and not self.hurried and bool((self._settled()).all()):
            self.hurried = True
            self.decay = self.decay.hurry(spent)

    def _winners(self) -> Tensor:
        return self.lowest.view(-1, self.attack.starts).argmin(dim=1) + self.attack.starts * torch.arange(
            len(self.problems)
        )

    def found_residuals(self) -> Tensor:
        """The mean over each victim's images."""
        return self.residuals[self._winners()].mean(dim=1)

    @property
    def promising(self) -> bool:
        """Whether every victim's residual is small enough to go on."""
        return not bool((self.found_residuals() > PROMISING).any())

    def _settled(self) -> Tensor:
        return self.found_residuals() < self.attack.settled

    def _renew(self, spent: float) -> None:
        """Draw those images anew that have not come right, in batches of which others have."""
        wrong = self.residuals > WRONG * self.attack.settled
        # Before any has settled they may all be on their way.
        settled = (self.residuals < self.attack.settled).any(dim=1)
        some = wrong.any(dim=1) & settled & self.live
        if not bool(some.any()):
            return
        candidate = self.best.clone()
        for row in some.nonzero().flatten().tolist():
            victim = row // self.attack.starts
            fresh = self._draw(self.problems[victim], victim, 1)[0].to(candidate)
            candidate[row, wrong[row]] = fresh[wrong[row]]
            self.held[row] = ~wrong[row]
        self.state = self.attack.optimiser.start(candidate, self.box)
        self.decay = Decay(since=spent)

    def _draw(self, problem: SpanProblem, victim: int, number: int) -> Tensor:
        generator = seeded(self.seed, "span start", victim, number)
        shape = problem.observation.space.shape
        return problem.coordinates.start(self.attack.starts, problem.num_examples, shape, generator=generator)

    def _outcome(self) -> Outcome | None:
        if not bool(self.trace[0].isfinite().any()):
            return Outcome.NON_FINITE
        if not self.racing and self.decay.at(self.spent) >= 1 and bool(self._settled().all()):
            return Outcome.CONVERGED
        if self.budget.is_overdue(len(self.trace), self.elapsed):
            return Outcome.OVERDUE
        return Outcome.STEPS_EXHAUSTED if self.spent >= 1 else None

    # What came of it

    def results(self) -> list[Reconstruction]:
        traces = torch.stack(self.trace)
        found = []
        for problem, row in zip(self.problems, self._winners().tolist(), strict=True):
            outcome = self.outcome or Outcome.STEPS_EXHAUSTED
            residuals = self.residuals[row]
            facts = {
                "steps": len(self.trace),
                "starts": self.attack.starts,
                **problem.facts,
                "residual": float(residuals.mean()),
                "residual of each image": ", ".join(f"{float(one):.1e}" for one in residuals),
                "loss": float(self.lowest[row]),
                **self.notes,
            }
            inputs = None
            if outcome is not Outcome.NON_FINITE:
                space = problem.observation.space
                with torch.no_grad():
                    inputs = space.decode(space.relax(problem.coordinates.decode(self.best[row])))
            found.append(Reconstruction(inputs, problem.labels, outcome, traces[:, row], facts))
        return found

    # Interruption and resumption

    def snapshot(self) -> Snapshot:
        flags = (self.racing, self.renewed, self.hurried)
        kept = {
            "best": self.best,
            "lowest": self.lowest,
            "residuals": self.residuals,
            "live": self.live,
            "held": self.held,
            "trace": torch.stack(self.trace) if self.trace else self.lowest.new_zeros(0, len(self.lowest)),
            "elapsed": torch.tensor(astuple(self.elapsed), dtype=torch.float64),
            "decay": torch.tensor((*astuple(self.decay), *flags), dtype=torch.float64),
            "seed": torch.tensor(self.seed),
        }
        return tree.map_tensors(torch.clone, kept | write_state(self.state, "state."))

    def restore(self, snapshot: Snapshot) -> None:
        if not same_layout(snapshot, self.snapshot(), growing="trace") or int(snapshot["seed"]) != self.seed:
            raise InvalidFile(
                "The snapshot belongs to another attack, or to one of another size; delete it and start again."
            )
        self.state = read_state(self.state, snapshot, "state.")
        for name in ("best", "lowest", "residuals", "live", "held"):
            setattr(self, name, snapshot[name].to(getattr(self, name)).clone())
        self.trace = list(snapshot["trace"].to(self.best.device))
        self.elapsed = Seconds(*snapshot["elapsed"].tolist())
        *decay, racing, renewed, hurried = snapshot["decay"].tolist()
        self.decay, self.racing, self.renewed, self.hurried = Decay(*decay), bool(racing), bool(renewed), bool(hurried)
        self.outcome = self._outcome() if self.trace else None
