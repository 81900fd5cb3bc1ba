"""Texts beside what came back of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from leakgauge.errors import InvalidCase
from leakgauge.metrics.alignment import Comparison
from leakgauge.metrics.base import Kind, Metric
from leakgauge.space import TokenSpace
from leakgauge.token_space import common_tokens

Text = list[int]


@dataclass(frozen=True)
class _OfTexts(Metric, ABC):
    """A score of two texts, private and recovered, without their padding."""

    serves = Kind.TEXTS

    def __call__(self, comparison: Comparison) -> Tensor:
        space = comparison.space
        if not isinstance(space, TokenSpace):
            raise InvalidCase(f"{type(self).__name__} compares texts, and these are {space.kinds}; leave it out.")
        scores = torch.full(comparison.originals.shape[:1], torch.nan, dtype=torch.float64)
        found = {row: space.tokens(comparison.reconstructions[row]) for row in _rows(comparison.measured)}
        for row in found:
            scores[row] = self.score(space.tokens(comparison.originals[row]), found[row], list(found.values()))
        return scores

    @abstractmethod
    def score(self, original: Text, found: Text, batch: list[Text]) -> float:
        """Of one text; ``batch`` is all that came back."""


def _rows(measured: Tensor) -> list[int]:
    return [int(row) for row in measured.nonzero().flatten()]


@final
@dataclass(frozen=True)
class TokenRecall(_OfTexts):
    """The share of a text's different tokens that came back, wherever in the batch.

    >>> TokenRecall().score([1, 2, 2, 3], [9, 1], [[9, 1], [2]])
    0.6666666666666666
    """

    name, title, heading = "token_recall", "Tokens found", "tokens\nfound"

    def score(self, original: Text, found: Text, batch: list[Text]) -> float:
        del found
        back = {token for text in batch for token in text}
        return len(set(original) & back) / len(set(original))


@final
@dataclass(frozen=True)
class ExactText(_OfTexts):
    """Whether a text came back token by token."""

    name, title, heading = "exact_text", "Word for word", "word\nfor word"
    binary = True

    def score(self, original: Text, found: Text, batch: list[Text]) -> float:
        del batch
        return float(original == found)


@dataclass(frozen=True)
class _Overlap(_OfTexts, ABC):
    """ROUGE-N [Lin, 2004]: the harmonic mean of the shares of both texts' runs of N tokens that the other has too."""

    size: ClassVar[int]

    def score(self, original: Text, found: Text, batch: list[Text]) -> float:
        del batch
        ours, theirs = (_runs(text, self.size) for text in (original, found))
        return _harmonic((ours & theirs).total(), ours.total(), theirs.total())


@final
@dataclass(frozen=True)
class Rouge1(_Overlap):
    """ROUGE-1: the tokens that two texts share, in whatever order.

    >>> Rouge1().score([1, 2, 3, 4], [2, 2, 1, 9], [])
    0.5
    """

    name, title, heading = "rouge_1", "ROUGE-1", "ROUGE-1"
    size = 1


@final
@dataclass(frozen=True)
class Rouge2(_Overlap):
    """ROUGE-2: the pairs of neighbours that two texts share."""

    name, title, heading = "rouge_2", "ROUGE-2", "ROUGE-2"
    size = 2


@final
@dataclass(frozen=True)
class RougeL(_OfTexts):
    """ROUGE-L: the longest common subsequence of two texts, against the lengths of both."""

    name, title = "rouge_l", "ROUGE-L"

    def score(self, original: Text, found: Text, batch: list[Text]) -> float:
        del batch
        common = common_tokens(torch.tensor([original]), torch.tensor([found]))
        return _harmonic(int(common), len(original), len(found))


def _runs(text: Text, size: int) -> Counter[tuple[int, ...]]:
    return Counter(tuple(text[at : at + size]) for at in range(len(text) - size + 1))


def _harmonic(common: int, ours: int, theirs: int) -> float:
    return 2 * common / (ours + theirs) if common else 0.0
