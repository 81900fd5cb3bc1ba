"""Whole batches through a linear layer under a ReLU, exactly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from leakgauge.attacks.analytic.affine_parts import AffineMap, RunNetwork
from leakgauge.attacks.analytic.example_labels import label_inputs, moved_by_noise
from leakgauge.attacks.analytic.linear_layer import NO_GRADIENTS, not_applicable, without_decay
from leakgauge.attacks.analytic.sparse_columns import Factors, factorise
from leakgauge.attacks.base import Attack, finite_update
from leakgauge.attacks.certificates import certify
from leakgauge.attacks.matching.engine.layers.affine import Linear
from leakgauge.errors import UnsupportedModel
from leakgauge.progress import Progress, silent
from leakgauge.protocol.clients import sums_gradients
from leakgauge.protocol.fit import fit
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.types import Outcome, ParamTree, Reconstruction

_ZEROS = 0.05
"""The least share of units that are inactive on noise, for an update to be sparse at all."""
_UNEXPLAINED = 0.1
"""The share of the bias update above which the examples that were found are not those of the update."""
_CONTRADICTED = 0.1
"""The share of units above which activity and pre-activation of an example contradict each other."""
_UNLIKE = 0.2
"""The relative difference above which the client's update of what was found is another than the observed one."""


class BatchLayer(NamedTuple):
    """A trained linear layer with bias that sees one row per example; ``seen`` says how the row follows from the input,
    None where it does not determine it."""

    weight: str
    bias: str
    seen: AffineMap | None

    @property
    def name(self) -> str:
        return self.weight.rpartition(".")[0] or self.weight


@dataclass(frozen=True)
class LinearBatches(Attack):
    """All inputs of a batch, exactly, when a linear layer under a ReLU sees them; see `sparse_columns`.

    Width decides how many: about 24 examples at 200 units, 64 at 1,000. All examples are found or none is returned; the
    labels are those under which the model gives each example the cotangent that was found. Of a layer further in the
    inputs are features: `read_features`.
    """

    def __call__(
        self, observation: UpdateObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction:
        observation = without_decay(observation)
        update = finite_update(observation)
        if not sums_gradients(observation.local_update):
            return not_applicable(NO_GRADIENTS)
        layers = list(batch_layers(observation, update))
        facing = [layer for layer in layers if layer.seen is not None]
        if not facing:
            inner = ", ".join(layer.name for layer in layers)
            further = f"; the features that {inner} sees can be read with read_features" if inner else ""
            return not_applicable(f"no biased linear layer under a ReLU receives the {observation.space.kind}{further}")
        reasons = []
        for layer in facing:
            found = _factors(observation, layer, generator, progress)
            if not isinstance(found, str):
                answer = _answer(observation, layer, found)
                if answer.certificate is not None:
                    return answer
                unlike = fit(observation, answer).residual > _UNLIKE  # of NaN, where the client cannot be run, not
                if not unlike and _agrees(observation, layer, found):
                    return answer
                found = "what was found contradicts the activity of the units, or does not give the update"
            reasons.append(f"{layer.name}: {found}")
        return not_applicable("; ".join(reasons))


def read_features(
    observation: UpdateObservation, *, generator: Generator, progress: Progress = silent
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """What each linear layer under a ReLU saw of a batch, a row for each example in no order, and why not of others.

    Of an inner layer the features are exact while the inputs behind them are not known.
    """
    observation = without_decay(observation)
    features: dict[str, Tensor] = {}
    reasons: dict[str, str] = {}
    for layer in batch_layers(observation, finite_update(observation)):
        found = _factors(observation, layer, generator, progress)
        if isinstance(found, str):
            reasons[layer.name] = found
        elif not _agrees(observation, layer, found):
            reasons[layer.name] = "what was found contradicts the activity of the units"
        else:
            features[layer.name] = found.inputs
    return features, reasons


def batch_layers(observation: UpdateObservation, update: ParamTree) -> Iterator[BatchLayer]:
    """The layers whose update may be factorised, in order of execution; none where the model cannot be read."""
    try:
        whole = RunNetwork.of(observation)
    except UnsupportedModel:
        return
    inputs = whole.part(0)
    for step in whole.network.steps:
        layer = step.layer
        if not isinstance(layer, Linear) or layer.bias is None or not {layer.weight, layer.bias} <= update.keys():
            continue
        if whole.network.shared.intersection((layer.weight, layer.bias)) or whole.values[step.output].ndim != 2:
            continue
        zeros = moved_by_noise(observation, layer.bias)
        if zeros is None or zeros < _ZEROS:
            continue
        seen = inputs.to(step.inputs[0]) if step.inputs[0] in inputs.members else None
        yield BatchLayer(layer.weight, layer.bias, seen if seen is not None and seen.is_one_to_one() else None)


def _factors(
    observation: UpdateObservation, layer: BatchLayer, generator: Generator, progress: Progress
) -> Factors | str:
    update = observation.update.params
    count = observation.num_examples
    found = factorise(update[layer.weight], update[layer.bias], count, generator=generator, progress=progress)
    if isinstance(found, str):
        return found
    if not bool(found.inputs.isfinite().all()):
        return "the examples that were found have no lengths that the bias update determines"
    if found.unexplained > _UNEXPLAINED:
        return f"the examples that were found leave {found.unexplained:.2g} of the bias update unexplained"
    return found


def _answer(observation: UpdateObservation, layer: BatchLayer, found: Factors) -> Reconstruction:
    state, space = observation.state, observation.space
    assert layer.seen is not None
    solved = [layer.seen.solve(row - layer.seen.offset) for row in found.inputs.to(state.device)]
    inputs = space.decode(space.relax(torch.cat(solved).view(len(solved), *space.shape).to(state.dtype)))
    facts: dict[str, str | int | float] = {
        "layer": layer.name,
        "examples": len(inputs),
        "unexplained": found.unexplained,
    }
    if observation.num_examples is not None and len(inputs) < observation.num_examples:
        facts["left out"] = f"{observation.num_examples - len(inputs)} examples left no trace in {layer.name}"
    answer = Reconstruction(inputs, None, Outcome.SOLVED, facts=facts)
    labels = label_inputs(observation, inputs, layer.bias, found.cotangents)
    argument = (
        f"the update of {layer.weight} has rank {len(inputs)}, only these {len(inputs)} directions of it are zero at "
        f"as many units as a ReLU leaves inactive, and the update of {layer.bias} gives them their lengths"
    )
    return certify(observation, replace(answer, labels=labels), argument)


def _agrees(observation: UpdateObservation, layer: BatchLayer, found: Factors) -> bool:
    """Whether units are active where their pre-activation is positive: of a ReLU; other units need a certificate."""
    weight, bias = (observation.state.params[name].double().cpu() for name in (layer.weight, layer.bias))
    active = found.inputs @ weight.mT + bias > 0
    wrong = (found.active & ~active).double().mean(dim=1)
    return bool((wrong <= _CONTRADICTED).all())
