"""``leakgauge.check``: what can be attacked in a model, by which route, at what cost, and what would end it."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parameter import is_lazy

from leakgauge import params as tree
from leakgauge.config import build_loss
from leakgauge.errors import InvalidCase, LeakGaugeError
from leakgauge.progress import Progress, Tick, silent
from leakgauge.protocol.learner import Mode
from leakgauge.protocol.losses import LossFunction
from leakgauge.risk.client import NoiseClient, noise_client
from leakgauge.risk.cost import StepCost, measure_route
from leakgauge.risk.layers import LayerRisk, ending_changes, largest_batch, layer_risks
from leakgauge.risk.models import space_of
from leakgauge.risk.texts import TextRisk, text_risk
from leakgauge.risk.trials import Allowance, Applicability, PartKind, try_attacks, try_closed_forms, try_defences
from leakgauge.space import InputSpace
from leakgauge.threads import suitable_threads


@dataclass(frozen=True)
class ModelCheck:
    """What a model puts at risk in an update of ``batch_size`` examples; nothing private was looked at.

    ``cost`` is None where gradient matching has no way, for the reason in ``refusal``. ``closed_alone`` are the closed
    forms that would hold for an update of one example. ``layers`` is empty where the model could not be read, for the
    reason in ``unread``.
    """

    model: str
    parameters: int
    frozen: int
    inputs: str
    batch_size: int
    mode: str
    labels: str
    cost: StepCost | None
    refusal: str | None
    attacks: tuple[Applicability, ...]
    defences: tuple[Applicability, ...]
    closed_alone: tuple[str, ...]
    layers: tuple[LayerRisk, ...]
    unread: str | None
    changes: tuple[str, ...]
    texts: TextRisk | None = None

    @property
    def exposed(self) -> tuple[LayerRisk, ...]:
        """The layers whose gradient gives away all they read, and that read whole examples."""
        return tuple(layer for layer in self.layers if layer.whole and layer.spans(self.batch_size))

    @property
    def closed(self) -> tuple[str, ...]:
        """The attacks that read examples off this update without any search."""
        return tuple(one.name for one in self.attacks if one.kind is PartKind.CLOSED_FORM and one.applies)

    @property
    def largest_batch(self) -> int:
        """Up to how many examples some layer gives whole examples away by the rank rule; 0 = not even one."""
        return largest_batch(self.layers)

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        values = asdict(self)
        for part in (*values["attacks"], *values["defences"]):
            part["kind"] = part["kind"].value
        if self.cost is not None:
            values["cost"]["training_steps"] = self.cost.training_steps
        return values | {
            "largest_batch": self.largest_batch,
            "exposed": [layer.name for layer in self.exposed],
            "closed": list(self.closed),
        }


def check(
    model: nn.Module,
    loss: LossFunction | str = cross_entropy,
    *,
    input_shape: tuple[int, ...] | None = None,
    space: InputSpace | None = None,
    batch_size: int = 1,
    mode: Mode = "eval",
    labels: Tensor | None = None,
    seconds: float = 20.0,
    progress: Progress = silent,
) -> ModelCheck:
    """What can be attacked in ``model``, by which route, at what cost a step, and by which change it would end.

    No data is needed: noise stands in for inputs of ``input_shape``, (3, 224, 224) for images and (30,) for rows of
    values, or for members of ``space``. ``loss`` as for `audit`; ``labels`` are a few examples of what a loss of one's
    own takes. Attacks are tried for at most about ``seconds`` of CPU time, the quick ones first. A model that does not
    run is refused with the layer that failed.
    """
    if (input_shape is None) == (space is None):
        raise InvalidCase("A check needs the shape of an input; pass either input_shape=(3, 224, 224) or space=....")
    if mode not in ("train", "eval"):
        raise InvalidCase(f"There is no mode {mode!r}; choose from train, eval.")
    inputs = space_of(tuple(input_shape)) if input_shape is not None else space
    assert inputs is not None
    function = build_loss(loss) if isinstance(loss, str) else loss
    with suitable_threads(_size(model)), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what torch finds slow or unusual about a trial is no news of the model
        client = noise_client(model, function, inputs, batch_size, mode, labels)
        return _check(client, type(model).__name__, seconds, progress)


def _check(client: NoiseClient, name: str, seconds: float, progress: Progress) -> ModelCheck:
    learner, state = client.learner, client.state
    route = measure_route(client)
    progress(Tick(0, _AFTER_ROUTE))
    defences = try_defences(client)
    layers, unread = _layers(client)
    attacks = try_attacks(
        client,
        route,
        Allowance(seconds),
        lambda tick: progress(Tick(tick.step, _AFTER_ROUTE + (1 - _AFTER_ROUTE) * tick.fraction)),
    )
    if len(client.batch) > 1:
        closed = try_closed_forms(client.alone())
    else:
        closed = tuple(one.name for one in attacks if one.kind is PartKind.CLOSED_FORM and one.applies)
    return ModelCheck(
        model=name,
        parameters=tree.count(state.params),
        frozen=sum(tensor.numel() for name, tensor in state.buffers.items() if name in _parameters(client)),
        inputs=f"{client.space.kinds} of {client.space.size}",
        batch_size=len(client.batch),
        mode=learner.mode,
        labels=learner.targets.value,
        cost=route.cost,
        refusal=route.refusal,
        attacks=attacks,
        defences=defences,
        closed_alone=closed,
        layers=layers,
        unread=unread,
        changes=ending_changes(layers, len(client.batch), client.space.one),
        texts=text_risk(client),
    )


def _size(model: nn.Module) -> int:
    return sum(0 if is_lazy(p) else p.numel() for p in model.parameters())


def _layers(client: NoiseClient) -> tuple[tuple[LayerRisk, ...], str | None]:
    try:
        return layer_risks(client.learner, client.state, client.space, client.batch), None
    except LeakGaugeError as refusal:
        return (), str(refusal)


def _parameters(client: NoiseClient) -> set[str]:
    return {name for name, _ in client.learner.module.named_parameters()}


_AFTER_ROUTE = 0.3
"""The share of the work that is done when the route is chosen and measured."""
