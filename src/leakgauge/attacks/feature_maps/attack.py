"""Feature maps read off an update, and the images that have them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from leakgauge import params as tree
from leakgauge.attacks.analytic.affine_parts import RunNetwork
from leakgauge.attacks.analytic.linear_layer import not_applicable
from leakgauge.attacks.base import Answered, LabelAttack, Snapshot, SteppedAttack, Stepper, finite_update
from leakgauge.attacks.budget import Budget, OwnBudget
from leakgauge.attacks.certificates import certify
from leakgauge.attacks.feature_maps.inversion import KnownCotangents, MapLoss
from leakgauge.attacks.feature_maps.overlaps import largest_within
from leakgauge.attacks.feature_maps.peeling import Peeled, candidates, find_seed, peel
from leakgauge.attacks.feature_maps.scaling import Scales, find_scales
from leakgauge.attacks.labels.best import BestLabels
from leakgauge.attacks.matching.engine.layers import Convolution
from leakgauge.attacks.matching.optimisers import LBFGS
from leakgauge.attacks.matching.parametrisations import Pixels
from leakgauge.attacks.matching.search import read_state, same_layout, write_state
from leakgauge.attacks.span.loss import spoilt
from leakgauge.attacks.span.matching import as_gradient
from leakgauge.clocks import Seconds
from leakgauge.errors import InvalidFile, LeakGaugeError, UnsupportedModel
from leakgauge.progress import Tick
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.randomness import seeded
from leakgauge.space import ImageSpace
from leakgauge.types import Outcome, ParamTree, Reconstruction

EXPLAINED = 1e-2
"""What the factor of an image may leave unexplained of the cotangents behind the maps."""

AMPLE = 1.2
"""How many values of one layer that are not zero must be known for each value of an image; with fewer, other images
have the same maps."""

EXACT = 1e-13
"""The squared relative distance from the maps at which an image counts as found."""

PROMISING = 1e-3
"""The mean distance up to which a search is on its way."""

STUCK, NUDGE, NUDGES = 1e-9, 0.02, 20
"""The distance above which an image that moves no more is held by a kink, the size of the noise that moves it on, and
how often it is moved."""


@dataclass(frozen=True)
class FeatureMaps(SteppedAttack, OwnBudget):
    """Read the feature maps of a whole batch off the update, exactly, and find the images that have them.

    The span of overlapping patches holds the maps of a late convolution (`overlaps`), which are told apart as maps
    behind a ReLU are sparse (`separation`); from there earlier layers follow in closed form (`peeling`), and the rest
    of the network tells each image's scale and label (`scaling`). What is left is to find images by the maps of an
    early layer, position by position, which has none of the wrong valleys of gradient or span matching, trained
    networks included. Needs a batch with fewer positions than the late convolution has outputs, BatchNorm in eval mode
    or none, and an update that noise has not spoilt.
    """

    labels: LabelAttack | None = BestLabels()
    budget: Budget = Budget(seconds=60.0)

    def search(self, observations: Sequence[UpdateObservation], *, generator: Generator) -> Stepper:
        try:
            return self.begin(observations, generator=generator)
        except UnsupportedModel as refusal:
            return Answered([not_applicable(str(refusal))] * len(observations))

    def begin(self, observations: Sequence[UpdateObservation], *, generator: Generator) -> MapSearch:
        """The attack at its start; `UnsupportedModel` where it does not apply."""
        started = self.budget.now()
        problems = tuple(self.problem(observation, generator=generator) for observation in observations)
        return MapSearch(self, problems, generator=generator, elapsed=self.budget.now() - started)

    def problem(self, observation: UpdateObservation, *, generator: Generator) -> MapProblem:
        """The maps of one update, with scales and labels."""
        finite_update(observation)
        count = known(observation.num_examples, "num_examples", needed_by=self)
        known(observation.local_update, "local_update", needed_by=self)
        if not isinstance(observation.space, ImageSpace):
            raise UnsupportedModel(f"Feature maps are of images, not of {observation.space.kinds}.")
        seen = as_gradient(observation)
        try:
            return self._problem(observation, seen, count, generator)
        except torch.linalg.LinAlgError as error:  # of an update that is no gradient of anything
            raise UnsupportedModel(f"The update's linear systems cannot be solved: {error}; use `best`.") from error

    def _problem(
        self, observation: UpdateObservation, seen: UpdateObservation, count: int, generator: Generator
    ) -> MapProblem:
        started, seconds = self.budget.now(), self.budget.seconds
        distorted = spoilt(seen)
        update = _double({name: one for name, one in seen.update.params.items() if name not in distorted})
        images = "one image" if count == 1 else f"{count} images"
        largest = largest_within(self.budget.seconds)
        # Asked of one image first: a batch of large ones is run on a probe only where that may help.
        if not any(one.fits(count, largest) for one in candidates(RunNetwork.of(seen), update)):
            raise UnsupportedModel(
                f"No convolution has overlapping patches and as many outputs as {images} have positions there, and is "
                "small enough for this budget; use span matching or `best`."
            )
        whole = RunNetwork.of(seen, count)
        precision = 8 * torch.finfo(observation.state.dtype).eps
        seed = find_seed(whole, update, count, precision=precision, largest=largest, generator=generator)
        if seed is None:
            raise UnsupportedModel(
                f"No convolution's gradient gives the maps of {images} away, as that of an exact update would; use "
                "span matching or `best`."
            )

        def is_late() -> bool:
            return seconds is not None and self.budget.counted(self.budget.now() - started) > seconds

        peeled = peel(whole, update, seed, is_late=is_late)
        known_values = max(int((one != 0).flatten(1).sum(dim=1).min()) for one in peeled.maps.values())
        if known_values < AMPLE * math.prod(observation.space.shape):
            raise UnsupportedModel(
                "The maps that the update gives away say too little of its images; use span matching or `best`."
            )
        tensors = _double({**seen.state.params, **seen.state.buffers})
        scales = find_scales(whole, tensors, update, peeled, seen.learner.loss, self._labels(seen, generator))
        if scales is None or bool((scales.residuals > EXPLAINED).any()):
            raise UnsupportedModel(
                "The maps that the update gives away do not lead to its classifier; use span matching or `best`."
            )
        probe = observation.space.probe(count, observation.state)
        own = {**observation.state.params, **observation.state.buffers}
        factors = scales.factors
        maps = {slot: one * factors.view(-1, *[1] * (one.ndim - 1)) for slot, one in peeled.maps.items()}
        ahead = _known_cotangents(whole, update, peeled, factors)
        return MapProblem(observation, MapLoss.of(whole.network, own, maps, ahead, probe), whole, peeled, scales)

    def _labels(self, observation: UpdateObservation, generator: Generator) -> Tensor:
        if observation.labels is not None:
            return observation.labels
        rule: LabelAttack = known(self.labels, "labels", needed_by=self)
        try:
            return rule.restore(observation, generator=generator)
        except LeakGaugeError as refusal:
            raise UnsupportedModel(str(refusal)) from refusal


@dataclass(frozen=True, eq=False)
class MapProblem:
    """One update: the loss of its images, and how its maps were found."""

    observation: UpdateObservation
    loss: MapLoss
    whole: RunNetwork
    peeled: Peeled
    scales: Scales

    @property
    def facts(self) -> dict[str, str | int | float]:
        steps = self.whole.network.steps
        seen_by = [step.layer.names()[0] for step in steps if step.inputs[0] in self.loss.wanted and step.layer.names()]
        return {
            "maps begin at": steps[self.peeled.seed.step].layer.names()[0].removesuffix(".weight"),
            "maps known back to": seen_by[0].removesuffix(".weight"),
            "layers read": len(self.peeled.maps),
            "gap behind the maps": self.peeled.seed.gap,
            "scales unexplained": float(self.scales.residuals.max()),
        }


class MapSearch(Stepper):
    """Rows are the images of all victims, each with its own quasi-Newton steps; mutable, as a running attack is."""

    name = "feature maps"
    outcome: Outcome | None = None

    def __init__(
        self, attack: FeatureMaps, problems: tuple[MapProblem, ...], *, generator: Generator, elapsed: Seconds
    ) -> None:
        self.attack, self.problems, self.elapsed = attack, problems, elapsed
        self.notes: dict[str, str | int | float] = {}
        first = problems[0].observation
        self.budget = attack.budget.on(first.state.device)
        self.count = len(problems[0].scales.labels)
        pixels = Pixels().bind(first, self.count)
        start = pixels.start(len(problems), self.count, first.space.shape, generator=generator)
        start = start.flatten(0, 1).to(first.state.device, first.state.dtype)
        self.state: Any = LBFGS().start(start, pixels.box)
        self.best, self.lowest = start.clone(), start.new_full((len(start),), float("inf"))
        self.seed = int(torch.randint(1 << 62, (), generator=generator))
        self.nudges = 0
        self.trace: list[Tensor] = []

    @property
    def steps(self) -> int:
        return len(self.trace)

    @property
    def spent(self) -> float:
        return self.budget.spent(len(self.trace), self.elapsed)

    @property
    def promising(self) -> bool:
        """Whether the images are near enough to their maps to go on."""
        return bool(self.lowest.mean() < PROMISING)

    def step(self) -> Tick:
        """Evaluate all images and move on."""
        started = self.budget.now()
        parts = self.state.candidate.split(self.count)
        found = [problem.loss.at(part) for problem, part in zip(self.problems, parts, strict=True)]
        values, gradient = (torch.cat([pair[side] for pair in found]) for side in (0, 1))
        lower = values < self.lowest
        self.best[lower], self.lowest[lower] = self.state.candidate[lower], values[lower]
        self.trace.append(values)
        self.state = LBFGS().advance(self.state, values, gradient.nan_to_num(0.0, 0.0, 0.0), self.spent)
        stuck = self.state.converged & (self.lowest > STUCK)
        if bool(stuck.any()) and bool((self.state.converged | (self.lowest < EXACT)).all()) and self.nudges < NUDGES:
            self._nudge(stuck)
        self.elapsed += self.budget.now() - started
        self.outcome = self._outcome()
        return Tick(len(self.trace), 1.0 if self.outcome else self.spent, float(self.lowest.mean()))

    def _nudge(self, stuck: Tensor) -> None:
        """Move images that a kink holds a little, and go on from there."""
        self.nudges += 1
        noise = torch.randn(self.best.shape, generator=seeded(self.seed, "nudge", self.nudges)).to(self.best)
        moved = (self.best + NUDGE * noise).clamp(0, 1)
        start = torch.where(stuck.view(-1, *[1] * (moved.ndim - 1)), moved, self.best)
        self.state = LBFGS().start(start, self.state.box)

    def _outcome(self) -> Outcome | None:
        if bool((self.state.converged | (self.lowest < EXACT)).all()):
            return Outcome.CONVERGED
        if self.budget.is_overdue(len(self.trace), self.elapsed):
            return Outcome.OVERDUE
        return Outcome.STEPS_EXHAUSTED if self.spent >= 1 else None

    def results(self) -> list[Reconstruction]:
        traces = torch.stack(self.trace).view(len(self.trace), len(self.problems), -1).mean(dim=2)
        parts = zip(self.problems, self.best.split(self.count), self.lowest.split(self.count), strict=True)
        return [self._result(*part, traces[:, row]) for row, part in enumerate(parts)]

    def _result(self, problem: MapProblem, images: Tensor, lowest: Tensor, trace: Tensor) -> Reconstruction:
        space = problem.observation.space
        facts = {
            "steps": len(self.trace),
            **problem.facts,
            "distance from the maps": float(lowest.mean()),
            "distance of each image": ", ".join(f"{float(one):.1e}" for one in lowest),
            **self.notes,
        }
        found = Reconstruction(
            space.decode(space.relax(images)),
            problem.scales.labels,
            self.outcome or Outcome.STEPS_EXHAUSTED,
            trace,
            facts,
        )
        argument = (
            f"the patches that {facts['maps begin at']} saw span the update of its weight, only {self.count} maps "
            "agree with that span wherever patches overlap, and these images have them"
        )
        return certify(problem.observation, found, argument)

    # Interruption and resumption

    def snapshot(self) -> Snapshot:
        kept = {
            "best": self.best,
            "lowest": self.lowest,
            "trace": torch.stack(self.trace) if self.trace else self.lowest.new_zeros(0, len(self.lowest)),
            "elapsed": torch.tensor(astuple(self.elapsed), dtype=torch.float64),
            "seed": torch.tensor(self.seed),
            "nudges": torch.tensor(self.nudges),
        }
        return tree.map_tensors(torch.clone, kept | write_state(self.state, "state."))

    def restore(self, snapshot: Snapshot) -> None:
        if not same_layout(snapshot, self.snapshot(), growing="trace") or int(snapshot["seed"]) != self.seed:
            raise InvalidFile(
                "The snapshot belongs to another attack, or to one of another size; delete it and start again."
            )
        self.state = read_state(self.state, snapshot, "state.")
        self.best, self.lowest = (snapshot[name].to(self.best).clone() for name in ("best", "lowest"))
        self.trace = list(snapshot["trace"].to(self.best.device))
        self.elapsed = Seconds(*snapshot["elapsed"].tolist())
        self.nudges = int(snapshot["nudges"])
        self.outcome = self._outcome() if self.trace else None


def _known_cotangents(
    whole: RunNetwork, update: ParamTree, peeled: Peeled, factors: Tensor
) -> tuple[KnownCotangents, ...]:
    """The convolutions before all maps that are known, of whose outputs the cotangents are."""
    first = min(peeled.maps)
    found = []
    for step in whole.network.steps:
        if isinstance(step.layer, Convolution) and step.layer.weight in update and step.inputs[0] < first:
            cotangents = peeled.cotangents.get(step.output)
            if cotangents is not None and step.layer.weight not in whole.network.shared:
                scaled = cotangents / factors.view(-1, *[1] * (cotangents.ndim - 1))
                found.append(KnownCotangents(step.inputs[0], step.layer, scaled, update[step.layer.weight]))
    return tuple(found)


def _double(tensors: ParamTree) -> ParamTree:
    return {name: one.double() if one.is_floating_point() else one for name, one in tensors.items()}
