"""Which composition of defences carries which guarantee: by its formula, and by attackers who know everything else."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from bounds_support import given, linear_learner
from scipy.stats import norm

from leakgauge import params as tree
from leakgauge.bounds import Bound, bound_of, gaussian_bound
from leakgauge.catalogue import DEFENCES
from leakgauge.config import build_client, build_defence
from leakgauge.defences import DPSGD, GaussianNoise
from leakgauge.errors import InvalidCase
from leakgauge.protocol import FedAvg, FedSGD
from leakgauge.protocol.local_update import LocalUpdate, UpdateTransform, Wrapped
from leakgauge.randomness import seeded


def at_most(defence: str, client: LocalUpdate | None = None, crowd: int = 99) -> float | None:
    return bound_of(build_defence(defence)(client or FedSGD()), crowd=crowd).at_most


def closed(shift: float, chance: float = 0.01) -> float:
    return norm.cdf(norm.ppf(chance) + shift)


@pytest.mark.parametrize(
    ("defence", "shift"),
    [
        ("dpsgd:noise_multiplier=2", 1 / 2),
        ("dpsgd:max_grad_norm=7,noise_multiplier=2", 1 / 2),
        ("clipping:max_norm=3+gaussian_noise:std=2", 3 / 2),
        # What is done to noise without another look at the data takes nothing away.
        ("dpsgd:noise_multiplier=2+pruning", 1 / 2),
        ("clipping:max_norm=3+gaussian_noise:std=2+pruning+clipping:max_norm=1", 3 / 2),
        # What makes an update no longer may stand between clip and noise.
        ("clipping:max_norm=3+pruning+gaussian_noise:std=2", 3 / 2),
        ("clipping:max_norm=3+soteria+gaussian_noise:std=2", 3 / 2),
        ("clipping:max_norm=3+clipping:max_norm=1+gaussian_noise:std=2", 1 / 2),
        # Every client's own noise averages like a root, a server's noise stands against one client's share.
        ("dpsgd:noise_multiplier=2+secure_aggregation:clients=4", 1 / 4),
        ("secure_aggregation:clients=4+dpsgd:noise_multiplier=2", 1 / 4),
        ("clipping:max_norm=3+gaussian_noise:std=2+secure_aggregation:clients=9", 3 / 2 / 3),
        ("clipping:max_norm=3+secure_aggregation:clients=4+gaussian_noise:std=2", 3 / 4 / 2),
        ("secure_aggregation:clients=4+clipping:max_norm=3+gaussian_noise:std=2", 3 / 2),
        # A pruned update is no sum of signal and noise any more, so that others' noise is not credited.
        ("dpsgd:noise_multiplier=2+pruning+secure_aggregation:clients=4", 1 / 2),
        # Two guarantees: the better one holds.
        ("dpsgd:noise_multiplier=0.1+clipping:max_norm=1+gaussian_noise:std=2", 1 / 2),
        ("dpsgd:noise_multiplier=2+clipping:max_norm=1+gaussian_noise:std=0.1", 1 / 2),
        ("mixup:k=1+dpsgd:noise_multiplier=2", 1 / 2),
        ("mixup:k=4+clipping:max_norm=1+gaussian_noise:std=2", 1 / 2),
    ],
)
def test_a_composition_carries_the_guarantee_of_its_noise(defence, shift):
    assert at_most(defence) == pytest.approx(closed(shift), rel=1e-12)


@pytest.mark.parametrize(
    ("defence", "word"),
    [
        ("none", "without noise"),
        ("pruning", "only hides entries"),
        ("clipping", "only shortens"),
        ("gaussian_noise:std=5", "without a clip"),
        ("laplace_noise", "without a clip"),
        ("gaussian_noise:std=5+clipping", "without a clip"),
        ("mixup", "mixing is no noise"),
        ("instahide", "mixing is no noise"),
        ("soteria", "columns of one layer"),
        ("secure_aggregation", "whoever knows the others"),
        ("dpsgd:noise_multiplier=0", "without noise"),
        ("clipping+gaussian_noise:std=0", "size 0"),
        # Its mask is chosen by the data, after the noise.
        ("dpsgd+soteria", "looks at the data"),
        ("clipping+gaussian_noise:std=1+soteria", "looks at the data"),
        # One example is in several mixtures, each of which is clipped for itself.
        ("mixup:k=4+dpsgd", "several gradients"),
    ],
)
def test_where_there_is_no_bound_the_words_say_why(defence, word):
    found = bound_of(build_defence(defence)(FedSGD()), crowd=99)
    assert found.at_most is None
    assert found.words.startswith("No bound exists: ")
    assert word in found.words


def test_every_defence_of_the_catalogue_has_a_bound_or_a_reason():
    for name in DEFENCES:
        found = bound_of(build_defence(name)(FedSGD()), crowd=9)
        assert found.words.startswith(("No attacker picks", "The noise is too small")) == (found.at_most is not None)
        assert found.words.startswith("No bound exists: ") == (found.at_most is None)
        assert "not known" not in found.words


def test_what_a_client_does_besides_its_steps_takes_nothing_away():
    parts = build_client("fedsgd+augmentation:flip=0.5+sharing:without=['head.*']+transport:dtype=float16")
    assert at_most("dpsgd:noise_multiplier=2", parts) == pytest.approx(closed(1 / 2))
    assert at_most("clipping:max_norm=1+gaussian_noise:std=2", parts) == pytest.approx(closed(1 / 2))
    # A part of an update is still signal plus noise, a rounded one is not.
    shared, rounded = (build_client(f"fedsgd+{part}") for part in ("sharing:without=['head.*']", "transport"))
    assert at_most("dpsgd:noise_multiplier=2+secure_aggregation:clients=4", shared) == pytest.approx(closed(1 / 4))
    assert at_most("dpsgd:noise_multiplier=2+secure_aggregation:clients=4", rounded) == pytest.approx(closed(1 / 2))
    words = bound_of(parts, crowd=9).words
    assert all(one in words for one in ("augmented", "a part of the update", "rounding is no noise"))


def test_local_steps_compose_as_often_as_an_example_takes_part():
    assert at_most("dpsgd:noise_multiplier=4", FedAvg(epochs=9, batch_size=2)) == pytest.approx(closed(3 / 4))
    # Every client's noise has passed through steps of its own, so that a mean does not average it.
    many = at_most("dpsgd:noise_multiplier=4+secure_aggregation:clients=4", FedAvg(epochs=9, batch_size=2))
    assert many == pytest.approx(closed(3 / 4))
    # A clip of the finished update does not ask how it was made.
    assert at_most("clipping:max_norm=1+gaussian_noise:std=2", FedAvg(epochs=9)) == pytest.approx(closed(1 / 2))


@dataclass(frozen=True)
class Doubling(UpdateTransform):
    """A user's own defence, which makes an update longer."""

    def transform(self, params, *, generator):
        return tree.scale(params, 2.0)

    def anticipate(self, params, *, observed):
        return tree.scale(params, 2.0)


