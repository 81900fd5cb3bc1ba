"""The model that is trained and attacked: whose it is, whether it fits, and that training it once is enough."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from leakgauge.data import Dataset, Digits
from leakgauge.errors import InvalidCase, InvalidFile
from leakgauge.files import write_tensors
from leakgauge.models import MLP, Compact
from leakgauge.training import (
    Pretrained,
    Training,
    accuracy,
    default_steps,
    is_own_model,
    kept_victim,
    loaded_victim,
    model_for,
    victim_model,
)

WORDS = "mlp:hidden=(8,)"


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return Digits()()


def weights(module: torch.nn.Module) -> torch.Tensor:
    return torch.cat([tensor.detach().flatten() for tensor in module.state_dict().values()])


@pytest.mark.parametrize(
    ("words", "own"),
    [
        ("compact", False),
        ("compact:width=8", False),
        ("compakt:width=8", False),
        ("their.module:factory", True),
        ("compact_of_mine:factory", True),
    ],
)
def test_a_users_own_model_is_a_module_and_a_factory_and_no_name_with_options(words: str, own: bool) -> None:
    assert is_own_model(words) is own
    assert default_steps(words, None) == (0 if own else Training().steps)
    assert default_steps(words, "weights.safetensors") == 0


@pytest.mark.parametrize("steps", [0, 3])
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nn.Sequential(nn.Flatten(), nn.Linear(64, 3))", "3 outputs but 'digits' has 10 classes"),
        ("nn.Sequential(nn.Flatten(), nn.Linear(65, 10))", "cannot take images of 1 x 8 x 8"),
    ],
    ids=["too few outputs", "another image size"],
)
def test_a_model_is_checked_against_the_data_before_it_is_trained(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, message: str, steps: int
) -> None:
    name = f"unfit_{steps}_{len(source)}_{source[-4]}"
    (tmp_path / f"{name}.py").write_text(f"from torch import nn\n\n\ndef build():\n    return {source}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidCase, match=message):
        victim_model(f"{name}:build", dataset, seed=0, steps=steps)


def test_training_reports_every_step_and_is_a_function_of_the_seed(dataset: Dataset) -> None:
    seen: list[int] = []
    trained = victim_model(WORDS, dataset, seed=0, steps=3, progress=lambda tick: seen.append(tick.step))
    assert seen == [1, 2, 3]
    assert torch.equal(weights(trained), weights(victim_model(WORDS, dataset, seed=0, steps=3)))
    assert not torch.equal(weights(trained), weights(victim_model(WORDS, dataset, seed=1, steps=3)))
    assert not torch.equal(weights(trained), weights(victim_model(WORDS, dataset, seed=0, steps=0)))


def test_without_training_images_a_model_stays_as_it_is(dataset: Dataset, tmp_path: Path) -> None:
    bare = Dataset(dataset.name, dataset.train[:0], dataset.test, dataset.class_names)
    assert torch.equal(weights(victim_model(WORDS, bare, seed=0)), weights(model_for(bare, MLP(hidden=(8,)), seed=0)))
    with pytest.raises(InvalidCase, match=r"no training data.*train_steps=0"):
        victim_model(WORDS, bare, seed=0, steps=1)
    with pytest.raises(InvalidCase, match="need training images"):
        kept_victim(Compact(width=2), bare, Training(1), tmp_path, seed=0)


def test_a_kept_model_is_trained_once_and_a_damaged_one_is_named(dataset: Dataset, tmp_path: Path) -> None:
    def kept() -> tuple[torch.Tensor, float | None, list[int]]:
        seen: list[int] = []
        found = kept_victim(
            MLP(hidden=(8,)), dataset, Training(2), tmp_path, seed=0, progress=lambda tick: seen.append(tick.step)
        )
        return weights(found.module), found.accuracy, seen

    first, score, trained = kept()
    again, the_same, nothing = kept()
    assert torch.equal(first, again)
    assert (score, trained, nothing) == (the_same, [1, 2], [])
    (path,) = tmp_path.iterdir()
    path.write_bytes(b"no weights")
    with pytest.raises(InvalidFile, match=f"{path.name} are damaged; delete the file"):
        kept()


def test_a_pretrained_model_has_the_weights_of_its_file_and_says_how_good_it_is(
    dataset: Dataset, tmp_path: Path
) -> None:
    donor = victim_model(WORDS, dataset, seed=0, steps=2)
    write_tensors(tmp_path / "donor.safetensors", donor.state_dict(), {})
    pretrained = Pretrained("donor.safetensors", "a command")
    found = loaded_victim(MLP(hidden=(8,)), dataset, pretrained.path(tmp_path), seed=1)
    assert torch.equal(weights(found.module), weights(donor))
    assert found.accuracy == accuracy(donor, dataset.test[:500])
    with pytest.raises(InvalidCase, match="do not fit the model"):
        loaded_victim(MLP(hidden=(9,)), dataset, pretrained.path(tmp_path), seed=1)


def test_a_pretrained_model_that_is_not_there_names_what_makes_it(tmp_path: Path) -> None:
    for folder in (None, tmp_path):
        with pytest.raises(InvalidCase, match=r"donor.safetensors are not in .*make them with `a command`.*--weights"):
            Pretrained("donor.safetensors", "a command").path(folder)
