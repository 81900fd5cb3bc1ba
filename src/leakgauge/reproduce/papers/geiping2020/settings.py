"""How each row is measured: the client, the model it was sent, and the attack, at every scale."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from leakgauge.attacks.base import Attack
from leakgauge.attacks.budget import Budget
from leakgauge.attacks.federated import MidwayMatching
from leakgauge.attacks.matching import (
    CosineDecay,
    FrozenDifference,
    GradientMatching,
    Pixels,
    SignedAdam,
    StepDecay,
    TotalVariation,
)
from leakgauge.attacks.recipes import (
    best,
    idlg,
    inverting_gradients,
)
from leakgauge.models import MLP, ConvNet, ModelFactory, Plain, ResNet, lenet_zhu
from leakgauge.protocol.local_update import FedAvg
from leakgauge.reproduce.draws import InOrder
from leakgauge.reproduce.measures.updates import Setting, budget_of, limit
from leakgauge.reproduce.papers.geiping2020.published import (
    EUCLIDEAN,
    LENET,
    OURS,
    PROPOSED,
    TABLE4,
    LocalClient,
)
from leakgauge.reproduce.scales import Scale, at_scale
from leakgauge.training import Pretrained, Training

_LOCAL_RATE = 1e-4
# The paper's 300 iterations, taken as calls of torch's L-BFGS at its default of 20 evaluations; a step here is one.
_LBFGS_STEPS = 300 * 20

# Plain SGD at one rate, whose accuracy is in the result; at scale long weights of a training with weight decay and
# augmentation, as the authors' was. Without them a LeNet ends at 41 % instead of 56, and gives away far less.
_LENET_TRAINING: Mapping[Scale, Training | Pretrained] = {
    "smoke": Training(steps=2),
    "cpu": Training(steps=2_000, learning_rate=0.02),
    "long": Pretrained(
        "lenet-3-cifar10.safetensors", "python benchmarks/trained_victim.py --model lenet:convolutions=3"
    ),
    "full": Training(steps=40_000, batch_size=128, learning_rate=0.02),
}
_RESNET_TRAINING: Mapping[Scale, Training | Pretrained] = {
    "smoke": Training(steps=2, batch_size=4),
    "cpu": Training(steps=200, batch_size=16, learning_rate=0.02),
    "long": Pretrained("resnet20-16-cifar10.safetensors", "python benchmarks/resnet20_weights.py"),
    "full": Training(steps=40_000, batch_size=128, learning_rate=0.05),
}

_PLAIN_TRAINING: Mapping[Scale, Training | Pretrained] = {
    **_LENET_TRAINING,
    "long": Training(steps=3_000, batch_size=64),
}

_FRESH = 2_000
"""The first test image at scale long: no recipe was tuned on those from there on."""


def federated_attack(tv_weight: float) -> Attack:
    """The attack on clients of several local steps: as `inverting_gradients`, at ten times its rate [appendix C]."""
    # A rate of 1 in normalised pixels.
    return replace(inverting_gradients(tv_weight), optimiser=SignedAdam(learning_rate=0.25, schedule=StepDecay()))


def midway_attack(client: LocalClient) -> Attack:
    """Our attack on such clients: one gradient in the middle of their way, at the rate and schedule of `best`."""
    return MidwayMatching(
        GradientMatching(
            priors=(TotalVariation(3e-3 if client.images > 4 else 1e-3),),
            parametrisation=Pixels(spread=0.1),
            optimiser=SignedAdam(0.1, CosineDecay()),
            differentiation=FrozenDifference(),
            budget=Budget(steps=4_800),
        )
    )


def _limit(
    attack: Attack,
    scale: Scale,
    *,
    seconds: float | None = None,
    steps: int | None = None,
    long: Budget | None = None,
) -> Attack:
    """At cpu scale at most so many of its seconds, or so many steps; at long scale the paper's iterations, unless the
    net is one on which fewer will do."""
    own = budget_of(attack)
    cpu = Budget(steps=steps or (own and own.steps), seconds=seconds, clock="cpu")
    return limit(attack, scale, cpu=cpu, long=long or own)


def _resnet(depth: int, width: int, scale: Scale, *, narrow: int) -> ResNet:
    """The paper's network, which starts by Kaiming's rule beyond cpu scale; ``narrow`` is its width at scale long."""
    if scale in ("smoke", "cpu"):
        return ResNet(depth, max(1, width // 16) if scale == "smoke" else width)
    return ResNet(depth, narrow if scale == "long" else width, initialisation="kaiming")


def _later(scale: Scale) -> InOrder:
    return InOrder(_FRESH if scale == "long" else 0)


def _first(scale: Scale) -> InOrder:
    """Our recipes were tuned on images below 100; at full scale they are the paper's own."""
    return InOrder(at_scale({"smoke": 0, "cpu": 100, "long": _FRESH, "full": 0}, scale))


