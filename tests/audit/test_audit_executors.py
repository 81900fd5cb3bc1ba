"""Cases in several processes: the same records in the same order, failures that are told, Ctrl-C that loses nothing."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Generator

from leakgauge.audit.case import Case
from leakgauge.audit.execute import PreparedAudit, execute
from leakgauge.audit.executors import InProcess, Pack, Processes, cores, processes, ray_cluster
from leakgauge.audit.executors.memory import MemoryLimit, available, needed, peak
from leakgauge.audit.plan import AuditPlan, prepare
from leakgauge.audit.run import recall_answer
from leakgauge.audit.store import FolderStore
from leakgauge.audit.verdict import Reason, Verdict
from leakgauge.errors import InvalidCase, InvalidFile
from leakgauge.progress import Progress, Tick, silent
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.report.words import list_unrun
from leakgauge.types import Outcome, Reconstruction


@pytest.fixture(scope="module")
def prepared() -> PreparedAudit:
    torch.set_num_threads(1)
    return prepare(
        AuditPlan(
            model="mlp:hidden=[8]",
            train_steps=0,
            batch_size=1,
            distractors=3,
            nulls=1,
            attacks=("linear_layer", "quasi_newton"),
            defences=("none", "pruning:keep=0.5"),
            steps=5,
        )
    )


@dataclass(frozen=True)
class Failing:
    """An attack that refuses every update."""

    def __call__(
        self, observation: UpdateObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction:
        raise InvalidCase("This attack always fails; choose another.")


@dataclass(frozen=True)
class Broken:
    """An attack with a mistake in it."""

    def __call__(
        self, observation: UpdateObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction:
        raise ZeroDivisionError


@dataclass(frozen=True)
class Fatal:
    """An attack that takes its process with it."""

    def __call__(
        self, observation: UpdateObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction:
        os._exit(9)


@dataclass(frozen=True)
class Endless:
    """An attack that makes steps until it is stopped."""

    def __call__(
        self, observation: UpdateObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction:
        step = 0
        while True:
            step += 1
            progress(Tick(step, 0.5, 1.0))


def digits(case: Case, store: FolderStore) -> str:
    record = store.get(case.key)
    assert record is not None
    return replace(record, seconds=0.0, cpu_seconds=0.0).to_json()


def ended_by(attack: Failing | Fatal, prepared: PreparedAudit, folder: Path) -> tuple[list[Case], FolderStore]:
    """A case that is done and one for this attack, for which one worker is enough."""
    store = FolderStore.create(folder)
    first, second = prepared.cases[:2]
    list(InProcess().run([first], prepared.metrics, store))
    return [first, replace(second, attack=attack)], store


@pytest.mark.slow
def test_cases_in_two_processes_one_of_them_killed_give_the_records_of_one_in_their_order(
    prepared: PreparedAudit, tmp_path: Path
) -> None:
    alone, shared = FolderStore.create(tmp_path / "alone"), FolderStore.create(tmp_path / "shared")
    expected = [record.key for record in InProcess().run(prepared.cases, prepared.metrics, alone)]
    told: dict[int, list[float]] = {}
    killed: list[int] = []

    def watch(index: int, title: str, slot: int = 0) -> Progress:
        assert slot in (0, 1)
        assert title == prepared.cases[index].title
        if index == 3 and not killed:
            killed.extend(child.pid or 0 for child in multiprocessing.active_children()[:1])
            os.kill(killed[0], signal.SIGKILL)
        return lambda tick: told.setdefault(index, []).append(tick.fraction)

    packs = (Pack(prepared.cases[part], prepared.metrics) for part in (slice(0, 4), slice(4, None)))
    found = Processes(2, 0.0).run_packs(packs, shared, watch)
    assert [record.key for record in found] == expected
    assert killed
    assert all(digits(case, alone) == digits(case, shared) for case in prepared.cases)
    stepwise = {index for index, case in enumerate(prepared.cases) if case.attack_name == "quasi_newton"}
    assert set(told) >= stepwise
    assert not (tmp_path / "shared" / "snapshots").exists()
    assert not multiprocessing.active_children()


def test_results_that_are_kept_are_not_computed_again(prepared: PreparedAudit, tmp_path: Path) -> None:
    store = FolderStore.create(tmp_path)
    first = list(InProcess().run(prepared.cases, prepared.metrics, store))
    begun: list[int] = []

    def watch(index: int, title: str, slot: int = 0) -> Progress:
        begun.append(index)
        return silent

    again = list(Processes(2, 0.0).run(prepared.cases, prepared.metrics, store, watch))
    assert [record.key for record in again] == [record.key for record in first]
    assert begun == []


def test_short_work_starts_no_process(prepared: PreparedAudit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes.ProcessCrew, "hire", lambda *_: pytest.fail("a process was started"))
    store = FolderStore.create(tmp_path)
    found = list(Processes(2, 600.0).run(prepared.cases, prepared.metrics, store))
    assert len(found) == len(prepared.cases)


class Kept(Failing):
    """Refuses to be sent as torch's modules with parametrisations do."""

    def __call__(self, observation: UpdateObservation, **rest: object) -> Reconstruction:
        return Reconstruction(None, None, Outcome.NOT_APPLICABLE)

    def __getstate__(self) -> object:
        raise RuntimeError("Only through state_dict().")


def kept_here() -> type[Failing]:
    class Local(Failing):
        def __call__(self, observation: UpdateObservation, **rest: object) -> Reconstruction:
            return Reconstruction(None, None, Outcome.NOT_APPLICABLE)

    return Local


