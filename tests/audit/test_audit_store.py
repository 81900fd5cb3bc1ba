from __future__ import annotations

import json
import math
import os
import sqlite3
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import torch
from audit_support import *  # noqa: F403
from audit_support import MakeRecord

import leakgauge
from leakgauge.audit.execute import load_result
from leakgauge.audit.record import Pictures, Record
from leakgauge.audit.store import FolderStore, MemoryStore, check_reachable
from leakgauge.errors import InvalidCase, InvalidFile
from leakgauge.files import write_tensors
from leakgauge.protocol.facts import Fact, Subject
from leakgauge.types import Certificate, Outcome

AWKWARD = (0.1 + 0.2, 5e-324, -0.0, 1.7976931348623157e308, math.nan, 1 / 3)

WRITER = """
import sys
from dataclasses import replace
from pathlib import Path
from leakgauge.audit.store import FolderStore
folder, who = Path(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
store = FolderStore.create(folder)
store.begin_run({"who": who}, [])
pattern = FolderStore.open(Path(sys.argv[3])).get("pattern")
for number in range(40):
    store.put(replace(pattern, key=f"{who}{number}", seed=number))
"""


def bits(numbers: tuple[float, ...]) -> bytes:
    return struct.pack(f"{len(numbers)}d", *numbers)


def same_bits(left: torch.Tensor | None, right: torch.Tensor | None) -> bool:
    if left is None or right is None:
        return left is right
    raw = [one.contiguous().reshape(-1).view(torch.uint8) for one in (left, right)]
    return left.dtype == right.dtype and left.shape == right.shape and torch.equal(*raw)


def test_a_record_returns_from_disk_bit_for_bit(tmp_path: Path, make_record: MakeRecord) -> None:
    images = torch.rand(6, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    images[2] = torch.nan
    record = make_record(
        batch_size=6,
        outcome=Outcome.STEPS_EXHAUSTED,
        reason="quotes ' \" and\nlines, é, 画",
        scores={"psnr": AWKWARD, "ssim": (math.nan,) * 6},
        chance=math.nan,
        facts={"loss": 1e-17, "steps": 3, "route": "auto"},
        ledger=(Fact(Subject.LABELS, True, "given"), Fact(Subject.DEFENCE, False, "hidden")),
        pictures=Pictures(images, images.double() / 3, torch.tensor([1.0, torch.nan, 0.1])),
    )
    FolderStore.create(tmp_path / "out").put(record)
    back = FolderStore.open(tmp_path / "out").get(record.key)
    assert back is not None
    assert {name: bits(scores) for name, scores in back.scores.items()} == {
        name: bits(scores) for name, scores in record.scores.items()
    }
    assert math.isnan(back.chance)
    for name in ("originals", "reconstructions", "loss_trace"):
        assert same_bits(getattr(back.pictures, name), getattr(record.pictures, name)), name
    numbers = ("scores", "chance", "pictures")
    assert {k: v for k, v in vars(back).items() if k not in numbers} == {
        k: v for k, v in vars(record).items() if k not in numbers
    }


def test_a_record_without_pictures_and_with_infinite_facts_can_be_kept(tmp_path: Path, make_record: MakeRecord) -> None:
    store = FolderStore.create(tmp_path)
    store.put(make_record(facts={"loss": math.inf}, scores={}, batch_size=None))
    back = store.get("0123")
    assert back is not None
    assert math.isnan(float(back.facts["loss"]))
    assert (back.scores, back.batch_size, back.pictures.originals) == ({}, None, None)


def test_a_put_is_there_after_opening_again_and_the_last_put_counts(tmp_path: Path, make_record: MakeRecord) -> None:
    store = FolderStore.create(tmp_path)
    assert store.get("0123") is None
    store.put(make_record(seconds=1.0))
    store.put(make_record(seconds=2.0))
    again = FolderStore.create(tmp_path).get("0123")
    assert again is not None
    assert again.seconds == 2.0


def test_the_database_uses_its_write_ahead_log(tmp_path: Path) -> None:
    FolderStore.create(tmp_path)
    connection = sqlite3.connect(tmp_path / "audit.sqlite")
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_a_memory_store_holds_what_was_put(make_record: MakeRecord) -> None:
    store = MemoryStore()
    assert store.get("0123") is None
    record = make_record()
    store.put(record)
    assert store.get("0123") is record


def test_runs_are_listed_in_the_order_they_began(tmp_path: Path) -> None:
    store = FolderStore.create(tmp_path)
    assert [store.begin_run({"seed": seed}, [f"k{seed}"]) for seed in (5, 6)] == [1, 2]
    assert [(run["description"], run["keys"]) for run in FolderStore.open(tmp_path).runs()] == [
        ({"seed": 5}, ["k5"]),
        ({"seed": 6}, ["k6"]),
    ]


def test_creating_waits_for_another_process_that_is_writing(tmp_path: Path) -> None:
    # A new database is not in write-ahead mode yet, and sqlite refuses the switch at once while another one writes.
    other = sqlite3.connect(tmp_path / "audit.sqlite", check_same_thread=False, isolation_level=None)
    other.execute("CREATE TABLE other (x)")
    other.execute("BEGIN IMMEDIATE")
    done = threading.Timer(0.2, other.execute, ("COMMIT",))
    done.start()
    FolderStore.create(tmp_path).begin_run({}, [])
    done.join()
    other.close()
    assert len(FolderStore.open(tmp_path).runs()) == 1


def test_threads_that_create_and_write_at_once_lose_nothing(tmp_path: Path, make_record: MakeRecord) -> None:
    failures: list[Exception] = []
    for trial in range(10):
        folder = tmp_path / str(trial)
        barrier = threading.Barrier(4)

        def work(who: int, folder: Path = folder, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            try:
                store = FolderStore.create(folder)
                for number in range(3):
                    store.put(make_record(key=f"{who}-{number}", pictures=Pictures(torch.full((1, 1, 2, 2), who / 4))))
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        store = FolderStore.open(folder)
        for who in range(4):
            for number in range(3):
                record = store.get(f"{who}-{number}")
                assert record is not None
                assert record.pictures.originals is not None
                assert float(record.pictures.originals.mean()) == who / 4


@pytest.mark.slow
def test_processes_that_write_at_once_lose_nothing(tmp_path: Path, make_record: MakeRecord) -> None:
    pattern, folder = tmp_path / "pattern", tmp_path / "out"
    FolderStore.create(pattern).put(make_record(key="pattern", pictures=Pictures(torch.rand(1, 1, 2, 2))))
    path = os.pathsep.join((str(Path(leakgauge.__file__).parents[1]), os.environ.get("PYTHONPATH", "")))
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder), who, str(pattern)],
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for who in "ab"
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        _, errors = writer.communicate(timeout=60)
        assert writer.returncode == 0, errors
    store = FolderStore.open(folder)
    assert len(store.runs()) == 2
    for who in "ab":
        assert [getattr(store.get(f"{who}{number}"), "seed", None) for number in range(40)] == list(range(40))


