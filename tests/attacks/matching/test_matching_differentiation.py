"""Every route to the derivative is the derivative: of each other, and of plain central differences."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import scaled_dot_product_attention

from leakgauge.attacks.matching import (
    L1,
    LBFGS,
    Automatic,
    Budget,
    Cosine,
    DoubleBackward,
    Euclidean,
    FiniteDifference,
    Geometric,
    GradientMatching,
    Tangent,
)
from leakgauge.attacks.matching.differentiation import Rows, plan_evaluation
from leakgauge.attacks.matching.problem import MatchingProblem
from leakgauge.defences import Clipping, GaussianNoise, NoDefence, Pruning, chain
from leakgauge.errors import UnsupportedModel
from leakgauge.models import MLP, Compact, ConvNet, LeNet, ResNet, build
from leakgauge.protocol import FedAvg, FedSGD, UpdateObservation
from leakgauge.randomness import seeded
from leakgauge.types import Batch

SHAPE = (3, 9, 9)
MODELS = {
    "compact": (Compact(width=3), "eval"),
    "lenet": (LeNet(), "eval"),
    "convnet": (ConvNet(width=2), "eval"),
    "convnet in train mode": (ConvNet(width=2), "train"),
    "resnet": (ResNet(depth=20, base_width=4), "eval"),
    "mlp": (MLP(hidden=(16,)), "eval"),
}
OBJECTIVES = [Cosine(), Euclidean(), L1(), Cosine(Geometric(0.8)), Euclidean(Geometric(1.3))]
DEFENDED = [
    *((objective, NoDefence()) for objective in OBJECTIVES),
    (Cosine(), Pruning(0.3)),
    (Euclidean(), Clipping(0.1)),
    (L1(), chain(Clipping(0.1), Pruning(0.3))),
    (Cosine(Geometric(0.8)), chain(Pruning(0.3), Clipping(0.1))),
]


def matching(seen: UpdateObservation, objective) -> MatchingProblem:
    return GradientMatching(objective=objective).problem(seen, generator=torch.Generator())


def rows_of(case: MatchingProblem, images: Tensor) -> Rows:
    return Rows(images, case.labels.expand(len(images), *case.labels.shape))


def relative_error(left: Tensor, right: Tensor) -> float:
    return float((left - right).norm() / right.norm())


def settle(module: nn.Module) -> None:
    """Running statistics as after training, because with the initial ones hardly anything reaches the output."""
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = 1.0
    module.train()(torch.rand(8, *SHAPE, generator=seeded(0, "settle"), dtype=torch.float64))


@pytest.fixture(scope="module")
def problem(attacked, examples):
    """``problem(model, objective, ...)``: a matching problem in float64, and a candidate far from its solution."""
    skeletons: dict[object, nn.Module] = {}  # hold no values; a network is read of each only once

    def make(
        name: str, objective, *, local_update=None, defence=None, activation=None
    ) -> tuple[MatchingProblem, Tensor]:
        factory, mode = MODELS[name]
        module = build(replace(factory, activation=activation) if activation else factory, SHAPE, 5, seed=1).double()
        settle(module)
        private, candidate = (examples(2, SHAPE, seed=seed, dtype=torch.float64) for seed in (0, 1))
        seen = attacked(
            module, private, local_update=local_update or FedSGD(), defence=defence or NoDefence(), mode=mode
        )
        case = matching(seen, objective)
        skeleton = skeletons.setdefault((name, activation), case.learner.module)
        return replace(case, learner=replace(case.learner, module=skeleton)), candidate.inputs

    return make


@pytest.mark.parametrize("name", MODELS)
def test_forward_over_reverse_is_double_backward(name, problem):
    for objective, defence in DEFENDED:
        case, images = problem(name, objective, defence=defence)
        one, two = DoubleBackward().one(case, images), Tangent().one(case, images)
        assert relative_error(two.gradient, one.gradient) < 1e-9
        torch.testing.assert_close(two.value, one.value, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("activation", ["sigmoid", "gelu"])
@pytest.mark.parametrize("name", ["compact", "lenet", "mlp"])
def test_finite_difference_is_double_backward_on_smooth_models(name, activation, problem):
    # The quotient's step is the cube root of 2.2e-16, its error the square of that times third derivatives.
    for objective, defence in DEFENDED:
        case, images = problem(name, objective, activation=activation, defence=defence)
        one, two = DoubleBackward().one(case, images), FiniteDifference().one(case, images)
        assert relative_error(two.gradient, one.gradient) < 3e-5
        torch.testing.assert_close(two.value, one.value, rtol=1e-10, atol=1e-13)


def slopes(case: MatchingProblem, images: Tensor, directions: list[Tensor], step: float = 1e-8) -> Tensor:
    """Central differences of the matching loss itself; short, so that no kink of L1 or a max-pool lies in between."""
    with torch.no_grad():
        losses = [
            [case.distance(case.update(images + sign * step * direction)) for sign in (1, -1)]
            for direction in directions
        ]
    return torch.stack([(ahead - behind) / (2 * step) for ahead, behind in losses])


@pytest.mark.parametrize("local_update", [FedSGD(), FedAvg(2, 1, 0.01)], ids=repr)
@pytest.mark.parametrize("name", MODELS)
def test_double_backward_is_the_slope_of_the_matching_loss(name, local_update, problem):
    for objective in OBJECTIVES[:3]:
        activation = {"lenet": "sigmoid"}.get(name, "gelu")
        case, images = problem(name, objective, local_update=local_update, activation=activation, defence=Clipping(0.1))
        directions = [torch.randn(images.shape, generator=seeded(k), dtype=images.dtype) for k in range(3)]
        gradient = DoubleBackward().one(case, images).gradient
        predicted = torch.stack([(gradient * direction).sum() for direction in directions])
        # The loss, about 1, rounds at 1e-16; over the step this is 1e-8.
        torch.testing.assert_close(predicted, slopes(case, images, directions), rtol=1e-4, atol=1e-6)


def test_finite_differences_refuse_several_local_steps(problem):
    for defence in (NoDefence(), Pruning(0.3)):
        case, images = problem("compact", Cosine(), local_update=FedAvg(2, 1, 0.1), defence=defence)
        with pytest.raises(UnsupportedModel, match=r"FedAvg\(epochs=2.*DoubleBackward\(\)"):
            FiniteDifference().one(case, images)


@pytest.mark.parametrize(
    ("route", "local_update"),
    [
        (DoubleBackward(), FedSGD()),
        (DoubleBackward(), FedAvg(2, 1, 0.1)),
        (Tangent(), FedSGD()),
        (FiniteDifference(), FedSGD()),
    ],
    ids=repr,
)
@pytest.mark.parametrize("name", ["compact", "convnet in train mode", "mlp"])
def test_candidates_together_are_candidates_one_by_one(name, route, local_update, problem, examples):
    case, _ = problem(name, Cosine(), local_update=local_update, defence=chain(Clipping(0.1), Pruning(0.3)))
    images = torch.stack([examples(2, SHAPE, seed=seed, dtype=torch.float64).inputs for seed in range(5)])
    alone = [route.one(case, candidate) for candidate in images]
    for chunk in (1, 2, 5):
        together = route.rowwise(case, images[0], chunk=chunk)(rows_of(case, images), case.objective)
        torch.testing.assert_close(together.value, torch.stack([pair.value for pair in alone]), rtol=1e-9, atol=1e-12)
        assert relative_error(together.gradient, torch.stack([pair.gradient for pair in alone])) < 1e-9


def test_at_the_truth_loss_and_gradient_vanish(problem, examples):
    truth = examples(2, SHAPE, dtype=torch.float64).inputs
    for route in (DoubleBackward(), Tangent(), FiniteDifference()):
        case, _ = problem("compact", Euclidean())
        value, gradient, *_ = route.one(case, truth)
        assert value == 0
        assert bool((gradient == 0).all())


def test_a_route_leaves_no_trace(problem, bits):
    case, images = problem("convnet in train mode", Cosine())
    before = bits(case, images, case.learner.module)
    for route in (DoubleBackward(), Tangent(), FiniteDifference(), Automatic()):
        value, gradient, *_ = route.one(case, images)
        assert not value.requires_grad
        assert not gradient.requires_grad
    assert bits(case, images, case.learner.module) == before


# Which route runs


class Square(torch.autograd.Function):
    """x^2 as many hand-written operations are: a backward that cannot itself be differentiated."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


