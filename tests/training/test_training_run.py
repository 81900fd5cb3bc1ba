from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from leakgauge.data import Dataset
from leakgauge.errors import InvalidCase
from leakgauge.models import MLP, build
from leakgauge.progress import Progress, Tick
from leakgauge.training.run import Trained, TrainingPlan, checkpoint, prepare_training, run_training
from leakgauge.types import Batch

WORDS = {"dataset": "digits", "model": "mlp:hidden=(6,)", "steps": 20, "batch_size": 8, "learning_rate": 0.05}


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    labels = torch.arange(60) % 3
    noise = torch.rand(60, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    data = Batch(labels.view(-1, 1, 1, 1) / 3 + noise / 6, labels)
    return Dataset("bright", data[:40], data[40:], ("dark", "grey", "bright"))


def plan(**changes: object) -> TrainingPlan:
    return TrainingPlan(**(WORDS | changes))  # type: ignore[arg-type]


def test_accuracy_comes_with_wilsons_interval_and_what_guessing_scores(dataset: Dataset, tmp_path: Path) -> None:
    trained = run_training(prepare_training(plan(steps=150), dataset), tmp_path)
    assert trained.accuracy.count == 20
    assert trained.accuracy.mean > 0.8
    hits, n, z = trained.accuracy.mean, 20, 1.959964
    centre = (hits + z * z / (2 * n)) / (1 + z * z / n)
    margin = z / (1 + z * z / n) * math.sqrt(hits * (1 - hits) / n + z * z / (4 * n * n))
    assert (trained.accuracy.low, trained.accuracy.high) == pytest.approx((centre - margin, centre + margin), abs=1e-6)
    assert trained.guess == pytest.approx(7 / 20)
    assert trained.overhead.count > 30
    assert trained.epsilon is None


def stopping(after: int) -> Progress:
    def progress(tick: Tick) -> None:
        assert tick.fraction == tick.step / 20
        if tick.step == after:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("defence", ["none", "clipping:max_norm=0.5+gaussian_noise:std=0.1", "instahide:k=2"])
def test_a_training_that_is_interrupted_goes_on_and_ends_with_the_same_bits(
    dataset: Dataset, tmp_path: Path, defence: str
) -> None:
    words = plan(defence=defence)
    whole = run_training(prepare_training(words, dataset), tmp_path / "whole")
    for after in (3, 11):
        with pytest.raises(KeyboardInterrupt):
            run_training(prepare_training(words, dataset), tmp_path / "parts", stopping(after))
        kept = load_file(checkpoint(prepare_training(words, dataset), tmp_path / "parts"))
        assert int(kept["training.step"]) == after
    steps: list[int] = []
    resumed = run_training(prepare_training(words, dataset), tmp_path / "parts", lambda tick: steps.append(tick.step))
    assert steps == list(range(12, 21))
    assert resumed.accuracy == whole.accuracy
    assert all(torch.equal(tensor, resumed.weights()[name]) for name, tensor in whole.weights().items())
    steps.clear()
    again = run_training(prepare_training(words, dataset), tmp_path / "parts", lambda tick: steps.append(tick.step))
    assert steps == []
    assert again.to_dict() == resumed.to_dict()


@pytest.mark.parametrize(
    "change",
    [
        {"defence": "pruning"},
        {"seed": 1},
        {"steps": 21},
        {"schedule": "constant"},
        {"model": "mlp:hidden=(6,),bias=False"},
    ],
)
def test_another_training_has_another_checkpoint(dataset: Dataset, change: dict[str, object]) -> None:
    assert prepare_training(plan(**change), dataset).key != prepare_training(plan(), dataset).key


def test_the_weights_load_into_the_model_they_came_from(dataset: Dataset, tmp_path: Path) -> None:
    trained: Trained = run_training(prepare_training(plan(), dataset), tmp_path)
    module = build(MLP(hidden=(6,)), dataset.space.shape, 3, seed=5)
    module.load_state_dict(trained.weights())
    right = (module.eval()(dataset.test.inputs).argmax(1) == dataset.test.labels).double()
    assert float(right.mean()) == trained.accuracy.mean
    assert not torch.equal(trained.weights()["head.weight"], trained.module.state_dict()["head.weight"])


def test_a_training_that_diverges_has_no_accuracy(dataset: Dataset, tmp_path: Path) -> None:
    words = plan(learning_rate=1e30, defence="gaussian_noise:std=1e30")
    trained = run_training(prepare_training(words, dataset), tmp_path)
    assert trained.diverged
    assert trained.accuracy.count == 0
    assert trained.to_dict()["accuracy"]["mean"] is None


def test_dpsgd_comes_with_what_it_guarantees(dataset: Dataset, tmp_path: Path) -> None:
    pytest.importorskip("opacus")
    few, many = (
        run_training(prepare_training(plan(defence="dpsgd", steps=steps), dataset), tmp_path) for steps in (5, 20)
    )
    assert few.epsilon is not None
    assert many.epsilon is not None
    assert few.epsilon_of_a_round is not None
    assert 0 < few.epsilon_of_a_round < few.epsilon < many.epsilon < math.inf
    assert few.epsilon_of_a_round == many.epsilon_of_a_round == many.to_dict()["epsilon_of_a_round"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"recipe": "shrot"}, "did you mean 'short'"),
        ({"schedule": "cosin"}, "did you mean 'cosine'"),
    ],
)
def test_words_that_make_no_sense_are_refused_at_once(change: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidCase, match=words):
        plan(**change)
