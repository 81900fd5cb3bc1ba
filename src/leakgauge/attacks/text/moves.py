"""Gradient matching on texts that also moves tokens about: discrete moves, chosen by the update and by the language."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace

import torch
from torch import Generator, Tensor

from leakgauge.attacks.analytic.linear_layer import not_applicable
from leakgauge.attacks.base import Answered, Snapshot, SteppedAttack, Stepper, StepperAround
from leakgauge.attacks.budget import Around
from leakgauge.attacks.matching.optimisers import OptimiserState
from leakgauge.attacks.matching.search import Search
from leakgauge.attacks.text.language import LanguagePrior, SentModel, Surprise
from leakgauge.attacks.text.matching import TextMatching, require_known
from leakgauge.errors import InvalidCase, InvalidFile, UnsupportedModel
from leakgauge.progress import Tick
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.randomness import seeded
from leakgauge.space import TokenSpace
from leakgauge.types import Reconstruction

_ROUNDS = "rounds of moves"


@dataclass(frozen=True)
class LanguageMoves(SteppedAttack, Around):
    """Gradient matching in turns with moves of tokens: two change places, one or a run of them goes elsewhere, a
    beginning becomes the end, or two texts exchange a token.

    Continuous steps find which tokens there are long before they find their order, and no small step leads from one
    order to another. In each of ``rounds`` equal parts of the budget, ``tries`` moves in turn are kept where they lower
    the matching loss plus ``weight`` times the surprise of the texts under the ``language`` of the attacker.
    """

    attack: TextMatching = field(default_factory=TextMatching)
    language: LanguagePrior = field(default_factory=SentModel)
    weight: float = 0.01
    rounds: int = 6
    tries: int = 20

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.tries < 1 or self.weight < 0:
            raise InvalidCase("LanguageMoves needs rounds >= 1, tries >= 1 and weight >= 0; correct them.")

    def search(self, observations: Sequence[UpdateObservation], *, generator: Generator) -> Stepper:
        require_known(observations, self)
        inner = self.attack.search(observations, generator=generator)
        space = observations[0].space
        if not isinstance(inner, Search) or not isinstance(space, TokenSpace):
            return inner
        try:
            surprises = [self.language.bind(seen, space) for seen in observations]
        except UnsupportedModel as refusal:
            return Answered([not_applicable(str(refusal))] * len(observations))
        return MovingSearch(self, inner, surprises, int(torch.randint(1 << 62, (), generator=generator)))


class MovingSearch(StepperAround):
    """The continuous search, whose best iterates are moved about between its steps."""

    inner: Search

    def __init__(self, attack: LanguageMoves, inner: Search, surprises: list[Surprise], seed: int) -> None:
        super().__init__(inner)
        self.attack, self.surprises, self.seed, self.done = attack, surprises, seed, 0

    def step(self) -> Tick:
        tick = self.inner.step()
        due = self.attack.rounds if self.inner.outcome else int(self.inner.spent * self.attack.rounds)
        if due > self.done:
            started = self.inner.budget.now()
            self._round()
            self.done = due
            self.inner.elapsed += self.inner.budget.now() - started
        return tick

    def _round(self) -> None:
        """Moves of every row's best iterate; the one at hand, and what the optimiser keeps of it, is moved along."""
        inner = self.inner
        for row in range(len(inner.best)):
            if not bool(inner.lowest[row].isfinite()):
                continue
            order, loss = self._improve(row, seeded(self.seed, "moves", self.done, row))
            if loss is None:
                continue
            inner.best[row] = places(inner.best[row], order)
            inner.lowest[row] = loss
            inner.state = _moved(inner.state, row, order)

    def _improve(self, row: int, generator: Generator) -> tuple[Tensor, Tensor | None]:
        """The order of a row's places after the moves that lowered its score, and its matching loss; None where none
        did."""
        best = self.inner.best[row]
        order = torch.arange(best.shape[0] * best.shape[1])
        _, score = self._score(best, row)
        found = None
        for _ in range(self.attack.tries):
            other = order[move(self._lengths(places(best, order)), best.shape[1], generator)]
            loss, mine = self._score(places(best, other), row)
            if mine < score:
                order, score, found = other, mine, loss
        return order, found

    def _lengths(self, variables: Tensor) -> list[int]:
        space = self.inner.unknowns.space
        assert isinstance(space, TokenSpace)
        return [int(length) for length in space.lengths(self._texts(variables))]

    def _score(self, variables: Tensor, row: int) -> tuple[Tensor, float]:
        """The matching loss of one row, and the same with the surprise of its texts."""
        inner, victim = self.inner, row // self.inner.restarts
        problem = inner.problems[victim]
        with torch.no_grad():
            problem = replace(problem, objective=problem.objective.at(inner.share))
            loss = problem.distance(problem.update(inner.unknowns.coordinates.decode(variables)))
        surprise = self.surprises[victim](self._texts(variables)).mean()
        return loss, float(loss) + self.attack.weight * float(surprise)

    def _texts(self, variables: Tensor) -> Tensor:
        with torch.no_grad():
            return self.inner.unknowns.space.decode(self.inner.unknowns.coordinates.decode(variables))

    def results(self) -> list[Reconstruction]:
        said: dict[str, str | int | float] = {_ROUNDS: self.done, "attacker also knew": self.attack.language.knew}
        return [replace(one, facts={**one.facts, **said}) for one in self.inner.results()]

    def snapshot(self) -> Snapshot:
        return {**self.inner.snapshot(), _ROUNDS: torch.tensor(self.done)}

    def restore(self, snapshot: Snapshot) -> None:
        if _ROUNDS not in snapshot:
            raise InvalidFile("The snapshot belongs to another attack; delete it and start again.")
        self.inner.restore({name: one for name, one in snapshot.items() if name != _ROUNDS})
        self.done = int(snapshot[_ROUNDS])


