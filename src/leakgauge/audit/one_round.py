"""One recorded round audited from Python: by the client that sent it, or by a server that knows the truth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor, nn

from leakgauge.attacks.budget import Budget
from leakgauge.audit.bounded import describe_recorded_bounds
from leakgauge.audit.execute import PreparedAudit, execute
from leakgauge.audit.recorded import CROWD, OpenRound, default_attack, score_inputs
from leakgauge.audit.result import UNDEFENDED, AuditResult
from leakgauge.catalogue import standard_metrics
from leakgauge.config import build_attack, build_budget
from leakgauge.errors import InvalidCase
from leakgauge.protocol.recording import RecordedRound
from leakgauge.types import Batch
from leakgauge.version import VERSION


def audit_round(
    recorded: RecordedRound,
    model: nn.Module,
    truth: Batch | tuple[Tensor, Tensor] | None = None,
    *,
    attacks: Sequence[str] | None = None,
    budget: str | Budget | None = None,
    seconds: float | None = None,
    least: int = 60,
    references: Tensor | Batch | None = None,
    nulls: int = 3,
    weights: str | Path | None = None,
    out: str | Path | None = None,
    seed: int = 0,
) -> AuditResult:
    """What a recorded round gives away of the private batch ``truth``, judged beside nulls and controls.

    ``model`` is the client's; its weights are those of the round. Without a truth nothing is scored, and only an attack
    that certifies itself is judged. ``budget`` is the work of each attack on each update; ``seconds`` instead is CPU
    time of all of them together, shared equally, of which none makes fewer than ``least`` steps. ``references`` and
    ``nulls`` as in `leakgauge.audit`.
    """
    if budget is not None and seconds is not None:
        raise InvalidCase("A budget is of each attack and seconds are of all together; give one of them.")
    opened = OpenRound.of(recorded, model)
    private = [] if truth is None else [opened.checked(truth if isinstance(truth, Batch) else Batch(*truth))]
    names = tuple(attacks or (default_attack(recorded),))
    work = build_budget(budget)
    if seconds is not None:
        simulated = nulls if private and recorded.local_update is not None else 0
        defended = recorded.defence not in (None, UNDEFENDED)
        work = shared_budget(seconds, least, attacks=len(names), nulls=simulated, defended=defended)
    by_round, crowd = score_inputs(
        [opened], {name: build_attack(name, work) for name in names}, private, references, nulls=nulls, seed=seed
    )
    description = {
        "model": type(model).__name__,
        "attacks": list(names),
        "local_update": recorded.local_update,
        "defence": recorded.defence,
        "nulls": nulls,
        "seed": seed,
        "version": VERSION,
        "crowd": crowd,
        "bounds": describe_recorded_bounds([opened.observation], CROWD),
    }
    prepared = PreparedAudit(by_round[0], standard_metrics(weights), description)
    return execute(prepared, None if out is None else Path(out))


def shared_budget(seconds: float, least: int, *, attacks: int, nulls: int, defended: bool) -> Budget:
    """CPU time for a whole audit in equal parts: each attack on the update, on its nulls and on the controls.

    >>> shared_budget(70.0, 60, attacks=1, nulls=3, defended=True)
    Budget(steps=None, seconds=10.0, clock='cpu', least=60)
    """
    return Budget(seconds=seconds / (attacks * (1 + nulls * (2 if defended else 1))), least=least)
