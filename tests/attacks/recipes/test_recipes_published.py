"""Published attacks are the compositions their papers state, and do what their papers claim on a small scale."""

from __future__ import annotations

import inspect
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from leakgauge.attacks.budget import Budget
from leakgauge.attacks.labels import IDLG, BestLabels
from leakgauge.attacks.matching import (
    LBFGS,
    Adam,
    AnisotropicTotalVariation,
    BatchNormStatistics,
    Cosine,
    CosineDecay,
    Euclidean,
    FreeLabels,
    GradientMatching,
    GroupConsistency,
    Langevin,
    Latest,
    PixelNorm,
    Pixels,
    QuantisedSign,
    SignedAdam,
    Starting,
    StepDecay,
    WarmUp,
)
from leakgauge.attacks.recipes import (
    dlg,
    grad_attack,
    grad_inversion,
    idlg,
    inverting_gradients,
    inverting_gradients_l2,
    inverting_gradients_lbfgs,
    inverting_gradients_no_tv,
    quasi_newton,
    quasi_newton_smooth,
    stepwise,
)
from leakgauge.catalogue import ATTACKS
from leakgauge.config import build as build_part
from leakgauge.data import Photos
from leakgauge.data.datasets import Dataset
from leakgauge.errors import InvalidCase
from leakgauge.metrics import PSNR, align
from leakgauge.models import Compact, LeNet, build
from leakgauge.randomness import seeded
from leakgauge.types import Batch, Outcome, Reconstruction

PUBLISHED = {
    "dlg": dlg,
    "idlg": idlg,
    "inverting_gradients": inverting_gradients,
    "inverting_gradients_l2": inverting_gradients_l2,
    "inverting_gradients_no_tv": inverting_gradients_no_tv,
    "inverting_gradients_lbfgs": inverting_gradients_lbfgs,
    "grad_attack": grad_attack,
    "grad_inversion": grad_inversion,
    "stepwise": stepwise,
    "quasi_newton": quasi_newton,
    "quasi_newton_smooth": quasi_newton_smooth,
}
# A unit of normalised pixels, at a standard deviation of 0.25.
UNIT = 0.25


@pytest.fixture(scope="module")
def photos() -> Dataset:
    return Photos(size=16)()


def psnr(images: Tensor, truth: Batch) -> float:
    return float(PSNR()(align(Reconstruction(images, None, Outcome.SOLVED), truth)).mean())


# What the papers say


def test_dlg_is_l2_with_lbfgs_and_free_labels_from_a_normal_start():
    # Zhu et al. 2019; 300 iterations and 16 restarts as in Geiping et al. 2020, appendix C.1.
    assert dlg() == GradientMatching(
        objective=Euclidean(),
        priors=(),
        parametrisation=Pixels(mean=0.5, spread=UNIT),
        optimiser=LBFGS(),
        labels=FreeLabels(),
        restarts=16,
        budget=Budget(steps=300),
    )


def test_idlg_is_dlg_with_the_label_read_off():
    # Zhao et al. 2020.
    assert idlg(restarts=16) == replace(dlg(), labels=IDLG())


def test_inverting_gradients_is_equation_4_with_the_settings_of_appendix_c():
    attack = inverting_gradients()
    assert attack == GradientMatching(
        objective=Cosine(),
        priors=(AnisotropicTotalVariation(1e-2 / UNIT),),
        parametrisation=Pixels(mean=0.5, spread=UNIT),
        optimiser=SignedAdam(0.1 * UNIT, StepDecay((3 / 8, 5 / 8, 7 / 8), 0.1)),
        labels=BestLabels(),
        restarts=1,
        budget=Budget(steps=4800),
    )


