"""Rows of tables: two that are embedded in scikit-learn, and a user's own."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from leakgauge.data.datasets import Dataset, split_every_fifth
from leakgauge.data.files import find_required, read_text, require_root
from leakgauge.errors import InvalidFile
from leakgauge.space import Categorical, Column, Continuous, TableSpace
from leakgauge.types import Batch

MOST_CATEGORIES = 1000
"""Of one column: each is an entry of every row."""

_DECIMAL_COMMA = re.compile(r"^\s*(-?\d+),(\d+)\s*$")


@dataclass(frozen=True)
class BreastCancer:
    """569 tumours in 30 measurements of their cells, malignant or benign [Street et al., 1993], of scikit-learn."""

    def __call__(self, root: Path | None = None) -> Dataset:
        del root  # embedded
        # Imported here because it takes over a second, which every other data source would pay.
        from sklearn.datasets import load_breast_cancer

        data = load_breast_cancer()
        rows = torch.from_numpy(data.data).float()
        space = TableSpace.of(rows, tuple(map(str, data.feature_names)))
        return _dataset("breast_cancer", rows, torch.from_numpy(data.target).long(), data.target_names, space)


@dataclass(frozen=True)
class Diabetes:
    """442 patients in ten columns [Efron et al., 2004], of scikit-learn, in the units they were measured in.

    What the table holds of each is a number, the progression after a year. The classes are made of it: above the
    median, or not. Sex is a category, of which the source says no more than 1 and 2.
    """

    def __call__(self, root: Path | None = None) -> Dataset:
        del root  # embedded
        from sklearn.datasets import load_diabetes

        data = load_diabetes(scaled=False)
        columns = dict(zip(data.feature_names, torch.from_numpy(data.data).float().T, strict=True))
        texts = {name: [f"{value:g}" for value in column.tolist()] for name, column in columns.items()}
        rows, space = encode_columns(texts, categorical=("sex",))
        progression = torch.from_numpy(data.target)
        labels = (progression > progression.median()).long()
        return _dataset("diabetes", rows, labels, ("at or below the median", "above the median"), space)


@dataclass(frozen=True)
class Csv:
    """A ``.csv`` file with a header, below the data root or the working folder; ``label`` is the column of the classes.

    A column of numbers alone is continuous over the range that it has there, any other one categorical. The first row
    of each class and every fifth after it are the test split. Cells without a value are refused, or with
    ``gaps=drop`` their lines left out, or with ``gaps=fill`` taken for a category of their own and, among numbers, for
    the median.
    """

    file: str
    label: str
    gaps: Literal["refuse", "drop", "fill"] = "refuse"

    def __call__(self, root: Path | None) -> Dataset:
        folder = require_root(root or Path(), source=self, needs=f"the file {self.file!r}")
        path = find_required((self.file,), folders=(folder,))
        try:
            header, *lines = _cells(read_text(path))
        except (ValueError, csv.Error) as error:  # no line at all, or no text
            raise InvalidFile(f"{path} is no table of comma-separated values; save it with a header.") from error
        if len(set(header)) != len(header) or len(header) < 2 or not lines:
            raise InvalidFile(f"{path} needs a header of two or more different names and a row below it; correct it.")
        if self.label not in header:
            there = ", ".join(header)[:200]
            raise InvalidFile(f"{path} has no column {self.label!r} for the classes; set label to one of {there}.")
        if uneven := [number for number, line in enumerate(lines, start=2) if len(line) != len(header)]:
            raise InvalidFile(f"Line {uneven[0]} of {path} lacks some of the {len(header)} columns; correct it.")
        lines = self._without_gaps(path, header, lines)
        columns = dict(zip(header, map(list, zip(*lines)), strict=True))
        classes = columns.pop(self.label)
        names = sorted(set(classes))
        numbers = {name: number for number, name in enumerate(names)}
        labels = torch.tensor([numbers[one] for one in classes])
        rows, space = encode_columns(columns)
        return _dataset(path.stem, rows, labels, names, space)

    def _without_gaps(self, path: Path, header: list[str], lines: list[list[str]]) -> list[list[str]]:
        """The lines with a value in every cell. A gap among numbers would make every number a category of its own."""
        numeric = [_is_numeric([line[place] for line in lines]) for place in range(len(header))]
        gaps = [[_is_gap(cell, of) for cell, of in zip(line, numeric, strict=True)] for line in lines]
        first = next((number for number, line in enumerate(gaps) if any(line)), None)
        if first is None:
            return lines
        if self.gaps == "drop":
            whole = [line for line, gap in zip(lines, gaps, strict=True) if not any(gap)]
            if not whole:
                raise InvalidFile(f"Every line of {path} has a cell without a value; fill them in, or set gaps=fill.")
            return whole
        unlabelled = next((number for number, line in enumerate(gaps) if line[header.index(self.label)]), None)
        if self.gaps == "fill" and unlabelled is not None:
            raise InvalidFile(
                f"Line {unlabelled + 2} of {path} has no class in the column {self.label!r}, which nothing can be "
                "filled in for; leave the line out, or set gaps=drop."
            )
        if self.gaps == "fill":
            columns = [_filled(*one) for one in zip(zip(*lines), zip(*gaps), numeric, strict=True)]
            return list(map(list, zip(*columns)))
        raise InvalidFile(
            f"Line {first + 2} of {path} has no value in the column {header[gaps[first].index(True)]!r}; "
            "fill it in, or set gaps=drop to leave such lines out, or gaps=fill to take the median or a category of "
            "its own."
        )


def _cells(text: str) -> Iterator[list[str]]:
    """The lines of a table, parted by what its header is: commas, or the semicolons or tabs of other spreadsheets.

    >>> list(_cells("age;bmi\\n60;27,6"))
    [['age', 'bmi'], ['60', '27.6']]
    """
    first = text.partition("\n")[0]
    delimiter = max(",", ";", "\t", key=first.count)
    for line in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter):
        # Where commas part no cells, they stand in numbers.
        yield line if delimiter == "," else [_DECIMAL_COMMA.sub(r"\1.\2", cell) for cell in line]


def encode_columns(texts: dict[str, list[str]], categorical: tuple[str, ...] = ()) -> tuple[Tensor, TableSpace]:
    """The rows as a model takes them, and their space; a column of numbers is continuous unless said otherwise."""
    columns: list[Column] = []
    blocks: list[Tensor] = []
    for name, values in texts.items():
        numbers = None if name in categorical else _numbers(values)
        if numbers is not None and len(set(values)) > 1:
            columns.append(Continuous(name, float(numbers.min()), float(numbers.max())))
            blocks.append(numbers[:, None])
        else:
            categories = sorted(set(values))
            if len(categories) > MOST_CATEGORIES:
                raise InvalidFile(
                    f"The column {name!r} has {len(categories)} different texts, as names and numbers of people have; "
                    f"leave it out, or sort them into {MOST_CATEGORIES} categories at most."
                )
            places = {category: place for place, category in enumerate(categories)}
            # A column that never changes has a category that never occurs.
            columns.append(Categorical(name, (*categories, "any other") if len(categories) == 1 else tuple(categories)))
            chosen = torch.tensor([places[value] for value in values])
            blocks.append(torch.nn.functional.one_hot(chosen, columns[-1].width).float())
    return torch.cat(blocks, dim=1), TableSpace(tuple(columns))


_NO_VALUE = "no value"
_GAPS, _GAPS_AMONG_NUMBERS = frozenset({"", "nan"}), frozenset({"na", "n/a", "null", "none", "?", "-"})
"""The latter are words like others where a column has words."""


def _is_gap(cell: str, numeric: bool) -> bool:
    word = cell.strip().lower()
    return word in _GAPS or (numeric and word in _GAPS_AMONG_NUMBERS)


def _is_numeric(values: list[str]) -> bool:
    """Whether all that is there are numbers, and there is one."""
    there = [value for value in values if not _is_gap(value, True)]
    return bool(there) and _numbers(there) is not None


def _filled(values: Sequence[str], gaps: Sequence[bool], numeric: bool) -> list[str]:
    if not numeric:
        return [_NO_VALUE if gap else value for value, gap in zip(values, gaps, strict=True)]
    middle = sorted((value for value, gap in zip(values, gaps, strict=True) if not gap), key=float)
    return [middle[(len(middle) - 1) // 2] if gap else value for value, gap in zip(values, gaps, strict=True)]


def _numbers(values: list[str]) -> Tensor | None:
    try:
        found = torch.tensor([float(value) for value in values])
    except ValueError:
        return None
    return found if bool(found.isfinite().all()) else None


def _dataset(name: str, rows: Tensor, labels: Tensor, class_names: Iterable[object], space: TableSpace) -> Dataset:
    train, test = split_every_fifth(Batch(rows, labels))
    return Dataset(name, train, test, tuple(map(str, class_names)), space=space)
