"""What the pytest fixture ``leak_audit`` does: an audit of one update, and assertions on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from leakgauge.attacks.base import Attack
from leakgauge.audit.api import audit
from leakgauge.audit.limits import NOTHING_LEAKED
from leakgauge.audit.one_round import shared_budget
from leakgauge.audit.plan import default_attacks
from leakgauge.audit.result import UNDEFENDED, AuditResult, Finding
from leakgauge.config import build_defence
from leakgauge.defences import Defence, NoDefence
from leakgauge.errors import GateFailed
from leakgauge.files import writable_folder
from leakgauge.metrics import Identification
from leakgauge.protocol.losses import LossFunction
from leakgauge.report.headline import headline
from leakgauge.report.images import MOST, strip, write_strips
from leakgauge.space import ImageSpace, InputSpace
from leakgauge.types import Batch


@dataclass(frozen=True)
class AuditedUpdate:
    """What an audit found; each assertion fails above its limit, and where it cannot be told whether it is kept.

    ``folder`` says where to leave a picture and the report of what failed.
    """

    result: AuditResult
    folder: Callable[[], Path]

    def assert_identification_below(self, limit: float) -> None:
        """That no more than this share of the private examples is picked out of a crowd by what came back."""
        __tracebackhide__ = True
        self.assert_below(**{Identification.name: limit})

    def assert_nothing_leaked(self) -> None:
        """That no private example leaked, by the verdict of the audit."""
        __tracebackhide__ = True
        self.assert_below(**NOTHING_LEAKED)

    def assert_below(self, **limits: float) -> None:
        """Limits on metrics by name, or on ``leaked`` examples, as in ``AuditResult.check``."""
        __tracebackhide__ = True
        try:
            self.result.check(limits)
        except GateFailed as failed:
            raise AssertionError(self._tell(str(failed))) from None

    def _tell(self, why: str) -> str:
        folder = writable_folder(self.folder())
        lines = [why, *headline(self.result)]
        if (picture := draw_found(self.result.rows[0], folder / "leak.png")) is not None:
            lines.append(f"private images above, what came back below: {picture}")
        return "\n".join([*lines, f"report: {self.result.write_report(folder)}"])


@dataclass(frozen=True)
class LeakAudit:
    """``leak_audit(model, batch, defence=...)``: `leakgauge.audit` of one defence, in the time that a test has."""

    folder: Callable[[], Path]

    def __call__(
        self,
        model: nn.Module,
        batch: Batch | tuple[Tensor, Tensor],
        *,
        defence: str | Defence = UNDEFENDED,
        loss: LossFunction | str = cross_entropy,
        attacks: Sequence[str | Attack] | None = None,
        seconds: float = 60.0,
        least: int = 60,
        nulls: int = 3,
        space: InputSpace | None = None,
        **options: Any,
    ) -> AuditedUpdate:
        """Attack an update of ``model`` on a private ``batch`` under a ``defence``, as somebody who knows it would.

        ``seconds`` of CPU time are shared by all attacks, nulls and controls, and none makes fewer than ``least``
        steps: a busy machine makes a test late, and never turns a leak green. Other options are `leakgauge.audit`'s.
        """
        private = batch if isinstance(batch, Batch) else Batch(*batch)
        used = default_attacks(space or ImageSpace.of(private.inputs)) if attacks is None else attacks
        chosen = build_defence(defence) if isinstance(defence, str) else defence
        budget = shared_budget(seconds, least, attacks=len(used), nulls=nulls, defended=chosen != NoDefence())
        result = audit(
            model, loss, private, defences=[defence], attacks=used, budget=budget, nulls=nulls, space=space, **options
        )
        return AuditedUpdate(result, self.folder)


def draw_found(row: Finding, path: Path) -> Path | None:
    """The first private images over what came back of each, as a PNG; None where there are no images."""
    lines = []
    for record in row.records:
        originals, found = record.pictures.originals, record.pictures.reconstructions
        if originals is not None and found is not None and originals.ndim == 4:
            lines.append(strip(originals[:MOST], torch.nan_to_num(found[:MOST])))
    return write_strips(lines, path)
