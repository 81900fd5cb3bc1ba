"""One image through any number of fully connected layers, and the input of each of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from leakgauge.attacks.analytic.linear_layer import (
    NO_GRADIENTS,
    facing_layers,
    not_applicable,
    one_gradient,
    recover_input,
    restored_labels,
    without_decay,
)
from leakgauge.attacks.analytic.structure import Link, Site, links, preimage, sites, slope
from leakgauge.attacks.base import Attack, LabelAttack, finite_update
from leakgauge.attacks.certificates import certify
from leakgauge.attacks.labels.idlg import IDLG
from leakgauge.errors import InvalidCase, UnsupportedModel
from leakgauge.progress import Progress, silent
from leakgauge.protocol.clients import sums_gradients
from leakgauge.protocol.learner import LossFunction
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.types import Outcome, Reconstruction

# The direction of the update that the found input explains; larger means noise, or soft labels.
_TOLERANCE = 1e-2


class SoftmaxExample(NamedTuple):
    """What the update of a softmax classifier gives away about one example."""

    input: Tensor
    delta: Tensor
    """The update's derivative in the logits, a positive multiple of p - e_label."""


def solve_softmax_head(weight: Tensor, bias: Tensor | None, weight_update: Tensor) -> SoftmaxExample | None:
    """The input x of z = W x + b under cross-entropy, from dW alone, however dW is scaled.

    dW = s (p - e_k) x^T has rank one: with u the unit vector along its rows and x = c u, dW u = c s (p - e_k), of which
    only entry k is negative. All others are c s p_i, so log (dW u)_i - b_i = c (W u)_i + constant: c is the slope of a
    line through at least two classes besides k. None with fewer, or where the line does not explain the update.
    """
    u, scores = _orient(weight_update)
    label = int(scores.argmin())
    shift = torch.zeros_like(scores) if bias is None else bias
    others = scores > 0
    along, logs = (weight @ u)[others], scores[others].log() - shift[others]
    # How far a row strays from u is its relative error, the error of its logarithm: large for what rounding swallowed.
    stray = (weight_update - scores[:, None] * u).norm(dim=1)[others] / scores[others]
    share = 1 / (stray.square() + torch.finfo(stray.dtype).eps ** 2)
    share = share / share.sum()
    along_centred, logs_centred = along - (share * along).sum(), logs - (share * logs).sum()
    spread = (share * along_centred.square()).sum()
    if len(along) < 2 or spread <= torch.finfo(spread.dtype).eps * along.square().max():
        return None
    length = (share * along_centred * logs_centred).sum() / spread
    if not length > 0:
        return None
    # Without the label: its p_k - 1 cancels where the network is right and sure, and follows from the others anyway.
    rest = torch.arange(len(scores), device=scores.device) != label
    explained = (weight @ u * length + shift)[rest].softmax(dim=0)
    if (explained / explained.norm() - scores[rest] / scores[rest].norm()).norm() > _TOLERANCE:
        return None
    return SoftmaxExample(length * u, scores / length)


def softmax_label(weight_update: Tensor) -> Tensor | None:
    """The label of one example by the update of a softmax classifier; None for two classes, which mirror each other."""
    _, scores = _orient(weight_update)
    return scores.argmin()[None] if int((scores != 0).sum()) > 2 else None


def _orient(weight_update: Tensor) -> tuple[Tensor, Tensor]:
    """The unit vector u along the rows of a matrix of rank one, and dW u, with the label's entry negative.

    That entry has a sign of its own; where noise has blurred the signs, it is still the largest, as 1 - p_k is the sum
    of the other p_i.
    """
    u = weight_update[weight_update.norm(dim=1).argmax()]
    u = u / u.norm().clamp_min(torch.finfo(u.dtype).tiny)
    scores = weight_update @ u
    up, down = int((scores > 0).sum()), int((scores < 0).sum())
    flip = scores[scores.abs().argmax()] > 0 if (up == 1) == (down == 1) else up == 1
    return (-u, -scores) if flip else (u, scores)


def is_softmax_loss(loss: LossFunction, classes: int, device: torch.device) -> bool:
    """Whether the derivative in the logits points along p - e_label, as for cross-entropy; checked on a few logits."""
    for index in range(3):
        label = (index * 2) % classes
        logits = (torch.arange(classes, device=device).double() * (1.3 + index)).sin()[None].requires_grad_()
        try:
            with torch.enable_grad():
                (derivative,) = torch.autograd.grad(loss(logits, torch.tensor([label], device=device)), logits)
        except Exception:  # a loss of other labels, or of other scores
            return False
        expected = logits.detach().softmax(dim=1)
        expected[0, label] -= 1
        if not torch.allclose(derivative / derivative.norm(), expected / expected.norm(), atol=1e-6):
            return False
    return True


