"""Generators as search space: the networks are those of the papers, and what one search finds the next takes up."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from leakgauge.attacks.base import SteppedAttack
from leakgauge.attacks.matching import (
    Accumulated,
    Adam,
    Balanced,
    Budget,
    ConstantRate,
    Cosine,
    DoubleBackward,
    GeneratorFeatures,
    GeneratorLatent,
    GeneratorWeights,
    GradientMatching,
    Leg,
    OnNoise,
    PixelNorm,
    Pixels,
    Relay,
    SignedAdam,
    Tangent,
    TotalVariation,
    TrainedGenerator,
    UntrainedGenerator,
    WeightsPerImage,
    Yielding,
)
from leakgauge.attacks.matching.parametrisations.generators.trained import onto_l1_ball
from leakgauge.attacks.matching.parametrisations.generators.untrained import largest_singular_value
from leakgauge.attacks.matching.priors import Penalties, SideBySide
from leakgauge.attacks.matching.priors.base import WeighedPrior
from leakgauge.attacks.recipes import ci_net, gias, gias_on_noise, gifd
from leakgauge.errors import InvalidCase, InvalidFile, UnsupportedModel
from leakgauge.generative import DCGAN, write_generator
from leakgauge.models import MLP, Compact, LeNet, build
from leakgauge.progress import Tick
from leakgauge.protocol import FedAvg, FedSGD
from leakgauge.randomness import seeded
from leakgauge.types import Batch

SHAPE = (3, 8, 8)
TINY = UntrainedGenerator(channels=4, latent=5)


def seen_by(attacked, examples, count=2, **options):
    return attacked(build(MLP((6,), "sigmoid"), SHAPE, 5, seed=0), examples(count, SHAPE), **options)


# The untrained generator


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 9, 9), (2, 7, 13), (1, 28, 28), (3, 64, 20)])
@pytest.mark.parametrize("output", ["tanh", "sigmoid"])
def test_images_have_any_size_and_stay_in_the_range_of_the_output(shape, output):
    network = replace(TINY, output=output)
    images = network.at(shape)(network.start(1, shape, generator=seeded(0))[0], torch.randn(2, 5, generator=seeded(1)))
    assert images.shape == (2, *shape)
    assert -(output == "tanh") <= float(images.min()) <= float(images.max()) <= 1


def by_layers(network: UntrainedGenerator, weights: dict[str, torch.Tensor], channels: int) -> nn.Sequential:
    """The same network out of torch's own layers, without a norm, for images of 8 x 8."""
    width, layers = network.channels, []

    def normalised(convolution: nn.Module, name: str) -> None:
        norm = nn.BatchNorm2d(width)
        own = {"weight": weights[f"{name}.weight"], "bias": weights[f"{name}.bias"]}
        convolution.load_state_dict(own)
        norm.load_state_dict({"weight": weights[f"{name}.gain"], "bias": weights[f"{name}.shift"]}, strict=False)
        layers.extend([convolution, norm, nn.LeakyReLU(0.1)])

    normalised(nn.ConvTranspose2d(network.latent, width, 4), "first")
    for stage in (0, 1):
        if stage and network.upsampling == "transposed":
            up = nn.ConvTranspose2d(width, width, 4, stride=2, padding=1)
            up.load_state_dict({"weight": weights["1.up.weight"], "bias": weights["1.up.bias"]})
            layers.append(up)
        elif stage:
            layers.append(nn.Upsample(scale_factor=2, mode=network.upsampling))
        normalised(nn.Conv2d(width, width, 3, padding=1), f"{stage}.one")
        normalised(nn.Conv2d(width, width, 3, padding=1), f"{stage}.two")
    last = nn.Conv2d(width, channels, 1)
    last.load_state_dict({"weight": weights["last.weight"], "bias": weights["last.bias"]})
    return nn.Sequential(*layers, last, nn.Tanh()).double().train()


