"""A metric is one class and one line of the catalogue: proven by adding one from outside the package."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from rich.console import Console
from test_report_examples import audit_of, record
from torch import Tensor

from leakgauge.audit.limits import check_limit
from leakgauge.audit.result import AuditResult
from leakgauge.audit.run import score
from leakgauge.catalogue import METRICS, standard_metrics
from leakgauge.cli.options import limits_of
from leakgauge.errors import InvalidCase
from leakgauge.metrics import Comparison, Kind, Metric
from leakgauge.report.audit_page import render_audit
from leakgauge.report.audit_table import audit_table


@dataclass(frozen=True)
class LargestError(Metric):
    """By how many grey levels the worst pixel is off."""

    name: ClassVar[str] = "largest_error"
    title: ClassVar[str] = "Largest error of a pixel"
    heading: ClassVar[str] = "worst\npixel"
    unit: ClassVar[str] = "levels"
    higher_is_leakier: ClassVar[bool] = False
    low: ClassVar[float] = 0.0
    high: ClassVar[float] = 255.0
    exact: ClassVar[float] = 0.0
    serves: ClassVar[Kind] = Kind.IMAGES
    digits: ClassVar[int] = 1

    def __call__(self, comparison: Comparison) -> Tensor:
        return 255 * (comparison.originals - comparison.reconstructions).double().abs().flatten(1).amax(dim=1)


@pytest.fixture
def added() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(METRICS, LargestError.name, LargestError)
        yield


def audited() -> AuditResult:
    """Two images of which one pixel is off by a fifth and by two fifths of the range."""
    originals = torch.zeros(2, 1, 12, 12)
    found = originals.clone()
    found[0, 0, 3, 3], found[1, 0, 4, 4] = 0.2, 0.4
    comparison = Comparison(originals, found, None, torch.zeros(2), None)
    return audit_of([record(size=2, hits=None, scores=score(comparison, standard_metrics()))])


def printed(result: AuditResult) -> str:
    console = Console(width=160)
    with console.capture() as capture:
        console.print(audit_table(result))
    return capture.get()


@pytest.mark.usefixtures("added")
def test_an_added_metric_is_scored_shown_and_limited() -> None:
    result = audited()
    (row,) = result.to_json()["rows"]
    found = row["metrics"]["largest_error"]
    assert found["mean"] == pytest.approx(76.5)
    assert found["worst"] == pytest.approx(51.0)
    assert (found["unit"], found["higher_is_leakier"]) == ("levels", False)
    assert 0 <= found["interval"][0] < 76.5 < found["interval"][1] <= 255
    assert "76.5 levels" in printed(result)
    page = render_audit(result)
    assert "Largest error of a pixel" in page
    assert "76.5 levels" in page
    assert result.exceeding(limits_of(["largest_error=80"])) == [
        "none: largest_error is 76.5, the limit is 80 (attack quasi_newton)"
    ]
    assert result.exceeding({"largest_error": 70.0}) == []


def test_before_it_is_added_nobody_knows_it() -> None:
    assert "pixel" not in printed(audited())
    with pytest.raises(InvalidCase, match="no metric 'largest_error'"):
        check_limit("largest_error", 1.0)
