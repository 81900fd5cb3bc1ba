"""MixUp and InstaHide: what is mixed, what is trained on, and who learns of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import one_hot

from leakgauge.config import build_defence
from leakgauge.defences import CrossInstaHide, InstaHide, MixUp, Pruning, SecureAggregation, chain
from leakgauge.errors import InvalidCase
from leakgauge.files import write_tensors
from leakgauge.models import Compact, ConvNet, build
from leakgauge.protocol import THREAT_MODELS, FedAvg, FedSGD, Transformed, learner_and_state
from leakgauge.protocol.encoding import Encoding, stack_mixings
from leakgauge.protocol.facts import Subject
from leakgauge.randomness import seeded
from leakgauge.types import Batch

SHAPE = (3, 9, 9)
MIXERS = [MixUp(2), MixUp(4), InstaHide(3), InstaHide(4)]


def mixed(mixer, batch: Batch, seed: int = 0) -> Encoding:
    return mixer.mix(batch, classes=5, generator=seeded(seed))


def client_stream(seed: int = 0) -> torch.Generator:
    """The generator of `attacked`, past the draw that seeds the client's dropout."""
    generator = seeded(seed, "client")
    torch.randint(2**62, (), generator=generator)
    return generator


def mixed_alone(batch: Batch) -> Encoding:
    return MixUp(4).mix(batch, classes=5, generator=client_stream())


@settings(deadline=None, max_examples=40)
@given(
    k=st.integers(2, 6),
    spare=st.integers(0, 4),
    share=st.floats(0.35, 1),
    seed=st.integers(0, 999),
    signed=st.booleans(),
)
def test_coefficients_sum_to_one_below_the_largest_over_distinct_images_the_own_first(k, spare, share, seed, signed):
    largest = 1 / k + share * (1 - 1 / k)
    mixing = (InstaHide if signed else MixUp)(k, largest).draw(k + spare, generator=seeded(seed))
    assert mixing.signed is signed
    assert mixing.coefficients.shape == mixing.indices.shape == (k + spare, k)
    torch.testing.assert_close(mixing.coefficients.sum(dim=1), torch.ones(k + spare).double())
    assert float(mixing.coefficients.min()) > 0
    assert float(mixing.coefficients.max()) <= largest
    assert mixing.indices[:, 0].tolist() == list(range(k + spare))
    assert all(len(set(row)) == k for row in mixing.indices.tolist())


def test_coefficients_are_dirichlet_with_three_parts_for_the_own_image():
    # Dirichlet(3, 1): the mean of the first is 3/4; unbounded, so nothing is drawn again.
    coefficients = MixUp(2, 1.0).draw(2000, generator=seeded(0)).coefficients
    assert float(coefficients[:, 0].mean()) == pytest.approx(0.75, abs=4 * (0.75 * 0.25 / 5 / 2000) ** 0.5)


@pytest.mark.parametrize("mixer", MIXERS, ids=repr)
def test_images_and_labels_are_mixed_alike(mixer, examples):
    batch = examples(5, SHAPE, dtype=torch.float64)
    found = mixed(mixer, batch)
    matrix = found.mixing.matrix(5)
    torch.testing.assert_close(found.batch.labels, matrix @ one_hot(batch.labels, 5).double())
    mixture = torch.einsum("tn,nchw->tchw", matrix, batch.inputs)
    seen = found.batch.inputs
    if mixer.flips_signs:
        torch.testing.assert_close((seen - 0.5).abs(), (mixture - 0.5).abs())
    else:
        torch.testing.assert_close(seen, mixture)
    assert 0 <= float(seen.min()) <= float(seen.max()) <= 1


def test_class_probabilities_are_mixed_as_they_are(examples):
    batch = examples(4, SHAPE, dtype=torch.float64)
    soft = Batch(batch.inputs, one_hot(batch.labels, 5).double())
    assert torch.equal(mixed(MixUp(3), soft).batch.labels, mixed(MixUp(3), batch).batch.labels)