@pytest.mark.parametrize("upsampling", ["nearest", "bilinear", "transposed"])
def test_the_function_is_the_network_of_torchs_layers(upsampling):
    network = replace(TINY, upsampling=upsampling, normalisation="none")
    flat = network.start(1, SHAPE, generator=seeded(0))[0].double()
    flat = flat + 0.1 * torch.randn(flat.shape, generator=seeded(1), dtype=torch.float64)
    latent = torch.randn(3, 5, generator=seeded(2), dtype=torch.float64)
    forward = network.at(SHAPE)
    with torch.no_grad():
        expected = by_layers(network, forward.split(flat), 3)(latent[:, :, None, None])
    torch.testing.assert_close(forward(flat, latent), expected, atol=1e-5, rtol=1e-5)  # the layers hold float32


def test_before_batch_norm_a_spectral_norm_changes_the_gradient_and_not_the_images():
    flat = TINY.start(1, SHAPE, generator=seeded(0))[0].double()
    latent = torch.randn(3, 5, generator=seeded(2), dtype=torch.float64)
    found = {}
    for norm in ("spectral", "none", "pixel"):
        leaf = flat.clone().requires_grad_()
        images = replace(TINY, normalisation=norm).at(SHAPE)(leaf, latent)
        found[norm] = images.detach(), torch.autograd.grad(images.square().sum(), leaf)[0]
    assert (found["spectral"][0] - found["none"][0]).abs().max() < 1e-3  # BatchNorm's epsilon
    assert (found["pixel"][0] - found["none"][0]).abs().max() > 1e-2
    assert not torch.allclose(found["spectral"][1], found["none"][1], rtol=0.1)


def test_power_iteration_finds_the_largest_singular_value_and_its_derivative():
    left, _ = torch.linalg.qr(torch.randn(5, 5, generator=seeded(0), dtype=torch.float64))
    right, _ = torch.linalg.qr(torch.randn(7, 5, generator=seeded(1), dtype=torch.float64))
    matrix = (
        left @ torch.diag(torch.tensor([3.0, 1.0, 0.5, 0.2, 0.1], dtype=torch.float64)) @ right.T
    ).requires_grad_()
    value = largest_singular_value(matrix)
    assert value.detach().item() == pytest.approx(3.0)
    torch.testing.assert_close(
        torch.autograd.grad(value, matrix)[0], torch.outer(left[:, 0], right[:, 0]), atol=1e-6, rtol=1e-6
    )


def test_images_beyond_32_pixels_have_stages_of_half_and_a_quarter_of_the_channels():
    weights = UntrainedGenerator(channels=16).weights((3, 256, 256))
    assert [weights[f"{stage}.two.weight"].shape[0] for stage in range(7)] == [16, 16, 16, 16, 8, 4, 4]


def test_normal_weights_are_what_algorithm_1_says():
    weights = replace(TINY, initial="normal").start(1, SHAPE, generator=seeded(0))
    assert abs(float(weights.mean())) < 0.1
    assert float(weights.std()) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"upsampling": "cubic"}, "no upsampling 'cubic'"),
        ({"normalisation": "batch"}, "no normalisation 'batch'"),
        ({"output": "relu"}, "no output 'relu'"),
        ({"channels": 0}, "of at least 1"),
    ],
)
def test_a_network_that_does_not_exist_is_refused(changes, said):
    with pytest.raises(InvalidCase, match=said):
        UntrainedGenerator(**changes)


# Its weights as search space


