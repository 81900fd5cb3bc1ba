"""A round on disk: what the server sent, what it received, and what it knows, as one safetensors file."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from torch import Tensor, nn

from leakgauge import params as tree
from leakgauge.errors import InvalidFile, InvalidUpdate
from leakgauge.factories import names_code
from leakgauge.files import read_tensors, write_tensors
from leakgauge.protocol.client_parts import Sharing
from leakgauge.protocol.clients import local_steps, transforms
from leakgauge.protocol.learner import Learner, Mode, learner_and_state
from leakgauge.protocol.local_update import LocalUpdate
from leakgauge.protocol.losses import BinaryCrossEntropy, CrossEntropy, LossFunction
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.protocol.round import attackers_learner
from leakgauge.protocol.running_statistics import batch_statistics, batches_seen, statistics_moved
from leakgauge.protocol.state_dicts import as_tensors, check_update, difference, match, rename, some, still
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
    ``"fedavg:epochs=1,batch_size=8,learning_rate=0.1"``; None = not known. ``mode`` is the client's; ``loss`` what it
    minimises, such as ``"bce"``, None = what suits the model's scores; ``normalise`` is what it does to its images in
    the data loader, such as ``"imagenet"``, None = nothing.
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
    loss: str | None = None
    normalise: str | None = None

    def __post_init__(self) -> None:
        # The shape of an image, (channels, height, width), says as much as its space does.
        object.__setattr__(self, "space", as_space(self.space))

    @classmethod
    def between(
        cls, before: Mapping[str, Any], after: Mapping[str, Any], space: InputSpace | Shape, **known: Any
    ) -> RecordedRound:
        """From a client's weights before and after its local training; the update is before minus after.

        The weights are tensors or numpy arrays by their names. ``after`` may hold a part of them, such as adapters.
        Where BatchNorm's running statistics moved the client was in train mode, unless said otherwise.
        """
        before, after = as_tensors(before), as_tensors(after)
        moved = difference(before, after)
        if statistics_moved(moved):
            known = {"mode": "train"} | known
        if known.get("mode") == "train":
            known = {"batch_norm": BatchNormKnowledge(BatchNormAccess.INFERRED)} | known
        return cls(before, moved, as_space(space), **known)

    def over(self, base: Mapping[str, Any]) -> RecordedRound:
        """The same round where these weights lie below those that were sent, as under adapters."""
        return replace(self, state={**as_tensors(base), **self.state})

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
        "loss": recorded.loss,
        "normalise": recorded.normalise,
    }
    write_tensors(path, tensors, {"format": FORMAT, "round": json.dumps(facts)})


def read_round(path: Path, *, trust: bool = False) -> RecordedRound:
    """Read a recorded round; a file that is not one is refused with the reason.

    A loss of somebody's own is code that would be imported: only a file that one trusts may name it.
    """
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
    if not trust and facts["loss"] is not None and names_code(facts["loss"]):
        raise InvalidFile(
            f"{path} names code to run, the loss {facts['loss']!r}, which a file from somebody else must not; say it "
            "yourself with --loss or, where you know the file, add --trust."
        )
    if unpaired := sorted(sections["batch_mean"].keys() ^ sections["batch_variance"].keys()):
        raise InvalidFile(f"{path} lacks the batch mean or variance of {some(unpaired)}; write the round again.")
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
        loss=facts["loss"],
        normalise=facts["normalise"],
    )


def observe(
    recorded: RecordedRound,
    module: nn.Module,
    loss: LossFunction | None = None,
    *,
    local_update: LocalUpdate | None,
) -> UpdateObservation:
    """The recorded round as an attack receives it, after checking that it fits the model.

    Without a ``loss`` it is cross-entropy, or its binary form for a model of one score.
    """
    learner, own = learner_and_state(module, loss or CrossEntropy(), mode=recorded.mode)
    held = module.state_dict().keys()
    names = {*held, *own.buffers}
    moved = rename(recorded.update, names)
    # A state dict does not hold non-persistent buffers; the model's own stand in.
    given = {name: buffer for name, buffer in own.buffers.items() if name not in held} | rename(recorded.state, names)
    state = ModelState(match(given, own.params, what="state"), match(given, own.buffers, what="state"))
    # Clients that send whole state dicts also send how buffers and second names of tied weights moved; the
    # pseudo-gradient is of parameters only.
    kept = [name for name in own.params if name not in moved]
    if len(kept) == len(own.params):
        kept = []  # which is refused
    update: ParamTree = match(moved, {name: p for name, p in own.params.items() if name not in kept}, what="update")
    if extra := [name for name in moved if name not in names]:
        raise InvalidUpdate(f"The update holds {some(extra)}, which the model does not have; check the model factory.")
    check_update(update)
    idle = {name for name in kept if not _stays_home(name, local_update)}
    if recorded.defence in (None, "none"):
        idle |= {*still(update)}  # which no defence set to zero
    # What was not trained has no part in the update, and its weights are known.
    state, update = _freeze(state, idle), {name: update[name] for name in update if name not in idle}
    if not tree.is_finite({**state.params, **state.buffers}):
        raise InvalidUpdate("The recorded weights hold NaN or infinite values; record the round before it diverged.")
    if recorded.mode == "eval" and statistics_moved({name: moved[name] for name in moved if name not in own.params}):
        raise InvalidUpdate(
            "The running statistics of BatchNorm moved, which they do in train mode only, but the round says that the "
            "client was in eval mode; record it with mode='train'."
        )
    if check_model(learner, state, recorded.space, None) == 1 and loss is None:
        learner = replace(learner, loss=BinaryCrossEntropy())
    check_model(learner, state, recorded.space, recorded.labels)
    num_examples = _examples(recorded)
    knowledge = _batch_norm_knowledge(recorded, learner, state, moved, num_examples, local_update)
    return UpdateObservation(
        learner=attackers_learner(learner, knowledge.access),
        state=state,
        update=Update(update),
        space=recorded.space,
        local_update=local_update,
        num_examples=num_examples,
        labels=recorded.labels,
        batch_norm=knowledge,
    )


def not_shared(recorded: RecordedRound, module: nn.Module) -> tuple[str, ...]:
    """What the model would train and the update lacks: an adapter or a head may be all that was sent."""
    trained = [name for name, param in module.named_parameters() if param.requires_grad]
    sent = rename(recorded.update, {*module.state_dict(), *trained})
    return tuple(name for name in trained if name not in sent)


def _stays_home(name: str, client: LocalUpdate | None) -> bool:
    """Whether a tensor is said to be trained and not sent; of what nothing is said, it was not trained."""
    return any(isinstance(part, Sharing) and not part.shares(name) for part in transforms(client))


def _freeze(state: ModelState, names: Collection[str]) -> ModelState:
    """The weights of these names as known ones that nobody trains."""
    kept = {name: tensor for name, tensor in state.params.items() if name not in names}
    frozen = {name: tensor for name, tensor in state.params.items() if name in names}
    return ModelState(kept, {**frozen, **state.buffers})


def _examples(recorded: RecordedRound) -> int | None:
    labels, num_examples = recorded.labels, recorded.num_examples
    if labels is not None and num_examples is None:
        num_examples = len(labels)
    if num_examples is not None and (num_examples < 1 or (labels is not None and len(labels) != num_examples)):
        raise InvalidUpdate(
            f"The round states {num_examples} examples and {'no' if labels is None else len(labels)} labels; "
            "an update covers at least one example, with one label each."
        )
    return num_examples


def _batch_norm_knowledge(
    recorded: RecordedRound,
    learner: Learner,
    state: ModelState,
    moved: ParamTree,
    num_examples: int | None,
    local_update: LocalUpdate | None,
) -> BatchNormKnowledge:
    """As recorded, and where the running statistics of a single local step were sent along, what these disclose."""
    known = recorded.batch_norm
    if learner.mode == "eval" or num_examples is None or known.statistics is not None:
        return known
    steps = batches_seen(moved) or local_steps(local_update, num_examples)
    if steps != 1:
        return known
    probe = recorded.space.probe(2, state)
    found = batch_statistics(learner, state, moved, num_examples=num_examples, probe=probe)
    return known if found is None else BatchNormKnowledge(BatchNormAccess.EXACT, found)


def _check_facts(facts: dict[str, Any]) -> dict[str, Any]:
    if facts["mode"] not in get_args(Mode):
        raise ValueError(f"mode {facts['mode']!r}")
    count = facts["num_examples"]
    if count is not None and not (type(count) is int and 0 < count <= 1 << 20):
        raise ValueError(f"num_examples {count!r}")
    facts = {"loss": None, "normalise": None} | facts  # which earlier files do not say
    for name in ("local_update", "defence", "loss", "normalise"):
        if facts[name] is not None and not isinstance(facts[name], str):
            raise ValueError(f"{name} {facts[name]!r}")
    return facts | {"space": space_from_json(facts), "batch_norm": BatchNormAccess(facts["batch_norm"])}
