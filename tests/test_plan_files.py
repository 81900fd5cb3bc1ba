"""That a file which one was sent is read and never run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leakgauge.errors import InvalidCase, InvalidFile
from leakgauge.factories import names_code
from leakgauge.plan_files import MOST_BYTES, load_config
from leakgauge.training.models import is_own_model


def written(folder: Path, values: object) -> Path:
    path = folder / "plan.json"
    path.write_text(json.dumps(values), "utf-8")
    return path


@pytest.mark.parametrize(
    "values",
    [
        {"model": "evil:go"},
        {"model": "evil:go:depth=3"},
        {"model": "evil:+go"},
        {"model": "none+evil:go"},
        {"model": "evil:**{'a': 1}"},
        {"models": ["mlp", "evil:go"]},
        {"loss": "evil:go"},
        {"attacks": ["gias:generator='g',factory='evil:go',latent=2"]},
        {"attacks": ["gias:generator='g',factory='evil\\x3ago',latent=2"]},
        {"attacks": ["gias:generator='g',factory='ev' 'il:go',latent=2"]},
        {"attacks": ["gias:generator='g+h',factory='evil:go=1',latent=2"]},
        {"attacks": ["none+gias:factory='evil:go'"]},
        {"attacks": ["gias:factory=['evil:go']"]},
        {"learning_rates": {"evil:go": 0.1}},
        {"without": [{"model": "evil:go"}]},
    ],
    ids=str,
)
def test_a_file_that_names_code_is_refused_unless_one_trusts_it(tmp_path: Path, values: dict[str, object]) -> None:
    path = written(tmp_path, values)
    with pytest.raises(InvalidCase, match=r"evil.*--trust.*command line"):
        load_config(path)
    assert load_config(path, trust=True) == values
    assert load_config(path, replaced=values) == values  # by what the command line says


def test_parts_with_their_options_and_names_of_files_are_no_code(tmp_path: Path) -> None:
    plain = {
        "model": "mlp:hidden=(8,)",
        "loss": "cross_entropy:label_smoothing=0.1",
        "dataset": "npz:file='x.npz'",
        "defences": ["none", "clipping:max_norm=1e+3+gaussian_noise:std=0.1"],
        "attacks": ["gias:generator=g.safetensors"],
        "data_root": "C:\\data",
        "seed": 3,
    }
    assert load_config(written(tmp_path, plain)) == plain


@pytest.mark.parametrize("text", ["a:b", "a:b:c=1", "a:", "a:=", "a:b=1", "a", "mlp:x", "a:b+c=1", "a:**{'x': 1}", ":"])
def test_what_is_imported_as_a_model_always_counts_as_code(text: str) -> None:
    assert names_code(text) or not is_own_model(text)


def test_a_configuration_of_a_megabyte_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_bytes(b"#" * (MOST_BYTES + 1))
    with pytest.raises(InvalidFile, match="bytes"):
        load_config(tmp_path / "plan.toml")
