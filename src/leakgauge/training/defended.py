"""Training by the very updates that are attacked: each step's gradient passes through the defence."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge import params as tree
from leakgauge.checkpoints import Resumable
from leakgauge.errors import InvalidCase, InvalidFile
from leakgauge.protocol.learner import Learner, probe_of
from leakgauge.protocol.local_update import Defence, FedSGD, LocalUpdate
from leakgauge.protocol.losses import Targets
from leakgauge.randomness import seeded
from leakgauge.schedules import ConstantRate, Schedule
from leakgauge.training.disguises import Disguise, Drawn, Undisguised
from leakgauge.training.train import Training, steps_per_epoch
from leakgauge.types import Batch, BatchStatistics, ModelState, ParamTree

_PAIRS = 40
"""How many steps of a training are also made undefended, for the clock alone."""


@dataclass(frozen=True)
class _Now:
    """Where a training stands: one value, so that an interruption finds it before or after a step and never within."""

    step: int
    state: ModelState
    velocity: ParamTree
    seconds: tuple[tuple[float, float], ...] = ()
    diverged: bool = False


class DefendedTraining(Resumable):
    """SGD with momentum on defended updates: v <- mu v + u, w <- w - rate v, as ``torch.optim.SGD`` does.

    u is ``defence(FedSGD())`` on the mini-batch, the same object that a round sends and an attacker sees. Order and
    randomness are functions of the seed and the step, so that two defences see the same batches and a training that is
    resumed makes the steps it would have made.
    """

    def __init__(
        self,
        learner: Learner,
        state: ModelState,
        data: Batch,
        defence: Defence,
        training: Training,
        schedule: Schedule = ConstantRate(),
        disguise: Disguise = Undisguised(),
        *,
        seed: int = 0,
    ) -> None:
        if len(data) == 0:
            raise InvalidCase("There is no training data in this dataset; add the training files.")
        self.learner = learner.in_mode("train")
        self.data, self.training, self.schedule, self.seed = data, training, schedule, seed
        self.disguise = disguise
        self._plain: LocalUpdate = FedSGD()
        self._defended = defence(self._plain)
        self._values = _values_per_example(self.learner, state, probe_of(data.inputs))
        # A language model has no classes, and no disguise asks for them.
        texts = self.learner.targets is Targets.TOKENS
        self._classes = 0 if texts else self.learner.num_classes(state, probe_of(data.inputs))
        self._order: tuple[int, Tensor, Drawn] | None = None
        self._now = _Now(0, state, tree.map_tensors(torch.zeros_like, state.params))

    @property
    def state(self) -> ModelState:
        return self._now.state

    @property
    def steps(self) -> int:
        return self.training.steps

    @property
    def done(self) -> int:
        return self._now.step

    @property
    def diverged(self) -> bool:
        """Whether a weight stopped being a number; the training ends there."""
        return self._now.diverged

    @property
    def over(self) -> bool:
        return self.diverged or super().over

    @property
    def seconds(self) -> Tensor:
        """Seconds of the same steps, pairs x (defended, undefended)."""
        return torch.tensor(self._now.seconds, dtype=torch.float64).reshape(-1, 2)

    def step(self) -> None:
        now = self._now
        # The first step pays for what is only allocated once.
        every = max(1, self.training.steps // _PAIRS)
        timed = now.step > 0 and now.step % every == 0
        seconds, batch = now.seconds, self.batch(now.step)
        if timed and len(seconds) % 2:  # in turns, so that neither always finds the caches warm
            plain = self._time_step(self._plain, batch)[1]
            (state, velocity), defended = self._time_step(self._defended, batch)
        else:
            (state, velocity), defended = self._time_step(self._defended, batch)
            plain = self._time_step(self._plain, batch)[1] if timed else 0.0
        self._now = _Now(
            now.step + 1,
            state,
            velocity,
            (*seconds, (defended, plain)) if timed else seconds,
            diverged=not tree.is_finite(state.params),
        )

    def batch(self, step: int) -> Batch:
        """The mini-batch of a step: every epoch in a new order and disguise, without what fills no batch."""
        size = self.training.batch_size
        epoch, place = divmod(step, steps_per_epoch(len(self.data), size))
        if self._order is None or self._order[0] != epoch:
            order = torch.randperm(len(self.data), generator=seeded(self.seed, "order", epoch))
            keys = seeded(self.seed, "disguise", epoch)
            drawn = self.disguise.epoch(self.data, classes=self._classes, generator=keys)
            self._order = epoch, order.to(self.data.labels.device), drawn
        _, order, drawn = self._order
        return drawn(order[place * size : (place + 1) * size], seeded(self.seed, "mask", step))

    def snapshot(self) -> dict[str, Tensor]:
        now = self._now
        return {
            **{f"params.{name}": tensor for name, tensor in now.state.params.items()},
            **{f"buffers.{name}": tensor for name, tensor in now.state.buffers.items()},
            **{f"velocity.{name}": tensor for name, tensor in now.velocity.items()},
            "training.step": torch.tensor(now.step),
            "training.seconds": self.seconds,
            "training.diverged": torch.tensor(now.diverged),
        }

    def restore(self, snapshot: Mapping[str, Tensor]) -> None:
        fresh = self.snapshot()
        if snapshot.keys() != fresh.keys() or any(
            snapshot[name].dtype != tensor.dtype
            or (name != "training.seconds" and snapshot[name].shape != tensor.shape)
            for name, tensor in fresh.items()
        ):
            raise InvalidFile("The checkpoint is of another training; delete it or choose another folder.")

        def part(prefix: str, like: ParamTree) -> dict[str, Tensor]:
            return {name: snapshot[f"{prefix}.{name}"].to(tensor.device) for name, tensor in like.items()}

        state = ModelState(part("params", self.state.params), part("buffers", self.state.buffers))
        self._now = _Now(
            int(snapshot["training.step"]),
            state,
            part("velocity", state.params),
            tuple((defended, plain) for defended, plain in snapshot["training.seconds"].tolist()),
            bool(snapshot["training.diverged"]),
        )

    def _time_step(self, local_update: LocalUpdate, batch: Batch) -> tuple[tuple[ModelState, ParamTree], float]:
        began = time.perf_counter()
        moved = self._move(local_update, batch)
        return moved, time.perf_counter() - began

    def _move(self, local_update: LocalUpdate, batch: Batch) -> tuple[ModelState, ParamTree]:
        """State and velocity after the next step, by a local update."""
        now = self._now
        update = local_update(self.learner, now.state, batch, generator=seeded(self.seed, "client", now.step))
        velocity = tree.add(update.params, now.velocity, scale=self.training.momentum)
        rate = self.training.learning_rate * self.schedule(now.step / self.training.steps)
        buffers = _move_statistics(
            self.learner, now.state.buffers, update.batch_statistics, examples=len(batch), values=self._values
        )
        return ModelState(tree.add(now.state.params, velocity, scale=-rate), buffers), velocity


def _values_per_example(learner: Learner, state: ModelState, probe: Tensor) -> dict[str, int]:
    """How many values of one channel each BatchNorm layer sees of one example: the height times width of its input."""
    inputs = learner.layer_inputs(state, probe, _BatchNorm)
    return {name: value.numel() // (value.shape[0] * value.shape[1]) for name, value in inputs.items()}


def _move_statistics(
    learner: Learner, buffers: ParamTree, statistics: BatchStatistics | None, *, examples: int, values: dict[str, int]
) -> dict[str, Tensor]:
    """The buffers of BatchNorm after one batch, as torch moves them, which an update does not.

    r <- (1 - m) r + m s, with the unbiased variance; m = 1 / t if a layer has none.

    The batch's statistics come with its update, so they are of what the network saw, after a defence that acts on the
    images. A layer without running statistics has nothing to move.
    """
    moved = dict(buffers)
    if statistics is None:
        return moved
    layers = dict(learner.module.named_modules())
    for name, mean in statistics.mean.items():
        if f"{name}.running_mean" not in buffers:
            continue
        count = examples * values[name]
        tracked = buffers[f"{name}.num_batches_tracked"] + 1
        momentum = layers[name].momentum
        share = 1.0 / float(tracked) if momentum is None else float(momentum)
        unbiased = statistics.variance[name] * (count / max(count - 1, 1))
        moved[f"{name}.running_mean"] = buffers[f"{name}.running_mean"].lerp(mean, share)
        moved[f"{name}.running_var"] = buffers[f"{name}.running_var"].lerp(unbiased, share)
        moved[f"{name}.num_batches_tracked"] = tracked
    return moved