def test_each_ablation_of_table_3_changes_one_thing():
    # Geiping et al. 2020, appendix B.3.
    basic = inverting_gradients()
    assert inverting_gradients_l2() == replace(basic, objective=Euclidean())
    assert inverting_gradients_no_tv() == replace(basic, priors=())
    assert inverting_gradients_lbfgs() == replace(basic, optimiser=LBFGS())
    for ablation in (inverting_gradients_l2, inverting_gradients_lbfgs):
        assert ablation(tv_weight=0.5, steps=7, restarts=3) == replace(
            ablation(), priors=(AnisotropicTotalVariation(2.0),), budget=Budget(steps=7), restarts=3
        )
    assert inverting_gradients_no_tv(steps=7, restarts=3) == inverting_gradients(0.0, 7, 3)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "inverting_gradients:objective=l3",
            "There is no objective 'l3' for inverting_gradients; choose from cosine, l2.",
        ),
        (
            "inverting_gradients:optimiser=adam",
            "There is no optimiser 'adam' for inverting_gradients; choose from signed_adam, lbfgs.",
        ),
    ],
)
def test_an_unknown_part_is_refused_by_name(words, message):
    with pytest.raises(InvalidCase) as refusal:
        build_part(ATTACKS, words, kind="attack")
    assert str(refusal.value) == message


def test_grad_inversion_has_every_term_of_its_paper_in_the_papers_proportions():
    # Yin et al. 2021: 1e-3 for the gradient, 1e-4 TV, 1e-6 norm, 0.1 BatchNorm, 0.01 group, noise 0.2, 8 seeds, 20 000
    # steps of which 50 warm up. All but the gradient's relative to a distance of 1e-3 * 100.
    attack = grad_inversion()
    assert attack.objective == Euclidean()
    assert attack.priors == (
        AnisotropicTotalVariation(pytest.approx(1e-4 / 0.1 / UNIT)),
        PixelNorm(pytest.approx(1e-6 / 0.1 / UNIT**2), centre=0.5),
        BatchNormStatistics(pytest.approx(0.1 / 0.1)),
        GroupConsistency(pytest.approx(0.01 / 0.1 / UNIT), registered=True, after=5_000 / 20_000),
    )
    assert attack.optimiser == Langevin(0.1 * UNIT, WarmUp(CosineDecay(), share=50 / 20_000), noise=0.2)
    assert (attack.restarts, attack.budget) == (8, Budget(steps=20_000))
    assert grad_inversion(seeds=3).restarts == 3


def test_grad_attack_has_the_terms_of_eq_3_and_finds_hidden_labels_along_with_the_images():
    attack = grad_attack(tv_weight=0.1, bn_weight=5e-3, norm_weight=1e-4)
    assert attack.objective == Cosine()
    assert attack.priors == (
        AnisotropicTotalVariation(0.1 / UNIT),
        BatchNormStatistics(5e-3),
        PixelNorm(pytest.approx(1e-4 / UNIT**2), centre=0.5),
    )
    assert attack.optimiser == SignedAdam(0.1 * UNIT, StepDecay())
    assert attack.labels == FreeLabels()
    assert grad_attack(0.0, 0.0).priors == ()


def test_stepwise_brings_in_layers_and_priors_in_the_order_of_its_paper():
    # Ye et al. 2024: TV from 3 000 and BatchNorm from 5 000 of 15 000 steps; every 500 steps more of the tensors, from
    # the last 10 of 110, until 4 000.
    attack = stepwise()
    assert attack.priors == (
        Starting(AnisotropicTotalVariation(5e-3 / UNIT), after=3_000 / 15_000),
        Starting(BatchNormStatistics(1e-4, first=1.3), after=5_000 / 15_000),
    )
    assert attack.optimiser == QuantisedSign(0.1 * UNIT, StepDecay(), doubled=100)
    assert attack.budget == Budget(steps=15_000)
    stages = [attack.objective.at(step / 15_000) for step in range(250, 4_000, 500)]
    shares = [stage.weighting.share for stage in stages]
    assert shares == sorted(set(shares))
    assert stages[0] == Cosine(Latest(0.1))
    assert attack.objective.at(4_001 / 15_000) == attack.objective.at(1.0) == Cosine()


