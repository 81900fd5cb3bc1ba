"""Models that learn from disguised images: which network, which public images, and no training twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import skimage.data
from PIL import Image

from leakgauge.defences import NoDefence
from leakgauge.encodings import CrossDataset, InsideDataset, Mixup
from leakgauge.encodings.crops import Cropping
from leakgauge.models import QuickResNet
from leakgauge.reproduce import TABLES, Options
from leakgauge.reproduce.measures import disguised_accuracy
from leakgauge.reproduce.measures.disguised_accuracy import DISGUISED, PLAIN, DisguisedAccuracy, Work
from leakgauge.reproduce.run import embedded
from leakgauge.reproduce.table import Bench
from leakgauge.schedules import CosineDecay
from leakgauge.training import Recipe
from leakgauge.training.disguises import Undisguised

WORK = Work(
    QuickResNet(2),
    Recipe(14, 0.02, CosineDecay(), steps=2, weight_decay=1e-3),
    private=None,
    public=6,
    tested=28,
    runs=1,
    signless=QuickResNet(2, signless=True),
    moved=Cropping(margin=1),
    photographs="photographs",
)


def bench_at(folder: Path, name: str = "huang2020/table2") -> Bench:
    return Bench(TABLES[name], Options(out=folder, data_root=folder), embedded())


def test_only_where_a_mask_flips_signs_the_network_does_without_them() -> None:
    for disguise, signless in ((InsideDataset(2), True), (Mixup(2), False), (Undisguised(), False)):
        assert DisguisedAccuracy(WORK, disguise, NoDefence()).model == QuickResNet(2, signless=signless)
    plain = DisguisedAccuracy(replace(WORK, signless=None), InsideDataset(2), NoDefence())
    assert plain.model == QuickResNet(2)


def test_what_one_table_trained_another_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure = DisguisedAccuracy(WORK, InsideDataset(2), NoDefence())
    first = measure(bench_at(tmp_path), [PLAIN, DISGUISED])
    monkeypatch.delattr(disguised_accuracy, "train")
    again = measure(bench_at(tmp_path, "huang2020/figure3"), [PLAIN, DISGUISED])
    assert {name: one.ours for name, one in first.items()} == {name: one.ours for name, one in again.items()}
    accuracy = first[PLAIN].ours["accuracy"]
    assert (accuracy.images, accuracy.deviation) == (28, None)
    assert accuracy.standard_error is not None
    with pytest.raises(NameError):
        replace(measure, disguise=InsideDataset(3))(bench_at(tmp_path), [PLAIN])


def test_public_images_are_patches_of_photographs_where_there_are_some(tmp_path: Path) -> None:
    pytest.importorskip("cv2")
    measure = DisguisedAccuracy(WORK, CrossDataset(4), NoDefence())
    assert "other images" in measure(bench_at(tmp_path), [PLAIN])[PLAIN].facts["setting"]["public_source"]
    (tmp_path / "photographs").mkdir()
    Image.fromarray(skimage.data.astronaut()).save(tmp_path / "photographs" / "one.png")
    bench = bench_at(tmp_path)
    measure.check(bench)
    found = measure(replace(bench, options=replace(bench.options, seed=1)), [PLAIN])[PLAIN].facts["setting"]
    assert (found["public_source"], found["public_images"]) == ("patches of photographs", 6)
    (file,) = (tmp_path / "rows").glob("patches-*.safetensors")
    assert file.stat().st_size > 6 * 3 * 16 * 16