def test_a_mask_flips_half_of_the_pixels_each_channel_for_itself(examples):
    batch = examples(16, SHAPE, dtype=torch.float64)
    flipped = mixed(InstaHide(2), batch).batch.inputs != mixed(InstaHide(2, flip=0.0), batch).batch.inputs
    count = flipped.numel()
    assert abs(float(flipped.double().mean()) - 0.5) < 4 * 0.5 / count**0.5
    assert not torch.equal(flipped[:, 0], flipped[:, 1])
    assert torch.equal(mixed(InstaHide(2, flip=0.0), batch).batch.inputs, mixed(MixUp(2), batch).batch.inputs)


@pytest.mark.parametrize("mixer", MIXERS, ids=repr)
def test_every_update_is_mixed_anew(mixer, examples):
    batch, generator = examples(4, SHAPE), seeded(0)
    one, two = (mixer.mix(batch, classes=5, generator=generator) for _ in range(2))
    assert not torch.equal(one.mixing.coefficients, two.mixing.coefficients)
    assert not torch.equal(one.batch.inputs, two.batch.inputs)


@pytest.mark.parametrize("local_update", [FedSGD(), FedAvg(2, 3, 0.1)], ids=repr)
@pytest.mark.parametrize("mixer", MIXERS, ids=repr)
def test_the_update_is_that_of_the_encodings(mixer, local_update, examples, attacked):
    module, batch = build(Compact(width=3), SHAPE, 5, seed=0).double(), examples(4, SHAPE, dtype=torch.float64)
    learner, state = learner_and_state(module)
    encodings = mixer.mix(batch, classes=5, generator=client_stream()).batch
    sent = attacked(module, batch, defence=mixer, local_update=local_update).update.params
    for name, tensor in local_update.compute(learner, state, encodings).items():
        assert torch.equal(sent[name], tensor)
        assert not torch.equal(sent[name], local_update.compute(learner, state, batch)[name])


def test_exact_statistics_are_those_of_what_the_client_trained_on(examples, attacked):
    module, batch = build(ConvNet(width=2), SHAPE, 5, seed=0).double(), examples(4, SHAPE, dtype=torch.float64)
    learner, state = learner_and_state(module, mode="train")
    encodings = MixUp(3).mix(batch, classes=5, generator=client_stream()).batch
    seen = attacked(module, batch, threat_model="strongest", defence=MixUp(3), mode="train").batch_norm.statistics
    for name, mean in learner.batch_statistics(state, encodings.inputs).mean.items():
        assert torch.equal(seen.mean[name], mean)


def test_pruning_comes_on_top(examples, attacked):
    module, batch = build(Compact(width=3), SHAPE, 5, seed=0), examples(4, SHAPE)
    assert build_defence("mixup:k=2+pruning:keep=0.1") == chain(MixUp(2), Pruning(0.1))
    only = attacked(module, batch, defence=MixUp(2)).update.params
    both = attacked(module, batch, defence=chain(MixUp(2), Pruning(0.1))).update.params
    turned = attacked(module, batch, defence=chain(Pruning(0.1), MixUp(2))).update.params
    for name, tensor in only.items():
        assert torch.equal(both[name], Pruning(0.1).transform({name: tensor}, generator=seeded(0))[name])
        assert torch.equal(both[name], turned[name])  # one acts before the computation, one after


@pytest.mark.parametrize("mixer", [MixUp(4), InstaHide(4)], ids=repr)
def test_more_images_than_the_batch_has_are_refused(mixer, examples, attacked):
    module = build(Compact(width=3), SHAPE, 5, seed=0)
    with pytest.raises(InvalidCase, match=r"\(k=4\) mixes 4 images .* has 3; lower k or raise the batch size"):
        attacked(module, examples(3, SHAPE), defence=mixer)
    with pytest.raises(InvalidCase, match=r"has 3; lower k"):
        attacked(module, replace(examples(1, SHAPE), others=examples(2, SHAPE, seed=1)), defence=mixer)


