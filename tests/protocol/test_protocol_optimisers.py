"""A client's local steps are those of torch.optim, and so are what an attacker expects of them."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from leakgauge import params as tree
from leakgauge.attacks.matching.differentiation import DoubleBackward, Tangent
from leakgauge.attacks.matching.objectives import Euclidean
from leakgauge.attacks.matching.problem import MatchingProblem
from leakgauge.catalogue import LOCAL_UPDATES
from leakgauge.config import build, build_loss
from leakgauge.errors import InvalidCase
from leakgauge.models import Compact, ConvNet
from leakgauge.models import build as build_model
from leakgauge.protocol import FedAvg, LocalAdam, LocalSGD, fedavg, learner_and_state
from leakgauge.randomness import seeded

SHAPE = (3, 8, 8)
CLIENTS = {
    "sgd": lambda params, rate: torch.optim.SGD(params, rate),
    "sgd,weight_decay=0.1": lambda params, rate: torch.optim.SGD(params, rate, weight_decay=0.1),
    "sgd,momentum=0.9": lambda params, rate: torch.optim.SGD(params, rate, momentum=0.9),
    "sgd,momentum=0.9,dampening=0.4": lambda params, rate: torch.optim.SGD(params, rate, 0.9, dampening=0.4),
    "sgd,momentum=0.8,nesterov=True,weight_decay=0.05": lambda params, rate: torch.optim.SGD(
        params, rate, momentum=0.8, nesterov=True, weight_decay=0.05
    ),
    "adam": lambda params, rate: torch.optim.Adam(params, rate),
    "adam,beta1=0.5,beta2=0.9,eps=1e-3,weight_decay=0.1": lambda params, rate: torch.optim.Adam(
        params, rate, betas=(0.5, 0.9), eps=1e-3, weight_decay=0.1
    ),
    "adamw": lambda params, rate: torch.optim.AdamW(params, rate),
    "adamw,weight_decay=0.3,beta1=0.0": lambda params, rate: torch.optim.AdamW(
        params, rate, betas=(0.0, 0.999), weight_decay=0.3
    ),
}


def trained(
    module: nn.Module,
    batch,
    optimiser,
    *,
    epochs,
    batch_size,
    accumulate=1,
    after_backward=lambda _: None,
    loss=cross_entropy,
    orders=None,
):
    """What torch's own loop moves: parameters before minus after."""
    before = {name: p.detach().clone() for name, p in module.named_parameters() if p.requires_grad}
    for epoch in range(epochs):
        drawn = batch if orders is None else batch[orders[epoch]]
        parts = list(zip(drawn.inputs.split(batch_size), drawn.labels.split(batch_size)))
        optimiser.zero_grad()
        for index, (images, labels) in enumerate(parts, 1):
            (loss(module(images), labels) / accumulate).backward()
            if index % accumulate == 0 or index == len(parts):
                after_backward(module)
                optimiser.step()
                optimiser.zero_grad()
    return {name: before[name] - p.detach() for name, p in module.named_parameters() if p.requires_grad}


def assert_same(found, expected, relative=1e-6):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert float((found[name] - tensor).norm()) <= relative * float(tensor.norm()) + 1e-12, name


