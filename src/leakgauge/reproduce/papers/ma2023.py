"""Ma, Sun, Cui, Zheng, Lyu, Li 2023: Instance-wise Batch Label Restoration via Gradients in Federated Learning, ICLR
2023. Tables 3 and 4, its architectures, and every rule for labels on the same victims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from leakgauge.attacks.base import Attack
from leakgauge.attacks.labels import (
    IDLG,
    ILRG,
    LLG,
    RLG,
    ZLG,
    Alternating,
    BestLabels,
    ClassPrior,
    HeadMatching,
    MinRow,
)
from leakgauge.data import Cifar100, Dataset
from leakgauge.models import VGG, LeNet5, ModelFactory, ResNet, fcn3
from leakgauge.reproduce.draws import AtRandom, Draw, Skewed
from leakgauge.reproduce.measures.updates import Setting
from leakgauge.reproduce.scales import Scale, at_scale
from leakgauge.reproduce.table import Published, Row, Table
from leakgauge.training import Training

_METRICS = ("label_counts", "label_existence", "label_recall")
_DROPOUT = 0.5
_HIDDEN = (4096, 4096)
"""Of the VGG networks, as they were first published; in the paper BatchNorm is a part that is added [appendix C]."""
_PLAIN, _WITH = "without BatchNorm/dropout", "with BatchNorm/dropout"
_OWN = " (not in the paper)"
_ALONE: Mapping[str, LeNet5] = {
    "with BatchNorm alone": LeNet5(batch_norm=True),
    "with dropout alone": LeNet5(dropout=_DROPOUT),
}
"""Which of the two it is that costs a rule its counts."""


@dataclass(frozen=True)
class _Halved:
    """CIFAR-100, or where only its test file is there, that file: the first 8000 images to train on, the rest to test.

    Otherwise there would be no trained model without the larger download.
    """

    training_images: int = 8_000

    def __call__(self, root: Path | None = None) -> Dataset:
        data = Cifar100()(root)
        if len(data.train):
            return data
        cut = self.training_images
        return Dataset(f"{data.name} (test file, split at {cut})", data.test[:cut], data.test[cut:], data.class_names)


def _both(source: str, existence: float, counts: float) -> Mapping[str, Published]:
    return {"label_existence": Published(existence, None, source), "label_counts": Published(counts, None, source)}


TABLE3 = {
    f"{model}, K={size}, {_WITH if parts else _PLAIN}": (model, size, parts)
    for model, size in (("LeNet-5", 128), ("VGG-16", 64))
    for parts in (False, True)
}
"""Model, size of the batch and whether it has such parts; every number printed is 1."""

TABLE4 = {
    **{(present, 128 // present): _both("Table 4", 1.0, 1.0) for present in (1, 2, 4, 8, 16, 32, 64)},
    (100, 1): _both("Table 4", 0.998, 0.911),
}
"""By number of classes and images of each."""

_LOGS = "the authors' logs"
MODELS: Mapping[str, Mapping[str, Published]] = {
    "FCN-3, K=24": {},
    "LeNet-5, K=24": _both(_LOGS, 1.0, 1.0),
    "VGG-11, K=1024": {"label_counts": Published(0.993, None, _LOGS)},
    "VGG-13, K=1024": {"label_counts": Published(0.995, None, _LOGS)},
    "VGG-16, K=1024": {"label_counts": Published(1.0, None, _LOGS)},
    f"VGG-11 with BatchNorm, K=1024{_OWN}": {},
    "ResNet-18, 1000 classes, K=1024": {},
    "ResNet-50, 1000 classes, K=1024": _both(f"{_LOGS}, on ImageNet", 0.996, 0.994),
}

METHODS: Mapping[str, Attack] = {
    "class prior": ClassPrior(),
    "iDLG": IDLG(),
    "GradInversion, row minima": MinRow(),
    "LLG": LLG(),
    "LLG*": LLG("dummy"),
    "LLG+ (auxiliary images)": LLG("auxiliary"),
    "RLG": RLG(),
    "ZLG": ZLG(),
    "ZLG+ (auxiliary images)": ZLG("auxiliary"),
    "iLRG, P = 1/C": ILRG(uniform=True),
    "iLRG, simplified": ILRG(simplified=True),
    "iLRG": ILRG(),
    "alternating (ours)": Alternating(),
    "head matching (ours, the default)": HeadMatching(),
}


def _lenet(with_parts: bool) -> LeNet5:
    return LeNet5(batch_norm=with_parts, dropout=_DROPOUT if with_parts else 0.0)


def _labels_only(
    model: ModelFactory, batch_size: int, draw: Draw, scale: Scale, *, attack: Attack | None = None, **more: Any
) -> Setting:
    """A row of label restoration: the client in training, untrained models of as many seeds as there are updates."""
    updates = at_scale({"smoke": 1, "cpu": 20, "full": 50}, scale)
    values: dict[str, Any] = {
        "attack": attack or ILRG(one_by_one=True),
        "updates": updates,
        "nulls": at_scale({"smoke": 1, "cpu": 3, "full": 10}, scale),
        "models": updates,
        "mode": "train",
        "head_only": True,
        "classes": 100,
    }
    return Setting(model=model, batch_size=batch_size, draw=draw, **(values | more))


def _table3(model: str, batch_size: int, with_parts: bool, scale: Scale) -> Setting:
    factory: ModelFactory = _lenet(with_parts)
    if model == "VGG-16":
        width = at_scale({"smoke": 4, "cpu": 64, "full": 64}, scale)
        factory = VGG(16, width, batch_norm=with_parts, dropout=_DROPOUT if with_parts else 0.0)
    return _labels_only(factory, batch_size, AtRandom(), scale)


def _table4(present: int, repeats: int, with_parts: bool, attack: Attack, scale: Scale) -> Setting:
    return _labels_only(_lenet(with_parts), present * repeats, Skewed(present, repeats), scale, attack=attack)


def _models(label: str, scale: Scale) -> Setting:
    smoke = scale == "smoke"
    name, *_ = label.split(",")
    width, hidden = (4, (16, 16)) if smoke else (64, _HIDDEN)
    # What is read is the last layer alone, but the images must get there.
    residual = at_scale({"smoke": 4, "cpu": 32, "full": 64}, scale)
    factories: Mapping[str, ModelFactory] = {
        "FCN-3": fcn3(),
        "LeNet-5": LeNet5(),
        **{f"VGG-{depth}": VGG(depth, width, hidden=hidden) for depth in (11, 13, 16)},
        "VGG-11 with BatchNorm": VGG(11, width, batch_norm=True, hidden=hidden),
        **{f"ResNet-{depth}": ResNet(depth, residual) for depth in (18, 50)},
    }
    large = "K=1024" in label
    many = "1000 classes" in label
    fewer: dict[str, Any] = {"updates": 3, "models": 3, "nulls": 1} if large and scale in ("cpu", "long") else {}
    return _labels_only(
        factories[name],
        (16 if smoke else 1024) if large else 24,
        AtRandom(relabelled=many),
        scale,
        classes=1000 if many else 100,
        **fewer,
    )


_TRAINED: Mapping[Scale, Mapping[int, Training]] = {
    "smoke": {1: Training(steps=2, batch_size=4), 2: Training(steps=4, batch_size=4)},
    "cpu": {
        1: Training(steps=310, batch_size=128, learning_rate=0.05),
        2: Training(steps=1240, batch_size=128, learning_rate=0.05),
    },
    "full": {
        1: Training(steps=3_900, batch_size=128, learning_rate=0.05),
        2: Training(steps=39_000, batch_size=128, learning_rate=0.05),
    },
}
"""Ten and a hundred epochs of 50 000 images at full scale, as in the authors' logs; on a CPU 5 and 20 of 8000."""


