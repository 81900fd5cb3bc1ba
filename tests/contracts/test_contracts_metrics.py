"""What holds for every metric."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from skimage.data import astronaut
from torch import Tensor

from leakgauge.catalogue import METRICS, describe_metric
from leakgauge.metrics import AffinePSNR, Comparison, Kind, Metric, align
from leakgauge.metrics.alignment import NamedImages
from leakgauge.metrics.lpips import _NETWORKS, _feature_shapes, _head_shapes
from leakgauge.types import Batch, Outcome, Reconstruction

SIDE = 32
# LPIPS on VGG differs from that on AlexNet by its network alone, and is slow; names are measured of encodings alone,
# and rows and texts are tested with their space.
_ELSEWHERE = (Kind.NAMES, Kind.ROWS, Kind.TEXTS)
MEASURED = [name for name, one in METRICS.items() if name != "lpips_vgg" and one.serves not in _ELSEWHERE]
CLASSES = 10


def patches() -> Tensor:
    """Ninety-six patches of a photo (a NASA portrait that scikit-image carries), shuffled."""
    photo = torch.from_numpy(astronaut()).permute(2, 0, 1).float() / 255
    tiles = photo.unfold(1, SIDE, SIDE).unfold(2, SIDE, SIDE).permute(1, 2, 0, 3, 4).flatten(0, 1)
    return tiles[torch.randperm(len(tiles), generator=torch.Generator().manual_seed(0))[:96]]


PATCHES = patches()
TRUTH = Batch(PATCHES[:8], torch.tensor([0, 1, 2, 3, 3, 2, 1, 0]))
DISTRACTORS = PATCHES[8:]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, plan = tmp_path_factory.mktemp("weights"), _NETWORKS["alex"]
    generator = torch.Generator().manual_seed(0)
    features = {
        name: torch.randn(shape, generator=generator) / max(1, shape[1:].numel() if len(shape) > 1 else 100) ** 0.5
        for name, shape in ((name, torch.Size(shape)) for name, shape in _feature_shapes(plan).items())
    }
    heads = {name: torch.rand(shape, generator=generator) for name, shape in _head_shapes(plan).items()}
    torch.save(features, folder / f"{plan.features}.pt")
    torch.save(heads, folder / f"{plan.heads}.pt")
    return folder


@pytest.fixture(params=MEASURED)
def metric(request: pytest.FixtureRequest, weights: Path) -> Metric:
    return describe_metric(request.param).with_weights(weights)


@pytest.fixture(params=[name for name in MEASURED if METRICS[name].serves in (Kind.IMAGES, Kind.INPUTS)])
def input_metric(request: pytest.FixtureRequest, weights: Path) -> Metric:
    return describe_metric(request.param).with_weights(weights)


@pytest.mark.parametrize("name", METRICS)
def test_it_says_what_it_means(name: str) -> None:
    metric = describe_metric(name)
    assert metric.name == name
    assert metric.title
    assert metric.low < metric.high
    assert metric.exact == (metric.high if metric.higher_is_leakier else metric.low)
    assert not metric.binary or (metric.low, metric.high) == (0.0, 1.0)
    assert isinstance(metric.serves, Kind)


def test_titles_and_headings_are_told_apart() -> None:
    for words in ([one.title for one in METRICS.values()], [one.heading for one in METRICS.values() if one.heading]):
        assert len(set(words)) == len(words)


def compare(images: Tensor | None, labels: Tensor | None = None, truth: Batch = TRUTH) -> Comparison:
    found = align(Reconstruction(images, labels, Outcome.SOLVED), truth, DISTRACTORS, CLASSES)
    members = truth.labels[:, None]
    return found if images is None else replace(found, public=NamedImages(members, members))


def leakage(metric: Metric, scores: Tensor) -> Tensor:
    return scores if metric.higher_is_leakier else -scores


def test_truth_against_itself_is_the_extreme(metric: Metric) -> None:
    own = metric(compare(TRUTH.inputs, TRUTH.labels))
    assert torch.allclose(own, torch.full_like(own, metric.exact), rtol=0, atol=1e-12)
    for other in (PATCHES[20:28], torch.zeros_like(TRUTH.inputs), TRUTH.inputs + 0.01, 1 - TRUTH.inputs):
        scores = metric(compare(other, TRUTH.labels.flip(0) + 1))
        assert (leakage(metric, scores) <= leakage(metric, own)).all()
        assert ((metric.low <= scores) & (scores <= metric.high)).all()


def test_more_noise_is_never_leakier(input_metric: Metric) -> None:
    noise = torch.randn(TRUTH.inputs.shape, generator=torch.Generator().manual_seed(1))
    means = [
        leakage(input_metric, input_metric(_paired(TRUTH.inputs + level * noise))).mean()
        for level in (0.0, 0.03, 0.1, 0.3, 1.0, 30.0)
    ]
    assert means == sorted(means, reverse=True)
    assert means[0] > means[-1]


def _paired(images: Tensor) -> Comparison:
    return Comparison(TRUTH.inputs, images, DISTRACTORS, TRUTH.labels, None)


@pytest.mark.parametrize("order", [[7, 6, 5, 4, 3, 2, 1, 0], [1, 2, 0, 3, 6, 4, 7, 5]])
def test_permuting_a_reconstruction_changes_no_score(metric: Metric, order: list[int]) -> None:
    guess = (TRUTH.inputs + PATCHES[30:38]) / 2
    restored = torch.tensor([0, 0, 0, 1, 2, 2, 3, 9])
    expected = metric(compare(guess, restored))
    assert torch.equal(metric(compare(guess[order], restored[order])), expected)


def test_missing_is_nan_never_zero(metric: Metric) -> None:
    assert metric(compare(None)).isnan().all()


def test_only_the_missing_rows_are_nan(input_metric: Metric) -> None:
    scores = input_metric(compare(TRUTH.inputs[2:5]))
    assert scores.isnan().tolist() == [True, True, False, False, False, True, True, True]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_row_with_a_non_finite_pixel_is_not_scored(input_metric: Metric, bad: float) -> None:
    images = TRUTH.inputs.clone()
    images[3, 0, 0, 0] = bad
    assert input_metric(_paired(images)).isnan().nonzero().flatten().tolist() == [3]


def test_a_row_is_scored_the_same_alone_and_in_a_batch(input_metric: Metric) -> None:
    guess = TRUTH.inputs + 0.1 * PATCHES[30:38]
    together = input_metric(_paired(guess))
    for row in (0, 7):
        one = slice(row, row + 1)
        alone = input_metric(Comparison(TRUTH.inputs[one], guess[one], DISTRACTORS, TRUTH.labels[one], None))
        if isinstance(input_metric, AffinePSNR):  # whose fit is of the whole batch, and closer to a row alone
            assert float(alone) > float(together[one])
        else:
            assert torch.allclose(alone, together[one], rtol=1e-5)


def test_scores_are_float64_one_per_private_example_or_one_per_batch(metric: Metric) -> None:
    scores = metric(compare(TRUTH.inputs[:3], TRUTH.labels))
    assert scores.dtype == torch.float64
    assert scores.shape == ((1,) if metric.per_batch else (8,))
    assert metric(compare(None)).shape == scores.shape


def test_an_empty_batch_has_no_scores_per_example(metric: Metric) -> None:
    empty = compare(TRUTH.inputs, TRUTH.labels, truth=TRUTH[:0])
    assert metric(empty).shape == ((1,) if metric.per_batch else (0,))


def test_scoring_touches_neither_its_input_nor_global_randomness(metric: Metric) -> None:
    comparison = compare(PATCHES[20:28], TRUTH.labels)
    before, state = copy.deepcopy(comparison), torch.get_rng_state()
    metric(comparison)
    assert torch.equal(torch.get_rng_state(), state)
    for name in ("originals", "reconstructions", "distractors", "true_labels", "restored_labels"):
        assert torch.equal(getattr(comparison, name), getattr(before, name))


def test_repr_evaluates_back(metric: Metric) -> None:
    assert eval(repr(metric), {type(metric).__name__: type(metric)}) == metric  # noqa: S307


def test_pickle_carries_it_to_a_worker(metric: Metric) -> None:
    assert pickle.loads(pickle.dumps(metric)) == metric  # noqa: S301
