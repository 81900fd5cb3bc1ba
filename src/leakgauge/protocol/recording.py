"""A round on disk: what the server sent, what it received, and what it knows, as one safetensors file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from leakgauge import params as tree
from leakgauge.errors import InvalidFile, InvalidUpdate
from leakgauge.files import read_tensors, write_tensors
from leakgauge.protocol.learner import LossFunction, Mode, learner_and_state
from leakgauge.protocol.local_update import LocalUpdate
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.protocol.round import attackers_learner
from leakgauge.protocol.threat_model import BatchNormAccess, BatchNormKnowledge
from leakgauge.protocol.validation import check_model
from leakgauge.space import InputSpace, as_space, space_from_json, space_to_json
from leakgauge.types import BatchStatistics, ModelState, ParamTree, Shape, Update

FORMAT = "leakgauge-round/1"
_SECTIONS = ("state", "update", "labels", "batch_mean", "batch_variance")


@dataclass(frozen=True)
class RecordedRound:
    """One update and what is known about it. ``state`` and ``update`` are keyed as in ``module.state_dict()``.

    ``local_update`` and ``defence`` are specifications in the catalogue's grammar, such as ``"fedsgd"`` or
    ``"fedavg:epochs=1,batch_size=8,learning_rate=0.1"``; None = not known. ``mode`` is the client's.
    """

    state: ParamTree
    update: ParamTree
    space: InputSpace
    num_examples: int | None = None
    labels: Tensor | None = None
    local_update: str | None = "fedsgd"
    defence: str | None = "none"
    mode: Mode = "eval"
    batch_norm: BatchNormKnowledge = BatchNormKnowledge(BatchNormAccess.PROXY)

    def __post_init__(self) -> None:
        # The shape of an image, (channels, height, width), says as much as its space does.
        object.__setattr__(self, "space", as_space(self.space))

    @classmethod
    def between(cls, before: ParamTree, after: ParamTree, space: InputSpace | Shape, **known: Any) -> RecordedRound:
        """From a client's weights before and after its local training; the update is before minus after."""
        if missing := [name for name in before if name not in after]:
            raise InvalidUpdate(f"The weights after training lack {_some(missing)}; pass both complete state dicts.")
        if unlike := [name for name in before if before[name].shape != after[name].shape]:
            raise InvalidUpdate(f"The weights before and after training differ in the shape of {_some(unlike)}.")
        moved = {name: value - after[name] for name, value in before.items() if value.is_floating_point()}
        return cls(before, moved, as_space(space), **known)

    @classmethod
    def of(cls, observation: UpdateObservation, *, local_update: str | None, defence: str | None) -> RecordedRound:
        """What an observation discloses, and nothing beyond it."""
        return cls(
            state={**observation.state.params, **observation.state.buffers},
            update=observation.update.params,
            space=observation.space,
            num_examples=observation.num_examples,
            labels=observation.labels,
            local_update=local_update if observation.local_update is not None else None,
            defence=defence,
            mode=observation.learner.mode,
            batch_norm=observation.batch_norm,
        )


def write_round(path: Path, recorded: RecordedRound) -> None:
    """Write atomically; the file holds tensors and JSON, nothing that could run."""
    tensors = {f"state.{name}": tensor for name, tensor in recorded.state.items()}
    tensors |= {f"update.{name}": tensor for name, tensor in recorded.update.items()}
    if recorded.labels is not None:
        tensors["labels"] = recorded.labels
    if (statistics := recorded.batch_norm.statistics) is not None:
        tensors |= {f"batch_mean.{name}": tensor for name, tensor in statistics.mean.items()}
        tensors |= {f"batch_variance.{name}": tensor for name, tensor in statistics.variance.items()}
    facts = {
        **space_to_json(recorded.space),
        "num_examples": recorded.num_examples,
        "local_update": recorded.local_update,
        "defence": recorded.defence,
        "mode": recorded.mode,
        "batch_norm": recorded.batch_norm.access.value,
    }
    write_tensors(path, tensors, {"format": FORMAT, "round": json.dumps(facts)})


