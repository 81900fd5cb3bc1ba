"""What can be done to a finished update, and what noise on it amounts to."""

from __future__ import annotations

import pytest
import torch

from leakgauge.catalogue import DEFENCES
from leakgauge.config import build_defence
from leakgauge.defences import Chain, Clipping, GaussianNoise, NoDefence, Pruning, on_finished, on_gradient
from leakgauge.errors import InvalidCase
from leakgauge.protocol import FedAvg, FedSGD, LocalAdam
from leakgauge.protocol.clients import transforms
from leakgauge.randomness import seeded

UPDATE = {"a": torch.randn(40, 3, dtype=torch.float64), "b": torch.randn(7, dtype=torch.float64)}


TRAINING = {"dpsgd", "secure_aggregation", "soteria", "mixup", "instahide", "instahide_cross"}
"""Those that see more than the update."""

FINISHED = [name for name in DEFENCES if name not in TRAINING]


@pytest.mark.parametrize("name", FINISHED)
def test_a_defence_of_updates_is_done_to_the_finished_one(name):
    assert on_finished(build_defence(name)) == transforms(build_defence(name)(FedSGD()))


@pytest.mark.parametrize("name", sorted(TRAINING))
def test_one_that_needs_more_is_refused_in_a_sentence_wherever_it_stands(name):
    for text in (name, f"pruning+{name}", f"{name}+pruning"):
        with pytest.raises(InvalidCase, match=r"^[^\n]*[;] [^\n]*[.]$"):
            on_finished(build_defence(text))


@pytest.mark.parametrize("factor", [0.01, 3.0])
@pytest.mark.parametrize("name", [name for name in FINISHED if name != "none"])
def test_a_scaled_defence_does_to_a_scaled_update_what_the_defence_does_to_the_update(name, factor):
    scaled = {name: factor * tensor for name, tensor in UPDATE.items()}
    for transform in on_finished(build_defence(name)):
        expected = transform.transform(UPDATE, generator=seeded(0))
        for tensor_name, tensor in transform.scaled(factor).transform(scaled, generator=seeded(0)).items():
            torch.testing.assert_close(tensor, factor * expected[tensor_name], rtol=1e-5, atol=1e-6)


def test_noise_on_weights_counts_by_the_rate_and_the_number_of_steps():
    defence = Chain((Clipping(1.0), GaussianNoise(0.01), Pruning(0.5)))
    same = on_gradient(defence, FedAvg(epochs=2, batch_size=1, learning_rate=0.01), 2)
    assert same == Chain((Clipping(25.0), GaussianNoise(0.25), Pruning(0.5)))
    assert on_gradient(defence, FedSGD(), 4) == defence
    assert on_gradient(NoDefence(), FedAvg(), 4) == NoDefence()
    assert on_gradient(defence, FedAvg(optimiser=LocalAdam()), 4) is None