@pytest.mark.parametrize("attack", PUBLISHED.values(), ids=PUBLISHED)
def test_seconds_take_the_place_of_steps(attack):
    assert attack(seconds=2.5).budget == Budget(seconds=2.5)
    assert attack(steps=7).budget == Budget(steps=7)
    default = inspect.signature(attack).parameters["steps"].default
    assert attack().budget == Budget(steps=default)
    assert attack(seconds=2.5) == replace(attack(), budget=Budget(seconds=2.5))
    with pytest.raises(InvalidCase, match="steps or seconds"):
        attack(steps=None)


@pytest.mark.parametrize(("name", "attack"), PUBLISHED.items(), ids=PUBLISHED)
def test_every_published_attack_is_in_the_catalogue_under_its_name(name, attack):
    assert ATTACKS[name] is attack
    assert build_part(ATTACKS, f"{name}:seconds=3", kind="attack").budget == Budget(seconds=3.0)


# Directions, schedules and noise


def test_a_quantised_sign_has_five_levels_set_by_the_median():
    # The median of |G| is 1: 0.2 rounds to 0, 0.3 and 0.6 to 0.5, 1 to 1, 5 is cut to 1.
    gradient = torch.tensor([[0.2, -0.3, 0.6, -1.0, 1.0, 1.2, -5.0, 1.6, 0.0]])
    expected = [0.2, -0.6, 0.6, -1.0, 1.0, 1.0, -1.0, 1.0, 0.0]
    torch.testing.assert_close(QuantisedSign().direction(gradient), torch.tensor([expected]))


def test_each_restart_is_quantised_by_its_own_median():
    gradient = torch.randn(3, 2, 3, 4, 4, generator=seeded(0))
    scales = torch.tensor([1.0, 1e-20, 1e20]).view(3, 1, 1, 1, 1)
    found = QuantisedSign().direction(gradient * scales)
    torch.testing.assert_close(found, torch.cat([QuantisedSign().direction(row[None]) for row in gradient]))


def test_where_most_slopes_vanish_the_others_count_in_full():
    found = QuantisedSign().direction(torch.tensor([[0.0, 0.0, 0.0, 1e-30, -2.0]]))
    torch.testing.assert_close(found, torch.tensor([[0.0, 0.0, 0.0, 1.0, -1.0]]))


def test_the_first_quantised_steps_are_doubled_before_the_moments():
    optimiser = QuantisedSign(0.1, doubled=2)
    state = optimiser.start(torch.zeros(1, 3), None)
    lengths = []
    for _ in range(3):
        before = state.first
        state = optimiser.advance(state, torch.zeros(1), torch.tensor([[1.0, -1.0, 1.0]]), 0.0)
        lengths.append(float(((state.first - 0.9 * before) / 0.1)[0, 0]))
    assert lengths == pytest.approx([2.0, 2.0, 1.0], rel=1e-5)


def test_a_warm_up_rises_to_the_schedule_beneath_it():
    warm, bare = WarmUp(CosineDecay(), share=0.1), CosineDecay()
    assert warm(0.0) == 0
    assert warm(0.05) == pytest.approx(0.5 * bare(0.05))
    for fraction in (0.1, 0.5, 1.0):
        assert warm(fraction) == bare(fraction)


def steps_of(optimiser, start: Tensor, steps: int, box=None) -> Tensor:
    state = optimiser.start(start, box)
    for step in range(steps):
        state = optimiser.advance(state, torch.zeros(len(start)), state.candidate - 0.3, step / steps)
    return state.candidate


def test_langevin_without_noise_is_adam():
    start = torch.rand(2, 5, generator=seeded(0))
    assert torch.equal(steps_of(Langevin(0.1, noise=0.0), start, 5), steps_of(Adam(0.1), start, 5))


