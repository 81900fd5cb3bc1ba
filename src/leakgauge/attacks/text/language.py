"""What an attacker believes of sentences before seeing an update: how surprising each one is."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import final

import torch
from torch import Tensor

from leakgauge.errors import InvalidFile, UnsupportedModel
from leakgauge.protocol.losses import Targets
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.space import TokenSpace

Surprise = Callable[[Tensor], Tensor]
"""Texts n x length to the mean surprise of their tokens in nats, n: the logarithm of the perplexity."""

_TRUST = 0.8
"""In a pair of neighbours, where the first was ever seen; the rest is left to the tokens one by one."""


class LanguagePrior(ABC):
    """A frozen dataclass; ``knew`` is what the attacker brings, in the words of the record."""

    @property
    @abstractmethod
    def knew(self) -> str: ...

    @abstractmethod
    def bind(self, observation: UpdateObservation, space: TokenSpace) -> Surprise:
        """For the texts of one model; `UnsupportedModel` where it has nothing to say of them."""


@final
@dataclass(frozen=True)
class SentModel(LanguagePrior):
    """The language model that the client was sent, which the server has and the client is about to improve."""

    knew = "the model itself as a language prior"

    def bind(self, observation: UpdateObservation, space: TokenSpace) -> Surprise:
        learner, state = observation.learner.without_dropout(), observation.state
        if learner.targets is not Targets.TOKENS:
            raise UnsupportedModel(
                "A classifier of texts is no language model; name public sentences by `public=FILE`."
            )

        def surprise(texts: Tensor) -> Tensor:
            texts = texts.to(state.device)
            with torch.no_grad():
                likely = learner.scores(state, texts).double().log_softmax(dim=-1)
            said = texts[:, 1:] != space.pad
            given = likely[:, : texts.shape[1] - 1].gather(-1, texts[:, 1:, None])[..., 0]
            return -(given * said).sum(dim=1) / said.sum(dim=1).clamp_min(1)

        return surprise


@final
@dataclass(frozen=True)
class PublicSentences(LanguagePrior):
    """Neighbours as they occur in a ``file`` of public sentences, one a line: p(b | a) is the share of b among what
    follows a, mixed with the share of b among all tokens [Jelinek & Mercer, 1980].
    """

    file: str

    @property
    def knew(self) -> str:
        return f"public sentences, {Path(self.file).name}, as a language prior"

    def bind(self, observation: UpdateObservation, space: TokenSpace) -> Surprise:
        del observation
        return _neighbours(public_texts(self.file, space), space)


def public_texts(file: str, space: TokenSpace) -> list[list[int]]:
    """The tokens of each line of a file, what stands before a tab left out."""
    path = Path(file)
    if not path.is_file():
        raise InvalidFile(f"There is no file {path} of public sentences; correct `public`.")
    try:
        lines = [line.rpartition("\t")[2].strip() for line in path.read_text("utf-8").splitlines()]
    except ValueError as error:
        raise InvalidFile(f"{path} is no text in UTF-8; save it as such, one sentence a line.") from error
    if texts := [tokens for line in lines if (tokens := space.encode(line))]:
        return texts
    raise InvalidFile(f"{path} holds no word of the model's vocabulary; give sentences of its language.")


def _neighbours(texts: list[list[int]], space: TokenSpace) -> Surprise:
    alone = Counter(token for text in texts for token in text)
    pairs = Counter(pair for text in texts for pair in pairwise(text))
    first = Counter(token for text in texts for token in text[:-1])
    total, size = alone.total(), len(space.vocabulary)

    def likely(before: int, token: int) -> float:
        share = (alone[token] + 1) / (total + size)
        return share if not first[before] else _TRUST * pairs[before, token] / first[before] + (1 - _TRUST) * share

    def surprise(texts: Tensor) -> Tensor:
        rows = [space.tokens(text) for text in texts]
        means = [[-math.log(likely(*pair)) for pair in pairwise(row)] or [0.0] for row in rows]
        return torch.tensor([sum(row) / len(row) for row in means], dtype=torch.float64)

    return surprise
