"""A table of nothing: what it measures is what it was given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from leakgauge.data import Cifar10
from leakgauge.progress import Tick
from leakgauge.reproduce import Found, Measure, Measured, Published, Row, Table
from leakgauge.reproduce.table import Bench


@dataclass(frozen=True)
class Counting(Measure):
    """Fills its rows with a value, and notes that it was asked to."""

    value: int
    asked: list[Sequence[str]] = field(default_factory=list, repr=False, compare=False)

    def planned(self) -> dict[str, Any]:
        return {"value": self.value}

    def __call__(self, bench: Bench, names: Sequence[str]) -> dict[str, Found]:
        self.asked.append(names)
        bench.begin("counting")(Tick(1, 0.5))
        ours, null = (Measured.of([[float(value)]]) for value in (self.value, 0))
        picture = torch.full((12, 3, 8, 8), 0.5)
        return {
            name: Found.of(
                {"count": ours, "time": ours}, {"count": null}, 0.0012, self.planned(), ("all",), (picture, picture)
            )
            for name in names
        }


def table_of(*measures: Measure, **more: Any) -> Table:
    rows = tuple(
        Row(f"row {number}", Published(20.0, 1.0, "Table 0"), lambda scale, measure=measure: measure)
        for number, measure in enumerate(measures)
    )
    values = {"metrics": ("count",), "null": "nothing", "shrunk": {}} | more
    return Table("here2020/table0", "A table", Cifar10(), rows, assumptions=("None.",), **values)
