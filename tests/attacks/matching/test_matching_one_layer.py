"""Proposition 4 of Zhang et al. [2023, CI-Net]: for one linear layer N dW = X^T (P - Y); when that gives the batch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from leakgauge.protocol import learner_and_state
from leakgauge.randomness import seeded
from leakgauge.types import Batch

PIXELS, CLASSES = 12, 5


def layer(*, blank: bool = False) -> nn.Linear:
    made = nn.Linear(PIXELS, CLASSES, bias=False).double()
    with torch.no_grad():
        made.weight.copy_(torch.randn(CLASSES, PIXELS, generator=seeded(0)) * (not blank))
    return made


def batch(labels: list[int]) -> Batch:
    images = torch.rand(len(labels), PIXELS, generator=seeded(1), dtype=torch.float64)
    return Batch(images, torch.tensor(labels))


def update(module: nn.Linear, private: Batch) -> torch.Tensor:
    """dW, as pixels classes."""
    return learner_and_state(module)[0].gradient(learner_and_state(module)[1], private)["weight"].T


def residuals(module: nn.Linear, private: Batch) -> torch.Tensor:
    """P - Y: predicted probabilities less the labels, examples by classes."""
    with torch.no_grad():
        return module(private.inputs).softmax(1) - nn.functional.one_hot(private.labels, CLASSES)


def solved(gradient: torch.Tensor, errors: torch.Tensor) -> torch.Tensor:
    """The shortest X with N dW = X^T (P - Y)."""
    return torch.linalg.lstsq(errors.T, len(errors) * gradient.T, driver="gelsd").solution


@pytest.mark.parametrize("labels", [[0], [1, 1, 1], [4, 3, 2, 1, 0, 0, 1]])
def test_n_times_the_gradient_is_the_images_times_the_errors(labels):
    module, private = layer(), batch(labels)
    torch.testing.assert_close(len(labels) * update(module, private), private.inputs.T @ residuals(module, private))


@pytest.mark.parametrize("labels", [[2], [0, 1], [0, 1, 2, 3], [3, 3, 3, 3]])
def test_fewer_examples_than_classes_are_recovered_exactly_once_their_errors_are_known(labels):
    module, private = layer(), batch(labels)
    errors = residuals(module, private)
    assert torch.linalg.matrix_rank(errors) == len(labels)
    torch.testing.assert_close(solved(update(module, private), errors), private.inputs)


@pytest.mark.parametrize("labels", [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 0, 1]])
def test_errors_sum_to_zero_so_as_many_examples_as_classes_are_not_recovered(labels):
    module, private = layer(), batch(labels)
    errors = residuals(module, private)
    assert torch.linalg.matrix_rank(errors) == CLASSES - 1
    found = solved(update(module, private), errors)
    # It explains the update, but it is not the batch.
    torch.testing.assert_close(found.T @ errors, len(labels) * update(module, private))
    assert (found - private.inputs).abs().max() > 0.1


def test_two_batches_may_have_one_update_when_a_layer_predicts_alike_for_all():
    module, private = layer(blank=True), batch([1, 1, 3])
    swapped = private.inputs.clone()
    apart = 0.1 * torch.ones(PIXELS, dtype=torch.float64)
    swapped[0] += apart
    swapped[1] -= apart  # of one class only the sum is seen
    torch.testing.assert_close(update(module, Batch(swapped, private.labels)), update(module, private))
    moved = Batch(private.inputs + apart, private.labels)
    assert not torch.allclose(update(module, moved), update(module, private))


def test_a_batch_of_all_classes_may_be_shifted_as_a_whole_when_a_layer_predicts_alike_for_all():
    module, private = layer(blank=True), batch([0, 1, 2, 3, 4])
    moved = Batch(private.inputs + 0.1, private.labels)
    torch.testing.assert_close(update(module, moved), update(module, private))