class Between(nn.Module):
    """A convolution, something, and a linear head."""

    def __init__(self, something) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(324, 5)
        self.something = something

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.something(self.conv(images)).flatten(1))


class Attention(nn.Module):
    """One head of attention over the rows of the image."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs, self.head = nn.Linear(27, 24), nn.Linear(8, 5)

    def forward(self, images: Tensor) -> Tensor:
        rows = images.permute(0, 2, 1, 3).flatten(2)
        query, key, value = self.inputs(rows).chunk(3, dim=-1)
        return self.head(scaled_dot_product_attention(query, key, value).mean(dim=1))


ROUTES = {
    "group norm": (lambda: Between(nn.GroupNorm(2, 4)), "DoubleBackward"),
    "layer norm": (lambda: Between(nn.LayerNorm([4, 9, 9])), "DoubleBackward"),
    "max pool": (lambda: Between(nn.MaxPool2d(3, stride=1, padding=1)), "DoubleBackward"),
    "attention": (Attention, "DoubleBackward"),
    "once differentiable": (lambda: Between(Square.apply), "FiniteDifference"),
}


@pytest.mark.parametrize("restarts", [1, 3])
@pytest.mark.parametrize("name", ROUTES)
def test_the_record_names_the_route_that_ran_and_the_loss_falls(name, restarts, attacked, examples):
    make, route = ROUTES[name]
    torch.manual_seed(0)
    seen = attacked(make(), examples(1, SHAPE))
    attack = GradientMatching(optimiser=LBFGS(), budget=Budget(steps=20), restarts=restarts)
    found = attack(seen, generator=seeded(0))
    together = restarts > 1 and route == "DoubleBackward"
    assert found.facts["route"] == (f"{route}, {restarts} at a time" if together else route)
    assert found.facts["loss"] < 0.5 * float(found.loss_trace[0])


def test_automatic_gives_the_derivative_of_the_route_it_resolves_to(problem):
    case, images = problem("compact", Cosine())
    assert Automatic().resolve(case, images) == DoubleBackward()
    assert torch.equal(Automatic().one(case, images).gradient, DoubleBackward().one(case, images).gradient)


def test_finite_difference_is_right_where_double_backward_cannot_go(attacked, examples):
    torch.manual_seed(0)
    module = Between(Square.apply).double()
    seen = attacked(module, examples(1, SHAPE, dtype=torch.float64))
    case, images = matching(seen, Cosine()), examples(1, SHAPE, seed=1, dtype=torch.float64).inputs
    with pytest.raises(UnsupportedModel, match="once_differentiable"):
        DoubleBackward().resolve(case, images)
    module.something = torch.square
    expected = DoubleBackward().one(
        matching(attacked(module, examples(1, SHAPE, dtype=torch.float64)), Cosine()), images
    )
    assert relative_error(Automatic().one(case, images).gradient, expected.gradient) < 1e-5


CUTS = {
    "detach": torch.Tensor.detach,
    "whole numbers": lambda x: (4 * x).long().to(x),
    "ranks": lambda x: x.argsort(dim=-1).to(x),
    "numpy": lambda x: torch.from_numpy(x.detach().numpy() ** 2),
}


@pytest.mark.parametrize("restarts", [1, 2])
@pytest.mark.parametrize("differentiation", [Automatic(), DoubleBackward()], ids=repr)
@pytest.mark.parametrize("name", CUTS)
def test_a_model_that_cuts_the_images_off_is_refused_in_one_sentence(
    name, differentiation, restarts, attacked, examples
):
    seen = attacked(Between(CUTS[name]), examples(1, SHAPE))
    attack = GradientMatching(
        optimiser=LBFGS(), budget=Budget(steps=3), differentiation=differentiation, restarts=restarts
    )
    with pytest.raises(UnsupportedModel) as refusal:
        attack(seen, generator=seeded(0))
    message = str(refusal.value)
    assert "\n" not in message
    assert "detach or a whole-number operation" in message
    assert message.count(". ") == 0


class ForOneCandidateOnly(DoubleBackward):
    """A route whose batched form is wrong, and says so in no way."""

    def rowwise(self, problem, images, *, chunk):
        inner = super().rowwise(problem, images, chunk=chunk)
        if chunk == 1:
            return inner

        def wrong(rows, objective):
            found = inner(rows, objective)
            return found._replace(gradient=-found.gradient)

        return wrong


def test_restarts_run_one_by_one_when_their_batch_would_be_wrong(problem, examples):
    case, images = problem("compact", Cosine())
    rows = rows_of(case, torch.stack([images, images.flip(0)]))
    evaluator = plan_evaluation(case, ForOneCandidateOnly(), rows)
    assert evaluator.route == "ForOneCandidateOnly"
    found = evaluator.evaluate(rows, case.objective)
    assert torch.equal(found.gradient[0], DoubleBackward().one(case, images).gradient)


def test_noise_does_not_change_the_route(problem, attacked, examples):
    seen = attacked(build(Compact(width=3), SHAPE, 5, seed=0), examples(1, SHAPE), defence=GaussianNoise(0.01))
    assert Automatic().resolve(matching(seen, Cosine()), examples(1, SHAPE, seed=1).inputs) == DoubleBackward()


def test_labels_of_a_problem_may_be_class_probabilities(attacked, examples):
    batch = examples(2, SHAPE, dtype=torch.float64)
    soft = Batch(batch.inputs, torch.softmax(torch.randn(2, 5, generator=seeded(0), dtype=torch.float64), dim=1))
    seen = attacked(build(Compact(width=3), SHAPE, 5, seed=0).double(), soft)
    images = examples(2, SHAPE, seed=1, dtype=torch.float64).inputs
    one, two = (route.one(matching(seen, Cosine()), images) for route in (DoubleBackward(), Tangent()))
    assert relative_error(two.gradient, one.gradient) < 1e-9