def _methods(attack: Attack, batch_size: int, training: int, scale: Scale) -> Setting:
    if training == 0:
        return _labels_only(LeNet5(), batch_size, AtRandom(), scale, attack=attack)
    updates = at_scale({"smoke": 1, "cpu": 20, "full": 50}, scale)
    model = VGG(11, at_scale({"smoke": 4, "cpu": 16, "full": 64}, scale), batch_norm=True, hidden=())
    return _labels_only(
        model,
        batch_size,
        AtRandom(),
        scale,
        attack=attack,
        models=1,
        updates=updates,
        training=at_scale(_TRAINED, scale)[training],
    )


_COMMON: dict[str, Any] = {
    "dataset": _Halved(),
    "metrics": _METRICS,
    "shown": 3,
    "threat_model": "honest_but_curious",
    "stands_in": True,
}
_NOTES = (
    "LeAcc (label_existence) and LnAcc (label_counts) count absent classes as right, so both are high for free when "
    "there are many classes; label_recall, the share of examples whose label was restored, is not.",
    "Counts of iLRG are rounded one by one, as the paper does; all others are made to sum to the batch size.",
    "The client trains in train mode; of its update only the last layer's part is computed, the one that is read.",
)

_SILENT = "which the paper does not say, nor whether its client had them active: iLRG expects every unit of an image"

