from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from leakgauge.encodings import InsideDataset
from leakgauge.errors import InvalidCase
from leakgauge.models import QuickResNet, build
from leakgauge.schedules import CosineDecay, WarmUp
from leakgauge.training import Training, accuracy, train
from leakgauge.training.disguises import Encrypted
from leakgauge.types import Batch


def points(count: int) -> Batch:
    """Two classes that the mean brightness tells apart."""
    labels = torch.arange(count) % 2
    images = labels.view(-1, 1, 1, 1) * 0.6 + 0.2 * torch.rand(
        count, 1, 4, 4, generator=torch.Generator().manual_seed(0)
    )
    return Batch(images, labels)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Dropout(0.2), nn.ReLU(), nn.Linear(8, 2))


def trained(seed: int = 0, data: Batch | None = None, **settings: float) -> nn.Module:
    model = network()
    training = Training(**({"steps": 30, "learning_rate": 0.1} | settings))  # type: ignore[arg-type]
    train(model, points(40) if data is None else data, training, generator=torch.Generator().manual_seed(seed))
    return model


def weights(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_training_learns_what_can_be_learnt() -> None:
    model = trained()
    assert accuracy(model, points(40)) == 1.0
    assert not model.training


def test_training_depends_on_its_generator_alone_and_leaves_the_global_stream() -> None:
    first = trained()
    torch.manual_seed(99)
    before = torch.get_rng_state()
    model = network()
    torch.manual_seed(99)
    train(model, points(40), Training(steps=30, learning_rate=0.1), generator=torch.Generator().manual_seed(0))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(weights(first), weights(model))
    assert not torch.equal(weights(first), weights(trained(seed=1)))


def test_no_steps_change_nothing() -> None:
    assert torch.equal(weights(trained(steps=0)), weights(network()))


@pytest.mark.parametrize("count", [1, 5, 33])
def test_batches_may_be_larger_than_the_data(count: int) -> None:
    model = trained(data=points(count), steps=5, batch_size=32)
    assert bool(torch.isfinite(weights(model)).all())


def test_training_on_nothing_is_refused() -> None:
    with pytest.raises(InvalidCase, match="no training data"):
        trained(data=points(4)[:0])


class Brightness(nn.Module):
    """Class 1 if the image is bright."""

    def forward(self, images: Tensor) -> Tensor:
        bright = images.flatten(1).mean(1) - 0.5
        return torch.stack((-bright, bright), dim=1)


def test_accuracy_is_the_share_of_examples_classified_correctly() -> None:
    data = points(10)
    assert accuracy(Brightness(), data) == 1.0
    assert accuracy(Brightness(), Batch(data.inputs, 1 - data.labels)) == 0.0
    half = Batch(data.inputs, torch.cat((data.labels[:5], 1 - data.labels[5:])))
    assert accuracy(Brightness(), half) == 0.5
    assert accuracy(Brightness(), half, block=3) == 0.5
    assert math.isnan(accuracy(Brightness(), data[:0]))


def test_weight_decay_alone_shrinks_by_the_rate_of_every_step() -> None:
    model = nn.Linear(3, 2)
    before, data = weights(model), Batch(torch.zeros(4, 3), torch.zeros(4, dtype=torch.long))
    train(
        model,
        data,
        Training(steps=3, batch_size=4, learning_rate=0.5, momentum=0.0),
        lambda scores, labels: 0 * scores.sum(),
        schedule=CosineDecay(),
        weight_decay=0.1,
        generator=torch.Generator().manual_seed(0),
    )
    shrunk = math.prod(1 - 0.5 * 0.1 * CosineDecay()(step / 3) for step in range(3))
    torch.testing.assert_close(weights(model), shrunk * before)


def test_the_layout_changes_no_more_than_rounding_and_does_not_stay() -> None:
    data = Batch(torch.rand(12, 3, 8, 8, generator=torch.Generator().manual_seed(1)), torch.arange(12) % 3)
    found = []
    for layout in (torch.contiguous_format, torch.channels_last):
        model = build(QuickResNet(4), (3, 8, 8), 3, seed=0)
        settings = Training(steps=2, batch_size=6, learning_rate=0.01)
        train(model, data, settings, layout=layout, generator=torch.Generator().manual_seed(0))
        assert all(one.is_contiguous() for one in model.parameters())
        found.append(weights(model))
    torch.testing.assert_close(*found, atol=1e-4, rtol=1e-3)


def test_a_network_without_signs_sees_nothing_of_a_mask_and_learns_under_it() -> None:
    labels = torch.arange(48) % 2
    noise = torch.rand(48, 1, 8, 8, generator=torch.Generator().manual_seed(2))
    sizes = labels.view(-1, 1, 1, 1) * 0.3 + 0.1 * noise
    data = Batch(0.5 + torch.where(noise > 0.5, sizes, -sizes), labels)
    model = build(QuickResNet(4, signless=True), (1, 8, 8), 2, seed=0)
    torch.testing.assert_close(model.eval()(data.inputs), model(1 - data.inputs))
    train(
        model,
        data,
        Training(steps=12, batch_size=24, learning_rate=0.05),
        schedule=WarmUp(CosineDecay(), 0.2),
        disguise=Encrypted(InsideDataset(1, 1.0)),
        generator=torch.Generator().manual_seed(0),
    )
    assert accuracy(model, data) == 1.0
