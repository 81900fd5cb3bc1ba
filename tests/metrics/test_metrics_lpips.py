from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor

from leakgauge.errors import InvalidFile
from leakgauge.metrics import LPIPSVGG, Comparison, LPIPSAlex, find_weights
from leakgauge.metrics.lpips import _NETWORKS, LPIPS, _feature_shapes, _head_shapes

FILES = {
    "alex": ("alexnet_features", "lpips_alex_v0.1_lin"),
    "vgg": ("vgg16_features", "lpips_vgg_v0.1_lin"),
}
Network = Literal["alex", "vgg"]
NETWORKS: dict[Network, type[LPIPS]] = {"alex": LPIPSAlex, "vgg": LPIPSVGG}
REAL_WEIGHTS, REAL_DATA = os.environ.get("LEAKGAUGE_WEIGHTS"), os.environ.get("LEAKGAUGE_DATA")


def random_weights(network: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    plan, generator = _NETWORKS[network], torch.Generator().manual_seed(0)

    def draw(shape: tuple[int, ...]) -> Tensor:
        fan_in = torch.Size(shape[1:]).numel() if len(shape) > 1 else 100
        return torch.randn(shape, generator=generator) / fan_in**0.5

    features = {name: draw(shape) for name, shape in _feature_shapes(plan).items()}
    heads = {name: torch.rand(shape, generator=generator) for name, shape in _head_shapes(plan).items()}
    return features, heads


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Alex as .pt, VGG as .safetensors."""
    path = tmp_path_factory.mktemp("weights")
    for stem, tensors in zip(FILES["alex"], random_weights("alex"), strict=True):
        torch.save(tensors, path / f"{stem}.pt")
    for stem, tensors in zip(FILES["vgg"], random_weights("vgg"), strict=True):
        save_file(tensors, path / f"{stem}.safetensors")
    return path


def images(count: int, channels: int = 3, side: int = 32, seed: int = 0) -> Tensor:
    return torch.rand(count, channels, side, side, generator=torch.Generator().manual_seed(seed))


def distance(metric: LPIPS, left: Tensor, right: Tensor) -> Tensor:
    return metric(Comparison(left, right, None, torch.zeros(len(left)), None))


@pytest.mark.parametrize("network", ["alex", "vgg"])
def test_it_is_zero_on_equal_images_symmetric_and_positive_elsewhere(folder: Path, network: Network) -> None:
    metric, left, right = NETWORKS[network](str(folder)), images(2), images(2, seed=1)
    assert distance(metric, left, left).tolist() == [0.0, 0.0]
    assert torch.equal(distance(metric, left, right), distance(metric, right, left))
    assert (distance(metric, left, right) > 0).all()


def test_a_grey_image_is_the_same_image_in_three_equal_channels(folder: Path) -> None:
    metric, left, right = LPIPSAlex(str(folder)), images(2, channels=1), images(2, channels=1, seed=1)
    in_colour = distance(metric, left.repeat(1, 3, 1, 1), right.repeat(1, 3, 1, 1))
    assert torch.allclose(distance(metric, left, right), in_colour)


@pytest.mark.parametrize(("network", "smallest"), [("alex", 31), ("vgg", 16)])
def test_images_are_measured_from_the_smallest_size_with_a_last_tap(
    folder: Path, network: Network, smallest: int
) -> None:
    metric = NETWORKS[network](str(folder))
    below, at = smallest - 1, smallest
    assert distance(metric, images(1, side=below), images(1, side=below, seed=1)).isnan().all()
    assert distance(metric, images(1, side=at), images(1, side=at, seed=1)).isfinite().all()


def test_other_channel_counts_are_not_measured(folder: Path) -> None:
    assert distance(LPIPSAlex(str(folder)), images(2, channels=4), images(2, channels=4)).isnan().all()


def test_more_pairs_than_fit_at_once_are_all_scored(folder: Path) -> None:
    metric, left, right = LPIPSAlex(str(folder)), images(35), images(35, seed=1)
    expected = torch.cat([distance(metric, left[[row]], right[[row]]) for row in (0, 16, 34)])
    assert torch.allclose(distance(metric, left, right)[[0, 16, 34]], expected, rtol=1e-4)


def test_both_file_formats_give_the_same_distance_and_safetensors_is_preferred(folder: Path, tmp_path: Path) -> None:
    for stem, tensors in zip(FILES["alex"], random_weights("alex"), strict=True):
        save_file(tensors, tmp_path / f"{stem}.safetensors")
        (tmp_path / f"{stem}.pt").write_bytes(b"never read")
    left, right = images(2), images(2, seed=1)
    expected = distance(LPIPSAlex(str(folder)), left, right)
    assert torch.equal(distance(LPIPSAlex(str(tmp_path)), left, right), expected)


def test_without_weights_it_is_described_but_measures_nothing_and_says_what_it_lacks() -> None:
    assert distance(LPIPSAlex(), images(2), images(2)).isnan().all()
    assert "weights" in str(LPIPSAlex().lacks)


def test_weights_are_read_as_soon_as_they_are_named(folder: Path, tmp_path: Path) -> None:
    assert LPIPSVGG().with_weights(folder) == LPIPSVGG(str(folder))
    with pytest.raises(InvalidFile, match="put one of them there"):
        LPIPSVGG().with_weights(tmp_path)


@pytest.mark.parametrize("missing", [0, 1])
def test_a_missing_file_is_named_with_the_remedy(tmp_path: Path, missing: int) -> None:
    stem = FILES["alex"][1 - missing]
    torch.save(random_weights("alex")[1 - missing], tmp_path / f"{stem}.pt")
    with pytest.raises(InvalidFile, match=FILES["alex"][missing] + r"\.pt in .*; put one of them there") as refusal:
        distance(LPIPSAlex(str(tmp_path)), images(1), images(1))
    assert "\n" not in str(refusal.value)


class Bomb:
    """A pickle of it creates a file when it is loaded without care."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize("writer", ["torch", "torch_legacy", "pickle"])
def test_a_malicious_pickle_is_refused_and_never_runs(tmp_path: Path, writer: str, suffix: str) -> None:
    exploded, path = tmp_path / "exploded", tmp_path / f"alexnet_features{suffix}"
    payload = {**random_weights("alex")[0], "extra": Bomb(exploded)}
    if writer == "pickle":
        path.write_bytes(pickle.dumps(Bomb(exploded)))
    else:
        torch.save(payload, path, _use_new_zipfile_serialization=writer == "torch")
    with pytest.raises(InvalidFile, match=r"alexnet_features.* is not a readable file of plain tensors"):
        distance(LPIPSAlex(str(tmp_path)), images(1), images(1))
    assert not exploded.exists()
    # The payload is live: what guards it is the loading, not a mistake in this test.
    if writer == "pickle":
        pickle.loads(path.read_bytes())  # noqa: S301
        assert exploded.exists()


@pytest.mark.parametrize("content", [b"", b"\x80\x02", b"PK\x03\x04 cut short", b"<html>not found</html>"])
@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes, suffix: str) -> None:
    (tmp_path / f"alexnet_features{suffix}").write_bytes(content)
    with pytest.raises(InvalidFile, match="fetch a fresh copy"):
        distance(LPIPSAlex(str(tmp_path)), images(1), images(1))