TABLES: tuple[Table, ...] = (
    Table(
        name="ma2023/table3",
        title="Ma et al. 2023, Table 3: iLRG with and without BatchNorm and dropout",
        rows=tuple(
            Row.printed(label, _both("Table 3", 1.0, 1.0), _METRICS[0], partial(_table3, *of))
            for label, of in TABLE3.items()
        )
        + tuple(
            Row(f"LeNet-5, K=128, {parts}{_OWN}", None, partial(_labels_only, model, 128, AtRandom()))
            for parts, model in _ALONE.items()
        ),
        assumptions=(
            *_NOTES,
            f"Dropout drops a half of the units, {_SILENT}.",
            "The paper's VGG-16 is on ImageNet; here on CIFAR-100, in its form for small images.",
        ),
        **_COMMON,
    ),
    Table(
        name="ma2023/table4",
        title="Ma et al. 2023, Table 4: iLRG on LeNet-5 under other distributions of labels",
        rows=tuple(
            Row.printed(
                f"NoC={present}, MRoC={repeats}, {_WITH if parts else _PLAIN}{suffix}",
                # A LeNet-5 of which nothing else is said has neither BatchNorm nor dropout.
                {} if suffix or parts else published,
                _METRICS[0],
                partial(_table4, present, repeats, parts, attack),
            )
            for suffix, attack in (("", ILRG(one_by_one=True)), (": ours", BestLabels()))
            for parts in (False, True)
            for (present, repeats), published in TABLE4.items()
        )
        + tuple(
            Row(f"NoC=100, MRoC=1, {parts}{_OWN}", None, partial(_labels_only, model, 100, Skewed(100, 1)))
            for parts, model in _ALONE.items()
        ),
        assumptions=(
            *_NOTES,
            f"Dropout drops a half of the units, {_SILENT}.",
            "Every batch with one image of each of the 100 classes has the same counts: there the null is an update of "
            "labels at random.",
            "The paper does not say whether its LeNet-5 has BatchNorm or dropout here; both are run. A LeNet-5 "
            "as first published has neither, so its numbers are held against the one without.",
        ),
        **_COMMON,
    ),
    Table(
        name="ma2023/models",
        title="Ma et al. 2023: iLRG by architecture, untrained",
        rows=tuple(
            Row.printed(label, published, _METRICS[0], partial(_models, label)) for label, published in MODELS.items()
        ),
        assumptions=(
            *_NOTES,
            "Published numbers of ResNet-50 are on ImageNet; here CIFAR-100 images get labels drawn from 1000 classes.",
            "The paper does not say whether its VGG networks have BatchNorm here; as first published they have none, "
            "and its numbers are held against those. With it counts are lost, as our own row shows.",
        ),
        **_COMMON,
    ),
    Table(
        name="ma2023/methods",
        title="Every rule for labels on the same victims: LeNet-5 untrained, VGG-11 trained",
        rows=tuple(
            Row(f"{state}, K={size}: {name}", None, partial(_methods, attack, size, training))
            for training, state in enumerate(("untrained", "trained", "trained longer"))
            for size in (24, 64)
            for name, attack in METHODS.items()
        ),
        assumptions=(
            *_NOTES[:1],
            *_NOTES[2:],
            "All rules see the same updates. LLG+ and ZLG+ also get 500 labelled images of the same kind, which the "
            "others do not use.",
            "RLG needs fewer examples than classes and features.",
            "The default, `leakgauge.labels.best`, runs head matching only where the alternating rule leaves doubt.",
            "Our own rules were devised on a network of the same shape as the trained one, with other weights and "
            "another schedule, and on other batches of the same test images: neither shape nor images are held out.",
        ),
        auxiliary=500,
        **(_COMMON | {"threat_model": "auxiliary"}),
    ),
)