def test_langevin_noise_has_the_size_of_the_learning_rate_times_its_own():
    start = torch.rand(1, 40_000, generator=seeded(0))
    noisy, plain = (steps_of(optimiser, start, 1) for optimiser in (Langevin(0.1, noise=0.2), Adam(0.1)))
    assert float((noisy - plain).std()) == pytest.approx(0.02, rel=0.02)
    assert abs(float((noisy - plain).mean())) < 1e-3


def test_langevin_noise_follows_the_start_and_the_step_and_nothing_else():
    start = torch.rand(3, 6, generator=seeded(0))
    optimiser = Langevin(0.1, noise=1.0)
    together = steps_of(optimiser, start, 4)
    assert torch.equal(together, steps_of(optimiser, start, 4))
    assert torch.equal(together[1:2], steps_of(optimiser, start[1:2], 4))
    once, twice = (steps_of(optimiser, start, steps) - steps_of(Adam(0.1), start, steps) for steps in (1, 2))
    assert not torch.allclose(once[0], once[1])
    assert not torch.allclose(twice - once, once)


def test_langevin_stays_in_the_box():
    found = steps_of(Langevin(0.5, noise=5.0), torch.rand(2, 50, generator=seeded(0)), 5, box=(0.0, 1.0))
    assert 0 == float(found.min()) < float(found.max()) == 1


def test_an_interrupted_langevin_run_goes_on_as_it_would_have(attacked, examples):
    seen = attacked(build(Compact(width=3), (3, 8, 8), 5, seed=0), examples(1))
    attack = grad_inversion(seeds=2, steps=8)
    whole = attack.search([seen], generator=seeded(0))
    interrupted = attack.search([seen], generator=seeded(0))
    for _ in range(3):
        whole.step()
        interrupted.step()
    resumed = attack.search([seen], generator=seeded(1))
    resumed.restore(interrupted.snapshot())
    one, two = whole.run()[0], resumed.run()[0]
    assert torch.equal(one.inputs, two.inputs)
    assert torch.equal(one.loss_trace, two.loss_trace)


# What the attacks do


# Measured when written: 27 to 35 dB.
@pytest.mark.slow
@pytest.mark.parametrize("seed", [0])
def test_dlg_finds_photograph_and_label_that_nobody_told_it(seed, photos, attacked):
    index = photos.highlights[seed + 2]
    truth = photos.test[slice(index, index + 1)]
    seen = attacked(build(LeNet(), (3, 16, 16), 7, seed=seed), truth, threat_model="honest_but_curious")
    found = dlg(steps=150, restarts=2)(seen, generator=seeded(seed))
    assert seen.labels is None
    assert torch.equal(found.labels, truth.labels)
    assert psnr(found.inputs, truth) > 20


def small_net(seed: int) -> nn.Module:
    layers: list[nn.Module] = []
    for incoming, stride in ((3, 1), (8, 2), (8, 2)):
        layers += [nn.Conv2d(incoming, 8, 3, stride=stride, padding=1), nn.BatchNorm2d(8), nn.ReLU()]
    net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(128, 7))
    for parameter in net.parameters():
        if parameter.ndim > 1:
            nn.init.kaiming_uniform_(parameter, a=5**0.5, generator=seeded(seed, str(tuple(parameter.shape))))
    return net


# Measured when written: 0.65 dB after 60 steps, 2 dB after 600.
@pytest.mark.slow
@pytest.mark.parametrize("seed", [0])
def test_exact_batch_norm_statistics_help_grad_inversion(seed, photos, attacked):
    truth = photos.test[torch.tensor(photos.highlights[2 * seed : 2 * seed + 4])]
    seen = attacked(small_net(seed), truth, threat_model="strongest", mode="train")
    without, with_prior = (
        grad_inversion(seeds=1, bn_weight=weight, steps=60)(seen, generator=seeded(0)) for weight in (0.0, 1.0)
    )
    assert psnr(with_prior.inputs, truth) > psnr(without.inputs, truth) + 0.2
