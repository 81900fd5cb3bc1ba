"""Whatever number a file may declare has an end, up to which it is taken and beyond which it is refused at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from leakgauge.config import MOST_PARTS, build_defence
from leakgauge.data import Csv, files
from leakgauge.data.tables import MOST_CATEGORIES
from leakgauge.errors import InvalidCase, InvalidFile
from leakgauge.protocol import FedAvg
from leakgauge.protocol.local_update import MOST_STEPS
from leakgauge.space import MOST_PIXELS, ImageSpace
from leakgauge.token_space import MOST_TOKENS, TokenSpace

DECLARED: dict[str, tuple[int, Callable[[int], object]]] = {
    "pixels": (MOST_PIXELS, lambda count: ImageSpace(1, 1, count)),
    "tokens": (MOST_TOKENS, lambda count: TokenSpace(count, ("a", "b"))),
    "parts of a client": (MOST_PARTS, lambda count: build_defence("+".join(["pruning:keep=0.5"] * count))),
    "local steps": (MOST_STEPS, lambda count: FedAvg(epochs=count, batch_size=4).steps(4)),
}


@pytest.mark.parametrize("name", DECLARED)
def test_a_declared_number_is_taken_to_its_limit_and_refused_beyond(name: str) -> None:
    most, declare = DECLARED[name]
    declare(most)
    for count in (most + 1, 10**6 if name == "parts of a client" else 10**12):
        with pytest.raises(InvalidCase) as refused:
            declare(count)
        assert str(most) in str(refused.value)


def test_a_column_of_people_s_names_is_refused_rather_than_made_into_as_many_entries(tmp_path: Path) -> None:
    for count in (MOST_CATEGORIES, MOST_CATEGORIES + 1):
        lines = [f"person {number},{number % 2}" for number in range(count)]
        (tmp_path / f"{count}.csv").write_text("\n".join(["name,label", *lines]))
    Csv(f"{MOST_CATEGORIES}.csv", "label")(tmp_path)
    with pytest.raises(InvalidFile, match=f"{MOST_CATEGORIES + 1} different texts"):
        Csv(f"{MOST_CATEGORIES + 1}.csv", "label")(tmp_path)


def test_a_text_too_large_for_memory_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("x" * 9)
    assert files.read_text(tmp_path / "a.txt") == "x" * 9
    monkeypatch.setattr(files, "MOST_TEXT", 8)
    with pytest.raises(InvalidFile, match="of text; give a part of it"):
        files.read_text(tmp_path / "a.txt")
