"""Any defence of the catalogue on what a Flower client sends."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any, Literal

import torch
from flwr.app import Context, Message
from flwr.clientapp.typing import ClientAppCallable
from torch import Generator, Tensor, nn

from leakgauge.config import build_client, build_defence, spell_defence
from leakgauge.defences import on_finished, on_gradient
from leakgauge.errors import InvalidCase
from leakgauge.integrations.flower.messages import (
    LOG,
    count_examples,
    is_training,
    only_arrays,
    read_arrays,
    round_number,
    write_arrays,
)
from leakgauge.protocol.running_statistics import is_statistic, statistics_moved
from leakgauge.randomness import seeded
from leakgauge.types import ParamTree


@dataclass(frozen=True)
class DefenceMod:
    """A client mod that passes the update, the weights before minus those after, through a ``defence``.

    Only parameters are touched, those named in ``parameters``; None = every array of floats but running statistics,
    noise on which would ruin the model. With ``statistics="keep"`` the server gets back its own running statistics:
    after a single step those of the client disclose the exact statistics of its batch. A defence that acts while the
    client trains, such as DP-SGD, is refused. Noise and clipping are of weights; where ``local_update`` says how the
    client trains, the log has what they amount to on its gradient. ``seed`` is for studies: without one the noise comes
    from the system's secure generator.
    """

    defence: str
    parameters: tuple[str, ...] | None = None
    names: tuple[str, ...] | None = None
    local_update: str | None = None
    statistics: Literal["send", "keep"] = "send"
    seed: int | None = None

    def __post_init__(self) -> None:
        on_finished(build_defence(self.defence))
        if self.local_update is not None:
            build_client(self.local_update)
        if self.statistics not in ("send", "keep"):
            raise InvalidCase(f"Running statistics are sent or kept, got {self.statistics!r}; write 'send' or 'keep'.")

    @classmethod
    def of(cls, model: nn.Module, defence: str, **options: Any) -> DefenceMod:
        """For a model, whose trainable parameters are defended."""
        trained = tuple(name for name, parameter in model.named_parameters() if parameter.requires_grad)
        return cls(defence, trained, tuple(model.state_dict()), **options)

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        if not is_training(message):
            return call_next(message, context)
        # Read first: an app may train in the memory of what it was sent.
        _, sent = only_arrays(message)
        before = read_arrays(sent, self.names)
        reply = call_next(message, context)
        if reply.has_error():
            return reply
        key, record = only_arrays(reply)
        after = read_arrays(record, self.names)
        generator = self._generator(context.node_id, round_number(message))
        reply.content[key] = write_arrays(record, self.defend(before, after, generator))
        LOG.info("DefenceMod: %s", self.words(count_examples(reply)))
        return reply

    def defend(self, before: ParamTree, after: ParamTree, generator: Generator) -> dict[str, Tensor]:
        """The weights to send in place of those after training."""
        named = self._defended(before, after)
        update: ParamTree = {name: _wide(before[name]) - _wide(after[name]) for name in named}
        for transform in on_finished(build_defence(self.defence)):
            update = transform.transform(update, generator=generator)
        # What a defence leaves out has not moved.
        moved = {name: _wide(before[name]) - update.get(name, torch.zeros_like(_wide(before[name]))) for name in named}
        kept = {} if self.statistics == "send" else {name: before[name] for name in after if is_statistic(name)}
        self._warn_of_statistics(before, after)
        return {name: kept.get(name, moved.get(name, tensor)) for name, tensor in after.items()}

    def words(self, num_examples: int | None = None) -> str:
        """What is done to what: noise is stated for the weights it is added to, and for the gradient it amounts to."""
        if not on_finished(build_defence(self.defence)):
            return "the update leaves as it was computed"
        said = f"{self.defence} on the weights before training minus those after it"
        if self.local_update is None or num_examples is None:
            return said
        same = on_gradient(build_defence(self.defence), build_client(self.local_update), num_examples)
        if same is None:
            return f"{said}; the client's optimiser makes no multiple of a gradient of it"
        return f"{said}; on the mean gradient as much as {spell_defence(same)} ({self.local_update})"

    def _defended(self, before: ParamTree, after: ParamTree) -> list[str]:
        floats = [name for name, tensor in after.items() if tensor.is_floating_point() and not is_statistic(name)]
        named = floats if self.parameters is None else [name for name in after if name in set(self.parameters)]
        if not named or any(name not in before for name in named):
            raise InvalidCase(
                f"Of the arrays that the client sends ({', '.join(list(after)[:3])}, ...) none is to be defended, or "
                "some were not received; name its parameters as model.named_parameters() does."
            )
        if counted := [name for name in named if not after[name].is_floating_point()]:
            raise InvalidCase(f"{counted[0]!r} holds whole numbers, which are no parameter; leave it out.")
        return named

    def _generator(self, node: int, number: int) -> Generator:
        if self.seed is None:
            return torch.Generator().manual_seed(secrets.randbits(62))
        return seeded(self.seed, "flower", node, number)

    def _warn_of_statistics(self, before: ParamTree, after: ParamTree) -> None:
        names = [name for name in after if is_statistic(name) and name in before]
        if self.statistics == "send" and statistics_moved({name: before[name] - after[name] for name in names}):
            LOG.warning(
                "DefenceMod: BatchNorm's running statistics leave undefended, and after one step they disclose the "
                "exact statistics of the batch; write statistics='keep'."
            )


def _wide(tensor: Tensor) -> Tensor:
    return tensor if tensor.element_size() >= 4 else tensor.float()
