"""Cases in several processes: the same records in the same order, failures that are told, Ctrl-C that loses nothing."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Generator

from leakgauge.audit.case import Case
from leakgauge.audit.execute import PreparedAudit
from leakgauge.audit.executors import InProcess, Processes, processes
from leakgauge.audit.executors.processes import cores
from leakgauge.audit.plan import AuditPlan, prepare
from leakgauge.audit.store import FolderStore
from leakgauge.errors import InvalidCase
from leakgauge.progress import Progress, Tick, silent
from leakgauge.protocol.observation import UpdateObservation
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


def test_cases_in_two_processes_give_the_records_of_one_in_their_order(prepared: PreparedAudit, tmp_path: Path) -> None:
    alone, shared = FolderStore.create(tmp_path / "alone"), FolderStore.create(tmp_path / "shared")
    expected = [record.key for record in InProcess().run(prepared.cases, prepared.metrics, alone)]
    told: dict[int, list[float]] = {}

    def watch(index: int, title: str, slot: int = 0) -> Progress:
        assert slot in (0, 1)
        assert title == prepared.cases[index].title
        return lambda tick: told.setdefault(index, []).append(tick.fraction)

    found = Processes(2, 0.0).run(prepared.cases, prepared.metrics, shared, watch)
    assert [record.key for record in found] == expected
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
    monkeypatch.setattr(processes, "_start_worker", lambda pack: pytest.fail("a process was started"))
    store = FolderStore.create(tmp_path)
    found = list(Processes(2, 600.0).run(prepared.cases, prepared.metrics, store))
    assert len(found) == len(prepared.cases)


def test_what_cannot_be_sent_runs_here(
    prepared: PreparedAudit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Local(Failing):
        def __call__(self, observation: UpdateObservation, **rest: object) -> Reconstruction:
            return Reconstruction(None, None, Outcome.NOT_APPLICABLE)

    monkeypatch.setattr(processes, "_start_worker", lambda pack: pytest.fail("a process was started"))
    cases = [replace(case, attack=Local()) for case in prepared.cases[:2]]
    found = list(Processes(2, 0.0).run(cases, prepared.metrics, FolderStore.create(tmp_path)))
    assert len(found) == 2


def test_an_error_of_a_worker_is_that_of_the_audit(prepared: PreparedAudit, tmp_path: Path) -> None:
    cases, store = ended_by(Failing(), prepared, tmp_path)
    with pytest.raises(InvalidCase, match="always fails"):
        list(Processes(2, 0.0).run(cases, prepared.metrics, store))
    assert not multiprocessing.active_children()


def test_a_worker_that_dies_is_told_in_one_sentence(prepared: PreparedAudit, tmp_path: Path) -> None:
    cases, store = ended_by(Fatal(), prepared, tmp_path)
    with pytest.raises(InvalidCase, match=r"ended without a result.*--jobs 1"):
        list(Processes(2, 0.0).run(cases, prepared.metrics, store))
    assert not multiprocessing.active_children()


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
