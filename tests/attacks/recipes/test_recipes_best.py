"""The best recipe goes by the model, says which it took, and finds the image within its budget."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from leakgauge import best
from leakgauge.attacks.budget import Budget
from leakgauge.attacks.matching import (
    LBFGS,
    Adam,
    Automatic,
    Balanced,
    Fading,
    FrozenDifference,
    GeneratorWeights,
    Pixels,
    SignedAdam,
    TotalVariation,
    Yielding,
)
from leakgauge.attacks.matching.surrogate import nearly_straight
from leakgauge.attacks.recipes.best import Best
from leakgauge.attacks.recipes.chain import ChainSearch
from leakgauge.attacks.recipes.exact import Exact
from leakgauge.attacks.recipes.families import family_of
from leakgauge.attacks.span.matching import SpanMatching
from leakgauge.data import BreastCancer, Photos, reference_inputs
from leakgauge.defences import DPSGD, GaussianNoise, NoDefence, Pruning, chain
from leakgauge.errors import UnsupportedModel
from leakgauge.metrics import PSNR, align
from leakgauge.models import MLP, Compact, ConvNet, LeNet, Normalisation, ResNet, build
from leakgauge.protocol import THREAT_MODELS, FedAvg, Federation, FedSGD, LocalSGD, learner_and_state, simulate_round
from leakgauge.protocol.losses import MeanSquaredError, MultiLabel
from leakgauge.randomness import seeded
from leakgauge.space import ImageSpace
from leakgauge.types import Batch

SHAPE = (3, 16, 16)


class Written(nn.Module):
    """ReLU as a function, which no list of modules shows."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4 * 14 * 14, 5)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(functional.relu(self.conv(images)).flatten(1))