def read_round(path: Path) -> RecordedRound:
    """Read a recorded round; a file that is not one is refused with the reason."""
    tensors, metadata = read_tensors(path)
    if metadata.get("format") != FORMAT:
        raise InvalidFile(
            f"{path} is not a recorded round (format {metadata.get('format')!r}, expected {FORMAT!r}); "
            "write it with leakgauge.write_round."
        )
    sections: dict[str, dict[str, Tensor]] = {section: {} for section in _SECTIONS}
    for key, tensor in tensors.items():
        section, _, name = key.partition(".")
        if section not in sections or bool(name) == (section == "labels"):
            raise InvalidFile(f"{path} holds an unknown tensor {key!r}; write it with leakgauge.write_round.")
        sections[section][name] = tensor
    try:
        facts = _check_facts(json.loads(metadata.get("round", "")))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InvalidFile(f"The metadata of {path} is damaged ({error}); write the round again.") from error
    if unpaired := sorted(sections["batch_mean"].keys() ^ sections["batch_variance"].keys()):
        raise InvalidFile(f"{path} lacks the batch mean or variance of {_some(unpaired)}; write the round again.")
    statistics = None
    if sections["batch_mean"]:
        statistics = BatchStatistics(sections["batch_mean"], sections["batch_variance"])
    return RecordedRound(
        state=sections["state"],
        update=sections["update"],
        space=facts["space"],
        num_examples=facts["num_examples"],
        labels=sections["labels"].get(""),
        local_update=facts["local_update"],
        defence=facts["defence"],
        mode=facts["mode"],
        batch_norm=BatchNormKnowledge(facts["batch_norm"], statistics),
    )


def observe(
    recorded: RecordedRound,
    module: nn.Module,
    loss: LossFunction = cross_entropy,
    *,
    local_update: LocalUpdate | None,
) -> UpdateObservation:
    """The recorded round as an attack receives it, after checking that it fits the model."""
    learner, own = learner_and_state(module, loss, mode=recorded.mode)
    held = module.state_dict().keys()
    # A state dict does not hold non-persistent buffers; the model's own stand in.
    given = {name: buffer for name, buffer in own.buffers.items() if name not in held} | dict(recorded.state)
    state = ModelState(_match(given, own.params, what="state"), _match(given, own.buffers, what="state"))
    # Clients that send whole state dicts also send how buffers and second names of tied weights moved; the
    # pseudo-gradient is of parameters only.
    update = _match(recorded.update, own.params, what="update")
    if extra := [name for name in recorded.update if name not in held and name not in own.buffers]:
        raise InvalidUpdate(f"The update holds {_some(extra)}, which the model does not have; check the model factory.")
    for name, tensor in update.items():
        if not bool(torch.isfinite(tensor).all()):
            raise InvalidUpdate(
                f"The update holds NaN or infinite values in {name!r}; record it from a stable training step."
            )
    if not tree.is_finite({**state.params, **state.buffers}):
        raise InvalidUpdate("The recorded weights hold NaN or infinite values; record the round before it diverged.")
    labels, num_examples = recorded.labels, recorded.num_examples
    check_model(learner, state, recorded.space, labels)
    if labels is not None and num_examples is None:
        num_examples = len(labels)
    if num_examples is not None and (num_examples < 1 or (labels is not None and len(labels) != num_examples)):
        raise InvalidUpdate(
            f"The round states {num_examples} examples and {'no' if labels is None else len(labels)} labels; "
            "an update covers at least one example, with one label each."
        )
    return UpdateObservation(
        learner=attackers_learner(learner, recorded.batch_norm.access),
        state=state,
        update=Update(update),
        space=recorded.space,
        local_update=local_update,
        num_examples=num_examples,
        labels=labels,
        batch_norm=recorded.batch_norm,
    )


def _match(given: ParamTree, expected: Mapping[str, Tensor], *, what: str) -> dict[str, Tensor]:
    """The given tensors under the expected names, each of the expected shape and type."""
    if missing := [name for name in expected if name not in given]:
        raise InvalidUpdate(
            f"The {what} lacks {_some(missing)}, which the model has; record every parameter, or check the factory."
        )
    for name, tensor in expected.items():
        if given[name].shape != tensor.shape:
            raise InvalidUpdate(
                f"{name!r} has shape {tuple(given[name].shape)} in the {what} but {tuple(tensor.shape)} in the model; "
                "build the model with the classes and sizes it was trained with."
            )
    return {name: given[name].to(tensor.dtype) for name, tensor in expected.items()}


def _check_facts(facts: dict[str, Any]) -> dict[str, Any]:
    if facts["mode"] not in get_args(Mode):
        raise ValueError(f"mode {facts['mode']!r}")
    count = facts["num_examples"]
    if count is not None and not (type(count) is int and 0 < count <= 1 << 20):
        raise ValueError(f"num_examples {count!r}")
    for name in ("local_update", "defence"):
        if facts[name] is not None and not isinstance(facts[name], str):
            raise ValueError(f"{name} {facts[name]!r}")
    return facts | {"space": space_from_json(facts), "batch_norm": BatchNormAccess(facts["batch_norm"])}


def _some(names: list[str]) -> str:
    return repr(names[0]) + (f" and {len(names) - 1} more" if len(names) > 1 else "")