@pytest.mark.parametrize(("width", "count"), [("code", 700), ("paper", 2)])
def test_a_width_rule_takes_the_first_doubling_from_32_that_exceeds_its_bound(width, count, attacked, examples):
    module = build(MLP((400,)) if width == "paper" else MLP((4,)), SHAPE, 5, seed=0)
    seen = attacked(module, examples(2, SHAPE))
    victim = sum(p.numel() for p in module.parameters())
    bound = victim if width == "paper" else 4 * count * 64
    found = GeneratorWeights(TINY, width).bind(seen, count).facts
    assert found["channels"] % 32 == 0
    assert found["channels"] > 32  # else the test would prove nothing
    assert found["variables"] > bound
    assert replace(TINY, channels=found["channels"] // 2).size(SHAPE) <= bound


def test_a_width_may_be_a_number_and_not_another_word(attacked, examples):
    assert GeneratorWeights(TINY, 7).bind(seen_by(attacked, examples), 2).facts["channels"] == 7
    with pytest.raises(InvalidCase, match="no width rule 'wide'; choose from code, paper"):
        GeneratorWeights(TINY, "wide")


def kept_bytes(coordinates, variables) -> int:
    """What a decoding keeps for its backward pass, weights aside."""
    kept: dict[int, int] = {}

    def note(tensor):
        kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    leaf = variables.detach().requires_grad_()
    with saved_tensors_hooks(note, lambda tensor: tensor):
        images = coordinates.decode(leaf)
    assert images.requires_grad
    return sum(kept.values())


def test_checkpoints_keep_less_and_give_the_same_images_and_gradient(attacked, examples):
    seen, found, kept = seen_by(attacked, examples), {}, {}
    for checkpointed in (False, True):
        coordinates = GeneratorWeights(TINY, 8, checkpointed=checkpointed).bind(seen, 16)
        leaf = coordinates.start(1, 16, SHAPE, generator=seeded(0)).requires_grad_()
        images = coordinates.decode(leaf)
        found[checkpointed] = images.detach(), torch.autograd.grad(images.square().sum(), leaf)[0]
        kept[checkpointed] = kept_bytes(coordinates, leaf)
    assert torch.equal(found[True][0], found[False][0])
    torch.testing.assert_close(found[True][1], found[False][1])
    assert kept[True] < 0.5 * kept[False]


def test_memory_grows_no_faster_than_the_batch(attacked, examples):
    seen, kept = seen_by(attacked, examples), []
    for count in (8, 16, 32):
        coordinates = GeneratorWeights(TINY, 8).bind(seen, count)
        kept.append(kept_bytes(coordinates, coordinates.start(1, count, SHAPE, generator=seeded(0))))
    assert kept[1] <= 2 * kept[0]
    assert kept[2] <= 2 * kept[1]


def test_restarts_are_networks_of_their_own_over_the_same_latents(attacked, examples):
    coordinates = GeneratorWeights(TINY, 4).bind(seen_by(attacked, examples), 2)
    rows = coordinates.start(3, 2, SHAPE, generator=seeded(0))
    together = coordinates.decode(rows)
    assert together.shape == (3, 2, *SHAPE)
    assert not torch.allclose(together[0], together[1])
    torch.testing.assert_close(together[1], coordinates.decode(rows[1:2])[0])


def test_weights_that_make_the_batch_explain_its_update_exactly(attacked, examples):
    module = build(MLP((6,), "sigmoid"), SHAPE, 5, seed=0).double()
    parametrisation = GeneratorWeights(replace(TINY, output="sigmoid"), 4)
    coordinates = parametrisation.bind(seen_by(attacked, examples), 2)
    weights = coordinates.start(1, 2, SHAPE, generator=seeded(0)).double()
    truth = Batch(coordinates.decode(weights)[0].detach(), torch.tensor([1, 3]))
    attack = GradientMatching(parametrisation=parametrisation, optimiser=Adam(1e-9), budget=Budget(steps=2))
    found = attack(attacked(module, truth), generator=seeded(0))
    assert float(found.loss_trace[0]) < 1e-12
    torch.testing.assert_close(found.inputs, truth.inputs)


def test_ci_net_is_algorithm_1_with_the_cosine_of_its_code():
    attack = ci_net()
    assert attack.objective == Cosine()
    assert attack.priors == ()
    assert attack.optimiser == SignedAdam(1e-3, ConstantRate())
    assert attack.parametrisation == GeneratorWeights(UntrainedGenerator(), "code")
    assert attack.budget == Budget(steps=2_000)
    assert ci_net(channels=64).parametrisation.width == 64
    assert {ConstantRate()(spent) for spent in (0.0, 0.5, 1.0)} == {1.0}


def test_ci_net_lowers_the_matching_loss_and_says_how_wide_it_is(attacked, examples):
    seen = seen_by(attacked, examples)
    found = ci_net(channels=4, steps=25)(seen, generator=seeded(0))
    assert float(found.loss_trace[-1]) < 0.7 * float(found.loss_trace[0])
    assert found.facts["channels"] == 4
    assert found.facts["variables"] == UntrainedGenerator(channels=4).size(SHAPE)


# A trained one


@pytest.fixture
def file(tmp_path):
    network = DCGAN(SHAPE, width=3, latent=4)
    write_generator(tmp_path / "g.safetensors", network, network.generator(seed=5), {})
    return str(tmp_path / "g.safetensors")


def test_latents_are_what_the_generator_makes_of_them(file, attacked, examples):
    coordinates = GeneratorLatent(TrainedGenerator(file)).bind(seen_by(attacked, examples), 2)
    latents = coordinates.start(2, 2, SHAPE, generator=seeded(0))
    assert latents.shape == (2, 2, 4)
    module = DCGAN(SHAPE, width=3, latent=4).generator(seed=5).eval()
    torch.testing.assert_close(coordinates.decode(latents)[1], module(latents[1]))


@pytest.mark.parametrize("then", [WeightsPerImage(), GeneratorFeatures(1), GeneratorFeatures(2), Pixels()], ids=repr)
def test_a_later_search_begins_where_the_one_before_ended(then, file, attacked, examples):
    latents = GeneratorLatent(TrainedGenerator(file)).bind(seen_by(attacked, examples), 2)
    found = latents.start(2, 2, SHAPE, generator=seeded(0))
    following = then.after(latents, found)
    begun = following.start(2, 2, SHAPE, generator=seeded(9))
    torch.testing.assert_close(following.decode(begun), latents.decode(found))
    assert following.facts == ({} if isinstance(then, Pixels) else latents.facts)


def test_each_image_has_weights_of_its_own(file, attacked, examples):
    latents = GeneratorLatent(TrainedGenerator(file)).bind(seen_by(attacked, examples), 2)
    following = WeightsPerImage().after(latents, latents.start(1, 2, SHAPE, generator=seeded(0)))
    begun = following.start(1, 2, SHAPE, generator=seeded(9))
    moved = begun.clone()
    moved[0, 1] += 0.1
    before, after = following.decode(begun)[0], following.decode(moved)[0]
    assert torch.equal(before[0], after[0])
    assert not torch.allclose(before[1], after[1])


def test_features_stay_in_their_ball_whatever_the_optimiser_does(file, attacked, examples):
    latents = GeneratorLatent(TrainedGenerator(file)).bind(seen_by(attacked, examples), 2)
    following = GeneratorFeatures(1, radius=0.01).after(latents, latents.start(1, 2, SHAPE, generator=seeded(0)))
    begun = following.start(1, 2, SHAPE, generator=seeded(9))
    change = following.features(begun + 100) - begun
    assert float(change.abs().mean(dim=(2, 3, 4)).max()) <= 0.01 * (1 + 1e-2)  # float32 at 100


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(-9, 9), min_size=1, max_size=6), st.floats(0.1, 9))
def test_the_projection_onto_the_ball_is_the_nearest_point(values, radius):
    vector = torch.tensor(values, dtype=torch.float64)
    nearest = onto_l1_ball(vector[None], radius)[0]
    assert float(nearest.abs().sum()) <= radius * (1 + 1e-9)
    # The nearest point p of a convex set has <x - p, q - p> <= 0 for all its q; the corners of the ball suffice.
    corners = radius * torch.cat([torch.eye(len(values)), -torch.eye(len(values))]).double()
    assert float(((vector - nearest) * (corners - nearest)).sum(dim=1).max()) <= 1e-9 * (1 + radius) ** 2


