"""The 2020 method is the published one."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

import baseline
import quality
from leakgauge.attacks.matching import AnisotropicTotalVariation, Cosine, SignedAdam, StepDecay
from leakgauge.errors import InvalidCase
from leakgauge.models import Compact, Normalisation, build
from leakgauge.protocol import FedSGD, learner_and_state
from leakgauge.randomness import seeded
from leakgauge.types import Batch

SHAPE = (3, 8, 8)
MIB = 2**20
COLOURS = Normalisation(mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3))


def victim(normalisation: Normalisation = COLOURS, dtype: torch.dtype = torch.float64) -> Any:
    """A small smooth model, one private example and its gradient."""
    module = build(Compact(width=4), SHAPE, 5, seed=0, normalisation=normalisation).to(dtype)
    truth = Batch(torch.rand(1, *SHAPE, generator=seeded(0, "truth")).to(dtype), torch.tensor([2]))
    learner, state = learner_and_state(module)
    return module, truth, FedSGD().compute(learner, state, truth)


def normalised(images: torch.Tensor) -> torch.Tensor:
    mean, std = (torch.tensor(x, dtype=images.dtype).reshape(-1, 1, 1) for x in (COLOURS.mean, COLOURS.std))
    return (images - mean) / std


def test_every_step_of_the_baseline_is_signed_adam_on_cosine_plus_total_variation_in_normalised_pixels():
    steps, tv = 16, 0.3
    module, truth, observed = victim(Normalisation.natural(3))
    start = torch.randn(1, *SHAPE, generator=seeded(0, "start"), dtype=torch.float64)
    running = baseline.Baseline(
        module, observed, truth.labels, start, mean=(0.5,) * 3, std=(0.25,) * 3, tv=tv, steps=steps
    )
    # The same from the package's own parts, on a model that does not normalise.
    learner, state = learner_and_state(baseline.without_normalisation(module))
    adam, prior = SignedAdam(learning_rate=0.1, schedule=StepDecay()), AnisotropicTotalVariation(tv)
    moments = adam.start(start[None], (-2.0, 2.0))
    for step in range(steps):
        leaf = moments.candidate.clone().requires_grad_()
        loss = Cosine()(learner.gradient(state, Batch(leaf[0], truth.labels)), observed) + prior(leaf).sum()
        assert float(running.loss().detach()) == pytest.approx(float(loss.detach()), abs=1e-12)
        running.step()
        moments = adam.advance(moments, loss.detach(), torch.autograd.grad(loss, leaf)[0], step / steps)
        assert torch.allclose(running.candidate, moments.candidate[0], atol=1e-10)


def test_the_learning_rate_falls_tenfold_after_three_five_and_seven_eighths_of_the_steps():
    module, truth, observed = victim()
    running = baseline.Baseline(module, observed, truth.labels, truth.inputs, mean=(0,), std=(1,), tv=0.0, steps=8)
    rates = []
    for _ in range(8):
        rates.append(running.optimiser.param_groups[0]["lr"])
        running.step()
    assert rates == pytest.approx([0.1, 0.1, 0.1, 0.01, 0.01, 0.001, 0.001, 0.0001])


def test_the_private_image_matches_its_own_gradient_although_the_model_no_longer_normalises():
    module, truth, observed = victim()
    running = baseline.Baseline(
        module, observed, truth.labels, normalised(truth.inputs), mean=COLOURS.mean, std=COLOURS.std, tv=0.0
    )
    assert abs(float(running.loss().detach())) < 1e-12
    assert torch.allclose(running.images(), truth.inputs)


def test_a_step_ends_in_the_box_of_black_and_white_of_each_channel():
    module, truth, observed = victim()
    start = torch.tensor([100.0, -100.0], dtype=torch.float64).repeat(3 * 8 * 4).reshape(1, *SHAPE)
    running = baseline.Baseline(module, observed, truth.labels, start, mean=COLOURS.mean, std=COLOURS.std, tv=0.0)
    running.step()
    assert torch.allclose(running.candidate, normalised((start > 0).double()))


def test_the_baseline_computes_second_order_gradients_of_all_parameters_but_leaves_the_callers_model_alone():
    module, truth, observed = victim()
    module.train()
    step = baseline.make_step(module, truth.inputs, truth.labels, observed, 0.1)
    step()
    assert all(p.grad is not None for p in step.__self__.module.parameters())
    assert not any(layer.training for layer in step.__self__.module.modules())
    assert all(p.grad is None for p in module.parameters())
    assert module.training
    mean, std = baseline.normalisation(module)
    assert (*mean, *std) == pytest.approx((*COLOURS.mean, *COLOURS.std))


def test_inversion_returns_the_last_iterate_from_a_standard_normal_start():
    module, truth, observed = victim()
    settings = {"mean": COLOURS.mean, "std": COLOURS.std, "tv": 0.01, "steps": 3}
    start = torch.randn(1, *SHAPE, generator=seeded(5)).double()
    running = baseline.Baseline(module, observed, truth.labels, start, **settings)
    for _ in range(3):
        running.step()
    images = baseline.invert(module, observed, truth.labels, SHAPE, generator=seeded(5), **settings)
    assert torch.equal(images, running.images())


@pytest.mark.slow
def test_the_baseline_recovers_an_image_of_a_small_smooth_model():
    module, truth, observed = victim(dtype=torch.float32)
    images = baseline.invert(
        module,
        observed,
        truth.labels,
        SHAPE,
        mean=COLOURS.mean,
        std=COLOURS.std,
        tv=0.0,
        steps=500,
        generator=seeded(0, "attack"),
    )
    assert quality.psnr(images, truth.inputs[0].numpy()) > 20


def test_the_number_of_steps_is_the_budget_over_the_cpu_time_of_one():
    def spin() -> None:
        started = time.process_time()
        while time.process_time() - started < 0.004:
            pass

    assert 80 <= baseline.steps_within(0.4, spin) <= 100
    assert baseline.steps_within(1e-9, spin) == 1


def test_a_budget_in_seconds_is_spent_and_one_in_both_units_is_refused():
    module, truth, observed = victim(dtype=torch.float32)
    settings: dict[str, Any] = {"mean": COLOURS.mean, "std": COLOURS.std, "tv": 0.0, "generator": seeded(0)}
    started = time.process_time()
    baseline.invert(module, observed, truth.labels, SHAPE, seconds=0.2, **settings)
    assert 0.1 < time.process_time() - started < 2
    with pytest.raises(InvalidCase, match="pass one of them"):
        baseline.invert(module, observed, truth.labels, SHAPE, seconds=1.0, steps=1, **settings)
