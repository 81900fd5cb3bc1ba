"""What the tests of the sweeps share: models around one operation, and all routes against autograd."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge import params as tree
from leakgauge.attacks.matching import Cosine, DoubleBackward, FrozenDifference, StraightLine, Tangent
from leakgauge.attacks.matching.engine import NetworkGradient, trace
from leakgauge.attacks.matching.problem import MatchingProblem
from leakgauge.protocol import FedAvg, FedSGD, LocalUpdate, learner_and_state
from leakgauge.randomness import seeded
from leakgauge.types import Batch

SHAPE, CLASSES = (3, 9, 9), 5
EXACT = 1e-9


class Between(nn.Module):
    """A convolution of four channels, something, and a linear head, with a bend on either side."""

    def __init__(self, something: nn.Module, count: int = 2) -> None:
        super().__init__()
        self.conv, self.before, self.something, self.after = (
            nn.Conv2d(3, 4, 3, padding=1),
            nn.Tanh(),
            something,
            nn.Tanh(),
        )
        with torch.no_grad():
            features = self.something(torch.rand(count, 4, 9, 9)).flatten(1).shape[1]
        self.head = nn.Linear(features, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.after(self.something(self.before(self.conv(images)))).flatten(1))


class Does(nn.Module):
    """Whatever a function does with the module and its input; tensors become buffers."""

    def __init__(self, function: Callable[[Any, Tensor], Any], **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


def conv(*options: Any, **more: Any) -> nn.Conv2d:
    return nn.Conv2d(4, 4, *(options or (3,)), **{"padding": 1, **more})


def frozen(module: nn.Module, *names: str) -> nn.Module:
    for name, parameter in module.named_parameters():
        if not names or name in names:
            parameter.requires_grad_(False)
    return module


def unsettled(module: nn.Module, seed: int = 0) -> nn.Module:
    """In float64, with statistics and scales unlike those a layer starts with."""
    generator = seeded(seed, "unsettled")
    module = module.double()
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, _BatchNorm) and layer.running_mean is not None:
                layer.running_mean.normal_(0, 0.3, generator=generator)
                layer.running_var.uniform_(0.3, 1.5, generator=generator)
            if (
                isinstance(layer, _BatchNorm | nn.GroupNorm | nn.LayerNorm | nn.InstanceNorm2d)
                and layer.weight is not None
            ):
                layer.weight.uniform_(0.5, 1.5, generator=generator)
                if layer.bias is not None:
                    layer.bias.normal_(0, 0.3, generator=generator)
    return module


def posed(
    module: nn.Module,
    *,
    objective=None,
    loss=cross_entropy,
    mode="eval",
    count: int = 2,
    labels: Tensor | None = None,
    local_update: LocalUpdate | None = None,
    seed: int = 0,
    composed: bool = False,
) -> tuple[MatchingProblem, Tensor]:
    """A matching problem on a module as it is, and a candidate far from its solution."""
    learner, state = learner_and_state(module, loss, mode=mode)
    learner = replace(learner, composed=composed)
    generator = seeded(seed, "posed")
    truth, images = (torch.rand(count, *SHAPE, generator=generator, dtype=torch.float64) for _ in range(2))
    truth, images = truth.to(state.dtype), images.to(state.dtype)
    if labels is None:
        labels = torch.randint(CLASSES, (count,), generator=generator)
    client = local_update or FedSGD()
    runs = FedAvg(2, 2, 0.05) if isinstance(client, StraightLine) else client
    observed = tree.map_tensors(
        Tensor.detach, runs.expected(learner, state, Batch(truth, labels), observed=state.params)
    )
    return MatchingProblem(learner, state, client, observed, objective or Cosine(), labels), images


def error(left: Tensor, right: Tensor) -> float:
    return float((left - right).norm() / right.norm())


def plain(case: MatchingProblem, images: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Loss and derivatives by nothing but autograd through the whole of what the client does."""
    leaf = images.clone().requires_grad_()
    soft = None if labels is None else labels.clone().requires_grad_()
    posed = case if soft is None else replace(case, labels=soft)
    value = posed.distance(posed.update(leaf))
    found = torch.autograd.grad(value, [leaf] if soft is None else [leaf, soft])
    return value.detach(), found[0], None if soft is None else found[1]


def every_derivative_is_autograds(case: MatchingProblem, images: Tensor, bits: Any) -> None:
    before = bits(case, images)
    value, gradient, _ = plain(case, images)
    assert Tangent().resolve(case, images) == Tangent()
    for route, tolerance in ((DoubleBackward(), EXACT), (Tangent(), EXACT), (FrozenDifference(), 1e-4)):
        found = route.one(case, images)
        assert error(found.gradient, gradient) < tolerance, route
        torch.testing.assert_close(found.value, value, rtol=1e-10, atol=1e-13)
    second_derivatives_are_autograds(case, images)
    assert bits(case, images) == before


def second_derivatives_are_autograds(case: MatchingProblem, images: Tensor) -> None:
    """Of <g, v> in images and parameters, with BatchNorm as a layer of its own."""
    learner, state = case.learner, case.state
    leaves = {name: p.clone().requires_grad_() for name, p in state.params.items()}
    leaf = images.clone().requires_grad_()
    gradient = learner.gradient(replace(state, params=leaves), Batch(leaf, case.labels))
    product = sum((gradient[name] * v).sum() for name, v in case.observed.items())
    expected = torch.autograd.grad(product, [leaf, *leaves.values()], materialize_grads=True)
    # Without any BatchNorm there is nothing to fold, and the network is the one the routes have read already.
    fold = not any(isinstance(layer, _BatchNorm) for layer in learner.module.modules())
    network = NetworkGradient.at(
        trace(learner, state, images, fold=fold), {**state.params, **state.buffers}, learner.loss
    )
    with torch.no_grad():
        ours, kept = network.gradient(images, case.labels)
        pulled = network.pull(kept, tree.map_tensors(torch.clone, case.observed), of_params=True)
    assert error(pulled.images, expected[0]) < EXACT
    scale = torch.stack([tensor.norm() for tensor in expected[1:]]).max()
    for name, second in zip(leaves, expected[1:], strict=True):
        zero = torch.zeros_like(second)
        assert float((pulled.params.get(name, zero) - second).norm()) <= EXACT * float(second.norm() + 1e-3 * scale), (
            name
        )
        first = gradient[name].detach()
        torch.testing.assert_close(ours.get(name, zero), first, rtol=1e-9, atol=1e-13)


def coded(function: Callable[[Any, Tensor], Tensor]) -> nn.Module:
    generator = seeded(0, "buffers")
    return Does(
        function,
        conv=conv(),
        other=conv(1, padding=0),
        bend=nn.Tanh(),
        mean=torch.rand(4, 1, 1, generator=generator),
        std=torch.rand(4, 1, 1, generator=generator) + 0.5,
        mask=torch.rand(4, 9, 9, generator=generator),
    )