def own_generator() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 192), nn.Tanh(), nn.Unflatten(1, SHAPE))


def test_a_generator_of_the_users_own_is_a_factory_and_a_safetensors_file(tmp_path, attacked, examples):
    module = own_generator()
    save_file(module.state_dict(), tmp_path / "own.safetensors")
    file = str(tmp_path / "own.safetensors")
    reference = f"{__name__}:own_generator"
    coordinates = GeneratorLatent(TrainedGenerator(file, reference, latent=3, signed=True)).bind(
        seen_by(attacked, examples), 2
    )
    latents = coordinates.start(1, 2, SHAPE, generator=seeded(0))
    torch.testing.assert_close(coordinates.decode(latents)[0], (module(latents[0]) + 1) / 2)
    with pytest.raises(InvalidCase, match="cannot be run on latents of length 4"):
        GeneratorLatent(TrainedGenerator(file, reference, latent=4)).bind(seen_by(attacked, examples), 2)
    with pytest.raises(InvalidFile, match="holds no generator"):
        GeneratorLatent(TrainedGenerator(file)).bind(seen_by(attacked, examples), 2)
    with pytest.raises(InvalidCase, match="length of its latents"):
        TrainedGenerator(file, reference)


def test_a_pickle_is_never_opened(tmp_path, attacked, examples):
    torch.save(own_generator().state_dict(), tmp_path / "g.pt")
    with pytest.raises(InvalidFile, match="pickled checkpoint"):
        GeneratorLatent(TrainedGenerator(str(tmp_path / "g.pt"))).bind(seen_by(attacked, examples), 2)


