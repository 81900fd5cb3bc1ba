"""``leakgauge.audit``: the whole pipeline on a user's own model and batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from leakgauge.attacks.base import Attack
from leakgauge.attacks.budget import Budget
from leakgauge.audit.execute import execute
from leakgauge.audit.plan import DEFAULT_DEFENCES, AuditPlan, OwnClient, prepare
from leakgauge.audit.result import AuditResult
from leakgauge.config import build_loss
from leakgauge.defences import Defence
from leakgauge.errors import InvalidCase
from leakgauge.protocol.learner import Mode
from leakgauge.protocol.local_update import FedSGD, LocalUpdate
from leakgauge.protocol.losses import LossFunction
from leakgauge.protocol.threat_model import ThreatModel
from leakgauge.space import InputSpace
from leakgauge.types import Batch


def audit(
    model: nn.Module,
    loss: LossFunction | str = cross_entropy,
    batch: Batch | tuple[Tensor, Tensor] | None = None,
    *,
    defences: Sequence[str | Defence] = DEFAULT_DEFENCES,
    attacks: Sequence[str | Attack] | None = None,
    local_update: LocalUpdate = FedSGD(),
    threat_model: str | ThreatModel = "informed",
    mode: Mode = "eval",
    budget: str | Budget | None = None,
    references: Tensor | Batch | None = None,
    distractors: int = 99,
    nulls: int = 3,
    weights: str | Path | None = None,
    out: str | Path | None = None,
    seed: int = 0,
    space: InputSpace | None = None,
) -> AuditResult:
    """What one update of ``model`` on a private ``batch`` gives away, undefended and defended.

    ``loss`` is a function of the model's output and the labels, or one by name, such as "bce" or
    "cross_entropy:label_smoothing=0.1". ``batch`` holds inputs and labels: members of ``space``, or without one images,
    pixels in [0, 1].
    ``references`` are other inputs of the same kind, a ``Batch`` where their labels are known: the crowd that originals
    are picked from, and the unrelated batches of the ``nulls``. Where they are too few, augmented copies of them and of
    the private inputs stand in; without any, such copies and embedded photographs; rows of a table are resampled. The
    crowd has at least ``distractors``. ``attacks`` left out are those that suit the inputs.
    ``budget`` is the work of each attack: "quick", "standard", "deep" or a ``Budget``; None leaves each its own.
    With ``out``, results and ``index.html`` are kept there and a second call resumes, in the midst of an attack too.
    """
    if batch is None:
        raise InvalidCase("An audit needs a private batch; pass batch=(images, labels).")
    if not isinstance(batch, Batch):
        if len(batch) != 2 or not all(isinstance(part, Tensor) for part in batch):
            raise InvalidCase("The private batch must be a pair of tensors; pass batch=(images, labels).")
        batch = Batch(*batch)
    plan = AuditPlan(
        own=OwnClient(model, batch, build_loss(loss) if isinstance(loss, str) else loss, references, space),
        mode=mode,
        local_update=local_update,
        defences=tuple(defences),
        attacks=None if attacks is None else tuple(attacks),
        threat_model=threat_model,
        budget=budget,
        distractors=distractors,
        nulls=nulls,
        weights=None if weights is None else str(weights),
        seed=seed,
    )
    return execute(prepare(plan), None if out is None else Path(out))
