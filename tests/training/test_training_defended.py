from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from leakgauge.data import Text
from leakgauge.defences import Chain, Clipping, GaussianNoise, InstaHide, MixUp, NoDefence, Pruning
from leakgauge.errors import InvalidCase, InvalidFile
from leakgauge.models import GPT
from leakgauge.protocol import FedSGD, LocalUpdate, learner_and_state
from leakgauge.protocol.local_update import UpdateTransform
from leakgauge.protocol.losses import NextToken
from leakgauge.schedules import ConstantRate, CosineDecay, RegularDecay, Schedule
from leakgauge.training import DefendedTraining, Training, hits
from leakgauge.training.models import model_for
from leakgauge.types import Batch, ParamTree

PLAIN, FLAT = NoDefence(), ConstantRate()


def points(count: int, side: int = 6, classes: int = 3) -> Batch:
    """Classes that brightness tells apart."""
    labels = torch.arange(count) % classes
    noise = torch.rand(count, 1, side, side, generator=torch.Generator().manual_seed(0))
    return Batch(labels.view(-1, 1, 1, 1) / classes + noise / (2 * classes), labels)


def dense() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.Tanh(), nn.Linear(8, 3))


def normalised(momentum: float | None = 0.1) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4, momentum=momentum),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(144, 6),
        nn.BatchNorm1d(6, momentum=momentum),
        nn.Linear(6, 3),
    )


def start(
    module: nn.Module,
    defence: object = PLAIN,
    schedule: Schedule = FLAT,
    *,
    seed: int = 0,
    data: Batch | None = None,
    **settings: float,
) -> DefendedTraining:
    learner, state = learner_and_state(module)
    chosen = Training(**({"steps": 12, "batch_size": 8, "learning_rate": 0.1} | settings))  # type: ignore[arg-type]
    return DefendedTraining(
        learner,
        state,
        points(30) if data is None else data,
        defence,
        chosen,
        schedule,
        seed=seed,  # type: ignore[arg-type]
    )


def held(training: DefendedTraining) -> dict[str, torch.Tensor]:
    return {**training.state.params, **training.state.buffers}


@pytest.mark.parametrize("schedule", [ConstantRate(), RegularDecay(every=0.5), CosineDecay()])
@pytest.mark.parametrize("build", [dense, normalised, lambda: normalised(momentum=None)])
def test_undefended_training_is_torchs_sgd_with_momentum_step_by_step(build: object, schedule: Schedule) -> None:
    # In float64: in float32 the rounding of two orders of summation grows beyond 1e-6 within a dozen steps.
    module = build().double()  # type: ignore[operator]
    data = Batch(points(30).inputs.double(), points(30).labels)
    training, reference = start(module, schedule=schedule, data=data), copy.deepcopy(module).train()
    optimiser = torch.optim.SGD(reference.parameters(), lr=0.1, momentum=0.9)
    for step in range(12):
        batch = training.batch(step)
        optimiser.param_groups[0]["lr"] = 0.1 * schedule(step / 12)
        optimiser.zero_grad()
        cross_entropy(reference(batch.inputs), batch.labels).backward()
        optimiser.step()
        training.step()
        expected = {**dict(reference.named_parameters()), **dict(reference.named_buffers())}
        assert held(training).keys() == expected.keys()
        for name, tensor in held(training).items():
            torch.testing.assert_close(tensor, expected[name].detach(), rtol=1e-6, atol=1e-6, msg=f"{name} at {step}")
    assert training.over


def test_running_statistics_move_and_the_module_given_stays_as_it_was() -> None:
    module = normalised()
    before = copy.deepcopy(module.state_dict())
    training = start(module)
    training.step()
    assert not torch.equal(training.state.buffers["1.running_mean"], before["1.running_mean"])
    assert int(training.state.buffers["1.num_batches_tracked"]) == 1
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())


def test_an_epoch_shows_each_image_at_most_once_and_the_next_in_another_order() -> None:
    images = points(30)
    training = start(dense(), data=Batch(images.inputs, torch.arange(30)))
    epochs = [torch.cat([training.batch(step).labels for step in range(first, first + 3)]) for first in (0, 3)]
    assert all(len(order.unique()) == 24 for order in epochs)
    assert not torch.equal(*epochs)
    assert torch.equal(training.batch(0).labels, epochs[0][:8])


class Recorder(UpdateTransform):
    """Notes that it was asked, and sends nothing."""

    def __init__(self) -> None:
        self.asked = 0

    def transform(self, params: ParamTree, *, generator: torch.Generator) -> ParamTree:
        self.asked += 1
        return {name: torch.zeros_like(tensor) for name, tensor in params.items()}

    def anticipate(self, params: ParamTree, *, observed: ParamTree) -> ParamTree:
        return params


def test_every_step_goes_through_the_defence_and_nothing_else_moves_a_weight() -> None:
    recorder, module = Recorder(), dense()
    training = start(module, recorder)
    while not training.over:
        training.step()
    assert recorder.asked == 12
    assert all(torch.equal(tensor, module.state_dict()[name]) for name, tensor in training.state.params.items())


def test_a_step_applies_what_the_attacked_client_would_send() -> None:
    defence = Chain((Clipping(0.5), Pruning(0.2)))
    module = dense()
    training = start(module, defence, momentum=0.0)
    learner, state = learner_and_state(module, mode="train")
    local_update: LocalUpdate = defence(FedSGD())
    sent = local_update(learner, state, training.batch(0), generator=torch.Generator())
    training.step()
    for name, tensor in sent.params.items():
        assert int((tensor != 0).sum()) == max(1, round(0.2 * tensor.numel()))
        torch.testing.assert_close(training.state.params[name], state.params[name] - 0.1 * tensor)