def test_a_generator_of_another_size_is_refused(file, attacked, examples):
    seen = attacked(build(MLP((4,)), (3, 9, 9), 5, seed=0), examples(2, (3, 9, 9)))
    with pytest.raises(InvalidCase, match=r"makes images \(3, 8, 8\), the client's are \(3, 9, 9\)"):
        gias(file, steps=2)(seen, generator=seeded(0))


@pytest.mark.parametrize("part", [WeightsPerImage(), GeneratorFeatures(1)], ids=repr)
def test_what_follows_latents_cannot_come_first(part, attacked, examples):
    with pytest.raises(InvalidCase, match="put it after GeneratorLatent in a Relay"):
        GradientMatching(parametrisation=part)(seen_by(attacked, examples), generator=seeded(0))


# One search after another


def test_gias_searches_latents_then_weights_and_says_what_its_generator_is(file, attacked, examples):
    ticks: list[Tick] = []
    found = gias(file, steps=8)(seen_by(attacked, examples), generator=seeded(0), progress=ticks.append)
    assert found.facts["steps"] == len(found.loss_trace) == len(ticks) == 8
    assert found.facts["leg"] == "2 of 2"
    assert found.facts["generator"].startswith("trained, ")
    assert "noise" in found.facts["control"]
    assert [tick.step for tick in ticks] == list(range(1, 9))
    assert ticks[-1].fraction == pytest.approx(1)
    assert gias(steps=8)(seen_by(attacked, examples), generator=seeded(0)).facts["generator"].startswith("untrained")


def test_the_closest_leg_is_the_one_whose_matching_loss_is_lowest(file, attacked, examples):
    seen = seen_by(attacked, examples)
    good = GradientMatching(parametrisation=GeneratorLatent(TrainedGenerator(file)), optimiser=Adam(0.1))
    # The prior pulls the pixels away from what explains the update.
    bad = GradientMatching(parametrisation=Pixels(), optimiser=Adam(0.3), priors=(PixelNorm(1e3, 0.0),))
    legs = (Leg(good, 1), Leg(bad, 1))
    closest, last = (Relay(legs, kept, Budget(steps=20))(seen, generator=seeded(0)) for kept in ("closest", "last"))
    assert (closest.facts["leg"], last.facts["leg"]) == ("1 of 2", "2 of 2")
    assert closest.facts["matching loss"] < last.facts["matching loss"]


def test_gifd_keeps_the_stage_that_explains_the_update_best(file, attacked, examples):
    found = gifd(file, steps=9)(seen_by(attacked, examples), generator=seeded(0))
    assert found.facts["leg"] in ("1 of 3", "2 of 3", "3 of 3")
    with pytest.raises(InvalidCase, match="so search fewer stages"):
        gifd(file, stages=4, steps=9)(seen_by(attacked, examples), generator=seeded(0))


