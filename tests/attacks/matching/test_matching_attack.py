"""Gradient matching finds the image behind an update, and nothing behind another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from leakgauge.attacks.matching import (
    LBFGS,
    Adam,
    Budget,
    Cosine,
    Euclidean,
    GradientMatching,
    PixelNorm,
    Pixels,
    SignedAdam,
    TotalVariation,
)
from leakgauge.attacks.recipes import idlg, inverting_gradients, quasi_newton
from leakgauge.data import Photos
from leakgauge.data.datasets import Dataset
from leakgauge.defences import GaussianNoise, Pruning
from leakgauge.errors import InvalidCase, MissingKnowledge
from leakgauge.metrics import PSNR, align
from leakgauge.models import Compact, ConvNet, LeNet, build
from leakgauge.progress import Tick
from leakgauge.protocol import FedAvg, FedSGD
from leakgauge.randomness import seeded
from leakgauge.types import Batch, Outcome, Reconstruction

SHAPE = (3, 16, 16)


@pytest.fixture(scope="module")
def photos() -> Dataset:
    return Photos(size=16)()


def highlight(photos: Dataset, number: int) -> Batch:
    index = photos.highlights[number]
    return photos.test[slice(index, index + 1)]


def psnr(images: Tensor, truth: Batch) -> float:
    return float(PSNR()(align(Reconstruction(images, None, Outcome.SOLVED), truth)))


# Measured when written, with 100 steps: 45 dB and more on Compact, 28 dB and more on LeNet.
@pytest.mark.parametrize(
    ("factory", "seed", "at_least"),
    [(Compact(width=16), 0, 35), (Compact(width=16), 1, 35), (Compact(width=16), 2, 35), (LeNet(), 0, 20)],
    ids=repr,
)
def test_a_photograph_is_recovered_from_its_update_and_from_no_other(factory, at_least, seed, photos, attacked):
    truth, unrelated = highlight(photos, seed), highlight(photos, seed + 3)
    seen = attacked(build(factory, SHAPE, 7, seed=seed), truth, threat_model="honest_but_curious")
    found = quasi_newton(steps=100)(seen, generator=seeded(seed, "attack"))
    assert torch.equal(found.labels, truth.labels)
    assert psnr(found.inputs, truth) > at_least
    # Scored against a photograph that did not make the update, it is as far off as any other photograph.
    chance = psnr(truth.inputs, unrelated)
    assert abs(psnr(found.inputs, unrelated) - chance) < 1
    assert psnr(found.inputs, unrelated) < 15


def test_pure_noise_in_place_of_an_update_gives_nothing_away(photos, attacked):
    truth = highlight(photos, 0)
    seen = attacked(build(Compact(width=8), SHAPE, 7, seed=0), truth)
    noise = {name: torch.randn(p.shape, generator=seeded(1)) for name, p in seen.update.params.items()}
    found = quasi_newton(steps=60)(replace(seen, update=replace(seen.update, params=noise)), generator=seeded(0))
    # Not above what the best constant guess gets.
    mean = truth.inputs.mean(dim=(2, 3), keepdim=True).expand_as(truth.inputs)
    assert psnr(found.inputs, truth) < psnr(mean, truth)


def test_several_local_steps_do_not_hide_the_photograph(photos, attacked):
    truth = highlight(photos, 1)
    seen = attacked(build(Compact(width=8), SHAPE, 7, seed=1), truth, local_update=FedAvg(2, 1, 0.01))
    found = quasi_newton(steps=80)(seen, generator=seeded(0))
    assert psnr(found.inputs, truth) > 20


def test_knowing_the_defence_pays(photos, attacked):
    truth = highlight(photos, 2)
    module = build(Compact(width=16), SHAPE, 7, seed=2)
    aware, unaware = (
        quasi_newton(steps=80)(attacked(module, truth, threat_model=name, defence=Pruning(0.3)), generator=seeded(0))
        for name in ("honest_but_curious", "unaware")
    )
    assert psnr(aware.inputs, truth) > psnr(unaware.inputs, truth) + 3


def tiny(attacked, examples, **options):
    module = build(Compact(width=3), (3, 8, 8), 5, seed=0).double()
    return attacked(module, examples(2, dtype=torch.float64), **options)


def own_loss(attack: GradientMatching, seen, images: Tensor) -> float:
    problem = attack.problem(seen, generator=torch.Generator())
    penalty = sum(float(prior(images[None])) for prior in attack.priors)
    return float(problem.distance(problem.update(images)).detach()) + penalty


@dataclass(frozen=True)
class Leap:
    """Small steps, and at the end one across the box."""

    def __call__(self, fraction: float) -> float:
        return 0.02 if fraction < 10 / 12 else 100.0


RESTLESS = SignedAdam(1.0, Leap())


@pytest.mark.parametrize("optimiser", [LBFGS(), Adam(0.05), RESTLESS], ids=lambda o: type(o).__name__)
@pytest.mark.parametrize("restarts", [1, 4])
def test_what_is_returned_has_the_lowest_loss_the_attacker_could_see(optimiser, restarts, attacked, examples):
    seen = tiny(attacked, examples)
    attack = GradientMatching(
        priors=(TotalVariation(1e-2),), optimiser=optimiser, restarts=restarts, budget=Budget(steps=12)
    )
    ticks: list[Tick] = []
    found = attack(seen, generator=seeded(0), progress=ticks.append)
    assert found.facts["loss"] == pytest.approx(own_loss(attack, seen, found.inputs), rel=1e-9)
    assert found.facts["loss"] == float(found.loss_trace.min()) == ticks[-1].loss
    if optimiser == RESTLESS:
        assert found.facts["loss"] < float(found.loss_trace[-1])
    assert found.facts["steps"] == len(found.loss_trace) == len(ticks)
    assert [tick.step for tick in ticks] == list(range(1, len(ticks) + 1))
    assert ticks[-1].fraction == 1.0
    assert all(later.loss <= earlier.loss for earlier, later in pairwise(ticks))


@dataclass(frozen=True)
class Negative:
    """The optimiser moves the negative; without the chain rule it would move the wrong way."""

    box = (0.0, 1.0)
    facts = ()

    def bind(self, observation, num_examples):
        return self

    def start(self, restarts, num_examples, shape, *, generator):
        return torch.rand(restarts, num_examples, *shape, generator=generator)

    def decode(self, variables: Tensor) -> Tensor:
        return 1 - variables


@pytest.mark.parametrize("parametrisation", [Pixels(), Negative()], ids=repr)
@pytest.mark.parametrize("restarts", [1, 3])
def test_a_prior_that_outweighs_the_update_decides(parametrisation, restarts, attacked, examples):
    # Two of equal weight, so the best pixel lies halfway between their centres.
    attack = GradientMatching(
        priors=(PixelNorm(1e4, centre=0.2), PixelNorm(1e4, centre=0.4)),
        parametrisation=parametrisation,
        optimiser=LBFGS(),
        budget=Budget(steps=30),
        restarts=restarts,
    )
    found = attack(tiny(attacked, examples), generator=seeded(0))
    torch.testing.assert_close(found.inputs, torch.full_like(found.inputs, 0.3), rtol=0, atol=1e-3)


def test_more_restarts_never_raise_the_loss(attacked, examples):
    # The first restart of five is the one restart: the start is drawn row by row.
    seen = tiny(attacked, examples)
    losses = [
        GradientMatching(optimiser=LBFGS(), budget=Budget(steps=10), restarts=restarts)(
            seen, generator=seeded(0)
        ).facts["loss"]
        for restarts in (1, 5)
    ]
    assert losses[1] <= losses[0] * (1 + 1e-6)


def test_the_trace_is_of_the_restart_that_won(attacked, examples):
    seen = tiny(attacked, examples)
    found = GradientMatching(optimiser=LBFGS(), budget=Budget(steps=10), restarts=5)(seen, generator=seeded(0))
    singles = Pixels().start(5, 2, (3, 8, 8), generator=seeded(0)).double()
    first = [own_loss(GradientMatching(), seen, start) for start in singles]
    assert min(abs(float(found.loss_trace[0]) - loss) for loss in first) < 1e-9


def test_an_attack_on_the_truth_itself_stops_at_once(attacked, examples):
    seen = tiny(attacked, examples)
    truth = examples(2, dtype=torch.float64).inputs

    class Truth(Pixels):
        def start(self, restarts, num_examples, shape, *, generator):
            return truth[None]

    attack = GradientMatching(objective=Euclidean(), parametrisation=Truth(), optimiser=LBFGS(), budget=Budget(steps=9))
    found = attack(seen, generator=seeded(0))
    assert found.outcome is Outcome.CONVERGED
    assert torch.equal(found.inputs, truth)
    assert found.facts["loss"] == 0


def test_all_steps_used_is_said_so(attacked, examples):
    found = idlg(steps=2)(tiny(attacked, examples), generator=seeded(0))
    assert found.outcome is Outcome.STEPS_EXHAUSTED
    assert len(found.loss_trace) == 2


class Rooted(nn.Module):
    """The root of what exceeds 0.2, and 0 below, where the derivative of the branch not taken is zero times NaN."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(192, 5)

    def forward(self, images: Tensor) -> Tensor:
        excess = images.flatten(1) - 0.2
        return self.head(torch.where(excess > 0, excess.sqrt(), 0.0))