def one_sentence(error: Exception) -> bool:
    text = str(error)
    return "\n" not in text and text.endswith(".") and "Traceback" not in text


@pytest.mark.parametrize(
    "content",
    [b"not a database at all, but long enough to have a header of one hundred bytes" * 3, b"", bytes(range(256)) * 16],
    ids=["text", "empty", "bytes"],
)
def test_a_damaged_database_is_refused_in_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "audit.sqlite").write_bytes(content)
    with pytest.raises(InvalidFile, match=r"audit\.sqlite.*choose another --out") as caught:
        FolderStore.open(tmp_path).runs()
    assert one_sentence(caught.value)
    if content:
        with pytest.raises(InvalidFile, match=r"audit\.sqlite.*choose another --out"):
            FolderStore.create(tmp_path)


def test_a_truncated_database_is_refused_in_one_sentence(tmp_path: Path, make_record: MakeRecord) -> None:
    store = FolderStore.create(tmp_path)
    for number in range(50):
        store.put(make_record(key=str(number), reason="x" * 500))
    database = tmp_path / "audit.sqlite"
    database.write_bytes(database.read_bytes()[: 4096 * 3])
    with pytest.raises(InvalidFile) as caught:
        FolderStore.open(tmp_path).get("49")
    assert one_sentence(caught.value)


def test_a_folder_in_place_of_the_database_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "audit.sqlite").mkdir()
    with pytest.raises(InvalidFile, match="unable to open"):
        FolderStore.create(tmp_path)


