"""Any gradient matching, by an attacker who knows the defence: with the distance, priors and labels that fit it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Generator

from leakgauge.attacks.adaptive.completion import CompletedSearch, complete_update
from leakgauge.attacks.adaptive.decoding import DecodedSearch
from leakgauge.attacks.base import SteppedAttack, Stepper
from leakgauge.attacks.budget import Around
from leakgauge.attacks.matching import Automatic, FreeLabels, GradientMatching
from leakgauge.attacks.matching.differentiation.matcher import is_step_by_step
from leakgauge.attacks.matching.objectives import (
    L1,
    Cosine,
    Euclidean,
    LeavingOut,
    Objective,
    Uniform,
    WeighedObjective,
)
from leakgauge.attacks.matching.priors import (
    AnisotropicTotalVariation,
    BatchNormStatistics,
    Fading,
    Prior,
    SignedTotalVariation,
    Starting,
    TotalVariation,
)
from leakgauge.attacks.matching.priors.following import FollowingPrior
from leakgauge.attacks.recipes.best import Best, best
from leakgauge.attacks.recipes.families import Family
from leakgauge.errors import InvalidCase
from leakgauge.protocol import clients
from leakgauge.protocol.clients import mixes
from leakgauge.protocol.local_update import Departure
from leakgauge.protocol.observation import UpdateObservation, known

_BATCH_NORM = 5e-3
"""Weight of R_BN where exact statistics are given [Huang et al., 2021, the strongest attacker]."""

_LITTLE, _SMOOTH = 0.2, 0.1
"""Below this share of visible entries total variation weighs at least so much.

Chosen on training photographs, which are never victims: with 10 % and 1 % of the entries PSNR rose by 2.6 and 0.6 dB
for one image and by 0.5 and 3.5 dB for four; with 30 % it fell by 4 dB for one.
"""


def adapt(attack: Any, observation: UpdateObservation) -> Any:
    """The attack with the distance and the priors that fit the disclosed defence; unchanged where none fits better.

    Gaussian noise: its log-likelihood, the squared distance. Laplace noise: the sum of absolute values. Clipping alone:
    the angle. A layer that is spoilt on purpose (Soteria) is left out. Pruning changes the prediction itself; where it
    left little to see, total variation weighs more. Signs flipped at random (InstaHide): total variation of |x - 1/2|.
    Exact BatchNorm statistics: R_BN. Attacks that do not match gradients stay as they are.
    """
    if isinstance(attack, Best):
        attack = attack.recipe(observation)
    if isinstance(attack, GradientMatching):
        return _fit_to_defence(attack, observation)
    return attack.with_attack(adapt(attack.attack, observation)) if isinstance(attack, Around) else attack


def see_encodings(observation: UpdateObservation) -> UpdateObservation:
    """The observation as an attacker reads it who knows the defence: of encodings, with the labels of encodings.

    Under mixing the examples to be found are mixtures. Their class probabilities follow from the private labels and the
    mixing if both are disclosed, and are unknown otherwise. The mean of many clients' gradients is the gradient of all
    their examples, wherever these do not meet in BatchNorm.
    """
    client = observation.local_update
    if client is None:
        return observation
    seen = replace(observation, local_update=clients.merge_clients(client, observation.learner))
    if not clients.mixes(client):
        return seen
    return replace(seen, labels=observation.mixed_labels)


def _fit_to_defence(attack: GradientMatching, observation: UpdateObservation) -> GradientMatching:
    client = observation.local_update
    attack = replace(attack, objective=_objective(attack.objective, observation))
    if clients.transforms(client) and _visible(observation) < _LITTLE:
        attack = replace(attack, priors=tuple(_heavier(prior) for prior in attack.priors))
    if clients.flips_signs(client):
        attack = replace(attack, priors=tuple(_with_folded_signs(prior) for prior in attack.priors))
    if clients.mixes(client) and observation.labels is None:
        attack = replace(attack, labels=FreeLabels())
    exact = observation.batch_norm.statistics
    if exact is not None and exact.mean and not any(_of_statistics(prior) for prior in attack.priors):
        attack = replace(attack, priors=(*attack.priors, BatchNormStatistics(_BATCH_NORM)))
    if not is_step_by_step(client):
        attack = replace(attack, differentiation=Automatic())
    return attack


def _objective(objective: Objective, observation: UpdateObservation) -> Objective:
    client = observation.local_update
    departure = clients.departure(client)
    weighting = objective.weighting if isinstance(objective, WeighedObjective) else Uniform()
    if departure is Departure.GAUSSIAN:
        objective = Euclidean(weighting)
    elif departure is Departure.LAPLACE:
        objective = L1(weighting)
    elif departure is Departure.LENGTH:
        objective = Cosine(weighting)
    spoilt = {
        name
        for transform in clients.transforms(client)
        for name in transform.distorted(observation.learner, observation.state, observation.probe)
    }
    # Where nothing else carries the image, its visible columns are all there is to match.
    rest = any(t.ndim > 1 for name, t in observation.update.params.items() if name not in spoilt)
    return LeavingOut(objective, tuple(sorted(spoilt))) if spoilt and rest else objective


def _visible(observation: UpdateObservation) -> float:
    """The share of the update's entries that are not zero."""
    tensors = observation.update.params.values()
    return sum(int(tensor.count_nonzero()) for tensor in tensors) / sum(tensor.numel() for tensor in tensors)


