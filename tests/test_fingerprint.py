"""Fingerprints of code: every file that decides an answer counts, and no other."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from leakgauge.attacks.adaptive import Adaptive
from leakgauge.attacks.analytic import LinearLayer
from leakgauge.defences import NoDefence
from leakgauge.fingerprint import answering_code, code_fingerprint, foreign_code, source_digest


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("attacks/matching/search.py", "metrics/psnr.py", "report/words.py", "space.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}")
    return tmp_path


@pytest.mark.parametrize("name", ["attacks/matching/search.py", "metrics/psnr.py", "space.py"])
def test_a_change_of_what_decides_is_another_code(tree: Path, name: str) -> None:
    before = source_digest(tree, without=("report",))
    (tree / name).write_text("# mended")
    assert source_digest(tree, without=("report",)) != before


def test_a_new_name_is_another_code_and_what_only_shows_is_not(tree: Path) -> None:
    before, everything = source_digest(tree, without=("report",)), source_digest(tree)
    (tree / "report" / "words.py").write_text("# other words")
    assert source_digest(tree, without=("report",)) == before
    assert source_digest(tree) != everything
    (tree / "space.py").rename(tree / "spaces.py")
    assert source_digest(tree, without=("report",)) != before
    assert source_digest(tree, ("metrics",)) == source_digest(tree, ("metrics",)) != source_digest(tree, ("attacks",))


def test_the_code_of_answers_is_neither_all_of_it_nor_one_room() -> None:
    assert answering_code() == answering_code()
    assert answering_code() not in (code_fingerprint(), code_fingerprint("attacks"))


def test_an_attack_from_elsewhere_counts_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("elsewhere")
    module.__file__ = str(tmp_path / "elsewhere.py")
    monkeypatch.setitem(sys.modules, "elsewhere", module)

    @dataclass(frozen=True)
    class Own:
        __module__ = "elsewhere"

    @dataclass(frozen=True)
    class Around:
        attack: Own

    Around.__module__ = NoDefence.__module__
    (tmp_path / "elsewhere.py").write_text("# first")
    first = foreign_code(Own()), foreign_code(Around(Own())), foreign_code((Own(), 1.5))
    (tmp_path / "elsewhere.py").write_text("# second")
    second = foreign_code(Own()), foreign_code(Around(Own())), foreign_code((Own(), 1.5))
    assert len({*first}) == len({*second}) == 1
    assert first != second
    assert foreign_code(LinearLayer(), Adaptive(), NoDefence()) == ""
