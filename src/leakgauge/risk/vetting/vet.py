"""``leakgauge.vet``: every check on one model, each with its evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from leakgauge.errors import InvalidCase
from leakgauge.factories import cause
from leakgauge.progress import Progress, Tick, silent
from leakgauge.protocol.learner import Learner, learner_and_state
from leakgauge.protocol.losses import LossFunction
from leakgauge.protocol.state_dicts import as_tensors, rename
from leakgauge.risk.models import space_of
from leakgauge.risk.vetting.base import Suspicion, Vetted, VettedModel
from leakgauge.risk.vetting.behaviour import exchanged_classes, silent_examples, strange_losses
from leakgauge.risk.vetting.flow import identity_convolutions, image_behind_layers, linear_in_front
from leakgauge.risk.vetting.history import added_layers, moved_rows, replaced_weights
from leakgauge.risk.vetting.rows import half_negated_rows, long_rows, rare_activations, repeated_rows, silenced_classes
from leakgauge.risk.vetting.values import strange_values
from leakgauge.space import InputSpace
from leakgauge.types import Batch, ModelState

CHECKS: tuple[Callable[[Vetted], Iterator[Suspicion]], ...] = (
    strange_values,
    added_layers,
    linear_in_front,
    repeated_rows,
    half_negated_rows,
    rare_activations,
    identity_convolutions,
    image_behind_layers,
    silenced_classes,
    long_rows,
    moved_rows,
    replaced_weights,
    strange_losses,
    exchanged_classes,
    silent_examples,
)


def vet(
    model: nn.Module,
    *,
    input_shape: tuple[int, ...] | None = None,
    space: InputSpace | None = None,
    reference: nn.Module | Mapping[str, Any] | None = None,
    batch: tuple[Tensor, Tensor] | Batch | None = None,
    loss: LossFunction = cross_entropy,
    progress: Progress = silent,
) -> VettedModel:
    """What a client should know of a model before it trains on it: constructions that make updates give data away.

    ``reference`` is the model of the round before, or its state dict; ``batch`` some inputs of the client's own with
    their labels, 8 or more. Both are optional and make it see more. Nothing is trained and nothing leaves.
    """
    if (input_shape is None) == (space is None):
        raise InvalidCase("A model is vetted for its inputs; pass either input_shape=(3, 224, 224) or space=....")
    inputs = space_of(tuple(input_shape)) if input_shape is not None else space
    learner, state = learner_and_state(model, loss)
    own = batch if batch is None or isinstance(batch, Batch) else Batch(*batch)
    before = reference.state_dict() if isinstance(reference, nn.Module) else reference
    assert inputs is not None
    return vet_learner(learner, state, inputs, before, own, progress)


def vet_learner(
    learner: Learner,
    state: ModelState,
    space: InputSpace,
    reference: Mapping[str, Any] | None = None,
    batch: Batch | None = None,
    progress: Progress = silent,
) -> VettedModel:
    """The same of a model that is split into what it computes and what it holds."""
    return _all_checks(Vetted(state, learner, space, _renamed(reference, state), batch), progress)


def vet_weights(
    weights: Mapping[str, Any], reference: Mapping[str, Any] | None = None, progress: Progress = silent
) -> VettedModel:
    """What can be seen in weights alone, where their model is not known."""
    state = ModelState(as_tensors(weights), {})
    return _all_checks(Vetted(state, reference=_renamed(reference, state)), progress)


def _renamed(reference: Mapping[str, Any] | None, state: ModelState) -> dict[str, Tensor]:
    return rename(as_tensors(reference or {}), {**state.params, **state.buffers})


def _all_checks(model: Vetted, progress: Progress) -> VettedModel:
    found: list[Suspicion] = []
    unchecked = []
    if model.learner is None:
        unchecked.append("What flows through the model was not looked at, as its code was not given.")
    elif model.probes is None:
        unchecked.append("What flows through the model was not looked at, as it takes no images.")
    if not model.reference:
        unchecked.append("Nothing was compared with the round before; give its weights as the reference.")
    if model.batch is None:
        unchecked.append("Losses and gradients were not looked at; give some data of your own.")
    for number, check in enumerate(CHECKS, start=1):
        try:
            with torch.no_grad() if check is not silent_examples else torch.enable_grad():
                found += check(model)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:  # a user's model may fail in any way
            unchecked.append(
                f"{check.__name__.replace('_', ' ')} could not be looked for ({cause(error).rstrip('.')})."
            )
        progress(Tick(number, number / len(CHECKS)))
    return VettedModel(tuple(found), tuple(unchecked))
