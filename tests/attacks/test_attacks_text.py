"""Texts come back from the gradient of a language model exactly, or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from leakgauge.attacks.recipes import tag
from leakgauge.attacks.span.layer_spans import row_space
from leakgauge.attacks.text import TokenSpans
from leakgauge.attacks.text.layers import Sight, text_layers
from leakgauge.data import Text
from leakgauge.defences import NoDefence
from leakgauge.metrics import TokenRecall, align
from leakgauge.models import BERT, GPT, MLP, build
from leakgauge.protocol import FedSGD, fedavg
from leakgauge.protocol.learner import learner_and_state
from leakgauge.protocol.losses import CrossEntropy, NextToken, NextTokens
from leakgauge.protocol.round import Federation, disclose
from leakgauge.protocol.threat_model import THREAT_MODELS
from leakgauge.randomness import seeded
from leakgauge.training.models import model_for
from leakgauge.training.train import Training, train
from leakgauge.types import Batch, Outcome, Update

TEXTS = Text()(None)


def observe(model, batch, client=FedSGD(), loss=NextToken(), space=TEXTS.space):  # noqa: B008
    learner, state = learner_and_state(model, loss)
    sent = client.send(learner, state, batch, generator=seeded(0))
    federation = Federation(learner, state, client, space)
    return disclose(federation, NoDefence(), batch, sent, threat_model=THREAT_MODELS["honest_but_curious"])


def recovered(seen):
    found = TokenSpans()(seen, generator=seeded(0))
    return found, set() if found.inputs is None else {tuple(text) for text in found.inputs.tolist()}


def private(count, stride=5):
    return TEXTS.test[torch.arange(count) * stride]


@pytest.mark.parametrize("factory", [GPT(width=128), GPT(width=128, positions="learned", norm="layer")], ids=repr)
@pytest.mark.parametrize("trained", [False, True], ids=["untrained", "trained"])
def test_a_decoder_gives_away_a_batch_word_for_word_and_the_attack_can_prove_it(factory, trained):
    model = model_for(TEXTS, factory, seed=0)
    if trained:
        train(model, TEXTS.train, Training(12, 16, 0.05), NextToken(), generator=seeded(0))
    batch = private(3)
    found, texts = recovered(observe(model, batch))
    assert texts == {tuple(text) for text in batch.inputs.tolist()}
    assert found.certificate is not None
    assert found.certificate.examples == 3


@pytest.mark.slow
def test_eight_texts_of_a_trained_decoder_take_less_than_thirty_seconds():
    model = model_for(TEXTS, GPT(), seed=0)
    train(model, TEXTS.train, Training(100, 32, 0.05), NextToken(), generator=seeded(0))
    batch = private(8)
    found, texts = recovered(observe(model, batch))
    assert texts == {tuple(text) for text in batch.inputs.tolist()}
    assert found.certificate is not None


def test_of_noise_nothing_is_recovered():
    seen = observe(model_for(TEXTS, GPT(width=64), seed=0), private(2))
    generator = seeded(3)
    noise = {name: torch.randn(one.shape, generator=generator) for name, one in seen.update.params.items()}
    found, _ = recovered(replace(seen, update=Update(noise)))
    assert found.inputs is None
    assert found.outcome is Outcome.NOT_APPLICABLE
    assert "Nothing recovered" in str(found.facts["reason"])


def test_more_tokens_than_a_layer_has_inputs_hide_each_other():
    # 16 inputs, and each text has more different tokens than that.
    found, _ = recovered(observe(model_for(TEXTS, GPT(width=16, heads=2, kv_heads=2), seed=0), private(4)))
    assert found.inputs is None
    assert found.certificate is None


def test_queries_alone_do_not_see_the_first_token():
    model = model_for(TEXTS, GPT(layers=1), seed=0)
    batch = private(1)
    seen = observe(model, batch)
    first = int(batch.inputs[0, 0])
    reader = text_layers(seen, TEXTS.space)
    (layer,) = reader.of(Sight.TOKEN)
    (read,) = reader.reader.at([layer.maps[0]], torch.tensor([[first]]))
    gradients = [one.gradient(seen.update.params) for one in layer.maps]
    rounding = torch.finfo(torch.float32).eps
    alone, together = row_space(gradients[:1], rounding), row_space(gradients, rounding)
    assert alone is not None
    assert together is not None
    assert float(alone.distances(read[0])[0]) > 0.1
    assert float(together.distances(read[0])[0]) < 1e-5


def test_an_encoder_gives_away_one_text_with_its_class():
    model = model_for(TEXTS, BERT(width=128), seed=0)
    batch = private(1)
    found, texts = recovered(observe(model, batch, loss=CrossEntropy()))
    assert texts == {tuple(batch.inputs[0].tolist())}
    assert found.certificate is not None


@pytest.mark.parametrize("kv_heads", [4, 2], ids=["own keys", "shared keys"])
def test_tokens_of_an_encoders_batch_are_put_together_by_who_listens_to_whom(kv_heads):
    model = model_for(TEXTS, BERT(width=128, kv_heads=kv_heads), seed=0)
    whole = private(3)
    short = whole.inputs.clone()
    for row, end in zip(short, (9, 12, 9), strict=True):
        row[end:] = TEXTS.space.pad
    _, texts = recovered(observe(model, Batch(short, whole.labels), loss=CrossEntropy()))
    assert texts == {tuple(text) for text in short.tolist()}


@pytest.mark.slow
@pytest.mark.parametrize(("epochs", "rate"), [(1, 0.01), (2, 0.01), (3, 0.003), (2, 0.5), (5, 0.1)])
def test_local_steps_on_one_batch_are_read_word_for_word_at_the_weights_that_were_sent(epochs, rate):
    # What the first step's layers read is in the span of the sum of all steps, however far the others went.
    batch = private(2)
    client = fedavg(epochs=epochs, batch_size=2, learning_rate=rate)
    _, texts = recovered(observe(model_for(TEXTS, GPT(), seed=0), batch, client))
    assert texts == {tuple(text) for text in batch.inputs.tolist()}


def test_known_errors_decide_the_rank_where_the_singular_values_have_no_gap():
    generator = seeded(4)
    left, right = (torch.linalg.qr(torch.randn(60, 60, generator=generator).double()).Q for _ in range(2))
    signal = left @ torch.diag(10.0 ** -torch.arange(60).double().div(4)) @ right
    size = 1e-6
    seen = signal + size * torch.randn(60, 60, generator=generator)
    found = row_space([seen], 1e-12, [torch.full((60, 60), size)])
    expected = int((torch.linalg.svdvals(signal) > size * 2 * 60**0.5).sum())
    assert found is not None
    assert abs(found.rank - expected) <= 1


class Packed(nn.Module):
    """A stranger's decoder: one matrix for queries, keys and values, stored inputs first, and no name that says so."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.a = nn.Embedding(vocabulary, width)
        self.b = nn.Parameter(torch.randn(width, 3 * width) / width**0.5)
        self.c = nn.Linear(width, width)
        self.d = nn.Linear(width, vocabulary)
        nn.init.normal_(self.a.weight)

    def forward(self, tokens):
        x = self.a(tokens)
        queries, keys, values = (x @ self.b).chunk(3, dim=-1)
        scores = queries @ keys.mT / x.shape[-1] ** 0.5
        scores = scores - 0.3 * torch.arange(x.shape[1])  # a place matters
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        x = x + torch.tanh(self.c(scores.masked_fill(later, -1e9).softmax(-1) @ values))
        return NextTokens.of(self.d(x), tokens, 0)