def _convnet(scale: Scale, *, several: bool) -> ModelFactory:
    """The paper's ConvNet; at scale long two convolutions, on which the paper's attack ends well above its null."""
    if scale == "long":
        return Plain(convolutions=2)
    # A quarter of the paper's 64 channels on a CPU where a step through several images or steps takes too long.
    return ConvNet(at_scale({"smoke": 2, "cpu": 16 if several else 64, "full": 64}, scale))


_RESIDUAL = Budget(seconds=20.0, clock="cpu")
"""On residual networks, where the paper's iterations would take hours: what ends at its null then says so."""
_SETTLED = Budget(steps=1_000)
"""On nets of two convolutions, where a search has settled by then."""
_PAIRED = 5
"""Nulls at scale long of rows that one null did not tell apart: one of its own for each image, some of which score low
whatever is returned."""


def table1(architecture: str, trained: bool, attack_name: str, scale: Scale) -> Setting:
    small = architecture == LENET
    # The restarts of appendix C.1, fewer where they would leave no time for steps.
    restarts = at_scale({"smoke": 2, "cpu": 1, "full": 16 if small else 8}, scale)
    attacks: Mapping[str, Callable[[], Attack]] = {
        EUCLIDEAN: lambda: idlg(_LBFGS_STEPS, restarts),
        PROPOSED: lambda: inverting_gradients(TABLE4[architecture, trained]),
        OURS: lambda: best(steps=4_800),
    }
    # Six thousand evaluations of L-BFGS take a minute on LeNet, spent where the paper's number is high.
    slow = small and attack_name == EUCLIDEAN and not trained
    seconds = 35.0 if not small else 60.0 if slow else 6.0
    training = at_scale(_LENET_TRAINING if small else _RESNET_TRAINING, scale)
    # The untrained residual network is twice as wide as the trained one, which lets our own attack see spans.
    iterations = small or attack_name == PROPOSED
    close = trained and not small and attack_name == PROPOSED
    return Setting(
        model=lenet_zhu() if small else _resnet(20, 64, scale, narrow=16 if trained else 32),
        attack=_limit(attacks[attack_name](), scale, seconds=seconds, long=None if iterations else _RESIDUAL),
        updates=at_scale({"smoke": 1, "cpu": 6 if slow else 12 if small else 3, "long": 5, "full": 100}, scale),
        nulls=at_scale(
            {"smoke": 1, "cpu": 2 if small and not slow else 1, "long": _PAIRED if close else 1, "full": 10}, scale
        ),
        training=training if trained else None,
        draw=_first(scale),
    )


def _on_local_steps(client: LocalClient, tv_weight: float | None) -> Attack:
    """The paper's attack with its weight of total variation; ours without one."""
    return midway_attack(client) if tv_weight is None else federated_attack(tv_weight)


def table2(client: LocalClient, tv_weight: float | None, scale: Scale) -> Setting:
    return Setting(
        model=_convnet(scale, several=client.images > 1),
        attack=_limit(_on_local_steps(client, tv_weight), scale, seconds=100.0, long=_SETTLED),
        updates=at_scale({"smoke": 1, "cpu": 2, "long": 5, "full": 100}, scale),
        nulls=at_scale({"smoke": 1, "cpu": 1, "full": 10}, scale),
        batch_size=client.images,
        local_update=FedAvg(client.epochs, client.minibatch, _LOCAL_RATE),
        draw=_later(scale),
    )


