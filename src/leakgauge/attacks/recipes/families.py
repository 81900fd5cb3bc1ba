"""Gradient matching for each family of models: what a model's layers are decides on the recipe.

Constants were chosen on CIFAR-10 test images below 100 and `benchmarks/architectures.py`: against one angle over all
tensors, angles by tensor took one image through a ConvNeXt from 18 to 30 dB, an MLP-Mixer from 12 to 28, a U-Net
encoder from 10 to 16 and a DenseNet from 9 to 14 in six to eight CPU seconds; through a ViT the rows of its position
embedding took it from 8 to 30. Where the head reads its features place by place they did harm: through a ConvNet they
took it from 16 to 8, through a smooth LeNet from 28 to 20, hence `hides_places`. There one image has a
second prior that follows the matching loss (`Yielding`): through a ConvNet of width 16 trained to 55 % it took three
from 11.7 to 17.5 dB in 20 CPU seconds; untrained it took two from 21.1 to 21.9 dB in 60, in the place of the first to
20.9, and one whose share stays (`Balanced`) took three from 17.0 to 13.9 in 20. With shortcuts it wants one angle and a
third of the rate: through a ResNet-20 trained to 91 % that took one image from 10.1 to 17.4 dB in 60 seconds and left
another at its null, through an untrained one two from 14.8 to 15.9, and through four residual nets of
`benchmarks/architectures.py` eight from 12.7 to 14.1 in ten; all with a weak prior of 5e-4, where 1e-4 was kept.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Literal

import torch
from torch.nn import functional

from leakgauge.attacks.budget import Budget
from leakgauge.attacks.matching.attack import GradientMatching
from leakgauge.attacks.matching.differentiation import Automatic, FrozenDifference
from leakgauge.attacks.matching.engine import Network, trace
from leakgauge.attacks.matching.engine.layers import Added
from leakgauge.attacks.matching.engine.layers.operations import Parameter
from leakgauge.attacks.matching.engine.layers.products import Combined
from leakgauge.attacks.matching.objectives import Cosine, CosineByTensor, Objective
from leakgauge.attacks.matching.optimisers import LBFGS, Adam, CosineDecay, SignedAdam
from leakgauge.attacks.matching.parametrisations import Pixels
from leakgauge.attacks.matching.priors import Balanced, Fading, TotalVariation, Yielding
from leakgauge.attacks.recipes.second_order import quasi_newton
from leakgauge.attacks.recipes.zhang2023 import tuned_ci_net
from leakgauge.errors import UnsupportedModel
from leakgauge.protocol import clients
from leakgauge.protocol.client_parts import Transport
from leakgauge.protocol.local_update import LocalUpdate, Transformed
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.randomness import seeded
from leakgauge.space import ImageSpace
from leakgauge.types import Batch, ModelState

Family = Literal["auto", "smooth", "transformer", "switching", "residual", "generator"]
"""What decides on the recipe: that of the model, or a generator whatever the model is."""

LARGE_BATCH = 4
"""Images from which the prior of a model with kinks is weighed against the matching loss."""

ROW_STARTS = 8
"""Starts on rows of a table: there is no prior for them, searches are short, and some end in the wrong valley."""

HUGE_BATCH = 32
"""Images from which the weights of an untrained generator are searched instead of pixels."""


def family_of(observation: UpdateObservation) -> Family:
    """Smooth when the engine knows every layer and none of them switches; what it does not know may.

    A switch that no trained parameter moves, as in a frozen backbone, has no slope in any gradient: what it lets
    through is continuous in the image, and so is the update.
    """
    network = _network(observation)
    if network is None:
        return "switching"
    layers = [network.steps[index].layer for index in network.moved]
    if not any(layer.switches for layer in layers):
        return "transformer" if position_tables(network, observation.state) else "smooth"
    return "residual" if any(isinstance(layer, Added) for layer in layers) else "switching"


def matching_recipe(observation: UpdateObservation, family: Family, budget: Budget) -> GradientMatching:
    """The composition for a model of this family, or of the one its layers and the size of the batch tell."""
    if not isinstance(observation.space, ImageSpace):
        return replace(quasi_newton(tv_weight=0, restarts=ROW_STARTS), budget=budget)
    examples = observation.num_examples or 1
    if family == "auto":
        family = "generator" if examples >= HUGE_BATCH else family_of(observation)
    if family == "generator":
        return replace(tuned_ci_net(), budget=budget)
    objective = _objective(observation, family)
    if family in ("smooth", "transformer"):
        return GradientMatching(
            objective=objective,
            priors=(Fading(TotalVariation(1e-3)),),
            parametrisation=Pixels(spread=0.1),
            optimiser=LBFGS(),
            differentiation=Automatic(),
            budget=budget,
        )
    recipe = GradientMatching(
        objective=objective,
        priors=(Fading(TotalVariation(3e-2)),),
        parametrisation=Pixels(spread=0.25),
        optimiser=SignedAdam(0.1, CosineDecay()),
        differentiation=Automatic(FrozenDifference()),
        budget=budget,
    )
    if examples >= LARGE_BATCH:
        return replace(recipe, priors=(Balanced(),), optimiser=Adam(0.1, CosineDecay()))
    if isinstance(objective, CosineByTensor):
        return recipe
    # Shortcuts carry the image to every layer: less needs to be assumed, and a start far from grey helps.
    residual = family == "residual"
    weak = Fading(TotalVariation(1e-4 if residual else 5e-4))
    recipe = replace(recipe, priors=(weak,), parametrisation=Pixels(spread=0.25 if residual else 0.1))
    # What a defence leaves unexplained is no measure of how much there is left to explain.
    if not _is_plain(observation.local_update):
        return recipe
    return replace(recipe, priors=(Yielding(), weak), optimiser=SignedAdam(0.03 if residual else 0.1, CosineDecay()))


def _objective(observation: UpdateObservation, family: Family) -> Objective:
    """The angle tensor by tensor, of few images to whose update nothing was done; noise would drown short tensors."""
    few = (observation.num_examples or 1) < LARGE_BATCH and _is_plain(observation.local_update)
    if not few or family == "residual" or (family != "transformer" and not hides_places(observation)):
        return Cosine()
    network = _network(observation)
    return CosineByTensor(() if network is None else position_tables(network, observation.state))


def hides_places(observation: UpdateObservation) -> bool:
    """Whether one angle over all tensors hardly sees a picture move: where features are averaged before the head.

    Where the head reads features place by place its gradient, the longest, tells most, and jumps least in a model with
    kinks; in a smooth one, angles by tensor then make a worse valley of it.
    """
    state, shape = observation.state, observation.space.shape
    coarse = torch.rand(2, shape[0], 4, 4, generator=seeded(0, "places"))
    one, other = functional.interpolate(coarse, size=shape[1:], mode="bilinear").to(state.device, state.dtype).split(1)
    label = torch.zeros(1, dtype=torch.long, device=state.device)
    moved = one.roll((shape[1] // 4, shape[2] // 4), dims=(2, 3))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a loss of values warns of a class as label; the user passed none
            gradients = [observation.learner.gradient(state, Batch(image, label)) for image in (one, moved, other)]
    except Exception:  # a user's loss may refuse a class as label, in any way
        return False
    own, moving, unrelated = ({name: tensor.detach() for name, tensor in one.items()} for one in gradients)
    return bool(Cosine()(moving, own) < _HIDDEN * Cosine()(unrelated, own))


_HIDDEN = 0.3
"""Of the angle to an unrelated picture; it was below 0.14 on nets that average their features, above 0.5 on others."""


def _is_plain(client: LocalUpdate | None) -> bool:
    """Whether nothing is done to the update that is known to the attacker, but for rounding, an error in proportion."""
    if client is None:
        return False
    rounds = (isinstance(one, Transformed) and isinstance(one.transform, Transport) for one in clients.layers(client))
    return sum(not one for one in rounds) == 1


def position_tables(network: Network, state: ModelState) -> tuple[str, ...]:
    """Trained tensors with a row for each position that are added to what comes of the image, however they are cut."""
    made: dict[int, str] = {}
    found: dict[str, None] = {}
    for step in network.steps:
        layer = step.layer
        if isinstance(layer, Parameter) and sum(size > 1 for size in state.params[layer.name].shape) > 1:
            made[step.output] = layer.name
        tables = [made[slot] for slot in step.inputs if slot in made]
        if len(tables) == 1 and not any(slot in network.seen for slot in step.inputs):
            made[step.output] = tables[0]
        elif tables and isinstance(layer, Added | Combined):
            found |= dict.fromkeys(tables)
    return tuple(found)


def _network(observation: UpdateObservation) -> Network | None:
    """The layers of the model, if it can be traced."""
    state = observation.state
    images = torch.zeros(2, *observation.space.shape, dtype=state.dtype, device=state.device)
    try:
        return trace(observation.learner, state, images)
    except UnsupportedModel:
        return None
