"""Selective sharing, held against a reference in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from leakgauge import params as tree
from leakgauge.defences import PercentilePrivacy
from leakgauge.defences.percentile_privacy import percentile
from leakgauge.randomness import seeded

UPDATE = {
    "a": torch.randn(30, 7, generator=seeded(0)).double() / 50,
    "b": torch.randn(11, generator=seeded(1)).double(),
}


def sent(defence):
    return defence.transform(UPDATE, generator=seeded(0))


@pytest.mark.parametrize("share", [0.0, 10.0, 33.3, 50.0, 99.0, 100.0])
@pytest.mark.parametrize("gamma", [1e-3, 0.01, 10.0])
def test_it_is_what_its_definition_says_of_all_entries_together(share, gamma):
    values = {name: tensor.numpy() for name, tensor in UPDATE.items()}
    cutoff = np.percentile(np.abs(np.concatenate([value.ravel() for value in values.values()])), share)
    for name, tensor in sent(PercentilePrivacy(share, gamma)).items():
        kept = np.where(np.abs(values[name]) < cutoff, 0.0, values[name])
        np.testing.assert_allclose(tensor.numpy(), np.clip(kept, -gamma, gamma), rtol=1e-12)


def test_by_default_nine_tenths_leave():
    flat = tree.flatten(sent(PercentilePrivacy()))
    assert float((flat != 0).double().mean()) == pytest.approx(0.9, abs=0.01)
    assert float(flat.abs().max()) == 0.01


@pytest.mark.parametrize("scale", [1.0, 0.2])
def test_the_truth_is_explained_exactly_also_where_the_update_was_scaled_afterwards(scale):
    defence = PercentilePrivacy(40.0, 0.05)
    observed = tree.scale(sent(defence), scale)
    predicted = tree.scale(defence.anticipate(UPDATE, observed=observed), scale)
    assert float(tree.norm(tree.sub(predicted, observed)) / tree.norm(observed)) < 1e-12


def test_an_entry_that_would_not_have_been_hidden_is_held_against_a_candidate():
    defence = PercentilePrivacy(40.0, 10.0)
    observed = sent(defence)
    hidden = {name: tensor == 0 for name, tensor in observed.items()}
    candidate = {name: torch.where(hidden[name], 5.0, tensor) for name, tensor in UPDATE.items()}
    predicted = defence.anticipate(candidate, observed=observed)
    assert all(bool((predicted[name][hidden[name]] > 4).all()) for name in predicted)


def test_percentiles_are_those_of_numpy():
    values = torch.rand(101, generator=seeded(2), dtype=torch.float64)
    for share in (0.0, 12.5, 50.0, 99.9, 100.0):
        assert float(percentile(values, share)) == pytest.approx(float(np.percentile(values.numpy(), share)), rel=1e-12)