@pytest.mark.parametrize("body", ["{", "[]", "{}", '{"outcome": "UNHEARD_OF"}'])
def test_a_damaged_record_is_refused_in_one_sentence(tmp_path: Path, make_record: MakeRecord, body: str) -> None:
    store = FolderStore.create(tmp_path)
    store.put(make_record())
    change(tmp_path / "audit.sqlite", ("UPDATE records SET body = ?", (body,)))
    with pytest.raises(InvalidFile, match=r"0123.*damaged") as caught:
        store.get("0123")
    assert one_sentence(caught.value)


FIRST_LAYOUT = """
CREATE TABLE IF NOT EXISTS records (key TEXT PRIMARY KEY, body TEXT NOT NULL, finished TEXT DEFAULT CURRENT_TIMESTAMP);
CREATE TABLE IF NOT EXISTS runs (
    id INTEGER PRIMARY KEY, description TEXT NOT NULL, keys TEXT NOT NULL, started TEXT DEFAULT CURRENT_TIMESTAMP
);
"""
FIRST_LEDGER = [
    ["server", True, "MALICIOUS: front_layer puts a layer in front"],
    ["image shape", True, "channels, height, width and the pixel range [0, 1]"],
    ["labels", False, "hidden; the attack has to restore them"],
    ["defence", True, "clipping:max_norm=1+pruning:keep=0.1: known to the attacker"],
]