class PackedEncoder(nn.Module):
    """A stranger's classifier of torch's own encoder, whose queries, keys and values are made by one matrix."""

    def __init__(self, vocabulary: int, width: int, length: int) -> None:
        super().__init__()
        self.a, self.b = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.c = nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.d, self.e = (
            nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, batch_first=True),
            nn.Linear(width, 4),
        )

    def forward(self, tokens):
        seen = tokens != 0
        x = self.a(tokens) + self.b(torch.arange(tokens.shape[1]))
        x = self.d(self.c(x, src_key_padding_mask=~seen), src_key_padding_mask=~seen)
        return self.e((x * seen[..., None]).sum(dim=1) / seen.sum(dim=1, keepdim=True))


def test_who_listens_to_whom_is_found_by_what_a_model_computes():
    torch.manual_seed(0)
    batch = private(2)
    model = PackedEncoder(len(TEXTS.space.vocabulary), 128, TEXTS.space.length).eval()
    _, texts = recovered(observe(model, batch, loss=CrossEntropy()))
    assert texts == {tuple(text) for text in batch.inputs.tolist()}


def test_layers_are_found_by_what_they_compute():
    torch.manual_seed(0)
    batch = private(2)
    found, texts = recovered(observe(Packed(len(TEXTS.space.vocabulary), 128), batch))
    assert texts == {tuple(text) for text in batch.inputs.tolist()}
    assert found.certificate is not None


def test_a_model_for_images_is_not_served(attacked, examples):
    seen = attacked(build(MLP(hidden=(4,)), (1, 3, 3), 5, seed=0), examples(1, (1, 3, 3)))
    found = TokenSpans()(seen, generator=seeded(0))
    assert found.outcome is Outcome.NOT_APPLICABLE
    assert "images" in str(found.facts["reason"])


def test_matching_on_weights_of_tokens_finds_words_that_an_unrelated_text_does_not_have():
    batch, other = private(1), TEXTS.test[torch.tensor([17])]
    found = tag(steps=60)(observe(model_for(TEXTS, GPT(width=32, layers=1), seed=0), batch), generator=seeded(0))
    TEXTS.space.check(found.inputs)
    own, null = (TokenRecall()(align(found, one, space=TEXTS.space)) for one in (batch, other))
    assert float(own) > 2 * float(null)
    assert float(own) > 0.4
