"""Labels from several local steps: the head midway on the client's path explains them better than at its start."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import one_hot

from leakgauge.attacks.labels import Alternating
from leakgauge.attacks.labels.base import head_of, mean_gradient, midway_gradient, whole_counts
from leakgauge.protocol import FedAvg, FedSGD
from leakgauge.randomness import seeded
from leakgauge.types import Batch

SHAPE, CLASSES = (1, 4, 4), 6


def linear_model(seed: int = 0) -> nn.Module:
    """A classifier on the pixels themselves, so that features stay as they are while the head trains."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), nn.Linear(16, CLASSES)).double()


def distance_to_gradient_there(head, batch: Batch) -> float:
    """How far the mean of the client's gradients is from one gradient at the head's own place."""
    features = batch.inputs.flatten(1)
    delta = head.probabilities(features) - one_hot(batch.labels, CLASSES)
    return float((delta.T @ features / len(batch) - head.weight_update).norm())


def test_one_local_step_is_taken_where_the_client_took_it(examples, attacked):
    seen = attacked(linear_model(), examples(6, SHAPE, CLASSES, dtype=torch.float64), local_update=FedAvg(1, 6, 0.1))
    assert torch.equal(midway_gradient(seen, needed_by=None).weight, head_of(seen).weight)


def test_a_gradient_is_taken_at_the_start(examples, attacked):
    seen = attacked(linear_model(), examples(6, SHAPE, CLASSES, dtype=torch.float64), local_update=FedSGD())
    for one, two in zip(midway_gradient(seen, needed_by=None), mean_gradient(seen, needed_by=None), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("epochs", [2, 5])
def test_midway_the_error_falls_with_the_square_of_the_rate_and_at_the_start_with_the_rate(epochs, examples, attacked):
    batch = examples(6, SHAPE, CLASSES, dtype=torch.float64)
    errors = {"midway": [], "start": []}
    for rate in (0.02, 0.01):
        seen = attacked(linear_model(), batch, local_update=FedAvg(epochs, 6, rate))
        errors["midway"].append(distance_to_gradient_there(midway_gradient(seen, needed_by=None), batch))
        errors["start"].append(distance_to_gradient_there(mean_gradient(seen, needed_by=None), batch))
    assert errors["midway"][0] / errors["midway"][1] == pytest.approx(4, rel=0.05)
    assert errors["start"][0] / errors["start"][1] == pytest.approx(2, rel=0.05)


def test_counts_survive_large_local_steps_that_mislead_the_head_at_its_start(examples, attacked):
    recalled = {"midway": 0, "start": 0}
    for seed in range(6):
        module = linear_model(seed)
        with torch.no_grad():
            module[1].weight.mul_(8)  # confident, as after training
        batch = examples(12, SHAPE, CLASSES, seed=seed, dtype=torch.float64)
        seen = attacked(module, batch, local_update=FedAvg(6, 3, 0.5))
        true = torch.bincount(batch.labels, minlength=CLASSES)
        found = {
            "midway": Alternating().estimate(seen, generator=seeded(0)),
            "start": Alternating().solve(mean_gradient(seen, needed_by=None), 12).counts,
        }
        for name, counts in found.items():
            recalled[name] += int(torch.minimum(whole_counts(counts, 12), true).sum())
    assert recalled["midway"] > recalled["start"]