def change(database: Path, *statements: tuple[str, tuple[object, ...]]) -> None:
    connection = sqlite3.connect(database)
    for statement in statements:
        connection.execute(*statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize("enter", [FolderStore.open, FolderStore.create], ids=["opened", "resumed"])
def test_a_store_of_the_first_layout_is_brought_to_this_one(
    tmp_path: Path, make_record: MakeRecord, enter: Callable[[Path], FolderStore]
) -> None:
    """As the code before layouts had numbers wrote it."""
    early = {"schema", "code", "true_counts", "restored_counts", "label_guess"}
    body = {name: value for name, value in json.loads(make_record().to_json()).items() if name not in early}
    connection = sqlite3.connect(tmp_path / "audit.sqlite")
    connection.executescript(FIRST_LAYOUT)
    connection.execute(
        "INSERT INTO records (key, body) VALUES ('0123', ?)", (json.dumps(body | {"ledger": FIRST_LEDGER}),)
    )
    connection.execute("INSERT INTO runs (description, keys) VALUES (?, ?)", ('{"seed": 3}', '["0123"]'))
    connection.commit()
    connection.close()
    store = enter(tmp_path)
    record = store.get("0123")
    assert record == make_record(
        ledger=(
            Fact(Subject.MALICIOUS_SERVER, True, "front_layer puts a layer in front"),
            Fact(Subject.INPUT_SPACE, True, "channels, height, width and the pixel range [0, 1]"),
            Fact(Subject.LABELS, False, "hidden; the attack has to restore them"),
            Fact(Subject.DEFENCE, True, "known to the attacker", about="clipping:max_norm=1+pruning:keep=0.1"),
        )
    )
    assert [[fact.disclosed, fact.words] for fact in record.ledger] == [shown for _, *shown in FIRST_LEDGER]
    assert FolderStore.open(tmp_path).get("0123") == record
    assert load_result(tmp_path, {}).seed == 3


def test_a_store_from_the_future_is_refused_in_one_sentence(tmp_path: Path, make_record: MakeRecord) -> None:
    FolderStore.create(tmp_path).put(make_record())
    change(tmp_path / "audit.sqlite", ("PRAGMA user_version = 99", ()))
    for enter in (FolderStore.open, FolderStore.create):
        with pytest.raises(InvalidFile, match=r"later LeakGauge \(layout 99.*choose another --out") as caught:
            enter(tmp_path)
        assert one_sentence(caught.value)


def test_a_record_from_the_future_is_refused_in_one_sentence(tmp_path: Path, make_record: MakeRecord) -> None:
    store = FolderStore.create(tmp_path)
    store.put(make_record())
    later = json.dumps(json.loads(make_record().to_json()) | {"schema": 99})
    change(tmp_path / "audit.sqlite", ("UPDATE records SET body = ?", (later,)))
    with pytest.raises(InvalidFile, match=r"0123.*another version"):
        store.get("0123")


def test_a_damaged_list_of_runs_is_refused_in_one_sentence(tmp_path: Path) -> None:
    store = FolderStore.create(tmp_path)
    store.begin_run({"seed": 0}, ["0123"])
    change(tmp_path / "audit.sqlite", ("UPDATE runs SET keys = ?", ('["0123"',)))
    with pytest.raises(InvalidFile, match=r"list of runs.*damaged") as caught:
        store.runs()
    assert one_sentence(caught.value)


def test_damaged_images_are_refused_in_one_sentence(tmp_path: Path, make_record: MakeRecord) -> None:
    store = FolderStore.create(tmp_path)
    store.put(make_record(pictures=Pictures(torch.zeros(1, 1, 2, 2))))
    (tmp_path / "tensors" / "0123.safetensors").write_bytes(b"nothing of use")
    with pytest.raises(InvalidFile, match=r"0123\.safetensors") as caught:
        store.get("0123")
    assert one_sentence(caught.value)


def test_a_folder_without_results_says_which_command_makes_some(tmp_path: Path, make_record: MakeRecord) -> None:
    with pytest.raises(InvalidFile, match=r"holds no audit.*leakgauge audit --out"):
        FolderStore.open(tmp_path)
    store = FolderStore.create(tmp_path)
    with pytest.raises(InvalidCase, match="no finished audit"):
        load_result(tmp_path, {})
    store.begin_run({"seed": 0}, ["0123", "4567"])
    with pytest.raises(InvalidCase, match="stopped before its first result"):
        load_result(tmp_path, {})
    store.put(make_record())
    partial = load_result(tmp_path, {})
    assert len(partial.rows) == 1
    assert not partial.complete


def test_an_output_folder_is_checked_without_being_made(tmp_path: Path) -> None:
    check_reachable(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("in the way")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InvalidFile, match="is not a folder; choose another folder with --out"):
            check_reachable(folder)


def test_a_certificate_survives_the_store_and_is_missing_from_records_of_before(
    tmp_path: Path, make_record: MakeRecord
) -> None:
    proof = Certificate(2e-7, 1e-5, "nothing else gives this update", 8)
    store = FolderStore.create(tmp_path)
    store.put(make_record(certificate=proof))
    assert store.get(make_record().key).certificate == proof
    before = json.loads(make_record(certificate=proof).to_json())
    del before["certificate"]
    assert Record.from_json(json.dumps(before | {"schema": 3}), Pictures()).certificate is None


@pytest.mark.parametrize(
    "key", ["../../escaped", "a/b", "/tmp/x", "..", ".hidden", "a*", "", "a\0b", "a\nb", "x" * 300]
)
def test_no_key_leads_out_of_the_folder(tmp_path: Path, make_record: MakeRecord, key: str) -> None:
    store = FolderStore.create(tmp_path / "deep" / "down" / "out")
    before = sorted(tmp_path.rglob("*"))
    pictures = Pictures(torch.zeros(1, 1, 2, 2))
    with pytest.raises(InvalidFile, match="no name of a file"):
        store.put(make_record(key=key, pictures=pictures))
    with pytest.raises(InvalidFile, match="no name of a file"):
        store.keep_snapshot(key, {"x": torch.zeros(1)})
    assert store.snapshot(key) is None
    with pytest.raises(InvalidFile, match="no name of a file"):
        store.drop_snapshot(key)
    assert [path for path in sorted(tmp_path.rglob("*")) if path.name != "snapshots"] == before


def test_a_record_under_the_key_of_another_is_refused_before_anything_is_written(
    tmp_path: Path, make_record: MakeRecord
) -> None:
    store = FolderStore.create(tmp_path)
    store.put(make_record(key="honest"))
    with sqlite3.connect(tmp_path / "audit.sqlite") as connection:
        connection.execute("UPDATE records SET body = replace(body, 'honest', '../../escaped')")
    with pytest.raises(InvalidFile, match="damaged"):
        store.get("honest")
    with pytest.raises(InvalidFile, match="damaged"):
        list(store.records())


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path, make_record: MakeRecord) -> None:
    (tmp_path / "elsewhere").mkdir()
    store = FolderStore.create(tmp_path / "out")
    (tmp_path / "out" / "tensors").rmdir()
    for name in ("tensors", "snapshots"):
        (tmp_path / "out" / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidFile, match="by a link"):
        store.put(make_record(pictures=Pictures(torch.zeros(1, 1, 2, 2))))
    with pytest.raises(InvalidFile, match="by a link"):
        store.keep_snapshot("key", {"x": torch.zeros(1)})
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("name", ["audit.sqlite", "driver.sqlite", "tensors", "snapshots"])
def test_nothing_of_a_store_is_a_link_out_of_it(tmp_path: Path, make_record: MakeRecord, name: str) -> None:
    """Whoever sent the folder would say which file is opened, made or changed."""
    outside = tmp_path / "outside"
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / name).symlink_to(outside, target_is_directory=True)

    def use() -> None:
        store = FolderStore.create(folder)
        store.keep_snapshot("key", {"x": torch.zeros(1)})
        with store.driven():
            pass

    with pytest.raises(InvalidFile, match="by a link"):
        use()
    assert not outside.exists()


