"""A small classifier of texts in which every token sees every other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from leakgauge.models.base import check_classes
from leakgauge.models.transformer import Block, TextModel, Tokens, make_norm


@final
@dataclass(frozen=True)
class BERT(TextModel):
    """An encoder as of Devlin et al. [2019], with LayerNorm and learned positions; the mean of its outputs over the
    tokens of a text is classified."""

    positions: str = "learned"
    norm: str = "layer"

    def build(self, length: int, num_classes: int) -> nn.Module:
        check_classes(self, num_classes)
        return _Encoder(self, length, num_classes)


class _Encoder(nn.Module):
    def __init__(self, model: TextModel, length: int, num_classes: int) -> None:
        super().__init__()
        self.pad = model.pad
        self.tokens = Tokens(model.vocabulary, model.width)
        self.places = nn.Embedding(length, model.width) if model.positions == "learned" else None
        self.first_norm = make_norm(model)
        self.blocks = nn.ModuleList(Block(model, causal=False) for _ in range(model.layers))
        self.norm = make_norm(model)
        self.head = nn.Linear(model.width, num_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        seen = tokens[..., self.pad] < 0.5 if tokens.is_floating_point() else tokens != self.pad
        x = self.tokens(tokens)
        if self.places is not None:
            x = x + self.places(torch.arange(x.shape[1], device=x.device))
        x = self.first_norm(x)
        for block in self.blocks:
            x = block(x, seen)
        weights = seen.to(x.dtype)[..., None]
        return self.head((self.norm(x) * weights).sum(dim=1) / weights.sum(dim=1).clamp_min(1))
