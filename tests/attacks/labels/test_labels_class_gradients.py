"""Labels of models without a linear head: exact for one example, right for most of a batch, none from noise."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leakgauge.attacks.labels import BestLabels, ClassGradients
from leakgauge.attacks.labels.class_gradients import _nonnegative
from leakgauge.randomness import seeded
from leakgauge.types import Batch


class Pooled(nn.Module):
    """Scores that are means of maps, as in SqueezeNet."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.maps = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 6, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.maps(torch.tanh(self.conv(x))).mean((2, 3))


def _seen(attacked, labels: list[int]):
    torch.manual_seed(0)
    images = torch.rand(len(labels), 3, 8, 8, generator=seeded(1, "private"))
    return attacked(Pooled(), Batch(images, torch.tensor(labels)))


def test_the_label_of_one_example_is_that_of_the_nearest_gradient(attacked):
    for label in range(6):
        assert BestLabels()(_seen(attacked, [label]), generator=seeded(0)).labels.tolist() == [label]


def test_the_labels_of_a_batch_are_the_mixture_that_explains_it(attacked):
    labels = [0, 0, 0, 2, 2, 5]
    assert sorted(ClassGradients()(_seen(attacked, labels), generator=seeded(0)).labels.tolist()) == labels


def test_the_mixture_meets_the_conditions_of_its_optimum():
    basis = torch.randn(9, 6, generator=seeded(0, "basis"), dtype=torch.float64)
    products, target = basis.T @ basis, basis.T @ torch.randn(9, generator=seeded(0, "target"), dtype=torch.float64)
    found = _nonnegative(products, target)
    slope = products @ found - target
    assert bool((found >= 0).all())
    assert float(slope.min()) > -1e-6
    assert float((slope * found).abs().max()) < 1e-6
