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


GAPPY = "age,ward,pay,outcome\n" + "".join(
    f"{20 + n},{'AB'[n % 2]},{1.5 * n},{('ill', 'well')[n % 3 > 0]}\n" for n in range(12)
)


def gappy(folder: Path, *lines: str) -> Path:
    (folder / "ward.csv").write_text(GAPPY + "".join(f"{line}\n" for line in lines))
    return folder


@pytest.mark.parametrize("word", ["", "NA", "n/a", "null", "?", "NaN"])
def test_a_gap_among_numbers_is_refused_with_its_line_and_column_and_never_makes_categories(tmp_path, word):
    with pytest.raises(InvalidFile, match=r"Line 14 of .* 'pay'; .*gaps=drop.*gaps=fill"):
        Csv("ward.csv", label="outcome")(gappy(tmp_path, f"40,A,{word},ill"))


def test_lines_with_gaps_are_left_out_where_that_is_wanted(tmp_path):
    data = Csv("ward.csv", label="outcome", gaps="drop")(gappy(tmp_path, "99,A,NA,ill", "98,,3,ill", "97,A,3,"))
    assert len(data.train) + len(data.test) == 12
    assert data.space.columns[0] == Continuous("age", 20, 31)
    assert data.space.columns[2] == Continuous("pay", 0, 16.5)
    (tmp_path / "none.csv").write_text("age,outcome\n,a\n1,\n")
    with pytest.raises(InvalidFile, match="Every line"):
        Csv("none.csv", label="outcome", gaps="drop")(tmp_path)


def test_gaps_are_filled_by_the_median_and_by_a_category_of_their_own(tmp_path):
    data = Csv("ward.csv", label="outcome", gaps="fill")(gappy(tmp_path, "NA,,99,ill"))
    rows = torch.cat((data.train.inputs, data.test.inputs))
    (last,) = rows[rows[:, -1] == 99]
    assert float(last[0]) == 25.0  # of 20 to 31, the lower middle: a value that is there
    assert data.space.columns[1] == Categorical("ward", ("A", "B", "no value"))
    assert last[1:4].tolist() == [0, 0, 1]
    with pytest.raises(InvalidFile, match="no class in the column 'outcome'"):
        Csv("ward.csv", label="outcome", gaps="fill")(gappy(tmp_path, "1,A,1,"))


def test_a_word_that_means_a_gap_among_numbers_is_a_category_among_words(tmp_path):
    data = Csv("ward.csv", label="outcome")(gappy(tmp_path, "40,NA,1,ill"))
    assert data.space.columns[1] == Categorical("ward", ("A", "B", "NA"))


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_bytes(b"\xff\xfe\x00age")
    with pytest.raises(InvalidFile, match=r"bad\.csv"):
        Csv("bad.csv", label="outcome")(tmp_path)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_table_of_any_spreadsheet_is_the_same_table(tmp_path: Path, delimiter: str, mark: str) -> None:
    rows = [["age", "bmi", "outcome"], *([str(20 + n), f"{n}.5", "ill" if n % 2 else "well"] for n in range(8))]
    comma = delimiter != ","
    lines = (delimiter.join(cell.replace(".", ",") if comma else cell for cell in row) for row in rows)
    (tmp_path / "a.csv").write_text("\r\n".join(lines).join([mark, "\r\n"]), "utf-8")
    (tmp_path / "b.csv").write_text("\n".join(",".join(row) for row in rows), "utf-8")
    one, other = (Csv(name, label="outcome")(tmp_path) for name in ("a.csv", "b.csv"))
    assert one.space == other.space
    assert torch.equal(one.test.inputs, other.test.inputs)


def test_a_column_that_is_not_there_is_answered_with_those_that_are(tmp_path: Path) -> None:
    (tmp_path / "ward.csv").write_text("age,outcome\n3,ill\n4,well\n")
    with pytest.raises(
        InvalidFile, match=r"has no column 'diagnosis' for the classes; set label to one of age, outcome"
    ):
        Csv("ward.csv", label="diagnosis")(tmp_path)