@pytest.mark.parametrize("optimiser", [Adam(0.05), LBFGS()], ids=lambda o: type(o).__name__)
def test_pixels_whose_derivative_is_not_finite_stay_and_the_others_move(optimiser, attacked, examples):
    seen = attacked(Rooted(), examples(1))
    attack = GradientMatching(parametrisation=Pixels(spread=0.5), optimiser=optimiser, budget=Budget(steps=40))
    start = attack.parametrisation.start(1, 1, (3, 8, 8), generator=seeded(0))[0]
    found = attack(seen, generator=seeded(0))
    assert bool((start < 0.2).any())
    assert torch.equal(found.inputs[start < 0.2], start[start < 0.2])
    assert found.facts["loss"] < 0.5 * float(found.loss_trace[0])


class Exploding(nn.Module):
    """Finite on dark images, NaN on the grey ones every attack starts from."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(192, 5)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(torch.sqrt(0.25 - images.flatten(1)))


@pytest.mark.parametrize("restarts", [1, 3])
def test_a_loss_that_is_not_finite_from_the_start_is_an_outcome_not_an_image(restarts, attacked, examples):
    batch = examples(1)
    seen = attacked(Exploding(), Batch(batch.inputs / 5, batch.labels))
    found = quasi_newton(steps=5, restarts=restarts)(seen, generator=seeded(0))
    assert found.outcome is Outcome.NON_FINITE
    assert found.inputs is None
    assert torch.equal(found.labels, batch.labels)


def test_labels_are_restored_where_they_are_hidden_and_taken_where_they_are_given(attacked, examples):
    truth = examples(2).labels.tolist()
    given, restored = (
        GradientMatching()
        .problem(tiny(attacked, examples, threat_model=name), generator=torch.Generator())
        .labels.tolist()
        for name in ("informed", "honest_but_curious")
    )
    assert given == truth
    assert restored == sorted(truth)
    with pytest.raises(MissingKnowledge, match="`labels`"):
        GradientMatching(labels=None).problem(
            tiny(attacked, examples, threat_model="honest_but_curious"), generator=torch.Generator()
        )


def test_a_client_in_train_mode_is_attacked_in_train_mode(attacked, examples):
    batch = examples(2, (3, 9, 9), dtype=torch.float64)
    seen = attacked(build(ConvNet(width=2), (3, 9, 9), 5, seed=0).double(), batch, mode="train")
    problem = GradientMatching(objective=Euclidean()).problem(seen, generator=torch.Generator())
    assert float(problem.distance(problem.update(batch.inputs))) == 0


def test_noise_leaves_a_loss_at_the_truth_that_restarts_cannot_remove(attacked, examples):
    seen = tiny(attacked, examples, defence=GaussianNoise(0.1))
    problem = GradientMatching(objective=Cosine()).problem(seen, generator=torch.Generator())
    assert float(problem.distance(problem.update(examples(2, dtype=torch.float64).inputs))) > 1e-3


def test_published_attacks_are_the_compositions_their_papers_state():
    # Geiping et al. 2020: Eq. 4, appendix C; Zhu et al. 2019 and Zhao et al. 2020: squared distance, L-BFGS.
    geiping = inverting_gradients()
    assert isinstance(geiping.objective, Cosine)
    assert isinstance(geiping.optimiser, SignedAdam)
    assert geiping.budget == Budget(steps=4800)
    assert isinstance(idlg().objective, Euclidean)
    assert idlg().priors == ()
    assert isinstance(idlg().optimiser, LBFGS)


def test_an_attack_needs_a_start():
    with pytest.raises(InvalidCase, match="restarts"):
        GradientMatching(restarts=0)


def test_fedsgd_is_assumed_of_nobody(attacked, examples):
    # What is matched is what the client is known to do; by another algorithm the truth itself does not explain it.
    seen = tiny(attacked, examples, local_update=FedAvg(3, 1, 0.5))
    wrong = replace(seen, local_update=FedSGD())
    truth = examples(2, dtype=torch.float64).inputs
    assert own_loss(GradientMatching(), seen, truth) < 1e-12
    assert own_loss(GradientMatching(), wrong, truth) > 1e-4