@pytest.mark.parametrize("options", CLIENTS)
@pytest.mark.parametrize(("epochs", "batch_size"), [(1, 5), (3, 2)])
def test_a_client_moves_as_torch_optim_does(options, epochs, batch_size, examples):
    module, batch = build_model(Compact(), SHAPE, 5, seed=1).double(), examples(5, SHAPE, dtype=torch.float64)
    words = f"fedavg:epochs={epochs},batch_size={batch_size},learning_rate=0.05,optimiser={options}"
    client = build(LOCAL_UPDATES, words, kind="local update")
    learner, state = learner_and_state(module)
    found = client.expected(learner, state, batch, observed={})
    theirs = CLIENTS[options](list(module.parameters()), 0.05)
    assert_same(found, trained(module, batch, theirs, epochs=epochs, batch_size=batch_size))
    assert_same(client(learner, state, batch, generator=seeded(0, "client")).params, found, 0.0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("optimiser", ["sgd,momentum=0.9", "adamw"])
@pytest.mark.parametrize("words", ["cross_entropy:label_smoothing=0.2", "cross_entropy:reduction=sum"])
def test_losses_and_types_are_those_of_a_training_loop(words, optimiser, dtype, examples):
    """In float32 the weights agree to 1e-6; their difference, as far as their rounding lets it."""
    module, batch = build_model(Compact(), SHAPE, 5, seed=1).to(dtype), examples(5, SHAPE, dtype=dtype)
    options = {"label_smoothing": 0.2} if "smoothing" in words else {"reduction": "sum"}
    learner, state = learner_and_state(module, build_loss(words))
    client = build(LOCAL_UPDATES, f"fedavg:epochs=2,batch_size=2,optimiser={optimiser}", kind="local update")
    found = client.expected(learner, state, batch, observed={})
    theirs = CLIENTS[optimiser](list(module.parameters()), 0.01)
    moved = trained(module, batch, theirs, epochs=2, batch_size=2, loss=nn.CrossEntropyLoss(**options))
    if dtype is torch.float64:
        assert_same(found, moved)
    after = [tree.sub(state.params, update) for update in (found, moved)]
    assert_same(*after, 1e-6)


def test_a_trained_head_follows_a_shuffled_loader(examples):
    """A frozen backbone, BatchNorm in train mode, a new order in each epoch."""
    shape = (3, 9, 9)
    module, batch = build_model(ConvNet(width=2), shape, 5, seed=1).double(), examples(6, shape, dtype=torch.float64)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name.startswith("head"))
    learner, state = learner_and_state(module.train(), mode="train")
    assert all(name.startswith("head") for name in state.params)
    client = FedAvg(2, 2, 0.1, shuffle=True, optimiser=LocalAdam())
    found = client.run(learner, state, batch, generator=seeded(0, "order"))
    generator = seeded(0, "order")
    orders = [torch.randperm(6, generator=generator) for _ in range(2)]
    theirs = torch.optim.Adam([p for p in module.parameters() if p.requires_grad], 0.1)
    assert_same(found, trained(module, batch, theirs, epochs=2, batch_size=2, orders=orders))


@pytest.mark.parametrize("accumulate", [2, 3])
def test_a_client_accumulates_as_a_training_loop_does(accumulate, examples):
    shape = (3, 9, 9)
    module, batch = build_model(ConvNet(width=2), shape, 5, seed=1).double(), examples(7, shape, dtype=torch.float64)
    learner, state = learner_and_state(module.train(), mode="train")
    found = FedAvg(2, 2, 0.1, optimiser=LocalSGD(momentum=0.5), accumulate=accumulate).expected(
        learner, state, batch[:6], observed={}
    )
    theirs = torch.optim.SGD(module.parameters(), 0.1, momentum=0.5)
    assert_same(found, trained(module, batch[:6], theirs, epochs=2, batch_size=2, accumulate=accumulate), 1e-9)


@pytest.mark.parametrize(
    ("options", "after_backward"),
    [
        ({"clip_norm": 0.5}, lambda module: nn.utils.clip_grad_norm_(module.parameters(), 0.5)),
        ({"clip_norm": 1e6}, lambda module: nn.utils.clip_grad_norm_(module.parameters(), 1e6)),
        ({"clip_value": 0.01}, lambda module: nn.utils.clip_grad_value_(module.parameters(), 0.01)),
    ],
)
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_a_client_clips_as_torch_does(options, after_backward, optimiser, examples):
    module, batch = build_model(Compact(), SHAPE, 5, seed=1).double(), examples(5, SHAPE, dtype=torch.float64)
    learner, state = learner_and_state(module)
    found = fedavg(2, 2, 0.05, optimiser=optimiser, **options).expected(learner, state, batch, observed={})
    theirs = CLIENTS[optimiser](list(module.parameters()), 0.05)
    assert_same(found, trained(module, batch, theirs, epochs=2, batch_size=2, after_backward=after_backward))


@pytest.mark.parametrize("optimiser", ["sgd,momentum=0.9", "adam"])
def test_the_proximal_term_is_that_of_the_loss(optimiser, examples):
    """FedProx adds mu / 2 |w - w0|^2 to the loss, so autograd of that is the answer."""
    module, batch = build_model(Compact(), SHAPE, 5, seed=1).double(), examples(5, SHAPE, dtype=torch.float64)
    learner, state = learner_and_state(module)
    words = f"fedavg:epochs=2,batch_size=2,learning_rate=0.05,proximal=0.7,optimiser={optimiser}"
    found = build(LOCAL_UPDATES, words, kind="local update").expected(learner, state, batch, observed={})
    start = {name: p.detach().clone() for name, p in module.named_parameters()}

    def pull_home(module: nn.Module) -> None:
        (0.35 * sum((p - start[name]).square().sum() for name, p in module.named_parameters())).backward()

    theirs = CLIENTS[optimiser](list(module.parameters()), 0.05)
    assert_same(found, trained(module, batch, theirs, epochs=2, batch_size=2, after_backward=pull_home))


