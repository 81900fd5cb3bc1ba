"""The work of an attack: how much it may spend, and that none of it is lost when the process ends."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from audit_support import *  # noqa: F403
from torch import Generator, Tensor, nn

import leakgauge
from leakgauge import THREAT_MODELS, FedSGD, UpdateObservation
from leakgauge.attacks.analytic import LinearLayer
from leakgauge.attacks.budget import BUDGETS, Around, Budget, Budgeted, with_budget
from leakgauge.attacks.malicious import LabelFlip
from leakgauge.attacks.matching import (
    LBFGS,
    GradientMatching,
    Leg,
    OnNoise,
    Relay,
    SignedAdam,
    Starting,
    TotalVariation,
)
from leakgauge.attacks.matching.loss import RowsLoss
from leakgauge.attacks.recipes import quasi_newton
from leakgauge.audit.case import Case
from leakgauge.audit.execute import PreparedAudit, execute
from leakgauge.audit.executors import InProcess
from leakgauge.audit.grid import Round, grid
from leakgauge.audit.plan import AuditPlan
from leakgauge.audit.record import Record
from leakgauge.audit.store import FolderStore, MemoryStore
from leakgauge.config import build_attack, build_budget
from leakgauge.defences import NoDefence
from leakgauge.errors import InvalidCase
from leakgauge.files import read_tensors, write_tensors
from leakgauge.metrics import PSNR
from leakgauge.progress import Progress, Tick, silent
from leakgauge.protocol import Federation, learner_and_state
from leakgauge.randomness import seeded
from leakgauge.types import Batch, Outcome, Reconstruction

METRICS = {"psnr": PSNR()}
STEPS = 12
TEN = Budget(steps=10)


# How much


@dataclass(frozen=True)
class Wrapper(Around):
    attack: Any
    name: str = "w"


@dataclass(frozen=True)
class Thrifty(Budgeted):
    """An attack with its own idea of a budget."""

    share: Budget = Budget(steps=1)

    def with_budget(self, budget: Budget) -> Thrifty:
        return Thrifty(budget)


@dataclass(frozen=True)
class Private:
    budget: float = 0.5


def test_a_budget_reaches_the_attack_however_deep_it_is_wrapped() -> None:
    assert with_budget(quasi_newton(), TEN) == replace(quasi_newton(), budget=TEN)
    assert with_budget(LabelFlip(classes=(0, 1)), TEN) == LabelFlip(replace(quasi_newton(), budget=TEN), (0, 1))
    assert with_budget(Wrapper(Wrapper(quasi_newton()), "v"), TEN) == Wrapper(
        Wrapper(replace(quasi_newton(), budget=TEN)), "v"
    )
    assert with_budget(Wrapper(Thrifty()), TEN) == Wrapper(Thrifty(TEN))


@pytest.mark.parametrize("attack", [LinearLayer(), Wrapper(LinearLayer()), Wrapper(None), Private(), silent])
def test_what_has_no_budget_stays_the_very_same(attack: Any) -> None:
    assert with_budget(attack, TEN) is attack


@pytest.mark.parametrize(
    ("asked", "budget"),
    [
        ((None,), None),
        (("quick",), BUDGETS["quick"]),
        ((TEN,), TEN),
        ((None, 5), Budget(steps=5)),
        ((None, None, 3.0), Budget(seconds=3.0)),
        ((None, 5, 3.0), Budget(steps=5, seconds=3.0)),
        (("deep", None, 3.0), Budget(seconds=3.0)),
        (("deep", 5), Budget(steps=5, seconds=600.0)),
        ((Budget(steps=7, clock="cpu"), None, 3.0), Budget(steps=7, seconds=3.0, clock="cpu")),
    ],
)
def test_steps_and_seconds_replace_those_of_a_named_budget_and_the_first_used_up_ends_it(
    asked: tuple[Any, ...], budget: Budget | None
) -> None:
    assert build_budget(*asked) == budget


def test_without_a_budget_each_attack_keeps_its_own() -> None:
    assert AuditPlan().work() is None
    assert build_attack("quasi_newton") == quasi_newton()
    assert build_attack("label_flip", Budget(seconds=2.0)).attack.budget == Budget(seconds=2.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"budget": "deap"}, "no budget 'deap'; did you mean 'deep'"),
        ({"budget": "endless"}, "no budget 'endless'; choose from quick, standard, deep"),
        ({"budget": "deep", "steps": 0}, "steps >= 1, got 0"),
        ({"seconds": 0.0}, "seconds > 0.*got 0.0"),
        ({"seconds": math.inf}, "finite, got inf"),
        ({"seconds": math.nan}, "finite, got nan"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused_in_one_sentence(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidCase, match=message) as caught:
        AuditPlan(**changes)
    assert "\n" not in str(caught.value)


def test_a_python_audit_takes_a_budget_and_its_records_say_which_one_ran() -> None:
    def audit(attack: Any, **options: Any) -> Any:
        one = leakgauge.audit(
            mlp(), batch=(images(1, 0), torch.tensor([1])), attacks=[attack], defences=["none"], **options
        )
        return one.rows[0], one.description

    two = Budget(steps=2)
    row, description = audit("quasi_newton", budget=two)
    assert row.facts["steps"] == 2
    assert "budget=Budget(steps=2, seconds=None, clock='cpu', least=30)" in row.records[0].attack_repr
    assert description["budget"] == repr(two)
    own = replace(quasi_newton(), budget=Budget(steps=3))
    assert audit(own)[0].facts["steps"] == 3
    # An attack given as an object is called by what ran, not by what it was before.
    assert audit(own, budget=two)[0].attack == repr(replace(own, budget=two))
    with pytest.raises(InvalidCase, match="did you mean 'quick'"):
        audit("quasi_newton", budget="quik")
    with pytest.raises(InvalidCase, match=r"quick, standard, deep or a Budget, got 60; write Budget\(seconds"):
        audit("quasi_newton", budget=60)


# Interrupted and resumed


def images(count: int, seed: int) -> Tensor:
    return torch.rand(count, 1, 6, 6, generator=torch.Generator().manual_seed(seed))


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.Sigmoid(), nn.Linear(8, 4))


def case_of(attack: Any) -> Case:
    learner, state = learner_and_state(mlp())
    one = Round(Batch(images(1, 0), torch.tensor([1])), (Batch(images(1, 1), torch.tensor([2])),), None)
    return grid(
        Federation(learner, state, FedSGD()),
        [one],
        defences={"none": NoDefence()},
        attacks={"attack": attack},
        threat_model=THREAT_MODELS["informed"],
        seed=0,
    )[0]


RELAY = Relay(
    tuple(
        Leg(GradientMatching(optimiser=one, restarts=2), 1) for one in (SignedAdam(), LBFGS(history=3), SignedAdam())
    ),
    kept="closest",
    budget=Budget(steps=STEPS),
)
"""Three legs of four steps, whose snapshots have different names."""

ATTACKS: dict[str, Any] = {
    "quasi-Newton": GradientMatching(optimiser=LBFGS(history=3), budget=Budget(steps=STEPS)),
    "restarts": GradientMatching(optimiser=LBFGS(), restarts=3, budget=Budget(steps=STEPS)),
    "signed Adam": GradientMatching(optimiser=SignedAdam(), budget=Budget(steps=STEPS)),
    "phases": GradientMatching(
        optimiser=SignedAdam(), priors=(Starting(TotalVariation(0.1), after=0.5),), budget=Budget(steps=STEPS)
    ),
    "relay": RELAY,
    "on noise": OnNoise(RELAY),
}


class Ended(BaseException):
    """Stands for a process that is gone: nothing is done on its way out."""


def stop_at(step: int, how: type[BaseException]) -> Progress:
    def progress(tick: Tick) -> None:
        if tick.step == step:
            raise how

    return progress


def run(case: Case, store: Any, progress: Progress = silent, every: float = math.inf) -> Record:
    (record,) = InProcess().run([case], METRICS, store, lambda index, case, slot=0: progress, every)
    return record


def snapshot_of(case: Case, folder: Path) -> Path:
    return folder / "snapshots" / f"{case.key}.safetensors"


def interrupted(case: Case, folder: Path, step: int) -> FolderStore:
    """A store that holds the snapshot of a case stopped by Ctrl-C after so many steps."""
    store = FolderStore.create(folder)
    with pytest.raises(KeyboardInterrupt):
        run(case, store, stop_at(step, KeyboardInterrupt))
    return store


def timeless(record: Record) -> Record:
    return replace(record, seconds=0.0, cpu_seconds=0.0)


def same(left: Record, right: Record) -> bool:
    """Equal in every bit that does not measure time."""
    equal = all(
        torch.equal(one, other) if isinstance(one, Tensor) and isinstance(other, Tensor) else one is other
        for one, other in zip(vars(left.pictures).values(), vars(right.pictures).values(), strict=True)
    )
    return equal and timeless(left).to_json() == timeless(right).to_json()


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("step", [1, STEPS // 2, STEPS - 1])
def test_an_interrupted_attack_goes_on_where_it_was_and_ends_with_the_same_bits(
    tmp_path: Path, name: str, step: int
) -> None:
    case = case_of(ATTACKS[name])
    store = interrupted(case, tmp_path, step)
    assert snapshot_of(case, tmp_path).exists()
    made: list[int] = []
    resumed = run(case, store, lambda tick: made.append(tick.step))
    assert made == list(range(step + 1, STEPS + 1))
    assert same(resumed, run(case, MemoryStore()))
    assert not (tmp_path / "snapshots").exists()


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_that_is_driven_by_the_audit_ends_as_if_it_were_called(name: str) -> None:
    case = case_of(ATTACKS[name])
    called = case.attack(case.source.observe(), generator=seeded(case.seed, "attack", case.round))
    driven = run(case, MemoryStore())
    assert called.loss_trace is not None
    assert torch.equal(called.loss_trace, driven.pictures.loss_trace)  # type: ignore[arg-type]
    assert torch.equal(called.inputs, driven.pictures.reconstructions)  # type: ignore[arg-type]
    assert (called.outcome, dict(called.facts)) == (driven.outcome, dict(driven.facts))


def test_an_attack_may_be_interrupted_again_and_again(tmp_path: Path) -> None:
    case = case_of(ATTACKS["quasi-Newton"])
    for step in (2, 5, 9):
        store = interrupted(case, tmp_path, step)
    assert same(run(case, store), run(case, MemoryStore()))


@pytest.mark.parametrize(("every", "first"), [(0.0, 8), (math.inf, 1)])
def test_a_process_that_is_killed_loses_what_came_after_its_last_snapshot(
    tmp_path: Path, every: float, first: int
) -> None:
    case, store = case_of(ATTACKS["quasi-Newton"]), FolderStore.create(tmp_path)
    with pytest.raises(Ended):
        run(case, store, stop_at(7, Ended), every)
    made: list[int] = []
    resumed = run(case, store, lambda tick: made.append(tick.step))
    assert made[0] == first
    assert same(resumed, run(case, MemoryStore()))


def test_snapshots_that_are_not_needed_change_nothing(tmp_path: Path) -> None:
    case = case_of(ATTACKS["restarts"])
    assert same(run(case, FolderStore.create(tmp_path), every=0.0), run(case, MemoryStore()))
    assert not (tmp_path / "snapshots").exists()


@pytest.mark.parametrize(("method", "owner", "first"), [("with_gradient", RowsLoss, 6), ("advance", LBFGS, 5)])
def test_an_interrupt_within_a_step_never_keeps_half_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, owner: type, first: int
) -> None:
    case = case_of(ATTACKS["quasi-Newton"])
    store, original, calls = interrupted(case, tmp_path, 4), getattr(owner, method), 0

    def torn(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        found = original(*arguments)
        if calls == 2:
            raise KeyboardInterrupt
        return found

    with monkeypatch.context() as patched:
        patched.setattr(owner, method, torn)
        with pytest.raises(KeyboardInterrupt):
            run(case, store)
    made: list[int] = []
    resumed = run(case, store, lambda tick: made.append(tick.step))
    assert made[0] == first
    assert same(resumed, run(case, MemoryStore()))


def test_an_interrupt_at_the_last_step_does_not_add_one(tmp_path: Path) -> None:
    case = case_of(ATTACKS["quasi-Newton"])
    store = interrupted(case, tmp_path, STEPS)
    assert same(run(case, store), run(case, MemoryStore()))


def other_numbers(path: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
    write_tensors(path, change(read_tensors(path)[0]))


BROKEN: dict[str, Callable[[Path], object]] = {
    "no safetensors": lambda path: path.write_bytes(b"nothing of use"),
    "empty": lambda path: path.write_bytes(b""),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-50]),
    "a pickle": lambda path: path.write_bytes(b"\x80\x04nothing of use"),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a name missing": lambda path: other_numbers(
        path, lambda kept: {name: tensor for name, tensor in kept.items() if name != "state.memory.moves"}
    ),
    "a name more": lambda path: other_numbers(path, lambda kept: kept | {"more": torch.zeros(1)}),
    "another type": lambda path: other_numbers(path, lambda kept: kept | {"best": kept["best"].double()}),
    "another size": lambda path: other_numbers(path, lambda kept: kept | {"lowest": kept["lowest"].repeat(2)}),
    "seconds of many": lambda path: other_numbers(path, lambda kept: kept | {"elapsed": torch.zeros(3).double()}),
    "no seconds": lambda path: other_numbers(
        path, lambda kept: {name: tensor for name, tensor in kept.items() if name != "audit.seconds"}
    ),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_snapshot_that_is_broken_or_of_something_else_means_a_fresh_start(tmp_path: Path, how: str) -> None:
    case = case_of(ATTACKS["quasi-Newton"])
    store = interrupted(case, tmp_path, 5)
    BROKEN[how](snapshot_of(case, tmp_path))
    made: list[int] = []
    resumed = run(case, store, lambda tick: made.append(tick.step), every=0.0)
    assert made == list(range(1, STEPS + 1))
    assert same(resumed, run(case, MemoryStore()))


def _without(prefix: str) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda kept: {name: tensor for name, tensor in kept.items() if not name.startswith(prefix)}


BROKEN_RELAYS: dict[str, Callable[[dict[str, Tensor]], dict[str, Tensor]]] = {
    "without its first leg": _without("leg 0."),
    "without its second leg": _without("leg 1."),
    "without a name of its second leg": _without("leg 1.state.memory.moves"),
    "a first leg that has not ended": lambda kept: (
        kept | {"leg 0.trace": kept["leg 0.trace"][:2], "leg 0.state.converged": torch.zeros(2, dtype=torch.bool)}
    ),
    "a leg too many": lambda kept: kept | {"leg 3.best": kept["leg 2.best"]},
    "a name more": lambda kept: kept | {"more": torch.zeros(1)},
    "another type": lambda kept: kept | {"leg 2.best": kept["leg 2.best"].double()},
}


@pytest.mark.slow
@pytest.mark.parametrize("how", BROKEN_RELAYS)
def test_a_broken_snapshot_of_a_later_leg_means_a_fresh_start(tmp_path: Path, how: str) -> None:
    case = case_of(RELAY)
    store = interrupted(case, tmp_path, 10)
    other_numbers(snapshot_of(case, tmp_path), BROKEN_RELAYS[how])
    made: list[int] = []
    resumed = run(case, store, lambda tick: made.append(tick.step))
    assert made == list(range(1, STEPS + 1))
    assert same(resumed, run(case, MemoryStore()))


@pytest.mark.parametrize("step", [4, 5, 8])
def test_a_relay_killed_where_one_leg_hands_to_the_next_ends_with_the_same_bits(tmp_path: Path, step: int) -> None:
    case, store = case_of(RELAY), FolderStore.create(tmp_path)
    with pytest.raises(Ended):
        run(case, store, stop_at(step, Ended), every=0.0)
    made: list[int] = []
    resumed = run(case, store, lambda tick: made.append(tick.step))
    assert made == list(range(step + 1, STEPS + 1))
    assert same(resumed, run(case, MemoryStore()))


def test_a_control_of_an_attack_that_cannot_be_stepped_is_refused() -> None:
    with pytest.raises(InvalidCase, match="must match gradients, got Plain"):
        OnNoise(Plain())


def test_a_snapshot_of_another_attack_is_not_taken_for_ones_own(tmp_path: Path) -> None:
    case, other = case_of(ATTACKS["quasi-Newton"]), case_of(ATTACKS["signed Adam"])
    assert case.key != other.key
    store = interrupted(other, tmp_path, 5)
    snapshot_of(other, tmp_path).rename(snapshot_of(case, tmp_path))
    assert same(run(case, store), run(case, MemoryStore()))


def test_a_place_where_nothing_can_be_kept_does_not_end_the_attack(tmp_path: Path) -> None:
    case, store = case_of(ATTACKS["quasi-Newton"]), FolderStore.create(tmp_path)
    (tmp_path / "snapshots").write_text("in the way")
    assert same(run(case, store, every=0.0), run(case, MemoryStore()))


def test_the_seconds_of_all_processes_count(tmp_path: Path) -> None:
    case = case_of(ATTACKS["quasi-Newton"])
    store = interrupted(case, tmp_path, 5)
    path = snapshot_of(case, tmp_path)
    cpu, wall = read_tensors(path)[0]["audit.seconds"].tolist()
    assert 0 < cpu <= wall + 0.1 < 60
    other_numbers(path, lambda kept: kept | {"audit.seconds": torch.tensor([500.0, 1000.0], dtype=torch.float64)})
    record = run(case, store)
    assert 1000 < record.seconds < 1060
    assert 500 < record.cpu_seconds < 560
    assert record.steps == STEPS


def test_a_budget_in_seconds_is_not_spent_twice(tmp_path: Path) -> None:
    case = case_of(replace(ATTACKS["signed Adam"], budget=Budget(seconds=0.3)))
    store, spent = FolderStore.create(tmp_path), 0.0

    def stop_later(tick: Tick) -> None:
        nonlocal spent
        spent = tick.fraction
        if spent > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(case, store, stop_later)
    ticks: list[Tick] = []
    record = run(case, store, ticks.append)
    assert 0.5 < spent <= ticks[0].fraction
    assert ticks[-1].fraction == 1
    assert record.facts["steps"] == ticks[-1].step > len(ticks)


def test_a_snapshot_left_beside_a_finished_result_is_cleared_away(tmp_path: Path) -> None:
    case = case_of(ATTACKS["quasi-Newton"])
    store = interrupted(case, tmp_path, 5)
    run(case, store)
    # Killed between the result and the clearing, and once in the midst of writing.
    store.keep_snapshot(case.key, {"any": torch.zeros(1)})
    snapshot_of(case, tmp_path).with_name(f".{case.key}.safetensors.tmp").write_bytes(b"half")
    store.keep_snapshot("another", {"any": torch.zeros(1)})
    run(case, store, stop_at(1, Ended))
    assert [path.name for path in (tmp_path / "snapshots").iterdir()] == ["another.safetensors"]


@dataclass(frozen=True)
class Plain:
    """An attack that cannot be stepped."""

    calls: list[Tick] = field(default_factory=list, repr=False)

    def __call__(
        self, observation: UpdateObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction:
        progress(Tick(1, 0.5, 1.0))
        return Reconstruction(torch.zeros(1, *observation.space.shape), None, Outcome.SOLVED)


def test_an_attack_that_cannot_be_stepped_simply_runs(tmp_path: Path) -> None:
    case, store = case_of(Plain()), FolderStore.create(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run(case, store, stop_at(1, KeyboardInterrupt), every=0.0)
    assert not (tmp_path / "snapshots").exists()
    assert run(case, store).outcome is Outcome.SOLVED


def test_an_audit_stopped_in_its_second_attack_reports_the_first_and_goes_on_within_the_second(tmp_path: Path) -> None:
    cases = [case_of(ATTACKS["signed Adam"]), case_of(ATTACKS["quasi-Newton"])]

    def watch(index: int, title: str, slot: int = 0) -> Progress:
        return stop_at(4, KeyboardInterrupt) if index else silent

    first = execute(PreparedAudit(cases, METRICS, {"seed": 0}), tmp_path, watch)
    assert (first.complete, len(first.rows)) == (False, 1)
    made: list[int] = []
    again = execute(
        PreparedAudit(cases, METRICS, {"seed": 0}), tmp_path, lambda *case: lambda tick: made.append(tick.step)
    )
    assert again.complete
    assert made == list(range(5, STEPS + 1))


def test_an_attack_that_stands_still_stops_early_and_says_so() -> None:
    record = run(case_of(GradientMatching(optimiser=LBFGS(), budget=Budget(steps=100_000))), MemoryStore())
    assert record.outcome is Outcome.CONVERGED
    assert record.reason == "The matching loss stopped improving."
    assert int(record.facts["steps"]) < 100_000