def test_a_relay_is_its_legs_run_one_by_one_each_from_the_best_of_the_one_before(attacked, examples):
    one_update = seen_by(attacked, examples)
    seen = [one_update, replace(one_update, labels=one_update.labels.flip(0))]
    adam, signed = (GradientMatching(optimiser=one(0.1), budget=Budget(steps=3)) for one in (Adam, SignedAdam))
    stream = seeded(0)
    first = adam.search(seen, generator=stream)
    first.run()
    start = signed.parametrisation.after(first.unknowns.coordinates, first.best)
    second = signed.search(seen, generator=stream, coordinates=start)
    expected = second.run()
    both = Relay((Leg(adam, 1), Leg(signed, 1)), budget=Budget(steps=6)).search(seen, generator=seeded(0)).run()
    for one, other in zip(both, expected, strict=True):
        assert torch.equal(one.inputs, other.inputs)
        assert torch.equal(one.loss_trace[3:], other.loss_trace)
    assert not torch.equal(both[0].inputs, both[1].inputs)


def test_labels_are_restored_once_and_kept_through_the_relay(attacked, examples):
    legs = (Leg(GradientMatching(), 1), Leg(GradientMatching(labels=None), 1))
    seen = seen_by(attacked, examples, threat_model="honest_but_curious")
    found = Relay(legs, budget=Budget(steps=4))(seen, generator=seeded(0))
    assert found.labels.shape == (2,)


def test_a_relay_without_legs_or_with_one_that_cannot_follow_is_refused():
    with pytest.raises(InvalidCase, match="at least one leg"):
        Relay(())
    with pytest.raises(InvalidCase, match="GeneratorWeights cannot go on from another search"):
        Relay((Leg(GradientMatching(), 1), Leg(ci_net(), 1)))
    with pytest.raises(InvalidCase, match="not 'best'"):
        Relay((Leg(GradientMatching(), 1),), kept="best")


# The control


def test_the_control_feeds_noise_of_the_updates_length_and_says_so(attacked, examples):
    fed = []

    class Listening(SteppedAttack):
        def search(self, observations, *, generator):
            fed.append(observations[0].update.params)
            return GradientMatching(budget=Budget(steps=1)).search(observations, generator=generator)

    seen = seen_by(attacked, examples)
    found = OnNoise(Listening())(seen, generator=seeded(0))
    for name, tensor in seen.update.params.items():
        assert float(fed[0][name].norm()) == pytest.approx(float(tensor.norm()), rel=1e-4)
    whole, noise = (torch.cat([t.flatten() for t in one.values()]) for one in (seen.update.params, fed[0]))
    assert abs(float(torch.cosine_similarity(whole, noise, dim=0))) < 0.2
    assert found.facts["fed"] == "Gaussian noise in place of the update"
    assert gias_on_noise("file", steps=9) == OnNoise(gias("file", steps=9))


# Large batches in parts


@pytest.mark.parametrize("route", [DoubleBackward(), Tangent()], ids=repr)
@pytest.mark.parametrize("client", [FedSGD(), FedAvg(2, 3, 0.1)], ids=repr)
@pytest.mark.parametrize("labels", ["classes", "probabilities"])
def test_parts_add_up_to_the_derivative_of_the_whole(route, client, labels, attacked, examples):
    module = build(Compact(width=2), SHAPE, 5, seed=0).double()
    private = examples(5, SHAPE)
    private = replace(private, inputs=private.inputs.double())
    problem = GradientMatching().problem(attacked(module, private, local_update=client), generator=seeded(0))
    if labels == "probabilities":
        problem = replace(problem, labels=torch.rand(5, 5, generator=seeded(2)).softmax(1).double())
    images = torch.rand(5, *SHAPE, generator=seeded(1)).double()
    whole, parts = (one.resolve(problem, images).one(problem, images) for one in (route, Accumulated(route, 2)))
    torch.testing.assert_close(parts.value, whole.value)
    torch.testing.assert_close(parts.gradient, whole.gradient)
    assert (parts.labels is None) == (labels == "classes")
    if parts.labels is not None:
        torch.testing.assert_close(parts.labels, whole.labels)


