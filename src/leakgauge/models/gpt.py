"""A small language model that predicts each next token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from leakgauge.models.transformer import Block, TextModel, Tokens, make_norm
from leakgauge.protocol.losses import NextTokens


@final
@dataclass(frozen=True)
class GPT(TextModel):
    """A decoder as Llama builds it [Touvron et al., 2023], with RMSNorm, rotary positions and grouped-query attention;
    or, with ``positions=learned,norm=layer``, as GPT-2 does [Radford et al., 2019].

    The scores of the next token are products with the embeddings.
    """

    kv_heads: int = 2

    def build(self, length: int, num_classes: int) -> nn.Module:
        del num_classes
        return _Decoder(self, length)


class _Decoder(nn.Module):
    def __init__(self, model: TextModel, length: int) -> None:
        super().__init__()
        self.pad = model.pad
        self.tokens = Tokens(model.vocabulary, model.width)
        self.places = nn.Embedding(length, model.width) if model.positions == "learned" else None
        self.blocks = nn.ModuleList(Block(model, causal=True) for _ in range(model.layers))
        self.norm = make_norm(model)

    def forward(self, tokens: Tensor) -> NextTokens:
        x = self.tokens(tokens)
        if self.places is not None:
            x = x + self.places(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x)
        return NextTokens.of(self.norm(x) @ self.tokens.weight.T, tokens, self.pad)