@pytest.mark.parametrize("mixer", [MixUp(4), InstaHide(4)], ids=repr)
@pytest.mark.parametrize("count", [1, 3])
def test_a_batch_smaller_than_k_is_mixed_with_the_clients_other_images(mixer, count, examples, attacked):
    batch, others = examples(count, SHAPE, dtype=torch.float64), examples(5, SHAPE, dtype=torch.float64, seed=1)
    found = mixed(mixer, replace(batch, others=others))
    everything = torch.cat([batch.inputs, others.inputs])
    matrix = found.mixing.matrix(count + 5)
    assert len(found.batch) == count
    assert found.mixing.indices[:, 0].tolist() == list(range(count))
    assert all(len(set(row)) == 4 for row in found.mixing.indices.tolist())
    mixture = torch.einsum("tn,nchw->tchw", matrix, everything)
    torch.testing.assert_close((found.batch.inputs - 0.5).abs(), (mixture - 0.5).abs())
    labels = torch.cat([batch.labels, others.labels])
    torch.testing.assert_close(found.batch.labels, matrix @ one_hot(labels, 5).double())
    # A batch that is large enough is mixed of itself, whatever else the client has.
    large = examples(4, SHAPE, dtype=torch.float64)
    assert torch.equal(mixed(mixer, replace(large, others=others)).batch.inputs, mixed(mixer, large).batch.inputs)


def test_what_is_attacked_of_a_lone_image_is_one_encoding_and_none_of_the_other_images(examples, attacked, reachable):
    module, batch = build(Compact(width=3), SHAPE, 5, seed=0), examples(1, SHAPE)
    others = examples(5, SHAPE, seed=1)
    seen = attacked(module, replace(batch, others=others), defence=MixUp(4), threat_model="strongest")
    assert seen.num_examples == 1
    assert seen.mixed_labels.shape == (1, 5)
    encoding = mixed_alone(replace(batch, others=others))
    learner, state = learner_and_state(module)
    for name, tensor in FedSGD().compute(learner, state, encoding.batch).items():
        assert torch.equal(seen.update.params[name], tensor)
    private = [*batch.inputs, *others.inputs, *encoding.batch.inputs]
    tensors = [tensor for tensor in reachable(seen).values() if not tensor.is_meta and tensor.shape[-3:] == SHAPE]
    assert not any(
        torch.equal(one, secret) for tensor in tensors for one in tensor.view(-1, *SHAPE) for secret in private
    )


def test_a_bound_that_leaves_nothing_to_draw_is_refused():
    with pytest.raises(InvalidCase, match="raise `largest`"):
        MixUp(6, 0.167).draw(6, generator=seeded(0))


@pytest.mark.parametrize("name", THREAT_MODELS)
@pytest.mark.parametrize("disclosed", [False, True])
def test_the_mixing_leaves_the_client_only_if_the_threat_model_says_so(name, disclosed, examples, attacked, reachable):
    module, batch = build(Compact(width=3), SHAPE, 5, seed=0), examples(4, SHAPE)
    threat_model = replace(THREAT_MODELS[name], mixing=disclosed)
    learner, _ = learner_and_state(module)
    seen = attacked(module, batch, threat_model=threat_model, defence=MixUp(3))
    expected = MixUp(3).mix(batch, classes=5, generator=client_stream()).mixing
    paths = {
        path
        for path, tensor in reachable(seen).items()
        if not tensor.is_meta and any(torch.equal(tensor, secret) for secret in expected[:2])
    }
    assert paths == ({"mixing.0", "mixing.1"} if disclosed else set())
    (line,) = [
        fact for fact in threat_model.ledger(learner, client=MixUp(3)(FedSGD())) if fact.subject is Subject.MIXING
    ]
    assert line.disclosed is disclosed
    assert ("upper bound" in line.detail) is disclosed