def test_examples_that_meet_are_not_taken_apart(attacked, examples):
    class Centred(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(192, 5)

        def forward(self, images):
            flat = images.flatten(1)
            return self.head(flat - flat.mean(0))

    norm = build(LeNet(width=2, batch_norm=True), SHAPE, 5, seed=0)
    attack = GradientMatching(differentiation=Accumulated(size=1), budget=Budget(steps=1))
    for module in (norm, Centred()):
        with pytest.raises(UnsupportedModel, match="cannot be taken in parts"):
            attack(attacked(module, examples(2, SHAPE), mode="train"), generator=seeded(0))
    assert attack(attacked(norm, examples(2, SHAPE), mode="eval"), generator=seeded(0)).inputs is not None
    with pytest.raises(InvalidCase, match="at least one image"):
        Accumulated(size=0)


# Total variation that follows the matching loss


@pytest.mark.parametrize("loss", [1e-7, 0.3])
def test_a_balanced_prior_is_the_asked_share_of_the_matching_loss(loss):
    images = torch.rand(1, 3, *SHAPE, generator=seeded(0))
    prior = Balanced(TotalVariation(1.0), share=0.3)
    weight = prior.weigh(prior.prior, images, torch.tensor([loss]))
    assert float(weight * prior.prior(images)) == pytest.approx(0.3 * loss)


@pytest.mark.parametrize(("loss", "share"), [(0.3, 0.4), (0.03, 0.4), (0.003, 0.04), (3e-5, 4e-4)])
def test_a_yielding_prior_is_balanced_down_to_what_counts_as_explained_and_then_falls_with_the_loss(loss, share):
    images = torch.rand(1, 3, *SHAPE, generator=seeded(0))
    prior = Yielding(TotalVariation(1.0), share=0.4, explained=0.03)
    weight = prior.weigh(prior.prior, images, torch.tensor([loss]))
    assert float(weight * prior.prior(images)) == pytest.approx(share * loss, rel=1e-5)


@pytest.mark.parametrize("following", [Balanced, Yielding])
@pytest.mark.parametrize("options", [{"share": 1.0}, {"share": 0.0}, {"updates": 0}])
def test_a_share_that_would_feed_on_itself_is_refused(following, options):
    with pytest.raises(InvalidCase, match="a share between 0 and 1"):
        following(**options)


def test_a_prior_that_would_never_yield_is_refused():
    with pytest.raises(InvalidCase, match=r"explained > 0.*Balanced"):
        Yielding(explained=0.0)


def test_restarts_share_one_weight_and_victims_have_each_their_own(attacked, examples):
    images, losses = torch.rand(4, 3, *SHAPE, generator=seeded(0)), torch.tensor([1e-4, 1e-2, 1.0, 1.0])
    seen = seen_by(attacked, examples)
    together = Penalties((Balanced(),), [seen, seen])
    together.weigh(images, losses)
    prior = Balanced().prior
    alone = [Balanced().weigh(prior, images[rows], losses[rows]) for rows in (slice(2), slice(2, 4))]
    assert together.weights == alone
    assert together.at(0.0) == (SideBySide(tuple(WeighedPrior(prior, weight) for weight in alone)),)
    assert together.are_due(0.0, 1 / 20)
    assert not together.are_due(0.0, 1 / 21)


def test_the_weight_falls_with_the_matching_loss_and_is_in_the_record(attacked, examples):
    seen = seen_by(attacked, examples)
    attack = GradientMatching(priors=(Balanced(),), optimiser=Adam(0.05), budget=Budget(steps=40))
    search = attack.search([seen], generator=seeded(0))
    first = search.penalties.weights
    found = search.run()[0]
    assert found.facts["weight of the prior"] < 0.5 * first[0]
    assert (
        GradientMatching(budget=Budget(steps=1))(seen, generator=seeded(0))
        .facts.keys()
        .isdisjoint(["weight of the prior"])
    )


def test_a_balanced_search_goes_on_from_its_snapshot_with_the_same_bits(attacked, examples):
    seen = seen_by(attacked, examples)
    attack = GradientMatching(priors=(TotalVariation(), Balanced(updates=4)), budget=Budget(steps=12))
    whole = attack(seen, generator=seeded(0))
    cut, again = (attack.search([seen], generator=seeded(0)) for _ in range(2))
    for _ in range(7):
        cut.step()
    again.restore(cut.snapshot())
    found = again.run()[0]
    assert torch.equal(found.loss_trace, whole.loss_trace)
    assert torch.equal(found.inputs, whole.inputs)
    assert found.facts == whole.facts
