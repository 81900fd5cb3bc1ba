"""The pytest plugin, run as its users run it: tests of theirs in a pytest of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from leakgauge.data import Digits
from leakgauge.models import MLP, build

DIGITS = Digits()(None)
CLOSED_FORM = {"attacks": ["linear_layer"], "references": DIGITS.train.inputs[:200]}


def linear_first():
    return build(MLP(hidden=(16,)), DIGITS.space.shape, DIGITS.num_classes, seed=0)


def private(count=1):
    return DIGITS.test[slice(0, count)]


def test_a_leak_fails_with_its_number_a_picture_and_the_report(leak_audit, tmp_path):
    with pytest.raises(AssertionError, match=r"identification is 1, the limit is 0\.2") as failure:
        leak_audit(linear_first(), private(), **CLOSED_FORM).assert_identification_below(0.2)
    assert "gave away 1 of 1 private image" in str(failure.value)
    picture = Path(re.search(r"below: (.*\.png)", str(failure.value)).group(1))
    assert picture.parent == tmp_path
    with Image.open(picture) as sheet:
        assert sheet.size[1] >= 2 * 8
    assert (tmp_path / "index.html").is_file()


def test_a_pair_of_tensors_is_a_batch_and_a_limit_that_is_kept_passes(leak_audit):
    audited = leak_audit(linear_first(), (private().inputs, private().labels), **CLOSED_FORM)
    audited.assert_below(identification=1.0, leaked=1)
    with pytest.raises(AssertionError, match="1 of 1 leaked"):
        audited.assert_nothing_leaked()


def test_a_defence_that_bounds_what_leaks_passes_where_the_control_worked(leak_audit):
    noisy = leak_audit(linear_first(), private(), defence="clipping:max_norm=1+gaussian_noise:std=10", **CLOSED_FORM)
    assert noisy.result["clipping:max_norm=1+gaussian_noise:std=10"].power.seen == 3
    noisy.assert_nothing_leaked()
    noisy.assert_identification_below(0.2)


def test_nothing_found_by_an_attack_that_finds_nothing_at_all_fails_as_inconclusive(leak_audit):
    # One step finds nothing, with a defence or without, so nothing was shown of the defence.
    blind = leak_audit(
        torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10, bias=False)),
        private(4),
        defence="gaussian_noise:std=100",
        attacks=["quasi_newton"],
        seconds=0.01,
        least=1,
        references=DIGITS.train.inputs[:200],
    )
    with pytest.raises(AssertionError, match="give it a larger budget"):
        blind.assert_identification_below(0.9)


def run_pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_pytest_starts_with_the_plugin_and_without_torch(tmp_path):
    (tmp_path / "test_light.py").write_text(
        "import sys\n\n\ndef test_light(pytestconfig):\n"
        "    assert pytestconfig.pluginmanager.hasplugin('leakgauge')\n"
        "    assert not {'torch', 'numpy', 'leakgauge'} & sys.modules.keys()\n"
    )
    ran = run_pytest(tmp_path)
    assert ran.returncode == 0, ran.stdout


@pytest.mark.slow
def test_a_users_test_fails_in_his_own_pytest_and_leaves_its_picture_where_he_wants_it(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\nleak_audit_folder = leaks\n")
    (tmp_path / "test_model.py").write_text(
        "import torch\n\n\ndef test_no_leak(leak_audit):\n"
        "    torch.manual_seed(0)\n"
        "    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 8), torch.nn.Linear(8, 3))\n"
        "    batch = torch.rand(1, 1, 8, 8), torch.tensor([1])\n"
        "    audited = leak_audit(model, batch, attacks=['linear_layer'])\n"
        "    audited.assert_identification_below(.2)\n"
    )
    ran = run_pytest(tmp_path)
    assert ran.returncode == 1
    assert "identification is 1, the limit is 0.2" in ran.stdout
    (picture,) = (tmp_path / "leaks").rglob("leak.png")
    assert str(picture) in ran.stdout
    assert "site-packages" not in ran.stdout
