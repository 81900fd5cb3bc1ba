"""What adapters give away, through the real library."""

from __future__ import annotations

import pytest
import torch
from test_attacks_text import TEXTS, observe, private, recovered
from torch import nn

from leakgauge.models import GPT, CausalText, ClassifiedText
from leakgauge.protocol.losses import CrossEntropy, NextToken
from leakgauge.risk.client import noise_client
from leakgauge.risk.texts import text_risk
from leakgauge.training.models import model_for

VOCABULARY = len(TEXTS.space.vocabulary)


def adapted(rank: int, first: bool):
    torch.manual_seed(rank)
    from peft import LoraConfig, get_peft_model  # takes seconds, and not in every process that collects tests

    settings = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=["query", "key", "value"])
    model = get_peft_model(model_for(TEXTS, GPT(width=128), seed=0), settings)
    for name, tensor in model.named_parameters():
        if "lora_B" in name and not first:
            nn.init.normal_(tensor, std=0.02)
    return model


def spoken(batch):
    lengths = TEXTS.space.lengths(batch.inputs).tolist()
    return {token for text, length in zip(batch.inputs.tolist(), lengths) for token in text[: length - 1]}


@pytest.mark.parametrize(
    ("rank", "first", "count"), [(8, False, 1), (8, False, 2), (16, False, 2), (24, True, 1), (8, True, 1)]
)
def test_tokens_are_found_while_the_rank_has_room_for_them_and_hidden_above(rank, first, count):
    model, batch = adapted(rank, first), private(count)
    room = rank - 1 if first else 3 * rank
    risk = text_risk(noise_client(model, NextToken(), TEXTS.space, count, "eval", None))
    assert risk is not None
    assert risk.tokens == room
    found, texts = recovered(observe(model, batch))
    if len(spoken(batch)) <= room:
        assert texts == {tuple(text) for text in batch.inputs.tolist()}
        assert found.certificate is not None
    else:
        assert found.inputs is None


def test_a_hugging_face_decoder_whose_weights_are_stored_inputs_first_is_read():
    torch.manual_seed(0)
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=32, n_embd=128, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=1
    )
    batch = private(2)
    found, texts = recovered(observe(CausalText(GPT2LMHeadModel(config), TEXTS.space), batch))
    assert texts == {tuple(text) for text in batch.inputs.tolist()}
    assert found.certificate is not None


def test_a_hugging_face_classifier_gives_away_one_text():
    torch.manual_seed(0)
    sizes = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(vocab_size=VOCABULARY, max_position_embeddings=32, num_labels=4, **sizes)
    batch = private(1)
    model = ClassifiedText(BertForSequenceClassification(config), TEXTS.space)
    _, texts = recovered(observe(model, batch, loss=CrossEntropy()))
    assert texts == {tuple(batch.inputs[0].tolist())}
