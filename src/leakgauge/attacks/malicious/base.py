"""What a malicious attack is: a server that does not send the model it should, and a way to read the update of it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn

from leakgauge.attacks.analytic.linear_layer import not_applicable, recover_input
from leakgauge.attacks.base import Attack, finite_update
from leakgauge.errors import UnsupportedModel
from leakgauge.factories import cause
from leakgauge.progress import Progress, silent
from leakgauge.protocol.learner import Learner, Tampering
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.protocol.round import Federation
from leakgauge.space import InputSpace, require
from leakgauge.types import ModelState, ParamTree, Reconstruction

Facts = dict[str, str | int | float]
"""What a record says of how its reconstruction came about."""


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
    def rebuild(
        self, learner: Learner, state: ModelState, space: InputSpace, public: Tensor | None
    ) -> tuple[nn.Module, ModelState]:
        """The module and the state to send instead; ``UnsupportedModel`` says why where the model offers no way.

        ``public`` are inputs of the same kind that are not private, where the server holds such.
        """

    @abstractmethod
    def read(self, observation: UpdateObservation, *, generator: Generator, progress: Progress) -> Reconstruction:
        """What the update of the tampered model gives away."""

    def tamper(self, federation: Federation, space: InputSpace, public: Tensor | None = None) -> Federation:
        """The federation as this server plays it; the honest one, with the reason noted, where it has no way to."""
        honest = federation.learner
        try:
            require(space, self.serves, self)
            module, state = self.rebuild(honest, federation.state, space, public)
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
        raise UnsupportedModel(f"The model cannot be tampered with ({cause(error)}); use another attack.") from error


def head_inputs(weight_update: Tensor, bias_update: Tensor, labels: Tensor, num_examples: int) -> Tensor | str:
    """The inputs of the classifier, one row per label, or the reason why they cannot be told apart.

    With all rows equal, dW_c = mean_t (p_t - [y_t = c]) x_t and db_c alike, where p_t does not depend on c; against an
    absent class a, (dW_c - dW_a) / (db_c - db_a) is the mean of x_t over y_t = c: exact for distinct labels, whatever
    factor the client puts on its update. One example needs neither equal rows nor its label.

    >>> x, y, absent = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0]), torch.tensor([4.0, 7.0]) / 6
    >>> dW, db = torch.stack((absent - x / 2, absent, absent - y / 2)), torch.tensor([-1 / 6, 1 / 3, -1 / 6])
    >>> head_inputs(dW, db, torch.tensor([0, 2]), 2)
    tensor([[1., 2.],
            [3., 5.]])
    """
    if num_examples == 1:
        found = recover_input(weight_update, bias_update)
        return "the bias update of the classifier is zero" if found is None else found[None]
    if labels.ndim != 1:
        return "several images with class probabilities for labels are not told apart"
    absent = torch.ones(len(bias_update), dtype=torch.bool, device=bias_update.device)
    absent[labels.long()] = False
    if not bool(absent.any()):
        return "every class is present, so no row is left to compare with"
    slope = bias_update - bias_update[absent].mean()
    labels = labels.long()[slope[labels.long()] != 0]
    if len(labels) == 0:
        return "the bias update of the classifier is zero"
    return (weight_update - weight_update[absent].mean(dim=0))[labels] / slope[labels, None]


def head_labels(bias_update: Tensor, num_examples: int) -> Tensor:
    """The labels, repeats included: db_c is proportional to 1/C - n_c/n, and largest for an absent class.

    >>> head_labels(torch.tensor([-0.5, 0.25, 0.0, 0.25]), 4)
    tensor([0, 0, 0, 2])
    """
    counts = num_examples / len(bias_update) * (1 - bias_update / bias_update.max())
    labels = []
    for _ in range(num_examples):
        labels.append(int(counts.nan_to_num(0, 0, 0).argmax()))
        counts[labels[-1]] -= 1
    return torch.tensor(sorted(labels), device=bias_update.device)