class Deciding(Written):
    """Cannot be traced, so nothing is known of it."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images if images.mean() > 0 else -images)


@pytest.mark.parametrize(
    ("module", "family"),
    [
        (build(LeNet(), SHAPE, 5, seed=0), "smooth"),
        (build(Compact(width=3), SHAPE, 5, seed=0), "smooth"),
        (build(MLP(hidden=(8,), activation="tanh"), SHAPE, 5, seed=0), "smooth"),
        (build(ConvNet(width=2), SHAPE, 5, seed=0), "switching"),
        (build(ResNet(depth=20, base_width=2), SHAPE, 5, seed=0), "residual"),
        (Written(), "switching"),
        (Deciding(), "switching"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_model_is_smooth_only_if_every_layer_is_known_to_be(module, family, attacked, examples):
    seen = attacked(module, examples(1, SHAPE))
    assert family_of(seen) == family
    recipe = best().recipe(seen)
    assert isinstance(recipe.optimiser, LBFGS if family == "smooth" else SignedAdam)
    assert recipe.differentiation == (Automatic() if family == "smooth" else Automatic(FrozenDifference()))


def test_spans_of_patches_side_by_side_are_left_alone_as_they_know_no_places(attacked, examples):
    """As many numbers as pixels, and more, are asked of the tokens, but in any order."""
    body = [nn.Conv2d(3, 64, 4, 4), nn.ReLU(), nn.Conv2d(64, 64, 1), nn.ReLU(), nn.Flatten(), nn.Linear(1024, 5)]
    seen = attacked(nn.Sequential(*body), examples(1, SHAPE))
    assert SpanMatching(budget=Budget(steps=1)).begin([seen], generator=seeded(0)).problems[0].spans
    assert not isinstance(best(steps=1).search([seen], generator=seeded(0)), ChainSearch)


def test_what_an_exact_attack_took_to_refuse_is_spent(monkeypatch, attacked, examples):
    def refuse_late(*_: object, **__: object) -> None:
        until = time.thread_time() + 0.2
        while time.thread_time() < until:
            pass
        raise UnsupportedModel("Nothing is given away here; use another attack.")

    monkeypatch.setattr(Exact, "maps_or_spans", refuse_late)
    seen = attacked(build(LeNet(), SHAPE, 5, seed=0), examples(1, SHAPE))
    search = Best(Budget(seconds=100.0)).search([seen], generator=seeded(0))
    assert 50.0 < search.budget.seconds < 99.8
    assert Best(Budget(steps=5)).search([seen], generator=seeded(0)).budget == Budget(steps=5)


def test_the_family_can_be_given_and_the_budget_is_kept(attacked, examples):
    seen = attacked(build(LeNet(), SHAPE, 5, seed=0), examples(1, SHAPE))
    assert isinstance(best("switching").recipe(seen).optimiser, SignedAdam)
    assert best(steps=7).recipe(seen).budget == Budget(steps=7)
    assert best(seconds=2.0) == Best(Budget(seconds=2.0))


def test_the_prior_of_one_image_follows_the_matching_loss_unless_a_defence_keeps_that_up(attacked, examples):
    model = build(ConvNet(width=2), SHAPE, 5, seed=0)
    plain, noisy = (
        best().recipe(attacked(model, examples(1, SHAPE), defence=one)) for one in (NoDefence(), GaussianNoise())
    )
    assert noisy.priors == (Fading(TotalVariation(5e-4)),)
    assert plain.priors == (Yielding(), *noisy.priors)
    assert replace(plain, priors=()) == replace(noisy, priors=())


@pytest.mark.parametrize("module", [ConvNet(width=2), ResNet(depth=20, base_width=2)], ids=repr)
def test_from_four_images_on_the_prior_of_a_model_with_kinks_follows_the_matching_loss(module, attacked, examples):
    model = build(module, SHAPE, 5, seed=0)
    three, four = (best().recipe(attacked(model, examples(count, SHAPE))) for count in (3, 4))
    assert not any(isinstance(prior, Balanced) for prior in three.priors)
    assert four.priors == (Balanced(),)
    assert type(four.optimiser) is Adam
    assert four.differentiation == three.differentiation


@pytest.mark.parametrize("module", [Compact(width=2), ConvNet(width=2)], ids=repr)
def test_from_32_images_on_the_weights_of_a_generator_are_searched(module, attacked, examples):
    shape = (1, 9, 9)
    model = build(module, shape, 5, seed=0)
    fewer, many = (best(steps=2).recipe(attacked(model, examples(count, shape))) for count in (31, 32))
    assert isinstance(fewer.parametrisation, Pixels)
    assert isinstance(many.parametrisation, GeneratorWeights)
    assert many.budget == Budget(steps=2)


# Measured when written, a batch of eight photographs, ReLU, 60 steps: 12.2 and 10.2 dB.
def test_a_batch_comes_back_from_a_model_with_kinks_better_than_with_a_fixed_prior(attacked):
    photos = Photos(size=16)()
    truth = photos.test[torch.arange(0, 8 * 9, 9)]
    seen = attacked(build(LeNet("relu", 3, None, 16), SHAPE, 7, seed=0), truth)
    ours = best(steps=60)
    fixed = replace(ours.recipe(replace(seen, num_examples=3)), priors=(TotalVariation(5e-4),), budget=Budget(steps=60))
    scores = [float(PSNR()(align(one(seen, generator=seeded(0)), truth)).mean()) for one in (ours, fixed)]
    assert scores[0] > scores[1] + 1


@pytest.mark.parametrize("defence", [DPSGD(), chain(DPSGD(), Pruning())], ids=repr)
def test_a_client_that_is_differentiated_as_a_whole_is_attacked_on_a_model_with_kinks_too(defence, attacked, examples):
    seen = attacked(build(ConvNet(width=2), (1, 9, 9), 5, seed=0), examples(2, (1, 9, 9)), defence=defence)
    found = best(steps=2)(seen, generator=seeded(0))
    assert found.inputs is not None
    assert found.facts["route"] == "DoubleBackward"
    assert "plain gradient steps" in str(found.facts["why this route"])


def test_the_record_says_which_recipe_ran(attacked, examples):
    seen = attacked(build(ConvNet(width=2), SHAPE, 5, seed=0), examples(1, SHAPE))
    found = best(steps=2)(seen, generator=seeded(0))
    assert "SignedAdam" in str(found.facts["recipe"])
    assert found.facts["route"] == "FrozenDifference"


# Measured when written: 35.2 dB.
def test_a_photograph_comes_back_from_a_smooth_model(attacked):
    photos = Photos(size=16)()
    truth = photos.test[:1]
    seen = attacked(build(Compact(width=8), SHAPE, 7, seed=0), truth)
    found = best(steps=120)(seen, generator=seeded(0))
    assert float((found.inputs - truth.inputs).square().mean()) < 1e-3
    other = photos.test[9:10].inputs
    assert float((found.inputs - other).square().mean()) > 1e-2


def test_the_unknown_pixels_of_an_update_of_noise_stay_unknown(attacked, examples):
    batch = examples(1, SHAPE)
    seen = attacked(build(Compact(width=3), SHAPE, 5, seed=0), batch)
    noise = {name: torch.randn(p.shape, generator=seeded(1)) for name, p in seen.update.params.items()}
    seen = replace(seen, update=replace(seen.update, params=noise))
    found = best(steps=30)(seen, generator=seeded(0))
    assert float((found.inputs - batch.inputs).square().mean()) > 1e-2


@pytest.mark.parametrize(("learning_rate", "simplified"), [(1e-4, True), (0.5, False)])
def test_many_short_steps_are_taken_as_one_gradient_and_long_ones_are_not(
    learning_rate, simplified, attacked, examples
):
    seen = attacked(
        build(Compact(width=3), SHAPE, 5, seed=0), examples(4, SHAPE), local_update=FedAvg(3, 2, learning_rate)
    )
    search = best(steps=4).search([seen], generator=seeded(0))
    found = search.run()[0]
    assert ("local steps" in found.facts) == simplified
    taken_for = [one.problems[0].client() for one in (search.searches if simplified else [search])]
    assert [type(client) for client in taken_for] == ([FedSGD, FedAvg] if simplified else [FedAvg])


@pytest.mark.slow
def test_steps_that_were_taken_as_one_gradient_are_followed_in_the_end(attacked):
    """The stand-in has its own answer, 40 dB from the image; the last leg goes on to that of the client."""
    images = reference_inputs(ImageSpace(*SHAPE), 2, generator=seeded(3, "photograph"))
    batch = Batch(images, torch.tensor([0, 3]))
    module = build(Compact(width=16), SHAPE, 5, seed=0)
    seen, plain = (attacked(module, batch, local_update=client) for client in (FedAvg(2, 1, 0.02), FedSGD()))
    errors = [
        float((best(steps=120)(one, generator=seeded(0)).inputs - images).square().mean()) for one in (seen, plain)
    ]
    assert errors[0] < 2 * errors[1]  # 3 dB


@pytest.mark.parametrize(
    ("options", "straight"), [({}, True), ({"clip_norm": 0.1}, False), ({"optimiser": LocalSGD(0.9)}, False)]
)
def test_steps_that_weigh_their_examples_unequally_are_not_taken_as_one_gradient(options, straight, examples, attacked):
    seen = attacked(build(Compact(), SHAPE, 5, seed=0), examples(2, SHAPE), local_update=FedAvg(1, 1, 1e-5, **options))
    assert nearly_straight(seen) is straight
    assert not nearly_straight(replace(seen, local_update=FedSGD()))


@pytest.mark.parametrize("loss", [MeanSquaredError(), MultiLabel()], ids=["values", "tags"])
def test_local_steps_on_values_or_tags_are_followed_too(loss, examples):
    """Nobody can make such labels up; those that are disclosed serve."""
    batch = Batch(examples(2, SHAPE).inputs, torch.tensor([[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]]))
    learner, state = learner_and_state(build(Compact(width=3), SHAPE, 3, seed=0), loss)
    sent = Federation(learner, state, FedAvg(3, 2, 1e-4))
    known = THREAT_MODELS["informed"]
    seen = simulate_round(sent, batch, threat_model=known, defence=NoDefence(), generator=seeded(0, "client"))
    found = best(steps=4)(seen, generator=seeded(0))
    assert found.inputs is not None
    assert "local steps" in found.facts


def test_rows_of_a_table_are_searched_for_from_several_starts_and_without_a_prior_for_images():
    """From one start this row, and a third of the others, end in the wrong valley."""
    data = BreastCancer()()
    module = build(MLP((32, 32)), data.space.shape, 2, seed=0, normalisation=Normalisation.of(data.train.inputs))
    learner, state = learner_and_state(module)
    private = data.test[slice(3, 4)]
    seen = simulate_round(
        Federation(learner, state, FedSGD(), data.space),
        private,
        threat_model=THREAT_MODELS["informed"],
        defence=NoDefence(),
        generator=seeded(0),
    )
    assert best().recipe(seen).priors == ()
    found = best(steps=100)(seen, generator=seeded(0))
    assert float(data.space.distance(found.inputs, private.inputs)) < 1e-6