def test_tensors_of_another_network_are_refused_by_name_and_shape(tmp_path: Path) -> None:
    features, _ = random_weights("alex")
    torch.save({**features, "features.3.weight": torch.zeros(2, 2)}, tmp_path / "alexnet_features.pt")
    with pytest.raises(InvalidFile, match=r"no tensor 'features.3.weight' shaped \(192, 64, 5, 5\)"):
        distance(LPIPSAlex(str(tmp_path)), images(1), images(1))
    torch.save([1, 2], tmp_path / "alexnet_features.pt")
    with pytest.raises(InvalidFile, match=r"no tensor 'features\.0\.weight'"):
        distance(LPIPSAlex(str(tmp_path)), images(1), images(1))


def test_weights_are_found_by_argument_then_environment_then_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAKGAUGE_WEIGHTS", "from_environment")
    assert find_weights("given") == Path("given")
    assert find_weights(Path("given")) == Path("given")
    assert find_weights(None) == Path("from_environment")
    monkeypatch.setenv("LEAKGAUGE_WEIGHTS", "")
    assert find_weights(None) is None
    monkeypatch.delenv("LEAKGAUGE_WEIGHTS")
    assert find_weights(None) is None


def example(name: str) -> Tensor:
    pixels = np.array(Image.open(Path(str(REAL_DATA), "lpips_example", f"ex_{name}.png")).convert("RGB"))
    return torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 255


@pytest.mark.skipif(not (REAL_WEIGHTS and REAL_DATA), reason="needs LEAKGAUGE_WEIGHTS and LEAKGAUGE_DATA")
@pytest.mark.parametrize(
    ("network", "name", "published"),
    # The distances that the LPIPS project's own code gives for its example images.
    [("alex", "p0", 0.722), ("alex", "p1", 0.138), ("vgg", "p0", 0.569), ("vgg", "p1", 0.422)],
)
def test_published_distances_are_reproduced(network: Network, name: str, published: float) -> None:
    metric = NETWORKS[network](str(REAL_WEIGHTS))
    assert float(distance(metric, example("ref"), example(name))) == pytest.approx(published, abs=5e-4)
