"""What the language models compute."""

from __future__ import annotations

import pytest
import torch

from leakgauge.errors import InvalidCase
from leakgauge.models import BERT, GPT, build, space_of_tokenizer
from leakgauge.protocol.losses import NextToken
from leakgauge.space import TokenSpace

SPACE = TokenSpace(8, ("", *(f" w{number}" for number in range(1, 20))))
GPTS = [GPT(width=16, heads=2, kv_heads=1), GPT(width=16, heads=2, kv_heads=2, positions="learned", norm="layer")]
TEXTS = SPACE.draw(3, generator=torch.Generator().manual_seed(0))


def made(factory):
    return build(factory.for_texts(SPACE), SPACE.shape, 3, seed=0).double().eval()


@pytest.mark.parametrize("factory", [*GPTS, BERT(width=16, heads=2, kv_heads=2)], ids=repr)
def test_tokens_by_number_and_by_weight_are_the_same_text(factory):
    by_number, by_weight = (made(factory)(texts) for texts in (TEXTS, SPACE.relax(TEXTS).double()))
    if isinstance(factory, GPT):
        by_number, by_weight = by_number.scores, by_weight.scores
    torch.testing.assert_close(by_number, by_weight)


@pytest.mark.parametrize("factory", GPTS, ids=repr)
def test_a_decoder_sees_nothing_of_what_follows(factory):
    model, changed = made(factory), TEXTS.clone()
    changed[:, 3] = 1 + changed[:, 3] % 19
    before, after = model(TEXTS).scores, model(changed).scores
    torch.testing.assert_close(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3], after[:, 3])


def test_padding_changes_neither_the_loss_of_a_decoder_nor_the_scores_of_an_encoder():
    text = torch.tensor([[3, 4, 5, 6]])
    padded = torch.tensor([[3, 4, 5, 6, 0, 0, 0, 0]])
    gpt, bert = made(GPTS[0]), made(BERT(width=16, heads=2, kv_heads=2))
    none = torch.zeros(1)
    torch.testing.assert_close(NextToken()(gpt(text), none), NextToken()(gpt(padded), none))
    torch.testing.assert_close(bert(text), bert(padded))


def test_the_loss_is_the_mean_over_tokens_of_what_torch_says():
    gpt = made(GPTS[0])
    output = gpt(TEXTS)
    expected = torch.stack(
        [
            -output.scores[row, place].log_softmax(-1)[TEXTS[row, place + 1]]
            for row in range(3)
            for place in range(7)
            if TEXTS[row, place + 1] != 0
        ]
    ).mean()
    torch.testing.assert_close(NextToken()(output, torch.zeros(3)), expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda: GPT(width=10, heads=4),
        lambda: GPT(heads=4, kv_heads=3),
        lambda: GPT(norm="b"),
        lambda: GPT(layers=0),
    ],
)
def test_what_cannot_be_built_is_refused(make):
    with pytest.raises(InvalidCase):
        make()


def test_a_language_model_takes_no_images():
    with pytest.raises(InvalidCase, match="takes texts"):
        build(GPT(), (3, 8, 8), 2, seed=0)


@pytest.mark.filterwarnings("ignore")
def test_a_vocabulary_spells_spaces_as_its_tokenizer_does():
    transformers, tokenizers = pytest.importorskip("transformers"), pytest.importorskip("tokenizers")

    def texts(model, decoder, end):
        own = tokenizers.Tokenizer(model)
        own.decoder = decoder
        return space_of_tokenizer(transformers.PreTrainedTokenizerFast(tokenizer_object=own, pad_token=end), 4)

    # A byte-level vocabulary may have headings, which continue no word.
    pairs = tokenizers.models.BPE({"<e>": 0, "in": 1, "\u0120cat": 2, "##": 3}, [])
    assert texts(pairs, tokenizers.decoders.ByteLevel(), "<e>").vocabulary == ("<e>", "in", " cat", "##")
    words = tokenizers.models.WordPiece({"[PAD]": 0, "cat": 1, "##s": 2}, unk_token="[PAD]")  # noqa: S106
    space = texts(words, tokenizers.decoders.WordPiece(), "[PAD]")
    assert space.render(torch.tensor([1, 2, 1, 0])) == "cats cat"
