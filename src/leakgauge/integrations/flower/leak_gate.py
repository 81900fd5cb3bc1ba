"""A client's own gate: its update is attacked before it leaves, and stays if it gives too much away."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from flwr.app import Context, Error, Message
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.constant import ErrorCode
from torch import Tensor, nn

from leakgauge.audit.limits import NOTHING_LEAKED, check_limit
from leakgauge.audit.one_round import audit_round
from leakgauge.audit.result import AuditResult
from leakgauge.errors import GateFailed, InvalidCase, LeakGaugeError
from leakgauge.integrations.flower.declared import DeclaredClient
from leakgauge.integrations.flower.messages import LOG, is_training
from leakgauge.report.headline import headline
from leakgauge.types import Batch

Action = Literal["log", "warn", "withhold"]

WITHHELD = "The client withheld its update: it gives more away than the client allows, or that could not be told."
"""All that a server learns; how much was found, and of what, stays in the client's log."""


@dataclass(frozen=True)
class LeakGate:
    """A client mod that audits what is about to leave, by the strongest attacker that ``known`` describes.

    ``batch`` returns the private batch that the client has just trained on, ``model`` builds its model. Above a limit
    (of ``limits``, as in ``AuditResult.check``), or where that cannot be told, the update is logged, warned of or
    withheld. The attacker knows the labels unless ``labels_known`` is off. ``seconds`` of CPU time are shared by the
    attack, its nulls and controls; each makes a least number of steps, so that a busy machine makes the gate late and
    not blind. ``options`` go to `audit_round`: attacks, references, nulls. First in ``mods``, it sees what the others
    have done to the update; ``known.defence`` says what that was.
    """

    known: DeclaredClient
    model: Callable[[], nn.Module]
    batch: Callable[[Message, Context], Batch | tuple[Tensor, Tensor]]
    limits: Mapping[str, float] = field(default_factory=lambda: dict(NOTHING_LEAKED))
    action: Action = "withhold"
    seconds: float = 60.0
    labels_known: bool = True
    allow_inconclusive: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, limit in self.limits.items():
            check_limit(name, limit)
        if self.action not in ("log", "warn", "withhold"):
            raise InvalidCase(f"A gate cannot {self.action!r}; choose from log, warn, withhold.")

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        reply = call_next(message, context)
        if not is_training(message) or reply.has_error():
            return reply
        try:
            result = self.audit(message, reply, context)
            LOG.info("LeakGate: %s", " ".join(headline(result)))
            result.check(self.limits, allow_inconclusive=self.allow_inconclusive)
        except GateFailed as found:
            LOG.log(_LEVELS[self.action], "LeakGate: %s", found)
        except LeakGaugeError as refusal:
            # What cannot be audited has not been shown to be harmless.
            LOG.log(_LEVELS[self.action], "LeakGate: the update could not be audited: %s", refusal)
        else:
            return reply
        if self.action != "withhold":
            return reply
        return Message(Error(code=ErrorCode.MOD_FAILED_PRECONDITION, reason=WITHHELD), reply_to=message)

    def audit(self, message: Message, reply: Message, context: Context) -> AuditResult:
        """The update of a reply, attacked and judged."""
        private = self.batch(message, context)
        private = private if isinstance(private, Batch) else Batch(*private)
        recorded = self.known.record(message, reply, private.labels if self.labels_known else None)
        return audit_round(recorded, self.model(), private, seconds=self.seconds, **self.options)


_LEVELS: Mapping[Action, int] = {"log": 20, "warn": 30, "withhold": 30}
"""Those of `logging`: information and warning."""