def table3(attack: GradientMatching, scale: Scale) -> Setting:
    return Setting(
        model=Plain(convolutions=2) if scale == "long" else _resnet(18, 64, scale, narrow=64),
        attack=_limit(attack, scale, seconds=90.0),
        updates=at_scale({"smoke": 1, "cpu": 2, "long": 10, "full": 10}, scale),
        nulls=at_scale({"smoke": 1, "cpu": 1, "long": 10, "full": 10}, scale),
        training=at_scale(_PLAIN_TRAINING if scale == "long" else _RESNET_TRAINING, scale),
        draw=_later(scale),
    )


def plain_nets(depth: int, width: int, scale: Scale) -> Setting:
    """Ours: what Figure 4 asks, of nets on which the paper's attack ends well above its null on a CPU."""
    return Setting(
        model=Plain(depth, width if scale != "smoke" else 2),
        attack=_limit(inverting_gradients(), scale, steps=150, long=_SETTLED),
        updates=at_scale({"smoke": 1, "cpu": 2, "long": 5, "full": 10}, scale),
        nulls=at_scale({"smoke": 1, "cpu": 1, "full": 10}, scale),
        draw=_later(scale),
    )


def figure4(depth: int, width: int, ours: bool, scale: Scale) -> Setting:
    close = (depth, width, ours) in {(18, 64, False), (18, 16, True)}
    return Setting(
        model=_resnet(depth, width, scale, narrow=max(8, width // 4)),
        # Equal steps, not equal seconds: otherwise the narrow models would get thirty times the steps of the wide.
        attack=_limit(
            best(steps=4_800) if ours else inverting_gradients(),
            scale,
            steps=100,
            long=_RESIDUAL if ours else Budget(steps=1_600),
        ),
        updates=at_scale({"smoke": 1, "cpu": 2, "long": 5, "full": 10}, scale),
        nulls=at_scale({"smoke": 1, "cpu": 1, "long": _PAIRED if close else 1, "full": 10}, scale),
        draw=_later(scale),
    )


def figure5(steps: int, rate: float, tv_weight: float | None, scale: Scale) -> Setting:
    many = steps > 5
    return Setting(
        model=_convnet(scale, several=True),
        attack=_limit(
            _on_local_steps(LocalClient(steps, 1, 1), tv_weight),
            scale,
            seconds=300.0 if many else 60.0,
            long=replace(_SETTLED, steps=200) if many else _SETTLED,
        ),
        updates=at_scale({"smoke": 1, "cpu": 1 if many else 2, "long": 5, "full": 10}, scale),
        nulls=at_scale({"smoke": 1, "cpu": 1, "full": 10}, scale),
        local_update=FedAvg(6 if many and scale == "smoke" else steps, 1, rate),
        draw=_later(scale),
    )


def figure6(ours: bool, scale: Scale) -> Setting:
    # At long scale nets on which a batch of 100 is affordable: two convolutions for a search, or a wide first linear
    # layer, out of whose gradient our attack takes the batch in closed form.
    narrow = MLP(hidden=(2_000, 100)) if ours else Plain(convolutions=2)
    paper = ResNet(32, at_scale({"smoke": 1, "cpu": 16, "full": 160}, scale))
    return Setting(
        model=narrow if scale == "long" else paper,
        attack=_limit(
            best(steps=24_000) if ours else inverting_gradients(steps=24_000),
            scale,
            seconds=600.0,
            long=None if ours else replace(_SETTLED, steps=600),
        ),
        updates=2 if ours and scale == "long" else 1,
        batch_size=at_scale({"smoke": 4, "cpu": 16, "long": 100, "full": 100}, scale),
        training=Training(steps=3_900, batch_size=128, learning_rate=0.05) if scale == "full" else None,
        draw=_later(scale),
    )
