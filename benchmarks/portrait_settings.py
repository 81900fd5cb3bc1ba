"""Who is attacked on a portrait: small clients of embedded data, each with the words that a page says of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from architectures import vit_wide
from leakgauge.attacks.base import LabelAttack
from leakgauge.audit.plan import OwnClient
from leakgauge.catalogue import ATTACKS
from leakgauge.config import build_attack
from leakgauge.data import Photos
from leakgauge.models import MLP, build

STEPS = 100
"""Of each search, but for those that need more to show what they can."""


@dataclass(frozen=True)
class Setting:
    """A client in words, and what an `AuditPlan` has to know of it."""

    words: str
    plan: Callable[[], Mapping[str, Any]]


def _of(words: str, **known: Any) -> Setting:
    return Setting(words, lambda: {"steps": STEPS, **known})


def _photograph_of_a_transformer() -> Mapping[str, Any]:
    face = Photos()().test[slice(0, 1)]
    return {"own": OwnClient(vit_wide(), face), "steps": STEPS}


def _photographs_of_one_class() -> Mapping[str, Any]:
    data = Photos()()
    cats = data.test[(data.test.labels == FISHED).nonzero()[:64:8, 0]]
    model = build(MLP(hidden=(32,)), data.space.shape, data.num_classes, seed=0)
    return {"own": OwnClient(model, cats), "steps": STEPS}


FISHED = 1
"""The class whose examples are fished for."""

PHOTOGRAPH = _of(
    "one photograph, a small convolutional network", dataset="photos", model="compact:width=16", batch_size=1
)
DENSE = _of("one photograph, a fully connected network", dataset="photos", model="mlp:hidden=(64,)", batch_size=1)
FOUR = _of("four photographs, a small convolutional network", dataset="photos", model="compact", batch_size=4)
FOUR_DENSE = _of(
    "four photographs, a fully connected untrained network",
    dataset="photos",
    model="mlp:hidden=(256,)",
    train_steps=0,
    batch_size=4,
)
LOCAL_STEPS = _of(
    "two photographs, four local steps of FedAvg",
    dataset="photos",
    model="compact:width=16",
    batch_size=2,
    local_update="fedavg:epochs=2,batch_size=1,learning_rate=0.01",
)
TRANSFORMER = Setting("one photograph, a small vision transformer", _photograph_of_a_transformer)
ROW = _of(
    "one row of a table, a fully connected network", dataset="breast_cancer", model="mlp", batch_size=1, steps=600
)
SENTENCE = _of("one sentence, a small decoder", dataset="text", model="gpt:width=64,layers=1", batch_size=1, steps=500)
WIDE = _of(
    "one photograph, a wide untrained residual network",
    dataset="photos",
    model="resnet:depth=8,base_width=32",
    train_steps=0,
    batch_size=1,
    steps=800,
)
_UNTRAINED: Mapping[str, Any] = {"dataset": "digits", "model": "compact:activation=relu", "train_steps": 0}
LABELS = _of("eight digits, a small untrained network", **_UNTRAINED, batch_size=8)
ONE_LABEL = _of("one digit, a small untrained network", **_UNTRAINED, batch_size=1)
ONE_CLASS = Setting("eight photographs of one class, a fully connected network", _photographs_of_one_class)

_SUITED: Mapping[str, Setting] = {
    **dict.fromkeys(("token_spans", "tag", "lamp", "lamp_l2", "token_guess"), SENTENCE),
    **dict.fromkeys(("surrogate", "midway", "epoch_copies", "local_step_search"), LOCAL_STEPS),
    **dict.fromkeys(("linear_layer", "fully_connected", "trap_weights"), DENSE),
    **dict.fromkeys(("linear_batches", "independent_components"), FOUR_DENSE),
    **dict.fromkeys(("front_layer", "sparse_front_layer", "concatenated_input", "class_fishing"), FOUR),
    **dict.fromkeys(("patch_embedding", "binned_adapter"), TRANSFORMER),
    **dict.fromkeys(("exact", "span_matching", "feature_maps"), WIDE),
    "tab_leak": ROW,
    "soft_label": ONE_LABEL,
    "feature_fishing": ONE_CLASS,
}
"""What an attack is made for, where that is another client than that of most."""

SPELLED: Mapping[str, str] = {
    "feature_fishing": f"feature_fishing:target={FISHED},examples=8",
    "dlg": "dlg:restarts=2",
    "grad_inversion": "grad_inversion:seeds=2",
    "tab_leak": "tab_leak:restarts=8",
}
"""With the options that its client asks for, or with fewer starts than its paper has."""


def setting_of(attack: str) -> Setting:
    """Whom an attack of the catalogue meets on its portrait."""
    if attack in _SUITED:
        return _SUITED[attack]
    labels = isinstance(build_attack(attack, None), LabelAttack) and attack in ATTACKS
    return LABELS if labels else PHOTOGRAPH


TRIED: Mapping[str, str] = {
    "exclude_vars": "exclude_vars:pattern='linear'",
    "instahide_cross": "instahide_cross:k=4,public='public.safetensors'",
}
"""How a defence is tried that does nothing, or not all, by default."""

_OF_SEVERAL = ("mixup", "instahide", "instahide_cross", "secure_aggregation")


def defended(name: str) -> Setting:
    """Whose update the portrait of a defence is of."""
    return FOUR if name in _OF_SEVERAL else PHOTOGRAPH
