"""The pieces that language models are made of, and what a factory of one must be told."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor, nn

from leakgauge.errors import InvalidCase
from leakgauge.models.base import Normalisation, check_choice, check_positive
from leakgauge.space import TokenSpace
from leakgauge.types import Shape

_SPREAD = 0.02
"""Of the first weights, as in GPT-2."""


@dataclass(frozen=True)
class TextModel(ABC):
    """A transformer: ``layers`` blocks of ``width``, whose ``heads`` share ``kv_heads`` keys and values.

    ``vocabulary`` and ``pad`` are those of the texts, see `for_texts`.
    """

    width: int = 256
    layers: int = 2
    heads: int = 4
    kv_heads: int = 4
    positions: str = "rotary"
    norm: str = "rms"
    vocabulary: int = 1024
    pad: int = 0

    def __post_init__(self) -> None:
        sizes = {name: getattr(self, name) for name in ("width", "layers", "heads", "kv_heads", "vocabulary")}
        check_positive(self, **sizes)
        check_choice("kind of positions", self.positions, ("rotary", "learned"))
        check_choice("norm", self.norm, ("rms", "layer"))
        if self.width % (2 * self.heads) or self.heads % self.kv_heads:
            raise InvalidCase(
                f"{type(self).__name__} shares its width of {self.width} out to {self.heads} heads of even width, and "
                f"these to {self.kv_heads} keys and values; choose numbers that divide."
            )

    def for_texts(self, space: TokenSpace) -> Self:
        return replace(self, vocabulary=len(space.vocabulary), pad=space.pad)

    def __call__(self, shape: Shape, num_classes: int, *, normalisation: Normalisation | None = None) -> nn.Module:
        del normalisation  # tokens are names, not numbers
        if len(shape) != 1 or shape[0] < 2:
            raise InvalidCase(
                f"{type(self).__name__} takes texts of two tokens or more, got inputs of {shape}; use a dataset of "
                "texts, or a model for images or rows."
            )
        model = self.build(shape[0], num_classes)
        for part in model.modules():
            if isinstance(part, nn.Linear | nn.Embedding):
                nn.init.normal_(part.weight, std=_SPREAD)
        return model

    @abstractmethod
    def build(self, length: int, num_classes: int) -> nn.Module: ...


class Tokens(nn.Embedding):
    """The embeddings of tokens, given by their numbers, or the means of them, given by weights of all."""

    def forward(self, tokens: Tensor) -> Tensor:
        return tokens @ self.weight if tokens.is_floating_point() else super().forward(tokens)


def make_norm(model: TextModel) -> nn.Module:
    """The norm in front of every part of a block, and behind the last one."""
    return nn.RMSNorm(model.width, eps=1e-5) if model.norm == "rms" else nn.LayerNorm(model.width)


class SelfAttention(nn.Module):
    """Self-attention; with ``causal`` a token sees those before it alone, without those that are not ``seen``."""

    def __init__(self, model: TextModel, causal: bool) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.causal = model.heads, model.kv_heads, causal
        self.rotary, each = model.positions == "rotary", model.width // model.heads
        self.query = nn.Linear(model.width, model.width, bias=False)
        self.key = nn.Linear(model.width, model.kv_heads * each, bias=False)
        self.value = nn.Linear(model.width, model.kv_heads * each, bias=False)
        self.out = nn.Linear(model.width, model.width, bias=False)

    def forward(self, x: Tensor, seen: Tensor | None) -> Tensor:
        queries = self.query(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        keys, values = (
            part(x).unflatten(-1, (self.kv_heads, -1)).transpose(1, 2).repeat_interleave(self.heads // self.kv_heads, 1)
            for part in (self.key, self.value)
        )
        if self.rotary:
            queries, keys = turn(queries), turn(keys)
        scores = queries @ keys.transpose(-1, -2) / queries.shape[-1] ** 0.5
        if self.causal:
            later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(later, -1e9)
        if seen is not None:
            scores = scores.masked_fill(~seen[:, None, None], -1e9)
        return self.out((scores.softmax(dim=-1) @ values).transpose(1, 2).flatten(2))


def turn(x: Tensor) -> Tensor:
    """Pairs of entries turned by angles that grow with the place of a token [Su et al., 2021]."""
    half = x.shape[-1] // 2
    rates = 10000.0 ** (-torch.arange(half, device=x.device, dtype=x.dtype) / half)
    angles = torch.arange(x.shape[-2], device=x.device, dtype=x.dtype)[:, None] * rates
    one, other = x[..., :half], x[..., half:]
    return torch.cat((one * angles.cos() - other * angles.sin(), other * angles.cos() + one * angles.sin()), dim=-1)


class Block(nn.Module):
    """Attention, then two linear layers, each behind a norm and added to what went in [Vaswani et al., 2017]."""

    def __init__(self, model: TextModel, causal: bool) -> None:
        super().__init__()
        self.attention_norm, self.norm = make_norm(model), make_norm(model)
        self.attention = SelfAttention(model, causal)
        self.widen = nn.Linear(model.width, 2 * model.width)
        self.activation = nn.SiLU()
        self.narrow = nn.Linear(2 * model.width, model.width)

    def forward(self, x: Tensor, seen: Tensor | None = None) -> Tensor:
        x = x + self.attention(self.attention_norm(x), seen)
        return x + self.narrow(self.activation(self.widen(self.norm(x))))