@dataclass(frozen=True)
class FullyConnected(Attack):
    """One private image, exactly, when a linear layer with or without bias sees the image itself.

    [Geiping et al., 2020, Prop. 3.1, D.1, D.2] A layer with bias gives its input away by itself, x = dW_i / db_i; one
    without is reached from the layer behind it, through any elementwise activation. Beyond the paper, a classifier
    without bias gives its input away by the shape of the softmax, so that a network without a single bias is exact
    too. ``facts`` tell the route and how far the layers disagree.
    """

    labels: LabelAttack | None = IDLG()

    def __call__(
        self, observation: UpdateObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction:
        del progress
        observation = without_decay(observation)
        finite_update(observation)
        if not sums_gradients(observation.local_update):
            return not_applicable(NO_GRADIENTS)
        num_examples = known(observation.num_examples, "num_examples", needed_by=self)
        facing = sorted(facing_layers(observation), key=lambda layer: not layer.biased)
        if not facing:
            return not_applicable(f"no trained linear layer receives the {observation.space.kind} itself")
        if num_examples != 1:
            return not_applicable(f"the update mixes several {observation.space.kinds}")
        layer, network = facing[0], _network(observation, needed_by=self)
        try:
            reading = network.read(layer.name)
        except Undetermined as reason:
            return not_applicable(str(reason))
        images = layer.model_input(reading.input, observation).to(observation.state.dtype)
        facts: dict[str, str | float] = {"layer": layer.name, "route": reading.route}
        if reading.disagreement is not None:
            facts["disagreement"] = reading.disagreement
        found = Reconstruction(images, self._labels(network, generator), Outcome.SOLVED, facts=facts)
        return certify(observation, found, f"{reading.route} gives a single input")

    def _labels(self, network: DenseLayers, generator: Generator) -> Tensor | None:
        if network.observation.labels is not None or self.labels is None:
            return network.observation.labels
        # The sign rule needs a bias or features of one sign; the softmax does not.
        if (by_softmax := network.label()) is not None:
            return by_softmax
        return restored_labels(network.observation, self.labels, generator=generator)


class Reading(NamedTuple):
    """What the update tells about one layer y = W x + b, in float64."""

    input: Tensor
    route: str
    delta: Tensor | None = None
    """The derivative in y, times whatever scaled the update; None where only the input is known."""
    disagreement: float | None = None
    """Largest relative difference, over the layers passed, between a layer's input and what the one before it gives."""


class Undetermined(Exception):
    """Why an update does not determine what a layer was given."""


def read_layers(observation: UpdateObservation) -> tuple[dict[str, Reading], dict[str, str]]:
    """What is known of the fully connected layers, in order of execution, and why nothing is known of the others."""
    finite_update(observation)
    network = _network(observation, needed_by=None)
    if (count := known(observation.num_examples, "num_examples", needed_by=network)) != 1:
        raise InvalidCase(f"The update mixes {count} images; the input of a layer can be read for one image only.")
    readings: dict[str, Reading] = {}
    reasons: dict[str, str] = {}
    for name in network.sites:
        try:
            readings[name] = network.read(name)
        except Undetermined as reason:
            reasons[name] = str(reason)
    for name, link in network.links.items():  # in order of execution, so that one layer hands on to the next
        if name in readings and link.to in reasons and network.is_deterministic(link):
            readings[link.to] = Reading(network.forward(name, readings[name].input), f"forward from {name}")
            del reasons[link.to]
    return {name: readings[name] for name in network.sites if name in readings}, reasons


def _network(observation: UpdateObservation, *, needed_by: object) -> DenseLayers:
    learner, state = observation.learner, observation.state
    return DenseLayers(observation, sites(learner, state, observation.probe), links(learner, state), needed_by)


@dataclass(frozen=True)
class DenseLayers:
    """The fully connected layers behind one update of one image, and how they follow each other."""

    observation: UpdateObservation
    sites: Mapping[str, Site]
    links: Mapping[str, Link]
    needed_by: object

    def read(self, name: str) -> Reading:
        """The input of a layer, from its own update or from the layers behind it."""
        if name not in self.sites:
            raise Undetermined(f"{name} runs twice, shares its weights or sees several rows per image")
        dW, db = self._update(f"{name}.weight"), self._update(f"{name}.bias")
        if dW is None:
            raise Undetermined(f"the weights of {name} are not trained")
        if not bool((dW if db is None else db).any()):
            raise Undetermined(f"the update of {name} is zero")
        if db is None or self.sites[name].moves:
            self._require_one_gradient(name)
        if db is not None:
            return self._by_bias(name, dW, db)
        if name in self.links:
            return self._from_behind(name, dW, self.links[name])
        return self._by_softmax(name, dW)

    def label(self) -> Tensor | None:
        """The label by a softmax classifier without bias; None where that is not what the network ends in."""
        head = self._head()
        dW = None if head is None else self._update(f"{head}.weight")
        if dW is None or self._update(f"{head}.bias") is not None or not one_gradient(self.observation.local_update):
            return None
        return softmax_label(dW) if self._loss_is_softmax(len(dW)) else None

    def forward(self, name: str, features: Tensor) -> Tensor:
        """What the layer behind ``name`` receives when ``name`` receives ``features``."""
        weight, bias = self._sent(f"{name}.weight"), self._sent(f"{name}.bias")
        assert weight is not None
        outputs = weight @ features if bias is None else weight @ features + bias
        with torch.no_grad():
            return self.links[name].activation(outputs[None])[0]

    def is_deterministic(self, link: Link) -> bool:
        return not (link.dropout and self.observation.learner.mode == "train")

    def _by_bias(self, name: str, dW: Tensor, db: Tensor) -> Reading:
        """Prop. D.1: db = d and dW = d x^T."""
        features = recover_input(dW, db)
        assert features is not None  # db is not zero
        return Reading(features, f"{name} by its bias", db)

    def _from_behind(self, name: str, dW: Tensor, link: Link) -> Reading:
        """Prop. D.2 for any elementwise activation f: d = f'(y) * (V^T e), with V and e those of the layer behind.

        That layer's input is f(y), so y, and with it f'(y), is known wherever f has one preimage; for ReLU that is
        where it is active.
        """
        if not self.is_deterministic(link):
            raise Undetermined(f"dropout between {name} and {link.to} is active and its mask is secret")
        behind = self.read(link.to)
        V = self._sent(f"{link.to}.weight")
        assert V is not None
        assert behind.delta is not None
        y = preimage(link.activation, behind.input)
        d = torch.where(y.isnan(), 0.0, slope(link.activation, y.nan_to_num()) * (V.T @ behind.delta))
        features = recover_input(dW, d)
        if features is None:
            raise Undetermined(f"no unit of {name} has a known derivative other than zero")
        # With x known, d = dW x / |x|^2 holds for every unit, not only those with one preimage.
        delta = dW @ features / features.square().sum().clamp_min(torch.finfo(features.dtype).tiny)
        size = behind.input.norm().clamp_min(torch.finfo(features.dtype).tiny)
        gap = float((self.forward(name, features) - behind.input).norm() / size)
        route = f"{behind.route}, then back to {name}"
        return Reading(features, route, delta, max(gap, behind.disagreement or 0.0))

    def _by_softmax(self, name: str, dW: Tensor) -> Reading:
        if self._head() != name:
            raise Undetermined(f"{name} has no bias, and what follows it is not elementwise up to another linear layer")
        if not self._loss_is_softmax(len(dW)):
            raise Undetermined(f"{name} has no bias, and the loss is not the cross-entropy of a softmax")
        W = self._sent(f"{name}.weight")
        assert W is not None
        head = solve_softmax_head(W, self._sent(f"{name}.bias"), dW)
        if head is None:
            raise Undetermined(
                f"{name} has no bias, and its update is not that of a softmax over three or more classes and one label"
            )
        return Reading(head.input, f"{name} by its softmax", head.delta)

    def _head(self) -> str | None:
        try:
            return self.observation.learner.classifier(self.observation.state, self.observation.probe)
        except UnsupportedModel:
            return None

    def _loss_is_softmax(self, classes: int) -> bool:
        return is_softmax_loss(self.observation.learner.loss, classes, self.observation.state.device)

    def _require_one_gradient(self, name: str) -> None:
        local_update = known(self.observation.local_update, "local_update", needed_by=self.needed_by or self)
        if not one_gradient(local_update):
            raise Undetermined(f"{name} can be read from a single gradient step only, which {local_update!r} is not")

    def _update(self, name: str) -> Tensor | None:
        value = self.observation.update.params.get(name)
        return None if value is None else value.double()

    def _sent(self, name: str) -> Tensor | None:
        state = self.observation.state
        value = state.params.get(name, state.buffers.get(name))
        return None if value is None else value.double()
