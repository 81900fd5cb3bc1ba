"""What the server is assumed to know, fact by fact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from leakgauge.protocol.clients import clients_behind, mixes
from leakgauge.protocol.facts import Fact, Subject
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.local_update import LocalUpdate
from leakgauge.space import ImageSpace, InputSpace
from leakgauge.types import BatchStatistics

_IMAGES = ImageSpace(1, 1, 1)
"""What inputs are where nothing is said of them, whatever their size."""

_MIXING = {
    True: "which images went into each encoding, and how much of each: an upper bound on leakage",
    False: "hidden: neither the coefficients nor the images they belong to",
}


class BatchNormAccess(Enum):
    """Which BatchNorm statistics the attacker works with when the client is in "train" mode [Huang et al., 2021]."""

    EXACT = "exact"
    """BN_exact: the private batch's own statistics are disclosed; the attacker runs the model in train mode."""
    PROXY = "proxy"
    """BN_proxy: the attacker runs the model in eval mode with the running statistics the server holds."""
    INFERRED = "inferred"
    """BN_infer: the attacker runs the model in train mode; its candidate batch supplies the statistics."""

    @property
    def published(self) -> str:
        """The name in Huang et al., 2021.

        >>> BatchNormAccess.INFERRED.published
        'BN_infer'
        """
        return {"exact": "BN_exact", "proxy": "BN_proxy", "inferred": "BN_infer"}[self.value]


@dataclass(frozen=True)
class BatchNormKnowledge:
    """What of the BatchNorm statistics reached the attacker; ``statistics`` only under exact access."""

    access: BatchNormAccess
    statistics: BatchStatistics | None = None


@dataclass(frozen=True)
class ThreatModel:
    """Which facts a server sees besides the model it sent and the update it received; by default, what passes by it."""

    name: str
    source: str
    labels: bool = False
    num_examples: bool = True
    local_hyperparameters: bool = True
    defence: bool = True
    batch_norm: BatchNormAccess = BatchNormAccess.INFERRED
    auxiliary: bool = False
    mixing: bool = False

    def ledger(
        self,
        learner: Learner,
        *,
        defence: str = "none",
        malicious_server: str | None = None,
        client: LocalUpdate | None = None,
        space: InputSpace = _IMAGES,
    ) -> tuple[Fact, ...]:
        """Every assumption as one line; a server that tampers with the model adds the first.

        ``client`` is the defended algorithm; what it adds to the assumptions (aggregation, mixing) is read off it.
        """
        clients = clients_behind(client)
        return (
            *(() if malicious_server is None else (Fact(Subject.MALICIOUS_SERVER, True, malicious_server),)),
            Fact(Subject.MODEL, True, "architecture, loss and the weights the server sent"),
            Fact(
                Subject.UPDATE,
                True,
                "the update of this client alone, not an aggregate"
                if clients == 1
                else f"the mean of {clients} clients' updates, none of them alone (secure aggregation)",
            ),
            Fact(Subject.INPUT_SPACE, True, space.describe()),
            Fact(Subject.BATCH_SIZE, self.num_examples, "how many private examples the update covers"),
            Fact(Subject.LABELS, self.labels, "given" if self.labels else "hidden; the attack has to restore them"),
            Fact(
                Subject.LOCAL_HYPERPARAMETERS,
                self.local_hyperparameters,
                "local algorithm, epochs, batches, learning rate",
            ),
            Fact(Subject.DEFENCE, self.defence, "known to the attacker" if self.defence else "hidden", about=defence),
            Fact(Subject.BATCH_NORM, *self._batch_norm(learner)),
            *(
                (Fact(Subject.AUXILIARY, True, "labelled images of the same kind, none of them private"),)
                * self.auxiliary
            ),
            *((Fact(Subject.MIXING, self.mixing, _MIXING[self.mixing]),) if mixes(client) else ()),
        )

    def _batch_norm(self, learner: Learner) -> tuple[bool, str]:
        if not learner.batch_norm_layers():
            return False, "the model has none"
        if learner.mode == "eval":
            return True, "the client trains in eval mode, with the running statistics the server sent"
        return {
            BatchNormAccess.EXACT: (True, "exact: the private batch's own statistics are given"),
            BatchNormAccess.PROXY: (False, "proxy: the running statistics stand in for the private batch's"),
            BatchNormAccess.INFERRED: (False, "inferred: the candidate batch supplies them"),
        }[self.batch_norm]


THREAT_MODELS: Mapping[str, ThreatModel] = {
    model.name: model
    for model in (
        ThreatModel("honest_but_curious", "a server that runs the protocol and keeps what passes through it"),
        ThreatModel("informed", "labels known as in Geiping et al. 2020, section 4", labels=True),
        ThreatModel(
            "strongest",
            "the strongest attacker of Huang et al. 2021: labels and exact BatchNorm statistics",
            labels=True,
            batch_norm=BatchNormAccess.EXACT,
            mixing=True,
        ),
        ThreatModel(
            "auxiliary",
            "a server that also holds labelled images of the same kind, as for LLG+ and ZLG+",
            auxiliary=True,
        ),
        ThreatModel(
            "unaware",
            "a server that does not know the defence; shows the comfort a weak attacker would give",
            defence=False,
            batch_norm=BatchNormAccess.PROXY,
        ),
        ThreatModel(
            "update_only",
            "nothing but the model and the update",
            num_examples=False,
            local_hyperparameters=False,
            defence=False,
            batch_norm=BatchNormAccess.PROXY,
        ),
    )
}
