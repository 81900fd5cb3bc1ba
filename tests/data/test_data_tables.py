from __future__ import annotations

from pathlib import Path

import pytest
import torch

from leakgauge.config import build_dataset
from leakgauge.data import BreastCancer, Csv, Diabetes
from leakgauge.errors import InvalidFile
from leakgauge.space import Categorical, Continuous

FILE = "age,ward,site,outcome\n" + "".join(
    f"{20 + n},{'AB'[n % 2]},north,{('ill', 'well')[n % 3 > 0]}\n" for n in range(12)
)


@pytest.mark.parametrize(
    ("source", "rows", "columns"), [(BreastCancer(), 569, 30), (Diabetes(), 442, 10)], ids=["breast_cancer", "diabetes"]
)
def test_an_embedded_table_lies_in_its_space_and_has_both_classes_in_both_splits(source, rows, columns):
    data = source()
    assert len(data.train) + len(data.test) == rows
    assert len(data.space.columns) == columns
    for split in (data.train, data.test):
        data.space.check(split.inputs)
        assert set(split.labels.tolist()) == {0, 1}
    torch.testing.assert_close(source().test.inputs, data.test.inputs, rtol=0, atol=0)


def test_the_classes_of_diabetes_are_halves_and_sex_is_a_category():
    data = Diabetes()()
    labels = torch.cat((data.train.labels, data.test.labels))
    assert abs(float(labels.float().mean()) - 0.5) < 0.01
    assert [column.name for column in data.space.columns if isinstance(column, Categorical)] == ["sex"]


def test_a_csv_is_read_from_the_working_folder_unless_told_otherwise(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "ward.csv").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    assert build_dataset("csv:file=ward.csv,label=outcome", None).name == "ward"


def test_a_csv_becomes_rows_of_numbers_and_categories(tmp_path: Path) -> None:
    (tmp_path / "ward.csv").write_text(FILE)
    data = Csv("ward.csv", label="outcome")(tmp_path)
    assert data.class_names == ("ill", "well")
    assert data.space.columns[0] == Continuous("age", 20, 31)
    assert data.space.columns[1] == Categorical("ward", ("A", "B"))
    # What never changes still has to be found: its category, and any other.
    assert data.space.columns[2] == Categorical("site", ("north", "any other"))
    for split in (data.train, data.test):
        data.space.check(split.inputs)
    rows = torch.cat((data.train.inputs, data.test.inputs))
    assert sorted(rows[:, 0].tolist()) == [20.0 + number for number in range(12)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a,b\n1,2\n",
        "outcome\n1\n",
        "age,outcome\n",
        "age,outcome\n1\n",
        "age,age,outcome\n1,2,3\n",
        "age,outcome\n1,a\n,b\n",
        "age,outcome\n1,a\nNaN,b\n",
    ],
)
def test_a_file_that_is_no_table_is_refused_in_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(InvalidFile, match=r"bad\.csv"):
        Csv("bad.csv", label="outcome")(tmp_path)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_bytes(b"\xff\xfe\x00age")
    with pytest.raises(InvalidFile, match=r"bad\.csv"):
        Csv("bad.csv", label="outcome")(tmp_path)
