"""Any causal language model or classifier of texts, such as Hugging Face's, as one of ours: tokens in, scores out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from leakgauge.errors import InvalidCase
from leakgauge.protocol.losses import NextTokens
from leakgauge.space import TokenSpace


class CausalText(nn.Module):
    """``model`` called by keywords, as those of Hugging Face are, PEFT's adapters included; for the loss next_token.

    It takes ``input_ids`` with their ``attention_mask``, or ``inputs_embeds``, and returns ``logits``. The parameters
    are the model's own, and recorded rounds find them under its own names.
    """

    def __init__(self, model: nn.Module, space: TokenSpace) -> None:
        super().__init__()
        self.language_model, self.pad = model, space.pad

    def forward(self, tokens: Tensor) -> NextTokens:
        return NextTokens.of(_logits(self.language_model, tokens, self.pad), tokens, self.pad)


class ClassifiedText(nn.Module):
    """The same for a model that returns a score of each class."""

    def __init__(self, model: nn.Module, space: TokenSpace) -> None:
        super().__init__()
        self.language_model, self.pad = model, space.pad

    def forward(self, tokens: Tensor) -> Tensor:
        return _logits(self.language_model, tokens, self.pad)


def _logits(model: nn.Module, tokens: Tensor, pad: int) -> Tensor:
    if tokens.is_floating_point():
        embedding: Any = model.get_input_embeddings()  # type: ignore[operator]
        seen = (tokens[..., pad] < 0.5).long()
        return model(inputs_embeds=tokens @ embedding.weight, attention_mask=seen).logits
    return model(input_ids=tokens, attention_mask=(tokens != pad).long()).logits


_SPACES = ("\u0120", "\u2581")
"""How byte pairs and SentencePiece spell a space."""


def space_of_tokenizer(tokenizer: Any, length: int) -> TokenSpace:
    """The texts of up to ``length`` tokens of a Hugging Face tokenizer; its end of text pads if it has no padding."""
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    if pad is None:
        raise InvalidCase("The tokenizer has neither padding nor an end of text; give it one of them.")
    pieces = [str(piece) for piece in tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))]
    # Where spaces are spelt, ## is a heading and continues nothing.
    continued = any(piece.startswith("##") for piece in pieces) and not any(one.startswith(_SPACES) for one in pieces)
    return TokenSpace(length, tuple(_piece(tokenizer, piece, continued) for piece in pieces), int(pad))


def _piece(tokenizer: Any, piece: str, continued: bool) -> str:
    """What a token adds to a text: its space is spelt in front of it, or, in WordPiece, where no ## is."""
    if continued:
        return piece[2:] if piece.startswith("##") else f" {piece}"
    spaced = piece.startswith(_SPACES)
    text = str(tokenizer.convert_tokens_to_string([piece]))
    for sign in _SPACES:  # some tokenizers leave it there
        text = text.replace(sign, " ")
    return f" {text.lstrip()}" if spaced and not text.startswith(" ") else text


def encode_texts(tokenizer: Any, texts: Sequence[str], space: TokenSpace) -> Tensor:
    """The tokens of texts, padded, and cut off where they are too long."""
    rows = torch.full((len(texts), space.length), space.pad)
    for row, text in zip(rows, texts, strict=True):
        tokens = [token for token in tokenizer(text)["input_ids"] if token != space.pad][: space.length]
        row[: len(tokens)] = torch.tensor(tokens)
    return rows
