"""CI-Net's tables: the paper's numbers, both baselines, both activations, and ablations that ablate one thing each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from leakgauge.attacks.matching import (
    Balanced,
    GeneratorWeights,
    GradientMatching,
    Pixels,
    SignedAdam,
    TotalVariation,
    UntrainedGenerator,
)
from leakgauge.attacks.recipes import ci_net
from leakgauge.models import ResNet
from leakgauge.reproduce import TABLES
from leakgauge.reproduce.measures.updates import Setting, budget_of
from leakgauge.reproduce.papers.cinet.tables import PUBLISHED

AS_PRINTED = {
    "table4": {"ssim": "1.00 0.00", "fsim": "1.00 0.00", "psnr": "33.72 0.05", "lpips_vgg": "0.01 0.00"},
    "table5": {"ssim": "0.98 0.01", "fsim": "0.99 0.01", "psnr": "34.11 0.13", "lpips_vgg": "0.02 0.01"},
}
"""Read off the appendix in its order; the last digits of Table 4 as printed, ± included."""


@pytest.mark.parametrize("name", AS_PRINTED)
def test_the_published_numbers_are_those_of_the_paper_and_stand_in_one_row(name):
    row, *others = TABLES[f"cinet/{name}"].rows
    assert row.label == "sigmoid: CI-Net"
    printed = {metric: row.published_of(metric, "psnr") for metric in PUBLISHED[name]}
    assert {metric: f"{one.mean:.2f} {one.deviation:.2f}" for metric, one in printed.items()} == AS_PRINTED[name]
    assert all(one.published is None and not one.also for one in others)


@pytest.mark.parametrize("name", AS_PRINTED)
def test_every_attack_meets_sigmoid_and_relu_and_is_otherwise_the_same(name):
    settings = TABLES[f"cinet/{name}"].measures("cpu")
    halves: list[dict[str, Setting]] = [
        {label.partition(": ")[2]: one for label, one in settings.items() if label.startswith(activation)}
        for activation in ("sigmoid", "relu")
    ]
    assert halves[0].keys() == halves[1].keys()
    for label, one in halves[0].items():
        assert one.model.activation == "sigmoid"
        assert halves[1][label] == replace(one, model=replace(one.model, activation="relu"))


@pytest.mark.parametrize(("name", "batch"), [("table4", 64), ("table5", 256)])
def test_full_scale_is_the_papers_batch_on_resnet_18_in_train_mode(name, batch):
    for setting in TABLES[f"cinet/{name}"].measures("full").values():
        assert setting.batch_size == batch
        assert isinstance(setting.model, ResNet)
        assert (setting.model.depth, setting.mode) == (18, "train")
    row = TABLES[f"cinet/{name}"].measures("full")["sigmoid: CI-Net"]
    assert row.attack == ci_net(steps=2_000 if name == "table4" else 150_000)


@pytest.mark.parametrize("name", AS_PRINTED)
def test_rivals_have_the_same_time_and_pixels_come_with_a_usual_and_a_balanced_prior(name):
    settings = TABLES[f"cinet/{name}"].measures("cpu").values()
    assert len({budget_of(setting.attack) for setting in settings}) == 1
    pixels = [setting.attack for setting in settings if isinstance(setting.attack.parametrisation, Pixels)]
    assert {attack.priors for attack in pixels} == {(TotalVariation(1e-3),), (Balanced(),)}


def test_each_ablation_changes_one_thing():
    attacks = [setting.attack for setting in TABLES["cinet/figure8"].measures("full").values()]
    proposed = attacks[0]
    assert proposed == ci_net()
    for attack in attacks[1:]:
        assert isinstance(attack, GradientMatching)
        assert isinstance(attack.parametrisation, GeneratorWeights)
        assert isinstance(attack.optimiser, SignedAdam)
        changed = [
            name
            for name in ("upsampling", "normalisation", "output", "initial", "latent")
            if getattr(attack.parametrisation.network, name) != getattr(UntrainedGenerator(), name)
        ]
        assert len(changed) + (attack.parametrisation.width != "code") == 1
        assert replace(attack, parametrisation=proposed.parametrisation) == proposed
