"""Feature maps of residual networks: exact, layer by layer, of whole batches, trained or not, and refused if spoilt."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from leakgauge import best
from leakgauge.attacks.analytic.affine_parts import RunNetwork
from leakgauge.attacks.budget import Budget
from leakgauge.attacks.feature_maps import FeatureMaps
from leakgauge.attacks.feature_maps.peeling import Peeling, find_seed, lift, peel
from leakgauge.clocks import Seconds
from leakgauge.data import Photos
from leakgauge.defences import Clipping, GaussianNoise
from leakgauge.errors import InvalidFile
from leakgauge.models import ResNet, build
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.randomness import seeded
from leakgauge.types import Batch, Outcome

SIDE = 16
SHAPE = (3, SIDE, SIDE)
EXACT = 1e-6
"""The mean squared error of 60 dB."""


def photographs(*places: int) -> Batch:
    return Batch(Photos(size=SIDE)().test.inputs[list(places)], torch.tensor(places) % 5)


def residual_network(*, trained: bool, initialisation: str = "default") -> nn.Module:
    """Three stages of 16, 32 and 64 channels; its last maps have 4 x 4 positions."""
    module = build(ResNet(8, 16, initialisation=initialisation), SHAPE, 5, seed=0)
    if trained:
        data = photographs(*range(10, 42))
        optimiser = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
        module.train()
        for _ in range(40):
            optimiser.zero_grad()
            nn.functional.cross_entropy(module(data.inputs), data.labels).backward()
            optimiser.step()
    return module.eval()


@pytest.fixture(scope="module", params=["untrained", "kaiming", "trained"])
def module(request) -> nn.Module:
    kaiming = "kaiming" if request.param == "kaiming" else "default"
    return residual_network(trained=request.param == "trained", initialisation=kaiming)


@pytest.fixture(scope="module")
def trained() -> nn.Module:
    return residual_network(trained=True)


def errors(found, truth: Batch) -> list[float]:
    """Of each private image, to the nearest that came back."""
    away = (found.inputs[:, None] - truth.inputs[None]).square().flatten(2).mean(dim=2)
    return away.amin(dim=0).tolist()


def true_maps(whole: RunNetwork, images: torch.Tensor) -> dict[int, torch.Tensor]:
    held = {0: images.double()}
    with torch.no_grad():
        for index, step in enumerate(whole.network.steps):
            held[step.output] = step.layer.value(whole.weights[index], [held[slot].clone() for slot in step.inputs])[0]
    return held


def doubled(seen: UpdateObservation) -> dict[str, torch.Tensor]:
    return {name: one.double() for name, one in seen.update.params.items()}


@pytest.mark.parametrize("places", [(0,), (1, 9)])
def test_maps_of_many_layers_are_exact_but_for_a_factor_of_each_image(module, attacked, places):
    truth = photographs(*places)
    seen = attacked(module, truth)
    whole, update = RunNetwork.of(seen, len(truth)), doubled(seen)
    seed = find_seed(whole, update, len(truth), precision=1e-6, generator=seeded(0))
    assert seed is not None
    peeled = peel(whole, update, seed)
    expected = true_maps(whole, truth.inputs)
    assert len(peeled.maps) >= 3
    for slot, maps in peeled.maps.items():
        found, wanted = (one.flatten(1) / one.flatten(1).norm(dim=1, keepdim=True) for one in (maps, expected[slot]))
        assert float((found @ wanted.mT).amax(dim=0).min()) > 1 - 1e-8


def test_a_walk_that_is_late_keeps_the_maps_it_has(trained, attacked):
    seen = attacked(trained, photographs(0))
    whole, update = RunNetwork.of(seen), doubled(seen)
    seed = find_seed(whole, update, 1, precision=1e-6, generator=seeded(0))
    left = iter(range(len(whole.network.steps) - seed.step + 1))
    early, whole_walk = peel(whole, update, seed, is_late=lambda: next(left, None) is None), peel(whole, update, seed)
    assert 1 <= len(early.maps) < len(whole_walk.maps)
    assert early.maps.keys() <= whole_walk.maps.keys()


def test_a_switch_that_is_wrong_is_found_by_what_it_leaves_unexplained_and_turned(trained, attacked):
    truth = photographs(0)
    seen = attacked(trained, truth)
    whole, update = RunNetwork.of(seen), doubled(seen)
    seed = find_seed(whole, update, 1, precision=1e-6, generator=seeded(0))
    maps = seed.maps.clone()
    smallest = maps[maps > 1e-3 * maps.max()].min()
    slot = whole.network.steps[seed.step].inputs[0]

    class Mistaken(Peeling):
        def _keep(self, at, values):
            super()._keep(at, values)
            if at == slot:  # the smallest value that is open is taken for zero, and for one in doubt
                wrong = self.maps[at] == smallest
                self.maps[at] = torch.where(wrong, 0.0, self.maps[at])
                self.raw[at] = values, torch.full_like(values[:, :1, :1, :1], float(smallest))

    walk = Mistaken(whole, update, seed)
    behind, cotangents = lift(whole, whole.network.steps[seed.step].output, seed.cotangents)
    walk.known[behind] = cotangents
    while walk.index:
        walk.step()
    assert walk.mended == 1
    assert len(walk.maps) >= len(peel(whole, update, seed).maps)


def test_one_photograph_comes_back_exactly_and_is_no_other(module, attacked):
    truth = photographs(3)
    found = FeatureMaps(budget=Budget(steps=1_500))(attacked(module, truth), generator=seeded(0))
    assert max(errors(found, truth)) < EXACT
    assert min(errors(found, photographs(9))) > 1e-2  # the null
    assert torch.equal(found.labels, truth.labels)


def test_labels_that_are_hidden_are_restored(trained, attacked):
    truth = photographs(3)
    seen = attacked(trained, truth, threat_model="honest_but_curious")
    assert torch.equal(FeatureMaps(budget=Budget(steps=2))(seen, generator=seeded(0)).labels, truth.labels)


@pytest.mark.slow
def test_a_batch_comes_back_with_the_label_of_each(trained, attacked):
    truth = photographs(0, 6)
    found = FeatureMaps(budget=Budget(steps=1_500))(attacked(trained, truth), generator=seeded(0))
    assert max(errors(found, truth)) < EXACT
    nearest = (found.inputs[:, None] - truth.inputs[None]).square().flatten(2).mean(dim=2).argmin(dim=1)
    assert torch.equal(found.labels, truth.labels[nearest])


def test_clipping_hides_nothing_of_one_image(trained, attacked):
    truth = photographs(3)
    seen = attacked(trained, truth, defence=Clipping(1e-3))
    found = FeatureMaps(budget=Budget(steps=400))(seen, generator=seeded(0))
    assert max(errors(found, truth)) < 1e-4


def test_best_answers_by_feature_maps_where_they_apply(trained, attacked):
    found = best(steps=40)(attacked(trained, photographs(3)), generator=seeded(0))
    assert found.facts["answered by"] == "feature maps"


def test_a_search_whose_time_was_over_before_it_began_still_has_a_result(trained, attacked):
    search = best(seconds=0.05).search([attacked(trained, photographs(3))], generator=seeded(0))
    search.first.elapsed = Seconds(cpu=1e3, wall=1e6)
    assert search.run()[0].inputs is not None


def test_matching_gets_no_more_than_the_search_by_maps_has_left_of_the_budget(trained, attacked):
    search = best(seconds=1e3).search([attacked(trained, photographs(3))], generator=seeded(0))
    search.first.elapsed = Seconds(cpu=800.0, wall=800.0)
    assert search.begin_matching().budget.seconds == pytest.approx(200.0)


def test_noise_that_fills_the_span_is_refused(trained, attacked):
    seen = attacked(trained, photographs(3), defence=GaussianNoise(1e-1))
    found = FeatureMaps(budget=Budget(steps=5))(seen, generator=seeded(0))
    assert found.outcome is Outcome.NOT_APPLICABLE
    assert "exact update" in str(found.facts["reason"])


def test_a_batch_of_more_positions_than_outputs_is_refused(trained, attacked):
    seen = attacked(trained, photographs(*range(5)))  # 80 positions, 64 outputs
    found = FeatureMaps(budget=Budget(steps=5))(seen, generator=seeded(0))
    assert found.outcome is Outcome.NOT_APPLICABLE
    assert "5 images" in str(found.facts["reason"])


def test_a_search_that_was_stopped_goes_on_to_the_same_bits(trained, attacked):
    seen = attacked(trained, photographs(0, 6))
    attack = FeatureMaps(budget=Budget(steps=12))
    straight = attack.search([seen], generator=seeded(0)).run()[0]
    first, second = (attack.search([seen], generator=seeded(0)) for _ in range(2))
    for _ in range(5):
        first.step()
    second.restore(first.snapshot())
    resumed = second.run()[0]
    assert torch.equal(resumed.inputs, straight.inputs)
    assert torch.equal(resumed.loss_trace, straight.loss_trace)
    with pytest.raises(InvalidFile, match="another attack"):
        second.restore({"other": torch.zeros(1)})
