"""A classifier that silences all examples of a batch but those of one class."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

import torch
from torch import Generator, Tensor, nn

from leakgauge.attacks.analytic.linear_layer import not_applicable
from leakgauge.attacks.base import Attack
from leakgauge.attacks.budget import Around
from leakgauge.attacks.malicious.base import Facts, MaliciousAttack, head_tensors, replace_tensors
from leakgauge.attacks.recipes.best import best
from leakgauge.errors import InvalidCase, UnsupportedModel
from leakgauge.progress import Progress
from leakgauge.protocol.clients import gain
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.local_update import FedSGD
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.space import InputSpace
from leakgauge.types import ModelState, Reconstruction

SILENT = -1e3
"""A bias so low that the class has probability 0 in every precision."""


class Catch(NamedTuple):
    """The update of some examples of the class alone, as if they were the whole batch of a client."""

    observation: UpdateObservation
    examples: int


class Fishing(MaliciousAttack, Around):
    """A server that lets few examples of a batch through, and an ordinary attack on what they give away.

    Let all classes but the ``target`` c have the weight 0 in the classifier. What flows back into the model from an
    example is then (p_c - [y = c]) W_c, and nothing from an example of another class where p_c = 0 [Wen et al., 2022].
    The update below the classifier is that of the few alone, and so is row c of the classifier, from which its other
    rows follow: the ``attack`` meets the update of a batch that holds nothing else.
    """

    attack: Attack
    target: int

    @abstractmethod
    def head(
        self, learner: Learner, state: ModelState, space: InputSpace, weight: Tensor, public: Tensor | None
    ) -> tuple[Tensor, float]:
        """The target's row of the classifier, and its bias."""

    @abstractmethod
    def rate(self, num_classes: int) -> float:
        """The chance of an example to be let through."""

    def expected_recovery(self, num_examples: int, num_classes: int) -> float:
        """The chance that of n examples one is let through alone: n q (1 - q)^(n-1)."""
        rate = self.rate(num_classes)
        return num_examples * rate * (1 - rate) ** (num_examples - 1)

    def rebuild(
        self, learner: Learner, state: ModelState, space: InputSpace, public: Tensor | None
    ) -> tuple[nn.Module, ModelState]:
        head, tensors = head_tensors(learner, state, space)
        weight, bias = f"{head}.weight", f"{head}.bias"
        if not {weight, bias} <= state.params.keys():
            raise UnsupportedModel(f"The classifier {head!r} has no trainable bias to silence; use another attack.")
        if not 0 <= self.target < len(tensors[bias]):
            raise InvalidCase(
                f"{type(self).__name__} fishes for the class {self.target}, but the model has {len(tensors[bias])}; "
                "name one of them."
            )
        row, level = self.head(learner, state, space, tensors[weight][self.target], public)
        weights, biases = torch.zeros_like(tensors[weight]), torch.zeros_like(tensors[bias])
        weights[self.target], biases[self.target] = row, level
        return learner.module, replace_tensors(state, {weight: weights, bias: biases})

    def read(self, observation: UpdateObservation, *, generator: Generator, progress: Progress) -> Reconstruction:
        num_examples = known(observation.num_examples, "num_examples", needed_by=self)
        caught = self.catch(observation)
        if isinstance(caught, str):
            return not_applicable(caught)
        classes = observation.learner.num_classes(observation.state, observation.probe)
        facts: Facts = {
            "examples let through": caught.examples,
            "chance of one alone": round(self.expected_recovery(num_examples, classes), 3),
        }
        found = self.attack(caught.observation, generator=generator, progress=progress)
        return replace(found, facts={**facts, **found.facts})

    def catch(self, observation: UpdateObservation) -> Catch | str:
        """The update of the examples that were let through, or why there is none."""
        num_examples = known(observation.num_examples, "num_examples", needed_by=self)
        scale = gain(known(observation.local_update, "local_update", needed_by=self), num_examples)
        if not scale:
            return "the client's optimiser sends no multiple of a gradient"
        head, tensors = head_tensors(observation.learner, observation.state, observation.space)
        update = {name: tensor / scale for name, tensor in observation.update.params.items()}
        row, slope = update[f"{head}.weight"][self.target], update[f"{head}.bias"]
        through = -float(slope[self.target]) * num_examples
        count = round(through)
        if (reason := self.refuses(slope, count, through)) is not None:
            return reason
        # What they alone would have sent: probability 1/(k - 1) for every other class, none for their own.
        share = -1 / (len(slope) - 1)
        factors = torch.full_like(slope, share).index_fill(0, torch.tensor(self.target, device=slope.device), 1.0)
        size = num_examples / through
        update = {name: size * tensor for name, tensor in update.items()}
        update |= {f"{head}.weight": size * factors[:, None] * row, f"{head}.bias": -factors}
        quiet = tensors[f"{head}.bias"].clone()
        quiet[self.target] = SILENT
        alone = replace(
            observation,
            state=replace_tensors(observation.state, {f"{head}.bias": quiet}),
            update=replace(observation.update, params=update),
            local_update=FedSGD(),
            num_examples=count,
            labels=torch.full((count,), self.target, device=slope.device),
        )
        return Catch(alone, count)

    def refuses(self, slope: Tensor, count: int, through: float) -> str | None:
        """Why what was let through is not to be told, if so."""
        del slope, through
        return None if count > 0 else f"no example of the class {self.target} is in the batch"


@dataclass(frozen=True)
class ClassFishing(Fishing):
    """Fishing for the examples of one class: its bias is so low that it has no chance [Wen et al., 2022].

    A large batch becomes the examples of the class; where it holds one, the update is that of one example.
    """

    attack: Attack = field(default_factory=best)
    target: int = 0
    server: ClassVar[str] = "sets the classifier so that the examples of one class alone train the model"

    def head(
        self, learner: Learner, state: ModelState, space: InputSpace, weight: Tensor, public: Tensor | None
    ) -> tuple[Tensor, float]:
        del learner, state, space, public
        return weight, SILENT

    def rate(self, num_classes: int) -> float:
        return 1 / num_classes