@pytest.mark.parametrize("defence", [NoDefence(), GaussianNoise(0.01), MixUp(k=2), InstaHide(k=2)])
@pytest.mark.parametrize("stopped", [1, 5, 11])
def test_a_training_resumed_from_its_snapshot_ends_with_the_same_bits(defence: object, stopped: int) -> None:
    whole = start(normalised(), defence, CosineDecay())
    while not whole.over:
        whole.step()
    first = start(normalised(), defence, CosineDecay())
    for _ in range(stopped):
        first.step()
    second = start(normalised(), defence, CosineDecay())
    second.restore(first.snapshot())
    assert second.done == stopped
    while not second.over:
        second.step()
    assert all(torch.equal(tensor, held(whole)[name]) for name, tensor in held(second).items())
    assert len(second.seconds) == len(whole.seconds)


def test_noise_is_a_function_of_the_seed_and_batches_are_the_same_for_all_defences() -> None:
    def end(defence: object, seed: int) -> torch.Tensor:
        training = start(dense(), defence, seed=seed)
        training.step()
        return training.state.params["1.weight"]

    assert torch.equal(end(GaussianNoise(0.1), 0), end(GaussianNoise(0.1), 0))
    assert not torch.equal(end(GaussianNoise(0.1), 0), end(GaussianNoise(0.1), 1))
    assert torch.equal(start(dense()).batch(4).inputs, start(dense(), Pruning(0.1)).batch(4).inputs)


def test_a_snapshot_of_another_training_is_refused() -> None:
    training = start(dense())
    with pytest.raises(InvalidFile, match="another training"):
        training.restore(start(normalised()).snapshot())
    with pytest.raises(InvalidFile, match="another training"):
        training.restore({**training.snapshot(), "training.step": torch.tensor(0.5)})


def test_time_is_measured_in_pairs_of_the_same_steps() -> None:
    training = start(dense(), steps=100)
    while not training.over:
        training.step()
    assert 39 <= len(training.seconds) <= 50
    assert bool((training.seconds > 0).all())


class Dawdling(UpdateTransform):
    """Costs a fixed amount of work and changes nothing."""

    def transform(self, params: ParamTree, *, generator: torch.Generator) -> ParamTree:
        square = torch.full((300, 300), 0.1)
        for _ in range(10):
            square = square @ square * 1e-2
        return params

    def anticipate(self, params: ParamTree, *, observed: ParamTree) -> ParamTree:
        return params


def test_a_defence_that_takes_time_is_seen_to_take_it() -> None:
    training = start(dense(), Dawdling(), steps=20)
    while not training.over:
        training.step()
    assert float((training.seconds[:, 0] / training.seconds[:, 1]).median()) > 1.2


def test_a_training_that_diverges_ends_and_says_so() -> None:
    training = start(dense(), GaussianNoise(1e30), learning_rate=1e30, steps=50)
    while not training.over:
        training.step()
    assert training.diverged
    assert training.done < 50


def test_training_on_nothing_is_refused() -> None:
    with pytest.raises(InvalidCase, match="no training data"):
        start(dense(), data=points(4)[:0])


def test_training_learns_what_can_be_learnt_and_hits_count_it() -> None:
    training = start(normalised(), steps=40)
    fresh = hits(training.learner, training.state, points(60), PLAIN, generator=torch.Generator())
    while not training.over:
        training.step()
    learnt = hits(training.learner, training.state, points(60), PLAIN, generator=torch.Generator())
    assert float(fresh.mean()) < 0.7
    assert float(learnt.mean()) > 0.9
    none = hits(training.learner, training.state, points(4)[:0], PLAIN, generator=torch.Generator())
    assert none.shape == (0,)


class Counting(nn.Module):
    """Adds up how many images it was asked about."""

    asked = 0

    def __init__(self) -> None:
        super().__init__()
        self.inner = dense()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        Counting.asked += len(images)
        return self.inner(images)  # type: ignore[no-any-return]


def test_instahide_is_asked_about_ten_encodings_of_each_image_and_mixup_about_the_image() -> None:
    learner, state = learner_and_state(Counting())
    for defence, times in ((InstaHide(k=2), 10), (Chain((InstaHide(k=2), Pruning(0.1))), 10), (MixUp(k=2), 1)):
        Counting.asked = 0
        hits(learner, state, points(513), defence, generator=torch.Generator())
        # Besides, two images tell how many classes there are, for each block and encoding.
        assert Counting.asked // 513 == times


def test_schedules_fall_as_published() -> None:
    paper = RegularDecay()
    assert [paper(epoch / 200) for epoch in (0, 49, 50, 100, 199)] == pytest.approx([1, 1, 0.1, 0.01, 1e-3])
    assert CosineDecay()(0) == 1
    assert CosineDecay()(0.5) == pytest.approx(0.5)
    with pytest.raises(InvalidCase, match="every"):
        replace(paper, every=0.0)


def test_a_language_model_trains_under_a_defence_without_classes():
    texts = Text()(None)
    model = model_for(texts, GPT(width=16, layers=1, heads=2, kv_heads=2), seed=0)
    learner, state = learner_and_state(model, NextToken(), mode="train")
    data = texts.train[torch.arange(4)]
    training = DefendedTraining(learner, state, data, Clipping(1.0), Training(8, 4, 0.5))
    while not training.over:
        training.step()
    before, after = (float(learner.objective(one.params, one.buffers, data)) for one in (state, training.state))
    assert after < before