def _heavier(prior: Prior | FollowingPrior) -> Prior | FollowingPrior:
    if isinstance(prior, Starting):
        return replace(prior, prior=_smoother(prior.prior))
    if isinstance(prior, Fading):  # what a defence left unexplained may be noise, which no prior must give way to
        return _smoother(prior.prior)
    return prior if isinstance(prior, FollowingPrior) else _smoother(prior)


def _smoother(prior: Prior) -> Prior:
    if isinstance(prior, TotalVariation | AnisotropicTotalVariation):
        return replace(prior, weight=max(prior.weight, _SMOOTH))
    return prior


def _with_folded_signs(prior: Prior | FollowingPrior) -> Prior | FollowingPrior:
    if isinstance(prior, Starting | FollowingPrior | Fading):
        return replace(prior, prior=_fold(prior.prior))
    return _fold(prior)


def _fold(prior: Prior) -> Prior:
    if isinstance(prior, TotalVariation):
        return SignedTotalVariation(prior.weight, prior.smoothing)
    return SignedTotalVariation(prior.weight) if isinstance(prior, AnisotropicTotalVariation) else prior


def _of_statistics(prior: Prior | FollowingPrior) -> bool:
    return isinstance(prior.prior if isinstance(prior, Starting) else prior, BatchNormStatistics)


@dataclass(frozen=True)
class Adaptive(SteppedAttack, Around):
    """Another attack, with the distance, priors and labels that fit what the threat model discloses of the defence.

    See `adapt` for what changes. Where the client mixes its images (MixUp, InstaHide) the update is inverted to the
    encodings; with labels and mixing disclosed they are then decoded to the images, which is an upper bound on leakage,
    else the encodings are returned. ``facts`` has the recipe and which of the two it is. With `Best`, what a defence
    zeroed in linear layers is completed first where the rest determines it (`complete_update`). Against an attacker who
    does not know the defence, and without a defence, this is the attack itself.
    """

    attack: Any = field(default_factory=Best)

    def __post_init__(self) -> None:
        if not isinstance(self.attack, SteppedAttack):
            raise InvalidCase(
                f"Adaptive(attack=...) must match gradients, got {type(self.attack).__name__}; give it such an attack."
            )

    def search(self, observations: Sequence[UpdateObservation], *, generator: Generator) -> Stepper:
        for observation in observations:
            known(observation.num_examples, "num_examples", needed_by=self)
        seen = [see_encodings(observation) for observation in observations]
        if not isinstance(self.attack, Best):  # an attack of a paper sees what was sent
            return _search(adapt(self.attack, seen[0]), seen, observations, generator=generator)
        started = self.attack.budget.now()
        whole = [complete_update(observation) for observation in seen]
        own = replace(self.attack, budget=self.attack.budget.after(self.attack.budget.now() - started))
        recipe = adapt(own, whole[0])
        if mixes(whole[0].local_update):
            search = _search(recipe, whole, observations, generator=generator)
        else:
            search = own.search(whole, generator=generator, recipe=recipe)
        sent, share = _visible(seen[0]), _visible(whole[0])
        return CompletedSearch(search, sent, share) if share > sent else search


def _search(
    attack: Any,
    seen: Sequence[UpdateObservation],
    observations: Sequence[UpdateObservation],
    *,
    generator: Generator,
) -> Stepper:
    """By what is ``seen``; where the client mixes, what is found is decoded to private images."""
    search = attack.search(seen, generator=generator)
    search.notes["recipe"] = repr(attack)
    return DecodedSearch(search, tuple(observations)) if mixes(seen[0].local_update) else search


def adaptive(family: Family = "auto", seconds: float | None = None, steps: int | None = None) -> Adaptive:
    """The strongest recipe for the model, adapted to the defence: `Adaptive(Best)`; without a budget, a minute."""
    return Adaptive(best(family, seconds, steps))