@dataclass(frozen=True)
class Peeking(Doubling):
    """Looks at the batch."""

    def apply(self, params, *, learner, state, batch, generator):
        return tree.scale(params, float(batch.inputs.mean()))


@dataclass(frozen=True)
class Replaying(Wrapped):
    """A wrapper that nobody here knows."""

    def expected(self, learner, state, batch, *, observed):
        return self.inner.expected(learner, state, batch, observed=observed)

    def run(self, learner, state, batch, *, generator):
        return self.inner.run(learner, state, batch, generator=generator)


def test_what_is_not_known_is_never_credited():
    clip, noise = build_defence("clipping"), build_defence("gaussian_noise:std=1")

    def bound(*defences):
        client = FedSGD()
        for defence in defences:
            client = defence(client)
        return bound_of(client, crowd=99)

    assert bound(clip, Doubling(), noise).at_most is None
    assert bound(clip, noise, Doubling()).at_most == pytest.approx(closed(1.0))
    assert bound(clip, noise, Peeking()).at_most is None
    assert "Peeking looks at the data" in bound(clip, noise, Peeking()).words
    assert bound(DPSGD(), Replaying).at_most is None
    assert bound(Replaying, clip, noise).at_most == pytest.approx(closed(1.0))


@dataclass(frozen=True)
class QuietNoise(GaussianNoise):
    """Says one thing and does another."""

    def draw(self, shape, *, generator):
        return 1e-3 * super().draw(shape, generator=generator)


@dataclass(frozen=True)
class OwnGradient(FedSGD):
    """Never asks the learner for its gradient, so that DP-SGD has nothing to clip."""

    def compute(self, learner, state, batch):
        return {name: batch.inputs.mean() * tensor for name, tensor in state.params.items()}


