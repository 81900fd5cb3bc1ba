"""A sweep in words: the keys of an audit's plan, where a list in place of a value is an axis of the grid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from leakgauge.audit.plan import AuditPlan
from leakgauge.config import from_mapping
from leakgauge.errors import InvalidCase

_ALSO = {
    "datasets": "dataset",
    "models": "model",
    "stages": "train_steps",
    "clients": "local_update",
    "client": "local_update",
    "local_updates": "local_update",
    "threat_models": "threat_model",
    "batch_sizes": "batch_size",
    "seeds": "seed",
    "defence": "defences",
    "attack": "attacks",
}
"""What people write, and the key it stands for."""
_WITHIN = ("defences", "attacks")
"""Lists of one audit, not axes: its attacks share their nulls and its defences the undefended control."""


@dataclass(frozen=True)
class SweepCell:
    """One audit of the grid: its place on each axis, and its plan."""

    place: Mapping[str, Any]
    values: Mapping[str, Any]

    def plan(self) -> AuditPlan:
        """Refuses what makes no sense, in the words of the audit."""
        return from_mapping(AuditPlan, self.values, source="grid")

    @property
    def name(self) -> str:
        """Its place in words.

        >>> SweepCell({"model": "mlp", "seed": 1}, {}).name
        'model=mlp, seed=1'
        """
        return ", ".join(f"{axis}={value}" for axis, value in self.place.items()) or "the one cell"


@dataclass(frozen=True)
class SweepGrid:
    """``axes`` in the order in which they were written, the last running fastest; ``fixed`` holds for all cells.

    A cell that has all values of one of the tables ``without`` is left out.
    """

    axes: Mapping[str, tuple[Any, ...]]
    fixed: Mapping[str, Any]
    without: tuple[Mapping[str, Any], ...] = ()

    def cells(self) -> Iterator[SweepCell]:
        for values in product(*self.axes.values()):
            place = dict(zip(self.axes, values, strict=True))
            whole = {**self.fixed, **place}
            if not any(all(whole.get(key) == value for key, value in one.items()) for one in self.without):
                yield SweepCell(place, whole)

    def words(self) -> dict[str, Any]:
        """What a file needs to say to make the same grid."""
        axes = {name: list(values) for name, values in self.axes.items()}
        return {**self.fixed, **axes, "without": [dict(one) for one in self.without]}


def read_grid(values: Mapping[str, Any]) -> SweepGrid:
    """The grid that a configuration's keys describe; unknown keys are errors.

    >>> grid = read_grid({"models": ["mlp", "compact"], "seeds": [0, 1], "without": [{"model": "mlp", "seed": 1}]})
    >>> [cell.name for cell in grid.cells()]
    ['model=mlp, seed=0', 'model=compact, seed=0', 'model=compact, seed=1']
    """
    renamed: dict[str, Any] = {}
    for key, value in values.items():
        name = _ALSO.get(key, key)
        if name in renamed:
            raise InvalidCase(f"The grid gives {name!r} twice, once as {key!r}; leave one out.")
        renamed[name] = value
    without = _exclusions(renamed.pop("without", []))
    fixed = {key: value for key, value in renamed.items() if key in _WITHIN or not isinstance(value, list)}
    fixed |= {key: [value] for key, value in fixed.items() if key in _WITHIN and not isinstance(value, list)}
    axes = {key: tuple(value) for key, value in renamed.items() if key not in fixed}
    for name, own in axes.items():
        if not own:
            raise InvalidCase(f"The axis {name!r} of the grid is empty; give it a value.")
        if len({repr(one) for one in own}) < len(own):
            raise InvalidCase(f"The axis {name!r} of the grid gives a value twice; each makes cells of its own.")
    grid = SweepGrid(axes, fixed, without)
    first = next(grid.cells(), None)
    if first is None:
        raise InvalidCase("The grid has no cell left; shorten `without`.")
    for cell in grid.cells():
        cell.plan()
    return grid


def _exclusions(given: Any) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(given, list) or not all(isinstance(one, Mapping) and one for one in given):
        raise InvalidCase(f'`without` is a list of tables such as [{{model = "mlp", batch_size = 8}}], got {given!r}.')
    named = tuple({_ALSO.get(key, key): value for key, value in one.items()} for one in given)
    unknown = [key for one in named for key in one if key not in AuditPlan.__dataclass_fields__]
    if unknown:
        raise InvalidCase(f"`without` names {unknown[0]!r}, which is no key of an audit; correct it.")
    return named