@pytest.mark.parametrize("attack", [kept_here(), Kept])
def test_what_cannot_be_sent_runs_here(
    attack: type[Failing], prepared: PreparedAudit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes.ProcessCrew, "hire", lambda *_: pytest.fail("a process was started"))
    cases = [replace(case, attack=attack()) for case in prepared.cases[:2]]
    found = list(Processes(2, 0.0).run(cases, prepared.metrics, FolderStore.create(tmp_path)))
    assert len(found) == 2


def test_what_cannot_be_sent_to_a_cluster_is_refused_in_a_sentence(prepared: PreparedAudit) -> None:
    pack = Pack([replace(prepared.cases[0], attack=Kept())], prepared.metrics)
    with pytest.raises(InvalidCase, match=r"RuntimeError: Only through state_dict\(\)\); run without --ray\.$"):
        ray_cluster._seal(SimpleNamespace(cloudpickle=pickle), pack)  # cloudpickle asks the class as well


def test_a_case_that_fails_is_recorded_tried_again_and_stops_no_other(prepared: PreparedAudit, tmp_path: Path) -> None:
    first, second, third = prepared.cases[:3]
    store = FolderStore.create(tmp_path)
    cases = [first, replace(second, attack=Failing()), replace(third, attack=Broken())]
    found = list(InProcess().run(cases, prepared.metrics, store))
    assert [one.outcome is Outcome.FAILED for one in found] == [False, True, True]
    assert found[1].reason == "This attack always fails; choose another."
    assert "ZeroDivisionError" in found[2].reason
    assert found[1].scores == {}
    assert recall_answer(cases[1].key, prepared.metrics, store) is None
    begun: list[int] = []

    def watch(index: int, title: str, slot: int = 0) -> Progress:
        begun.append(index)
        return silent

    list(InProcess().run(cases, prepared.metrics, store, watch))
    assert begun == [1, 2]


def test_a_failed_attack_is_inconclusive_and_nothing_but_failures_is_an_error(prepared: PreparedAudit) -> None:
    cases = [replace(one, attack=Failing()) if one.attack_name == "linear_layer" else one for one in prepared.cases]
    result = execute(replace(prepared, cases=cases), None)
    rows = {row.attack: row for row in result.rows if row.defence == "none"}
    assert rows["linear_layer"].verdict is Verdict.INCONCLUSIVE
    assert rows["linear_layer"].judgement.reasons == (Reason.ATTACK_FAILED,)
    assert any("always fails" in line for line in list_unrun(result))
    with pytest.raises(InvalidCase, match="always fails"):
        execute(replace(prepared, cases=[one for one in cases if one.attack_name == "linear_layer"]), None)


@pytest.mark.slow
def test_cases_that_fail_or_cost_every_worker_its_life_are_given_up_and_the_others_are_done(
    prepared: PreparedAudit, tmp_path: Path
) -> None:
    (first, fatal), store = ended_by(Fatal(), prepared, tmp_path)
    failing = replace(prepared.cases[2], attack=Failing())
    found = list(Processes(2, 0.0).run([first, fatal, failing], prepared.metrics, store))
    assert [one.outcome is Outcome.FAILED for one in found] == [False, True, True]
    assert re.search(r"ended 4 times without a result.*--jobs 1", found[1].reason)
    assert found[2].reason == "This attack always fails; choose another."
    assert not multiprocessing.active_children()


def test_packs_are_asked_for_when_there_is_work_for_no_more(prepared: PreparedAudit, tmp_path: Path) -> None:
    asked: list[int] = []

    def packs() -> Iterator[Pack]:
        for number, case in enumerate(prepared.cases):
            asked.append(number)
            yield Pack([case], prepared.metrics)

    running = InProcess().run_packs(packs(), FolderStore.create(tmp_path))
    next(running)
    assert asked == [0]
    running.close()


def test_a_second_driver_of_a_folder_is_refused_in_one_sentence(prepared: PreparedAudit, tmp_path: Path) -> None:
    store = FolderStore.create(tmp_path)
    first = InProcess().run(prepared.cases, prepared.metrics, store)
    next(first)
    assert store.is_driven()
    with pytest.raises(InvalidFile, match=rf"process {os.getpid()} on .*leakgauge status.*another --out"):
        next(InProcess().run(prepared.cases, prepared.metrics, FolderStore.open(tmp_path)))
    first.close()
    assert not store.is_driven()
    assert len(list(InProcess().run(prepared.cases, prepared.metrics, store))) == len(prepared.cases)


def test_cases_run_side_by_side_as_far_as_their_memory_goes(prepared: PreparedAudit) -> None:
    one, other, *_ = prepared.cases
    both = needed(one) + needed(other)
    assert MemoryLimit(both).fits(one, other)
    assert not MemoryLimit(both - 1).fits(one, other)
    assert MemoryLimit(0).fits(one)  # alone, whatever it needs
    learnt = MemoryLimit(both)
    learnt.note(other, int(2 * both))
    assert not learnt.fits(one, other)
    assert 0 < peak() < available()


@pytest.mark.slow
def test_ctrl_c_stops_the_workers_and_keeps_what_is_done(prepared: PreparedAudit, tmp_path: Path) -> None:
    first, second, *_ = (case for case in prepared.cases if case.attack_name == "linear_layer")
    cases = [first, replace(second, attack=Endless())]
    store = FolderStore.create(tmp_path)

    def watch(index: int, title: str, slot: int = 0) -> Progress:
        def interrupt(tick: Tick) -> None:
            if store.get(first.key) is not None:
                raise KeyboardInterrupt

        return interrupt if index == 1 else silent

    def run() -> Iterator[object]:
        yield from Processes(2, 0.0).run(cases, prepared.metrics, store, watch)

    with pytest.raises(KeyboardInterrupt):
        list(run())
    assert not multiprocessing.active_children()
    assert store.get(first.key) is not None
    assert store.get(cases[1].key) is None


def test_there_is_at_least_one_core() -> None:
    assert cores() >= 1
