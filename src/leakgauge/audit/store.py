"""Where results live: rows in sqlite (write-ahead log), images as safetensors beside it; a kill loses nothing."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from leakgauge.attacks.base import Snapshot
from leakgauge.audit.record import Pictures, Record, upgrade
from leakgauge.bounds.bound import read_bounds
from leakgauge.errors import InvalidFile
from leakgauge.files import (
    check_regular,
    folder_inside,
    inside,
    read_tensors,
    writable_folder,
    write_tensors,
    write_text,
)
from leakgauge.stored import check_fields, check_keys, conforms
from leakgauge.types import Outcome

LAYOUT = 4
"""Version of the tables below and of what their rows hold, kept as ``user_version``; 0 is the first, without a number.

A store of an earlier layout is brought to this one when it is opened, one of a later layout is refused.
"""

_TABLES = (
    "CREATE TABLE IF NOT EXISTS records "
    "(key TEXT PRIMARY KEY, body TEXT NOT NULL, finished TEXT DEFAULT CURRENT_TIMESTAMP)",
    "CREATE TABLE IF NOT EXISTS runs (id INTEGER PRIMARY KEY, description TEXT NOT NULL, keys TEXT NOT NULL, "
    "started TEXT DEFAULT CURRENT_TIMESTAMP)",
)

_OWN = frozenset(table.replace("IF NOT EXISTS ", "") for table in _TABLES)
"""The same as sqlite notes them."""

_DESCRIBED: Mapping[str, Any] = {
    **dict.fromkeys(("dataset", "model", "threat_model", "crowd", "command", "refused", "version"), str | None),
    **dict.fromkeys(("defences", "attacks", "files", "class_names"), list[str]),
    "seed": int,
    "accuracy": float | None,
    "victims": list[list[int]],
    "bounds": dict[str, dict[str, Any]],
    "sweep": dict[str, Any],
}
"""What is read of the description of a run, where it is there; what a page shows as it stands is of any kind."""
_SWEPT: Mapping[str, Any] = {"place": dict[str, Any], "grid": dict[str, Any], "cells": int}

_LOCK, _NEWS = "driver.sqlite", "driver.news"

_MOST_NEWS = 1 << 20
"""Characters of news that are read; what is longer is none."""

_PATIENCE = 30.0
"""Seconds to wait for another process that is writing."""


class RecordCount(NamedTuple):
    """How many records there are, how many of them say that their case failed, and the seconds that all took."""

    done: int
    failed: int
    seconds: float


class Store(ABC):
    """Keeps records; unless a subclass can, no snapshots of attacks under way."""

    @abstractmethod
    def get(self, key: str) -> Record | None: ...

    @abstractmethod
    def put(self, record: Record) -> None: ...

    def keep_snapshot(self, key: str, snapshot: Snapshot) -> None:
        """Remember how far the attack of a case has come, in place of what was remembered before."""
        del key, snapshot

    def snapshot(self, key: str) -> Snapshot | None:
        """What was kept of a case under way; none if it cannot be read."""
        del key
        return None

    def drop_snapshot(self, key: str) -> None:
        del key

    def driven(self) -> AbstractContextManager[None]:
        """While it is entered, this process is the one that runs cases into the store; another one is refused."""
        return nullcontext()

    def of_workers(self) -> Store:
        """What other processes of this machine keep snapshots in."""
        return MemoryStore()

    def tell(self, news: Mapping[str, Any]) -> None:
        """Let whoever asks know how far the run is."""
        del news


class MemoryStore(Store):
    """Keeps records as long as the process lives, and no snapshots, which would die with it."""

    def __init__(self) -> None:
        self._records: dict[str, Record] = {}

    def get(self, key: str) -> Record | None:
        return self._records.get(key)

    def put(self, record: Record) -> None:
        self._records[record.key] = record


class FolderStore(Store):
    """A folder with ``audit.sqlite`` and ``tensors/<key>.safetensors``; several processes may write to it, and
    one of them run cases into it.

    While an attack is under way, ``snapshots/<key>.safetensors`` holds how far it has come.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._tensors = folder / "tensors"
        self._snapshots = folder / "snapshots"

    @classmethod
    def create(cls, folder: Path) -> FolderStore:
        store = cls(writable_folder(folder))
        folder_inside(folder, store._tensors.name)
        with store._connection() as connection:
            _write_ahead(connection)
        store._migrate(_TABLES)
        return store

    @classmethod
    def open(cls, folder: Path) -> FolderStore:
        if not (folder / "audit.sqlite").is_file():
            raise InvalidFile(
                f"{folder} holds no audit (audit.sqlite is missing); run `leakgauge audit --out {folder}`."
            )
        store = cls(folder)
        store._migrate()
        return store

    def _migrate(self, tables: Sequence[str] = ()) -> None:
        """Bring the database to this layout; what has no tables yet gets the given ones."""
        with self._connection() as connection:
            if self._layout(connection) == LAYOUT:
                return
            connection.execute("BEGIN IMMEDIATE")  # two processes may open a new folder at once
            if self._layout(connection) == LAYOUT:
                return
            for table in tables:
                connection.execute(table)
            for key, body in connection.execute("SELECT key, body FROM records").fetchall():
                with suppress(ValueError, TypeError, KeyError):  # what is damaged is refused when it is asked for
                    upgraded = json.dumps(upgrade(json.loads(body)), allow_nan=False)
                    connection.execute("UPDATE records SET body = ? WHERE key = ?", (upgraded, key))
            connection.execute(f"PRAGMA user_version = {LAYOUT}")

    def _layout(self, connection: sqlite3.Connection) -> int:
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        if found > LAYOUT:
            raise InvalidFile(
                f"The results in {self.folder} were written by a later LeakGauge (layout {found}, this one knows "
                f"{LAYOUT}); update LeakGauge or choose another --out folder."
            )
        return int(found)

    def get(self, key: str) -> Record | None:
        with self._connection() as connection:
            row = connection.execute("SELECT body FROM records WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        path = inside(self._tensors, f"{key}.safetensors")
        return self._parsed(key, row[0], read_tensors(path)[0] if path.exists() else {})

    def _parsed(self, key: str, body: str, tensors: Mapping[str, Tensor]) -> Record:
        try:
            record = Record.from_json(body, Pictures(**tensors))
            if record.key != key:
                raise ValueError(f"the record of {record.key!r}")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InvalidFile(
                f"The result {key} in {self.folder} is damaged or from another version; choose another --out folder."
            ) from error
        return record

    def records(self, keys: Iterable[str] | None = None) -> Iterator[Record]:
        """Those of the keys that are there, or all, without their pictures; one after another, in one reading."""
        query = "SELECT key, body FROM records"
        with self._connection() as connection:
            if keys is None:
                for key, body in connection.execute(query):
                    yield self._parsed(key, body, {})
                return
            for key in keys:
                row = connection.execute(f"{query} WHERE key = ?", (key,)).fetchone()
                if row is not None:
                    yield self._parsed(row[0], row[1], {})

    def count(self, keys: Collection[str]) -> RecordCount:
        """How many of the keys are there, how many of these failed, and the seconds of the others."""
        query = "SELECT key, json_extract(body, '$.outcome'), json_extract(body, '$.seconds') FROM records"
        with self._connection() as connection:
            found = [(outcome, taken) for key, outcome, taken in connection.execute(query) if key in keys]
        failures = sum(outcome == Outcome.FAILED.name for outcome, _ in found)
        known = [float(taken) for _, taken in found if isinstance(taken, int | float)]
        return RecordCount(len(found), failures, sum(known))

    def put(self, record: Record) -> None:
        tensors = {name: tensor for name, tensor in vars(record.pictures).items() if tensor is not None}
        if tensors:
            # Before the row: a row never points at images that are not there.
            write_tensors(inside(self._tensors, f"{record.key}.safetensors"), tensors)
        with self._connection() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO records (key, body) VALUES (?, ?)", (record.key, record.to_json())
            )

    @contextmanager
    def driven(self) -> Iterator[None]:
        """By a transaction in a database of its own: sqlite ends it with the process, however that ends."""
        with self._lock() as lock:
            try:
                lock.execute("BEGIN EXCLUSIVE")
            except sqlite3.DatabaseError as error:
                if not isinstance(error, sqlite3.OperationalError):
                    raise InvalidFile(f"{self.folder / _LOCK} is damaged ({error}); delete it.") from error
                who = self.news()
                at = f" (process {who.get('process')} on {who.get('machine')})" if who else ""
                raise InvalidFile(
                    f"Another run{at} is writing to {self.folder}; wait for it, see `leakgauge status {self.folder}`, "
                    "or choose another --out folder."
                ) from error
            try:
                yield
            finally:
                (self.folder / _NEWS).unlink(missing_ok=True)

    @contextmanager
    def _lock(self) -> Iterator[sqlite3.Connection]:
        path = inside(self.folder, _LOCK, self.folder)
        try:
            connection = sqlite3.connect(path, timeout=0, isolation_level=None)
        except sqlite3.Error as error:
            raise InvalidFile(f"Cannot use {path} ({error}); choose another folder with --out.") from error
        with closing(connection):
            yield connection

    def is_driven(self) -> bool:
        """Whether a process is running cases into this folder."""
        if not (self.folder / _LOCK).is_file():
            return False
        with self._lock() as lock:
            try:
                lock.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError:
                return True
            except sqlite3.DatabaseError:  # no database at all, so that nobody holds it
                return False
        return False

    def of_workers(self) -> Store:
        return self

    def tell(self, news: Mapping[str, Any]) -> None:
        with suppress(InvalidFile):  # a full disk shall not end a run that could still finish
            write_text(self.folder / _NEWS, json.dumps(news, allow_nan=False))

    def news(self) -> dict[str, Any]:
        """What the last run told last; empty where there is none."""
        path = self.folder / _NEWS
        with suppress(OSError, ValueError, RecursionError, InvalidFile):
            check_regular(path)
            with path.open(encoding="utf-8") as stream:
                told = json.loads(stream.read(_MOST_NEWS))
            return told if isinstance(told, dict) else {}
        return {}

    def keep_snapshot(self, key: str, snapshot: Snapshot) -> None:
        folder_inside(self.folder, self._snapshots.name)
        write_tensors(inside(self._snapshots, f"{key}.safetensors"), snapshot)

    def snapshot(self, key: str) -> Snapshot | None:
        # A damaged snapshot costs the work since the start, never the audit.
        with suppress(InvalidFile):
            return read_tensors(inside(self._snapshots, f"{key}.safetensors"))[0]
        return None

    def drop_snapshot(self, key: str) -> None:
        with suppress(OSError):
            # The half-written ones of a process that was killed are hidden files of the same name.
            for path in self._snapshots.glob(f"*{inside(self._snapshots, key).name}.safetensors*"):
                path.unlink(missing_ok=True)
            self._snapshots.rmdir()  # refused while it holds others

    def begin_run(self, description: Mapping[str, Any], keys: list[str]) -> int:
        """Note which cases belong together; the last run is what a report shows."""
        with self._connection() as connection:
            cursor = connection.execute(
                "INSERT INTO runs (description, keys) VALUES (?, ?)", (json.dumps(description), json.dumps(keys))
            )
            return int(cursor.lastrowid or 0)

    def runs(self) -> list[dict[str, Any]]:
        with self._connection() as connection:
            rows = connection.execute("SELECT id, description, keys, started FROM runs ORDER BY id").fetchall()
        try:
            return [_run_of(*row) for row in rows]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InvalidFile(f"The list of runs in {self.folder} is damaged; choose another --out folder.") from error

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        path = inside(self.folder, "audit.sqlite", self.folder)
        try:
            with closing(sqlite3.connect(path, timeout=_PATIENCE)) as connection, connection:
                _check_tables(connection, path)
                yield connection
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise InvalidFile(
                f"The results in {path} cannot be used ({error}); choose another --out folder."
            ) from error