def test_a_link_to_itself_is_refused_like_any_other(tmp_path: Path) -> None:
    FolderStore.create(tmp_path / "out")
    (tmp_path / "out" / "driver.sqlite").symlink_to("driver.sqlite")
    with pytest.raises(InvalidFile, match="by a link"), FolderStore.open(tmp_path / "out").driven():
        pass


ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x AS id, 'a' AS description FROM c"


@pytest.mark.parametrize(
    "planted",
    [
        f"DROP TABLE runs; CREATE VIEW Runs AS {ENDLESS}",
        "CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM records; END",
        "DROP TABLE records; CREATE TABLE records (key TEXT, body TEXT AS (hex(zeroblob(400000000))))",
        "CREATE INDEX i ON records (hex(zeroblob(1000)))",
    ],
    ids=["an endless view", "a trigger", "a computed column", "a computed index"],
)
def test_a_database_with_other_than_our_tables_is_refused_before_it_is_asked(tmp_path: Path, planted: str) -> None:
    FolderStore.create(tmp_path)
    with closing(sqlite3.connect(tmp_path / "audit.sqlite")) as connection:
        connection.executescript(planted)
    for enter in (FolderStore.open, FolderStore.create):
        with pytest.raises(InvalidFile, match="that LeakGauge does not make") as refusal:
            enter(tmp_path)
        assert one_sentence(refusal.value)


def test_a_pipe_in_the_place_of_pictures_or_news_is_not_waited_for(tmp_path: Path, make_record: MakeRecord) -> None:
    store = FolderStore.create(tmp_path)
    store.put(make_record(key="one"))
    os.mkfifo(tmp_path / "tensors" / "one.safetensors")
    os.mkfifo(tmp_path / "driver.news")
    with pytest.raises(InvalidFile, match="a pipe"):
        store.get("one")
    assert store.news() == {}


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", "{", "\ud800", '{"a": "' + "x" * (2 << 20) + '"}'])
def test_news_that_are_none_are_no_news(tmp_path: Path, text: str) -> None:
    store = FolderStore.create(tmp_path)
    (tmp_path / "driver.news").write_text(text, "utf-8", errors="surrogatepass")
    assert store.news() == {}


@pytest.mark.parametrize("column", ["description", "keys"])
@pytest.mark.parametrize("text", ["{", "[1]", '"a"', "3", "null", '{"a": 1}', "[[]]", "[" * 100_000])
def test_a_run_that_is_no_table_with_a_list_of_keys_is_refused(tmp_path: Path, column: str, text: str) -> None:
    store = FolderStore.create(tmp_path)
    store.begin_run({}, ["a"])
    if (column, text) in (("description", '{"a": 1}'),):
        return  # which is one
    with sqlite3.connect(tmp_path / "audit.sqlite") as connection:
        connection.execute(f"UPDATE runs SET {column} = ?", (text,))
    with pytest.raises(InvalidFile, match="list of runs"):
        store.runs()


def test_pictures_of_other_names_are_refused(tmp_path: Path, make_record: MakeRecord) -> None:
    store = FolderStore.create(tmp_path)
    store.put(make_record(key="one"))
    write_tensors(tmp_path / "tensors" / "one.safetensors", {"unknown": torch.zeros(1)})
    with pytest.raises(InvalidFile, match="damaged"):
        store.get("one")


def test_a_lock_that_is_no_database_or_cannot_be_made_is_refused_in_one_sentence(tmp_path: Path) -> None:
    store = FolderStore.create(tmp_path / "out")
    (tmp_path / "out" / "driver.sqlite").write_bytes(b"no database" * 100)
    assert not store.is_driven()
    with pytest.raises(InvalidFile, match="delete it"), store.driven():
        pass
    (tmp_path / "out" / "driver.sqlite").unlink()
    (tmp_path / "out" / "driver.sqlite").mkdir()
    with pytest.raises(InvalidFile, match="Cannot use"), store.driven():
        pass