def test_without_a_mixing_client_there_is_nothing_to_disclose(examples, attacked):
    module, batch = build(Compact(width=3), SHAPE, 5, seed=0), examples(4, SHAPE)
    learner, _ = learner_and_state(module)
    strongest = THREAT_MODELS["strongest"]
    assert strongest.mixing
    assert attacked(module, batch, threat_model=strongest, defence=Pruning(0.5)).mixing is None
    plain = strongest.ledger(learner, client=Pruning(0.5)(FedSGD()))
    assert plain == strongest.ledger(learner)
    assert "mixing" not in {fact.name for fact in plain}


def test_mixing_twice_is_one_mixing_by_the_product_of_the_matrices(examples):
    batch = examples(5, SHAPE, dtype=torch.float64)
    learner, state = learner_and_state(build(Compact(width=3), SHAPE, 5, seed=0).double())
    twice = chain(MixUp(2), MixUp(3))(FedSGD()).encode(learner, state, batch, generator=seeded(0))
    torch.testing.assert_close(twice.batch.inputs, twice.mixing.mix(batch.inputs))
    first, second = (mixed(MixUp(k), examples(4, SHAPE)).mixing for k in (2, 3))
    torch.testing.assert_close(first.then(second).matrix(4), second.matrix(4) @ first.matrix(4))
    # Signs in between are in nobody's matrix.
    hidden = chain(InstaHide(2), MixUp(3))(FedSGD()).encode(learner, state, batch, generator=seeded(0))
    assert hidden.mixing is None


def test_clients_behind_an_aggregate_mix_their_own_images(examples):
    batch = examples(6, SHAPE, dtype=torch.float64)
    learner, state = learner_and_state(build(Compact(width=3), SHAPE, 5, seed=0).double())
    client = chain(MixUp(2), SecureAggregation(3))(FedSGD())
    found = client.encode(learner, state, batch, generator=seeded(0))
    torch.testing.assert_close(found.batch.inputs, found.mixing.mix(batch.inputs))
    assert (found.mixing.indices // 2).tolist() == [[c, c] for c in (0, 0, 1, 1, 2, 2)]
    assert stack_mixings([found.mixing, found.mixing]).matrix(6).shape == (12, 6)


def test_a_mixing_client_is_a_transformed_client():
    # So that every attack finds the algorithm inside, and matches by the route it would take without the defence.
    assert MixUp()(FedSGD()) == Transformed(FedSGD(), MixUp())


def test_cross_dataset_encodings_are_the_batch_and_public_images_with_labels_of_the_batch_alone(examples, tmp_path):
    batch, public = examples(5, SHAPE, dtype=torch.float64), torch.ones(7, *SHAPE)
    file = tmp_path / "public.safetensors"
    write_tensors(file, {"images": public})
    defence = CrossInstaHide(4, public=str(file))
    assert build_defence(f"instahide_cross:k=4,public='{file}'") == defence
    found = mixed(defence, batch)
    own = found.mixing.coefficients.sum(dim=1)
    assert float(own.min()) >= 0.3
    torch.testing.assert_close(found.batch.labels, found.mixing.mix(one_hot(batch.labels, 5).double()))
    mixture = found.mixing.mix(batch.inputs) + (1 - own).view(-1, 1, 1, 1)
    torch.testing.assert_close((found.batch.inputs - 0.5).abs(), (mixture - 0.5).abs())
    assert found.mixing.signed
    assert found.mixing.indices[:, 0].tolist() == list(range(5))


def test_cross_dataset_without_its_public_images_is_refused(examples):
    with pytest.raises(InvalidCase, match="name their file in its option `public`"):
        mixed(CrossInstaHide(4), examples(5, SHAPE))
    assert torch.equal(
        mixed(CrossInstaHide(2), examples(5, SHAPE)).batch.inputs, mixed(InstaHide(2), examples(5, SHAPE)).batch.inputs
    )
