"""Attacks that know the defence: the right distance, the right labels, and the breaks that are known."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Laplace, Normal
from torch.nn.functional import interpolate, one_hot

from leakgauge.attacks.adaptive import Adaptive, adapt, adaptive, decode, decode_rounds, see_encodings
from leakgauge.attacks.adaptive.decoding import HIDDEN, UPPER_BOUND, agreement
from leakgauge.attacks.analytic import LinearLayer
from leakgauge.attacks.matching import (
    L1,
    LBFGS,
    AnisotropicTotalVariation,
    Automatic,
    Budget,
    Cosine,
    Euclidean,
    FreeLabels,
    FrozenDifference,
    Geometric,
    GradientMatching,
    PixelNorm,
    Starting,
    Stepwise,
    TotalVariation,
)
from leakgauge.attacks.matching.objectives import LeavingOut
from leakgauge.attacks.matching.priors import SignedTotalVariation
from leakgauge.attacks.recipes import best, surrogate
from leakgauge.defences import (
    DPSGD,
    Clipping,
    GaussianNoise,
    InstaHide,
    LaplaceNoise,
    MixUp,
    NoDefence,
    Pruning,
    SecureAggregation,
    Soteria,
    chain,
)
from leakgauge.errors import InvalidCase, MissingKnowledge
from leakgauge.models import MLP, Compact, ConvNet, build
from leakgauge.protocol import THREAT_MODELS, FedAvg, FedSGD, Transformed
from leakgauge.protocol.encoding import Mixing, stack_mixings
from leakgauge.protocol.wrappers import Aggregated, Private
from leakgauge.randomness import seeded
from leakgauge.types import Batch, Outcome, Reconstruction

SHAPE = (1, 8, 8)
HEAD = ("head.weight",)


@cache
def pictures(count: int, channels: int = 1, size: int = 8, seed: int = 0) -> Tensor:
    """Smooth images in float64."""
    low = torch.rand(count, channels, 3, 3, generator=seeded(seed, "pictures"), dtype=torch.float64)
    return interpolate(low, size=(size, size), mode="bicubic").clamp(0, 1)


def psnr(one: Tensor, two: Tensor) -> float:
    return float(-10 * (one - two).square().mean().clamp_min(1e-30).log10())


def tiny(factory=None):
    return build(factory or MLP((24,), "tanh"), SHAPE, 4, seed=0).double()


def matching(objective=Euclidean(), steps=50, **options) -> GradientMatching:  # noqa: B008
    return GradientMatching(
        objective=objective,
        priors=(TotalVariation(1e-4),),
        optimiser=LBFGS(),
        budget=Budget(steps=steps),
        **options,
    )


# Which distance


@pytest.mark.parametrize(
    ("defence", "objective"),
    [
        (NoDefence(), None),
        (Pruning(0.1), None),
        (MixUp(2), None),
        (SecureAggregation(2), None),
        (Clipping(0.1), Cosine()),
        (GaussianNoise(0.1), Euclidean()),
        (LaplaceNoise(0.1), L1()),
        (DPSGD(1.0, 1.0), Euclidean()),
        (DPSGD(1.0, 0.0), None),
        (chain(Clipping(0.1), GaussianNoise(0.1), Pruning(0.5)), Euclidean()),
        (chain(GaussianNoise(0.1), Clipping(0.1), SecureAggregation(2)), Euclidean()),
        (chain(Clipping(0.1), LaplaceNoise(0.1)), L1()),
        (chain(Clipping(0.1), Soteria()), LeavingOut(Cosine(), HEAD)),
        (chain(MixUp(2), Soteria(), GaussianNoise(0.1)), LeavingOut(Euclidean(), HEAD)),
    ],
    ids=repr,
)
@pytest.mark.parametrize("given", [Cosine(), Stepwise()], ids=repr)
def test_the_distance_is_the_one_the_defence_calls_for(given, defence, objective, attacked):
    batch = Batch(pictures(4), torch.arange(4))
    seen = attacked(tiny(), batch, defence=defence)
    assert adapt(matching(given), seen).objective == (objective or given)
    # An attacker who does not know the defence cannot adapt to it.
    unaware = attacked(tiny(), batch, defence=defence, threat_model="unaware")
    assert adapt(matching(given), unaware) == matching(given)


def test_the_weighting_of_the_layers_is_kept(attacked):
    seen = attacked(tiny(), Batch(pictures(1), torch.arange(1)), defence=GaussianNoise(0.1))
    assert adapt(matching(Cosine(Geometric(0.5))), seen).objective == Euclidean(Geometric(0.5))


@pytest.mark.parametrize(
    ("objective", "noise"), [(Euclidean(), Normal(0.0, 0.3)), (L1(), Laplace(0.0, 0.3))], ids=["gaussian", "laplace"]
)
def test_the_distance_is_the_log_likelihood_of_the_noise_up_to_scale_and_shift(objective, noise):
    observed = {"a": torch.randn(4, 3, generator=seeded(0)).double(), "b": torch.randn(5, generator=seeded(1)).double()}
    candidates = [
        {name: torch.randn(t.shape, generator=seeded(seed, name)).double() for name, t in observed.items()}
        for seed in range(4)
    ]
    distance = torch.stack([objective(one, observed) for one in candidates])
    surprise = torch.stack([-sum(noise.log_prob(observed[n] - one[n]).sum() for n in observed) for one in candidates])
    slope = (surprise[1] - surprise[0]) / (distance[1] - distance[0])
    assert float(slope) > 0
    torch.testing.assert_close(surprise - surprise[0], slope * (distance - distance[0]), check_dtype=False)


def test_a_layer_left_out_neither_counts_nor_pulls():
    one, two = (
        {name: torch.randn(3, 2, generator=seeded(seed, name)).double() for name in ("a", "b", "c")} for seed in (0, 1)
    )
    for inner in (Cosine(), Euclidean(), L1()):
        objective = LeavingOut(inner, ("b",))
        rest = ({name: tree[name] for name in ("a", "c")} for tree in (one, two))
        assert torch.equal(objective(one, two), inner(*rest))
        value, slope = objective.direction({name: t.clone() for name, t in one.items()}, two)
        torch.testing.assert_close(value, objective(one, two))
        leaves = {name: t.clone().requires_grad_() for name, t in one.items()}
        objective(leaves, two).backward()
        assert float(slope["b"].abs().max()) == 0
        for name in ("a", "c"):
            torch.testing.assert_close(slope[name], leaves[name].grad)
    staged = LeavingOut(Stepwise(first=0.5, stages=2, until=1.0), ("b",))
    assert staged.at(0.0) == LeavingOut(staged.objective.at(0.0), ("b",))


def test_where_only_the_spoilt_layer_carries_the_image_its_visible_columns_are_matched(attacked):
    seen = attacked(tiny(MLP(())), Batch(pictures(1), torch.arange(1)), defence=Soteria(percentile=50.0))
    assert adapt(matching(), seen).objective == Euclidean()


def test_total_variation_becomes_blind_to_signs_against_a_mask_of_signs(attacked):
    attack = replace(
        matching(), priors=(TotalVariation(0.3), Starting(AnisotropicTotalVariation(0.2), 0.5), PixelNorm(0.1))
    )
    folded = (SignedTotalVariation(0.3), Starting(SignedTotalVariation(0.2), 0.5), PixelNorm(0.1))
    batch = Batch(pictures(4), torch.arange(4))
    assert adapt(attack, attacked(tiny(), batch, defence=InstaHide(2))).priors == folded
    assert adapt(attack, attacked(tiny(), batch, defence=MixUp(2))).priors == attack.priors


def test_signed_total_variation_does_not_see_a_mask():
    images = pictures(2)[None]
    flipped = torch.rand(images.shape, generator=seeded(0)) < 0.5
    masked = torch.where(flipped, 1 - images, images)
    prior = SignedTotalVariation(0.7, 1e-6)
    torch.testing.assert_close(prior(masked), prior(images))
    torch.testing.assert_close(prior(images), TotalVariation(0.7, 1e-6)((images - 0.5).abs()))
    assert float(TotalVariation(0.7)(masked)) > 2 * float(TotalVariation(0.7)(images))


def test_an_attack_that_wraps_another_is_adapted_inside_and_others_stay(attacked):
    seen = attacked(tiny(), Batch(pictures(1), torch.arange(1)), defence=GaussianNoise(0.1))
    assert adapt(surrogate(), seen).attack.objective == Euclidean()
    assert adapt(best(steps=3), seen) == replace(best(steps=3).recipe(seen), objective=Euclidean())
    assert adapt(LinearLayer(), seen) == LinearLayer()
    with pytest.raises(InvalidCase, match=r"must match gradients, got LinearLayer"):
        Adaptive(LinearLayer())


def test_a_client_that_no_other_route_understands_is_differentiated_as_a_whole(attacked):
    batch = Batch(pictures(2), torch.arange(2))
    frozen = matching(differentiation=FrozenDifference())
    assert adapt(frozen, attacked(tiny(), batch, defence=DPSGD())).differentiation == Automatic()
    assert adapt(frozen, attacked(tiny(), batch, defence=chain(DPSGD(), Pruning()))).differentiation == Automatic()
    assert adapt(frozen, attacked(tiny(), batch, defence=Clipping())).differentiation == FrozenDifference()
    pooled, images = build(ConvNet(width=2), (1, 9, 9), 4, seed=0), torch.full((2, 1, 9, 9), 0.3)
    seen = attacked(pooled, Batch(images, torch.arange(2)), defence=DPSGD())
    found = Adaptive(replace(frozen, budget=Budget(steps=2)))(seen, generator=seeded(0))
    assert found.facts["route"] == "DoubleBackward"


# Known breaks


def leak(attacked, defence, attack, *, threat_model="informed", factory=None, count=1) -> float:
    batch = Batch(pictures(count), torch.arange(count))
    seen = attacked(tiny(factory), batch, defence=defence, threat_model=threat_model)
    found = attack(replace(seen, labels=batch.labels), generator=seeded(0))
    return psnr(found.inputs, batch.inputs)


@pytest.mark.slow
@pytest.mark.parametrize("factory", [MLP((24,), "tanh"), Compact(width=4)], ids=repr)
@pytest.mark.parametrize("defence", [Clipping(0.01), Soteria(percentile=80.0), DPSGD(0.1, 0.0)], ids=repr)
def test_a_defence_that_stops_an_unaware_attacker_is_broken_by_one_who_knows(defence, factory, attacked):
    # Clipping leaves the angle, so its attacker is compared with what the angle gives without a defence.
    base = matching(Cosine() if isinstance(defence, Clipping) else Euclidean())
    undefended = leak(attacked, NoDefence(), base, factory=factory)
    unaware = leak(attacked, defence, matching(Euclidean()), threat_model="unaware", factory=factory)
    aware = leak(attacked, defence, Adaptive(matching(Euclidean())), factory=factory)
    # From 45 dB on the image is there, and what is left is how far 50 steps go.
    assert aware > min(undefended, 45) - 1
    assert unaware < min(undefended, 45) - 15


def test_pruning_is_matched_on_what_is_visible(attacked):
    unaware = leak(attacked, Pruning(0.1), matching(), threat_model="unaware", factory=Compact(width=4))
    assert leak(attacked, Pruning(0.1), Adaptive(matching()), factory=Compact(width=4)) > unaware + 3


class Masked(Pruning):
    """Pruning as an attacker sees it who matches on the visible entries and learns nothing from the others."""

    def anticipate(self, params, *, observed):
        return {name: tensor * (observed[name] != 0) for name, tensor in params.items()}


@pytest.mark.slow
@pytest.mark.parametrize("keep", [0.05])
def test_the_zeros_of_a_pruned_update_tell_something_too(keep, attacked):
    def mean(defence, threat_model):
        found = []
        for seed in range(3):
            batch = Batch(pictures(1, seed=seed), torch.arange(1))
            seen = attacked(tiny(Compact(width=4)), batch, defence=defence, threat_model=threat_model)
            attack = matching(Cosine(), steps=40)
            found.append(psnr(attack(replace(seen, labels=batch.labels), generator=seeded(0)).inputs, batch.inputs))
        return sum(found) / 3

    bounded, masked, unaware = (
        mean(Pruning(keep), "informed"),
        mean(Masked(keep), "informed"),
        mean(Pruning(keep), "unaware"),
    )
    assert bounded > masked
    assert bounded > unaware


def test_where_little_is_visible_total_variation_weighs_more(attacked):
    attack = replace(
        matching(), priors=(TotalVariation(1e-3), Starting(AnisotropicTotalVariation(0.4), 0.5), PixelNorm(1e-3))
    )
    batch = Batch(pictures(1), torch.arange(1))

    def weights(defence, threat_model="informed"):
        first, second, third = adapt(attack, attacked(tiny(), batch, defence=defence, threat_model=threat_model)).priors
        return first.weight, second.prior.weight, third.weight

    assert weights(Pruning(0.1)) == (0.1, 0.4, 1e-3)
    assert weights(Pruning(0.5)) == weights(NoDefence()) == weights(Pruning(0.1), "unaware") == (1e-3, 0.4, 1e-3)


def test_behind_secure_aggregation_all_clients_examples_are_found(attacked):
    alone = leak(attacked, NoDefence(), matching(), count=4)
    assert leak(attacked, SecureAggregation(2), Adaptive(matching()), count=4) > min(alone, 45) - 1


def test_without_a_defence_the_attack_is_itself(attacked):
    seen = attacked(tiny(), Batch(pictures(1), torch.arange(1)))
    plain, known = (attack(seen, generator=seeded(0)) for attack in (matching(steps=5), Adaptive(matching(steps=5))))
    assert torch.equal(plain.inputs, known.inputs)
    assert torch.equal(plain.loss_trace, known.loss_trace)
    assert known.facts["recipe"] == repr(matching(steps=5))


# How an informed attacker reads an observation


def test_an_aggregate_of_plain_gradients_is_one_gradient(attacked):
    batch = Batch(pictures(4), torch.arange(4))

    def client(defence, **options):
        return see_encodings(attacked(tiny(), batch, defence=defence, **options)).local_update

    assert client(SecureAggregation(2)) == FedSGD()
    assert client(chain(SecureAggregation(2), Pruning())) == Transformed(FedSGD(), Pruning())
    assert client(chain(DPSGD(), SecureAggregation(2))) == Private(FedSGD(), 1.0, 1.0)
    assert client(chain(MixUp(2), SecureAggregation(2))) == MixUp(2)(FedSGD())
    kept = chain(Pruning(), SecureAggregation(2))
    assert client(kept) == kept(FedSGD())
    assert client(SecureAggregation(2), local_update=FedAvg()) == Aggregated(FedAvg(), 2)
    noisy = build(ConvNet(width=2), (1, 9, 9), 4, seed=0)
    for mode, expected in (("eval", FedSGD()), ("train", Aggregated(FedSGD(), 2))):
        seen = attacked(noisy, Batch(torch.rand(4, 1, 9, 9), torch.arange(4)), defence=SecureAggregation(2), mode=mode)
        assert see_encodings(seen).local_update == expected


def test_encodings_have_the_labels_that_the_mixing_gives_them(attacked):
    batch = Batch(pictures(4), torch.tensor([0, 1, 1, 3]))
    seen = attacked(tiny(), batch, defence=MixUp(3), threat_model="strongest")
    torch.testing.assert_close(see_encodings(seen).labels, seen.mixing.mix(one_hot(batch.labels, 4).double()))
    for hidden in ({"mixing": False}, {"labels": False}):
        threat_model = replace(THREAT_MODELS["strongest"], **hidden)
        blind = attacked(tiny(), batch, defence=MixUp(3), threat_model=threat_model)
        assert see_encodings(blind).labels is None
        assert adapt(matching(), see_encodings(blind)).labels == FreeLabels()
    assert see_encodings(replace(seen, local_update=None)).labels is batch.labels


# Decoding


def encoded(mixer, images: Tensor, rounds: int, seed: int = 0):
    generator = seeded(seed, "rounds")
    batch = Batch(images, torch.arange(len(images)) % 4)
    found = [mixer.mix(batch, classes=4, generator=generator) for _ in range(rounds)]
    return torch.cat([one.batch.inputs for one in found]), stack_mixings([one.mixing for one in found])


@settings(deadline=None, max_examples=25)
@given(k=st.integers(2, 6), spare=st.integers(0, 3), rounds=st.integers(2, 5), seed=st.integers(0, 99))
def test_enough_mixtures_determine_the_images_exactly(k, spare, rounds, seed):
    images = torch.rand(k + spare, 2, 3, 3, generator=seeded(seed), dtype=torch.float64)
    found = decode(*encoded(MixUp(k), images, rounds, seed), k + spare)
    assert float((found - images).abs().max()) < 1e-8


def test_too_few_mixtures_are_explained_by_the_images_nearest_to_grey():
    images = torch.rand(6, 2, 3, 3, generator=seeded(0), dtype=torch.float64)
    encodings, mixing = encoded(MixUp(3), images, 1)
    few = mixing._replace(coefficients=mixing.coefficients[:4], indices=mixing.indices[:4])
    found = decode(encodings[:4], few, 6)
    torch.testing.assert_close(few.mix(found), encodings[:4])
    assert float((found - 0.5).norm()) < float((images - 0.5).norm())


def test_errors_of_the_encodings_do_not_blow_up_beyond_what_pixels_can_be():
    # Two nearly equal mixtures: least squares alone would multiply the error by a thousand.
    images = pictures(2, seed=4)
    close = torch.tensor([[0.5005, 0.4995], [0.4995, 0.5005]], dtype=torch.float64)
    mixing = Mixing(close, torch.tensor([[0, 1], [0, 1]]))
    noisy = mixing.mix(images) + 0.01 * torch.randn(images.shape, generator=seeded(0)).double()
    plain = torch.linalg.solve(close, noisy.flatten(1)).view_as(images).clamp(0, 1)
    assert psnr(decode(noisy, mixing, 2).clamp(0, 1), images) > psnr(plain, images) + 5
    assert psnr(decode(mixing.mix(images), mixing, 2), images) > 200


def test_images_keep_their_type():
    encodings, mixing = encoded(MixUp(2), torch.rand(3, 1, 4, 4, generator=seeded(0)), 2)
    assert decode(encodings, mixing, 3).dtype == torch.float32


@pytest.mark.parametrize(("count", "k", "rounds"), [(4, 4, 6), (8, 4, 10), (6, 6, 8)])
def test_with_the_mixing_known_signs_hide_no_more_than_which_side_of_grey_a_pixel_is(count, k, rounds):
    # For random images neighbours say nothing, so that |x - 1/2| is all there is to be found.
    images = torch.rand(count, 3, 6, 6, generator=seeded(1), dtype=torch.float64)
    found = decode(*encoded(InstaHide(k), images, rounds), count)
    assert psnr((found - 0.5).abs(), (images - 0.5).abs()) > 40
    # At each pixel the sign is one for all images.
    sides = ((found - 0.5) * (images - 0.5)).sign()
    assert bool((sides == sides[0]).all())


def test_with_the_mixing_known_smooth_pictures_come_back_or_their_negatives():
    # Channels of a photograph rise and fall together; those of independent noise could not be told apart.
    images = pictures(4, size=12, seed=3) * torch.tensor([1.0, 0.9, 0.8]).double().view(3, 1, 1)
    found = decode(*encoded(InstaHide(4), images, 8), 4)
    assert max(psnr(found, images), psnr(1 - found, images)) > 40


def test_images_on_one_side_of_grey_need_one_round_only():
    images = 0.5 + pictures(4) / 2
    found = decode(*encoded(InstaHide(4), images, 1), 4)
    assert max(psnr(found, images), psnr(1 - found, images)) > 40


def test_agreement_undoes_any_mask_on_a_picture_up_to_its_negative():
    # Away from zero, so that neighbours are alike everywhere.
    centred = pictures(3, channels=3, seed=5) + 0.2
    mask = torch.where(torch.rand(3, 8, 8, generator=seeded(0)) < 0.5, -1.0, 1.0).double()
    undone = centred * mask * agreement(centred * mask)
    assert torch.equal(undone, centred) or torch.equal(undone, -centred)


# From updates to images


def test_a_mixed_update_is_inverted_to_the_encodings_and_decoded(attacked):
    batch = Batch(pictures(2), torch.arange(2))
    attack = Adaptive(matching(Cosine(), steps=80))
    seen = attacked(tiny(), batch, defence=MixUp(2), threat_model="strongest", seed=2)
    found = attack(seen, generator=seeded(0))
    assert psnr(found.inputs, batch.inputs) > 40
    assert torch.equal(found.labels, batch.labels)
    assert found.facts["mixing"] == UPPER_BOUND
    encodings = attack.search([seen], generator=seeded(0))
    while encodings.outcome is None:
        encodings.step()
    torch.testing.assert_close(
        decode(encodings.inner.results()[0].inputs, seen.mixing, 2).clamp(0, 1), found.inputs, rtol=0, atol=0
    )
    hidden = Adaptive(matching(Cosine(), steps=3))(replace(seen, mixing=None), generator=seeded(0))
    assert hidden.facts["mixing"] == HIDDEN
    assert hidden.inputs.shape == batch.inputs.shape


def test_of_a_lone_image_mixed_with_others_its_own_part_is_returned(attacked):
    batch, others = Batch(pictures(1), torch.arange(1)), Batch(pictures(3, seed=7), torch.arange(1, 4))
    attack = Adaptive(matching(Cosine(), steps=80))
    seen = attacked(tiny(), replace(batch, others=others), defence=MixUp(4), threat_model="strongest")
    found = attack(seen, generator=seeded(0))
    assert found.inputs.shape == batch.inputs.shape
    # One mixture of four images: of all that explain it, those nearest to grey, and of these the private one.
    weights = seen.mixing.matrix(4)
    mixture = seen.mixing.mix(torch.cat([batch.inputs, others.inputs]))
    nearest = (0.5 + weights[0, 0] * (mixture - 0.5) / weights.square().sum()).clamp(0, 1)
    assert psnr(found.inputs, nearest) > 35


def test_an_interrupted_search_for_encodings_ends_with_the_same_images(attacked):
    batch = Batch(pictures(2), torch.arange(2))
    seen = attacked(tiny(), batch, defence=MixUp(2), threat_model="strongest")
    attack = Adaptive(matching(Cosine(), steps=6))
    whole = attack(seen, generator=seeded(0))
    first, second = (attack.search([seen], generator=seeded(0)) for _ in range(2))
    for _ in range(3):
        first.step()
    second.restore(first.snapshot())
    while second.outcome is None:
        second.step()
    assert second.steps == 6
    assert torch.equal(second.results()[0].inputs, whole.inputs)


@pytest.mark.parametrize("mixer", [MixUp(3), InstaHide(3)], ids=repr)
def test_several_rounds_on_the_same_examples_are_decoded_together(mixer, attacked):
    # Inversions as good as they get: what is tested is the way from several rounds' encodings to the images.
    batch = Batch(pictures(4, seed=2), torch.arange(4))
    seen = [attacked(tiny(), batch, defence=mixer, threat_model="strongest", seed=seed) for seed in range(8)]
    found = []
    for seed in range(8):
        generator = seeded(seed, "client")
        torch.randint(2**62, (), generator=generator)  # the draw that seeds the client's dropout
        encodings = mixer.mix(batch, classes=4, generator=generator).batch.inputs
        found.append(Reconstruction(encodings, None, Outcome.CONVERGED))
    found[5] = Reconstruction(None, None, Outcome.NON_FINITE)
    together = decode_rounds(found, seen)
    assert max(psnr(together.inputs, batch.inputs), psnr(1 - together.inputs, batch.inputs)) > 40
    assert together.facts["rounds"] == 7
    assert torch.equal(together.labels, batch.labels)
    nothing = decode_rounds([found[5]], seen[5:6])
    assert nothing.inputs is None
    with pytest.raises(MissingKnowledge, match="Decoding needs `mixing`"):
        decode_rounds(found[:1], [replace(seen[0], mixing=None)])
    with pytest.raises(InvalidCase, match="on the same examples"):
        decode_rounds(found[:2], [seen[0], replace(seen[1], num_examples=3)])


def test_the_named_recipe_is_the_best_one_adapted():
    assert adaptive(steps=7) == Adaptive(best(steps=7))
    assert adaptive("smooth", seconds=2.0) == Adaptive(best("smooth", seconds=2.0))
