"""What a malicious attack is: a server that does not send the model it should, and a way to read the update of it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar

from torch import Generator, Tensor, nn

from leakgauge.attacks.analytic.linear_layer import not_applicable
from leakgauge.attacks.base import Attack, finite_update
from leakgauge.errors import UnsupportedModel
from leakgauge.progress import Progress, silent
from leakgauge.protocol.learner import Learner, Tampering
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.protocol.round import Federation
from leakgauge.space import InputSpace, require
from leakgauge.types import ModelState, ParamTree, Reconstruction


class MaliciousAttack(Attack):
    """An attack whose server tampers with the model before it is sent [Geiping et al., 2020, appendix A].

    Subclasses are frozen dataclasses. Called on the observation of a round that it did not tamper with, the attack
    does not apply.
    """

    server: ClassVar[str]
    """What this server does to the model, in the words of the ledger."""

    serves: ClassVar[type[InputSpace]] = InputSpace  # type: ignore[type-abstract]
    """The spaces whose inputs its model lets through."""

    @abstractmethod
    def rebuild(self, learner: Learner, state: ModelState, space: InputSpace) -> tuple[nn.Module, ModelState]:
        """The module and the state to send instead; ``UnsupportedModel`` says why where the model offers no way."""

    @abstractmethod
    def read(self, observation: UpdateObservation, *, generator: Generator, progress: Progress) -> Reconstruction:
        """What the update of the tampered model gives away."""

    def tamper(self, federation: Federation, space: InputSpace) -> Federation:
        """The federation as this server plays it; the honest one, with the reason noted, where it has no way to."""
        honest = federation.learner
        try:
            require(space, self.serves, self)
            module, state = self.rebuild(honest, federation.state, space)
            # In its mode anew: a private copy without storage, so that the honest module is not shared.
            learner = replace(honest, module=module, tampering=Tampering(self)).in_mode(honest.mode)
            _check_runs(learner, state, space)
        except UnsupportedModel as refusal:
            return replace(federation, learner=replace(honest, tampering=Tampering(self, str(refusal))))
        return replace(federation, learner=learner, state=state)

    def __call__(
        self, observation: UpdateObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction:
        finite_update(observation)
        known(observation.num_examples, "num_examples", needed_by=self)
        tampering = observation.learner.tampering
        if tampering is None or tampering.attack != self:
            return not_applicable("the client did not get the model that this attack sends")
        if tampering.refusal is not None:
            return not_applicable(tampering.refusal)
        return self.read(observation, generator=generator, progress=progress)


def replace_tensors(state: ModelState, tensors: ParamTree) -> ModelState:
    """The state with some of its tensors replaced; what was trainable stays so."""
    return ModelState(
        {name: tensors.get(name, tensor) for name, tensor in state.params.items()},
        {name: tensors.get(name, tensor) for name, tensor in state.buffers.items()},
    )


def prefix_names(prefix: str, state: ModelState) -> ModelState:
    """The state of a module that became the child ``prefix`` of another."""
    return ModelState(
        {f"{prefix}.{name}": tensor for name, tensor in state.params.items()},
        {f"{prefix}.{name}": tensor for name, tensor in state.buffers.items()},
    )


def head_tensors(learner: Learner, state: ModelState, space: InputSpace) -> tuple[str, dict[str, Tensor]]:
    """The classifier's name, and its weight and, where it has one, bias under their names in the state."""
    head = learner.classifier(state, space.probe(2, state))
    held = {**state.params, **state.buffers}
    tensors = {name: held[name] for name in (f"{head}.weight", f"{head}.bias") if name in held}
    if f"{head}.weight" not in tensors:
        raise UnsupportedModel(f"The classifier {head!r} shares its weight with another layer; untie them.")
    return head, tensors


def _check_runs(learner: Learner, state: ModelState, space: InputSpace) -> None:
    try:
        learner.num_classes(state, space.probe(2, state))
    except Exception as error:  # a user's own model may fail in any way
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise UnsupportedModel(f"The model cannot be tampered with ({reason}); use another attack.") from error
