"""NVFlare's filters as its package has them, where it is installed: `pip install --no-deps --target FOLDER nvflare`.

It asks for versions of its own of much that is here, so that it belongs into a folder beside: PYTHONPATH=FOLDER pytest
tests/defences/test_defences_deployed.py. Seen to hold for 2.4.0, 2.7.0, 2.8.0 and 2.9.0.
"""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp

pytest.importorskip("nvflare", reason="NVFlare is compared with where it is installed; this file says how")

from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.filters.exclude_vars import ExcludeVars as DeployedExcludeVars
from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy as DeployedPercentile
from nvflare.app_common.filters.svt_privacy import SVTPrivacy as DeployedSVT

from leakgauge.defences import ExcludeVars, PercentilePrivacy, SVTPrivacy
from leakgauge.randomness import seeded

EARLY = tuple(map(int, version("nvflare").split(".")[:2])) < (2, 8)
UPDATE = {
    "body.weight": torch.randn(60, 50, generator=seeded(0)).double() / 50,
    "head.weight": torch.randn(10, 60, generator=seeded(1)).double() / 5,
    "head.bias": torch.randn(10, generator=seeded(2)).double(),
    "scale": torch.tensor(0.7).double(),
}


def deployed(made):
    """What a filter leaves of the update."""
    data = {name: tensor.numpy().copy() for name, tensor in UPDATE.items()}
    found = made.process_dxo(DXO(DataKind.WEIGHT_DIFF, data=data), Shareable(), FLContext())
    return {name: torch.as_tensor(array) for name, array in (data if found is None else found.data).items()}


def ours(defence, seed=0):
    return defence.transform(UPDATE, generator=seeded(seed))


@pytest.mark.parametrize("percentile", [0, 10, 37.5, 99])
@pytest.mark.parametrize("gamma", [1e-3, 0.01, 5.0])
def test_percentile_privacy_is_equal_to_the_package_s(percentile, gamma):
    mine, theirs = ours(PercentilePrivacy(percentile, gamma)), deployed(DeployedPercentile(percentile, gamma))
    assert mine.keys() == theirs.keys()
    for name, tensor in theirs.items():
        torch.testing.assert_close(mine[name], tensor, rtol=1e-12, atol=0)


def test_its_defaults_are_the_package_s():
    found = DeployedSVT()
    assert (DeployedPercentile().percentile, DeployedPercentile().gamma) == (10.0, 0.01)
    assert {name: getattr(found, name) for name in ("gamma", "tau", "replace")} == {
        name: getattr(SVTPrivacy(), name) for name in ("gamma", "tau", "replace")
    }


@pytest.mark.parametrize("chosen", ["head", "bias$", "^body", "nothing", ["head.weight", "head"]])
def test_exclude_vars_leaves_out_the_same_tensors(chosen):
    mine = ours(ExcludeVars(chosen) if isinstance(chosen, str) else ExcludeVars(names=tuple(chosen)))
    theirs = deployed(DeployedExcludeVars(chosen))
    assert [name for name, tensor in mine.items() if bool(tensor.any())] == list(theirs)


def test_svt_privacy_without_noise_is_equal_to_the_package_s():
    above = int((torch.cat([tensor.flatten() for tensor in UPDATE.values()]).abs() >= 0.02).sum())
    entries = sum(tensor.numel() for tensor in UPDATE.values())
    options = {"fraction": (above - 0.5) / entries, "epsilon": 1e12, "noise_var": 1e12, "gamma": 0.05, "tau": 0.02}
    mine = ours(SVTPrivacy(**options, replace=False, early=EARLY))
    for name, tensor in deployed(DeployedSVT(**options, replace=False)).items():
        torch.testing.assert_close(mine[name], tensor, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("options", [{}, {"epsilon": 1e3, "noise_var": 5.0, "gamma": 0.02, "tau": 0.01}])
@pytest.mark.parametrize("with_replacement", [True, False])
def test_what_svt_privacy_sends_has_the_distribution_of_the_package_s(options, with_replacement):
    np.random.seed(0)  # noqa: NPY002, which the package draws from
    filtered = DeployedSVT(**options, replace=with_replacement)
    defence = replace(SVTPrivacy(early=EARLY), **options, replace=with_replacement)
    mine = torch.stack([ours(defence, seed)["body.weight"].flatten() for seed in range(30)])
    theirs = torch.stack([deployed(filtered)["body.weight"].flatten() for _ in range(30)])
    # How often entries leave, over all and among the largest, and what is seen of those that do.
    large = UPDATE["body.weight"].flatten().abs() > 0.02
    for part in (slice(None), large):
        shares = [(one[:, part] != 0).double().mean() for one in (mine, theirs)]
        assert float(shares[0] - shares[1]) == pytest.approx(0, abs=0.01)
    positive = UPDATE["body.weight"].flatten() > 0.01
    seen = [one[:, positive][one[:, positive] != 0].numpy() for one in (mine, theirs)]
    assert ks_2samp(*seen).pvalue > 0.001