def test_a_subclass_of_what_is_known_is_not_known():
    assert bound_of(QuietNoise(1.0)(build_defence("clipping")(FedSGD())), crowd=9).at_most is None
    assert bound_of(DPSGD()(OwnGradient()), crowd=9).at_most is None
    assert "OwnGradient" in bound_of(DPSGD()(OwnGradient()), crowd=9).words


def test_laplace_noise_on_a_clipped_update_is_bounded_whatever_its_number_of_entries():
    """An attacker with a likelihood ratio, on shifts of length one that are spread over a few entries or many."""
    bound = at_most("clipping:max_norm=1+laplace_noise:scale=1", crowd=9)
    generator, tries = seeded(0, "laplace"), 20_000
    for entries in (4, 50):
        shift = torch.full((entries,), 1 / math.sqrt(entries), dtype=torch.float64)
        uniform = torch.rand(2, tries, entries, generator=generator, dtype=torch.float64) - 0.5
        noise = -uniform.sign() * torch.log1p(-2 * uniform.abs())
        ratios = [(seen.abs() - (seen - shift).abs()).sum(dim=1) for seen in (noise[0], noise[1] + shift)]
        measured = (ratios[1] > ratios[0].quantile(0.9)).double().mean()
        assert 0.1 < measured <= bound + 0.01


@pytest.mark.parametrize(
    "defence",
    [
        "clipping:max_norm=1+gaussian_noise:std=1",
        "clipping:max_norm=1+gaussian_noise:std=1+pruning:keep=0.5",
        "clipping:max_norm=1+pruning:keep=0.5+gaussian_noise:std=1",
        "dpsgd:noise_multiplier=1",
        "dpsgd:noise_multiplier=1+pruning:keep=0.5",
    ],
)
def test_no_attacker_who_knows_all_candidates_beats_the_bound(defence):
    """Two opposite batches, twice the clip apart: with two candidates the clip still counts once, and it is reached."""
    learner, state = linear_learner(4)
    candidates = 5.0 * torch.tensor([[1.0, 1, 1, 1], [-1, -1, -1, -1]])
    client, generator = build_defence(defence)(FedSGD()), seeded(0, defence)
    hits, tries = 0, 150
    for number in range(tries):
        secret = number % 2
        sent = client(learner, state, given(candidates[secret : secret + 1]), generator=generator)
        hits += int((tree.flatten(sent.params) @ candidates.T).argmax()) == secret
    bound = bound_of(client, crowd=1).at_most
    assert bound == pytest.approx(norm.cdf(1.0))
    margin = 3.5 * math.sqrt(bound * (1 - bound) / tries)
    assert hits / tries <= bound + margin
    if "pruning" not in defence:
        assert hits / tries >= bound - margin


def test_a_bound_is_kept_in_a_file_and_read_again():
    for found in (gaussian_bound(0.7, crowd=9, rounds=3, sampling=0.2, guesses=4), bound_of(FedSGD(), crowd=5)):
        assert Bound.from_dict(found.to_dict()) == found


def test_guesses_count_as_chance():
    assert gaussian_bound(1.0, crowd=99, guesses=4).at_most == pytest.approx(closed(1.0, 0.04))
    assert gaussian_bound(1.0, crowd=3, guesses=9).at_most == 1.0


def test_what_sampling_hides_it_hides_whatever_the_noise():
    assert gaussian_bound(1e-6, crowd=99, sampling=0.1).at_most == pytest.approx(1 - 0.9 * 0.99)
    assert gaussian_bound(0.2, crowd=99, sampling=0.1).at_most <= 1 - 0.9 * 0.99


def test_what_cannot_be_asked_is_refused_in_a_sentence():
    for asked in ({"crowd": 0}, {"crowd": 9, "rounds": 0}, {"crowd": 9, "sampling": 0.0}, {"crowd": 9, "guesses": 0}):
        with pytest.raises(InvalidCase, match="correct them"):
            gaussian_bound(1.0, **asked)
    with pytest.raises(InvalidCase, match="noise multiplier"):
        gaussian_bound(-1.0, crowd=9)


def test_the_numbers_of_the_page_are_those_of_the_formula():
    page = (Path(__file__).parents[2] / "docs" / "bounds.md").read_text("utf-8")
    said = [f"{gaussian_bound(noise, crowd=99).at_most:.3f}".lstrip("0") for noise in (0.5, 1.0, 2.0, 4.0)]
    assert f"at noise multipliers 0.5, 1, 2, 4: {', '.join(said)}." in page