@pytest.mark.parametrize(
    "client",
    [
        FedAvg(2, 2, 0.1, optimiser=LocalSGD(0.9, weight_decay=0.1, nesterov=True)),
        FedAvg(2, 2, 0.1, optimiser=LocalAdam(eps=1e-2), proximal=0.3),
        FedAvg(1, 1, 0.1, clip_norm=0.5, accumulate=2),
    ],
    ids=lambda client: type(client.optimiser).__name__,
)
@pytest.mark.parametrize("route", [DoubleBackward(), Tangent()], ids=repr)
def test_every_route_differentiates_every_client(client, route, examples):
    """Step by step, backwards through the optimiser, equals autograd through the whole of ``expected``."""
    module, batch = build_model(Compact(), SHAPE, 5, seed=1).double(), examples(4, SHAPE, dtype=torch.float64)
    learner, state = learner_and_state(module)
    observed = client.expected(learner, state, examples(4, SHAPE, seed=3, dtype=torch.float64), observed={})
    problem = MatchingProblem(learner, state, client, observed, Euclidean(), batch.labels)
    leaf = batch.inputs.clone().requires_grad_()
    expected = torch.autograd.grad(problem.distance(problem.update(leaf)), leaf)[0]
    found = route.one(problem, batch.inputs)
    assert torch.allclose(found.gradient, expected, rtol=1e-6, atol=1e-9 * float(expected.abs().max()))


def test_the_derivative_is_finite_where_a_gradient_vanishes(examples):
    """Of a dead unit Adam keeps a zero, whose root has no slope."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(192, 4), nn.ReLU(), nn.Linear(4, 5))
    with torch.no_grad():
        module[1].bias[:2] = -1e3
    learner, state = learner_and_state(module)
    batch = examples(2, SHAPE)
    leaf = batch.inputs.clone().requires_grad_()
    for client in (fedavg(2, 1, 0.01, optimiser="adam"), fedavg(2, 1, 0.01, clip_norm=0.1)):
        update = client.expected(learner, state, type(batch)(leaf, batch.labels), observed={})
        total = sum(tensor.square().sum() for tensor in update.values())
        assert bool(torch.autograd.grad(total, leaf)[0].isfinite().all())


@pytest.mark.parametrize(
    ("words", "naming"),
    [
        ("optimiser=rmsprop", "rmsprop"),
        ("optimiser=adam,momentum=0.9", "momentum"),
        ("beta1=0.5", "beta1"),
        ("momentum=-1", "momentum"),
        ("nesterov=True", "momentum"),
        ("optimiser=adam,eps=0", "eps"),
        ("optimiser=adamw,beta2=1", "beta2"),
        ("clip_norm=0", "clip_norm"),
        ("proximal=-1", "proximal"),
        ("accumulate=0", "accumulate"),
        ("weight_decay=inf", "weight_decay"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(words, naming):
    with pytest.raises(InvalidCase, match=naming):
        build(LOCAL_UPDATES, f"fedavg:{words}", kind="local update")


@pytest.mark.parametrize(
    "optimiser", [LocalSGD(), LocalSGD(0.9), LocalSGD(0.9, 0.3), LocalSGD(0.9, nesterov=True)], ids=repr
)
def test_the_gain_is_how_far_a_constant_gradient_carries(optimiser):
    params, memory = {"w": torch.zeros(1, dtype=torch.float64)}, ()
    for index in range(5):
        params, memory = optimiser.step(params, {"w": torch.ones(1).double()}, memory, index=index, rate=0.1)
    assert float(-params["w"]) == pytest.approx(0.1 * optimiser.gain(5))


def test_a_client_says_of_itself_what_is_not_the_default():
    assert repr(FedAvg(4, 1, 0.3)) == "FedAvg(epochs=4, batch_size=1, learning_rate=0.3, shuffle=False)"
    client = FedAvg(optimiser=LocalAdam(eps=1e-3), clip_norm=2.0)
    assert eval(repr(client), {"FedAvg": FedAvg, "LocalAdam": LocalAdam}) == client  # noqa: S307
