"""A strategy around any strategy that keeps what it was sent."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from torch import Tensor, nn

from leakgauge.audit.one_round import audit_round
from leakgauge.errors import LeakGaugeError
from leakgauge.files import writable_folder
from leakgauge.integrations.flower.declared import DeclaredClient
from leakgauge.integrations.flower.messages import LOG
from leakgauge.protocol.recording import RecordedRound, write_round
from leakgauge.report.headline import headline
from leakgauge.types import Batch


@dataclass(frozen=True)
class RoundAudit:
    """How a recording server attacks what it keeps.

    ``truth`` returns the private batch behind a reply, where that is known, as in a simulation; without it only an
    attack that certifies itself is judged. ``options`` go to `audit_round`.
    """

    model: Callable[[], nn.Module]
    truth: Callable[[Message], Batch | tuple[Tensor, Tensor]] | None = None
    seconds: float = 60.0
    options: Mapping[str, Any] = field(default_factory=dict)

    def report(self, recorded: RecordedRound, reply: Message, out: Path) -> None:
        """Attack a round and leave the report in a folder."""
        truth = None if self.truth is None else self.truth(reply)
        result = audit_round(recorded, self.model(), truth, seconds=self.seconds, out=out, **self.options)
        LOG.info("Recording: %s: %s", out.name, " ".join(headline(result)))


class Recording(Strategy):
    """Another ``strategy``, and the rounds of chosen clients as ``round-0001-client-<node>.safetensors`` in ``folder``.

    ``clients`` are the first so many that answer in a round, or nodes by their number; None = all. ``rounds`` left out
    are all. What cannot be recorded is said in the log and never stops the training. ``known`` is written into the
    files: `leakgauge invert` and `leakgauge.read_round` read them. With an ``audit`` each is attacked as it arrives.
    """

    def __init__(
        self,
        strategy: Strategy,
        folder: str | Path,
        known: DeclaredClient,
        *,
        clients: int | Collection[int] | None = None,
        rounds: Collection[int] | None = None,
        audit: RoundAudit | None = None,
    ) -> None:
        super().__init__()
        self.strategy = strategy
        self.folder = writable_folder(Path(folder))
        self.known = known
        self.clients = clients
        self.rounds = rounds
        self.audit = audit
        self._sent: dict[int, Message] = {}

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        self._sent = {message.metadata.dst_node_id: message for message in messages}
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        replies = list(replies)
        if self.rounds is None or server_round in self.rounds:
            for reply in self._chosen(replies):
                self._keep(server_round, reply)
        return self.strategy.aggregate_train(server_round, replies)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        return self.strategy.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        LOG.info("\t├──> Recorded in %s", self.folder)
        self.strategy.summary()

    def _chosen(self, replies: list[Message]) -> list[Message]:
        answered = [one for one in replies if not one.has_error() and one.metadata.src_node_id in self._sent]
        if self.clients is None:
            return answered
        if isinstance(self.clients, int):
            return answered[: self.clients]
        return [one for one in answered if one.metadata.src_node_id in self.clients]

    def _keep(self, server_round: int, reply: Message) -> None:
        node = reply.metadata.src_node_id
        name = f"round-{server_round:04d}-client-{node}"
        try:
            recorded = self.known.record(self._sent[node], reply)
            write_round(self.folder / f"{name}.safetensors", recorded)
            if self.audit is not None:
                self.audit.report(recorded, reply, self.folder / name)
        except LeakGaugeError as refusal:
            LOG.warning("Recording: round %d of client %d was not recorded: %s", server_round, node, refusal)