def _check_tables(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse other than our tables under their names: a view may compute without end, a trigger change what is kept."""
    asked = "SELECT type, name, sql FROM sqlite_master WHERE lower(tbl_name) IN ('records', 'runs') AND sql IS NOT NULL"
    for kind, name, text in connection.execute(asked):
        if " ".join(str(text).split()).replace("( ", "(").replace(" )", ")") not in _OWN:
            raise InvalidFile(
                f"The results in {path} hold a {kind} {str(name)[:80]!r} that LeakGauge does not make; choose another "
                "--out folder."
            )


def _run_of(number: int, description: str, keys: str, started: str) -> dict[str, Any]:
    """A run as it was noted; ``ValueError`` where it was not."""
    described, named = json.loads(description), json.loads(keys)
    if not conforms(described, dict[str, Any]) or not conforms(named, list[str]) or not isinstance(started, str):
        raise ValueError("no table with a list of keys")
    check_keys(described, _DESCRIBED)
    check_keys(described.get("sweep", {}), _SWEPT)
    for bound in read_bounds(described).values():
        check_fields(bound)
    return {"id": number, "description": described, "keys": named, "started": started}


def check_reachable(folder: Path) -> None:
    """Refuse an output folder that cannot be made or written to, before any work and without making it."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        reason = "is not writable" if there.is_dir() else "is not a folder"
        raise InvalidFile(f"Cannot write to {folder}: {there} {reason}; choose another folder with --out.")


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Switch the database to its write-ahead log for good; sqlite itself does not wait if another process does so."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