def places(variables: Tensor, order: Tensor) -> Tensor:
    """The places of all texts, n length ..., in another order."""
    return variables.flatten(0, 1)[order.to(variables.device)].view_as(variables)


def _moved(state: OptimiserState, row: int, order: Tensor) -> OptimiserState:
    """What an optimiser keeps of each place goes with it."""
    changes = {}
    for entry in fields(state):  # type: ignore[arg-type]
        value = getattr(state, entry.name)
        if isinstance(value, Tensor) and value.shape == state.candidate.shape:
            changes[entry.name] = value.clone()
            changes[entry.name][row] = places(value[row], order)
    return replace(state, **changes)  # type: ignore[type-var]


def move(lengths: Sequence[int], room: int, generator: Generator) -> Tensor:
    """Another order of the places of texts of these lengths, each with ``room`` places: of one text, or of two that
    exchange a token."""

    def below(count: int) -> int:
        return int(torch.randint(count, (), generator=generator))

    order = torch.arange(len(lengths) * room)
    text, kind = below(len(lengths)), below(5 if len(lengths) > 1 else 4)
    length, start = lengths[text], text * room
    if kind == 4:
        other = (text + 1 + below(len(lengths) - 1)) % len(lengths)
        here, there = start + below(max(1, length)), other * room + below(max(1, lengths[other]))
        order[[here, there]] = order[[there, here]]
    elif length > 1:
        order[start : start + length] = start + torch.tensor(_order(kind, length, below))
    return order


def _order(kind: int, length: int, below: Callable[[int], int]) -> list[int]:
    """Places of a text in another order: two changed, one moved, a run moved, or a beginning put behind the rest."""
    places = list(range(length))
    if kind == 0:
        one, other = below(length), below(length)
        places[one], places[other] = other, one
        return places
    if kind == 3:
        cut = 1 + below(length - 1)
        return places[cut:] + places[:cut]
    size = 1 if kind == 1 else 1 + below(max(1, length // 2))
    start = below(length - size + 1)
    run, rest = places[start : start + size], places[:start] + places[start + size :]
    at = below(len(rest) + 1)
    return rest[:at] + run + rest[at:]
